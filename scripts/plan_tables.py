"""Plans every config of configs/tpu for the slice it names and writes docs/tpu.md's table.

    PYTHONPATH=.cache/libtpu-VERSION python scripts/plan_tables.py [--out FILE] [--only NAME]

The compiler, libtpu, is fetched by `bash scripts/test_tpu.sh`. Minutes a config, and up to 20 GiB of memory for 7B.
Each plan is made by `python -m jaxmtrl.plan --json` in a process of its own; the lines are kept beside the table.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
GIB = 2**30
COLUMNS = (
    "config",
    "slice",
    "GiB a chip while learning",
    "while playing",
    "to spare",
    "an update: tokens",
    "s at best",
    "limit",
    "MFU at most",
    "decode step, ms at best",
    "compiled in",
)


def slice_of(config: Path) -> str:
    """The slice that a config's head names."""
    words = (word.strip("()`.;") for word in config.read_text(encoding="utf-8").split())
    return next(word for word in words if word.startswith(("v4:", "v5e:", "v5p:", "v6e:")))


def planned(config: Path) -> dict:
    """The plan, as the command prints it."""
    command = [sys.executable, "-m", "jaxmtrl.plan", "--config", str(config), "--topology", slice_of(config), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    if done.returncode not in (0, 1):
        raise SystemExit(f"{config.name}: {done.stderr[-2000:]}")
    return json.loads(done.stdout)


def row(name: str, plan: dict) -> str:
    """One line of the table."""
    memory, estimates = plan["memory"], plan["estimates"]
    took = sum(memory[program]["compile_s"] for program in ("update", "prefill", "decode"))
    cells = (
        name,
        plan["topology"],
        f"{memory['learning'] / GIB:.2f}",
        f"{memory['playing'] / GIB:.2f}",
        f"{plan['spare']:.0%}" + ("" if plan["fits"] else " **too little**"),
        f"{plan['update_tokens']:,}",
        f"{estimates['update']['seconds']:.2g}",
        estimates["update"]["limit"],
        f"{plan['mfu_estimate']:.0%}",
        f"{1000 * estimates['decode step']['seconds']:.2g}",
        f"{took:.0f} s",
    )
    return "| " + " | ".join(cells) + " |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", metavar="FILE", help="also write the JSON lines there")
    parser.add_argument("--only", metavar="NAME", help="a part of a config's name")
    given = parser.parse_args()
    configs = [path for path in sorted((ROOT / "configs" / "tpu").glob("*.yaml")) if (given.only or "") in path.stem]
    print("| " + " | ".join(COLUMNS) + " |")
    print("|" + "---|" * len(COLUMNS))
    lines = []
    for config in configs:
        plan = planned(config)
        lines.append(json.dumps(plan))
        print(row(config.stem, plan), flush=True)
    if given.out:
        Path(given.out).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
