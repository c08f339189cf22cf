"""Draws the learning curves of one or more runs into one picture.

    python scripts/plot_curves.py runs/quickstart [runs/second …] --out curve.png

Left: success of the training episodes over RL iterations. Right: success on the held-out tasks before training, after
pretraining, SFT and RL, with 95 % intervals, from each run's result.json.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from jaxmtrl.errors import JaxmtrlError
from jaxmtrl.metrics import METRICS_FILE, read_records
from jaxmtrl.run_folder import RESULT_FILE

POLICIES = {"untrained": "untrained", "pretrain": "pretrained", "sft": "after SFT", "rl": "after RL"}


def smoothed(values: list[float], width: int = 5) -> list[float]:
    """Mean of each value and up to `width - 1` before it."""
    return [sum(values[max(0, i - width + 1) : i + 1]) / min(i + 1, width) for i in range(len(values))]


def draw(runs: list[Path], out: Path, split: str) -> None:
    """Writes the picture. Raises OSError or KeyError where a run has no metrics or no result for the split."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9, 3.4), constrained_layout=True)
    results = [json.loads((run / RESULT_FILE).read_text(encoding="utf-8")) for run in runs]
    splits = [result["splits"][split] for result in results]
    policies = [policy for policy in POLICIES if any(policy in by for by in splits)]  # pretraining is optional
    for number, (run, result, by) in enumerate(zip(runs, results, splits, strict=True)):
        records = [r for r in read_records(run / METRICS_FILE) if r["stage"] == "rl" and "episode/success" in r]
        success = [record["episode/success"] for record in records]
        iterations = range(1, len(success) + 1)
        colour, label = f"C{number}", f"seed {result['seed']}"
        left.plot(iterations, success, color=colour, alpha=0.25, linewidth=1)
        left.plot(iterations, smoothed(success), color=colour, label=label)
        own = [policy for policy in policies if policy in by]
        places = [policies.index(policy) + 0.08 * (number - (len(runs) - 1) / 2) for policy in own]
        heights = [by[policy]["success"] for policy in own]
        errors = [
            [by[policy]["success"] - by[policy]["ci95"][0] for policy in own],
            [by[policy]["ci95"][1] - by[policy]["success"] for policy in own],
        ]
        right.errorbar(places, heights, yerr=errors, fmt="o", color=colour, capsize=3, label=label)
    left.set(xlabel="RL iteration", ylabel="success", title="training games, sampled play", ylim=(0, 1))
    right.set(title=f"{split} games, greedy play", ylim=(0, 1), xticks=range(len(policies)))
    right.set_xticklabels([POLICIES[policy] for policy in policies])
    for axis in (left, right):
        axis.grid(alpha=0.3)
        axis.legend()
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=120)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="run folder with a result.json")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="picture to write, .png or .svg")
    parser.add_argument("--split", default="heldout", help="split of the right-hand side")
    arguments = parser.parse_args()
    missing = [
        str(run / name) for run in arguments.runs for name in (METRICS_FILE, RESULT_FILE) if not (run / name).exists()
    ]
    if missing:
        print(f"error: not there: {', '.join(missing)}. Give folders of finished runs.", file=sys.stderr)
        return 2
    try:
        draw(arguments.runs, arguments.out, arguments.split)
    except (JaxmtrlError, ValueError, OSError) as err:
        print(f"error: a run or the picture is not as it should be: {err}", file=sys.stderr)
        return 2
    except KeyError as err:
        print(f"error: a run has no result for the split {err}; give --split another name.", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
