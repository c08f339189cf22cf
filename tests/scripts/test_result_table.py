"""The success table of a run as Markdown."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def table(path: Path) -> subprocess.CompletedProcess:
    command = [sys.executable, "scripts/result_table.py", str(path)]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env={"PYTHONPATH": str(ROOT)})


def test_a_row_a_split_and_one_for_each_kind(tmp_path):
    won = {"success": 0.5, "ci95": [0.1, 0.9], "n": 4}
    figures = {**won, "kinds": {"fetch": {**won, "n": 2}, "clean": {**won, "success": None, "n": 2}}}
    (tmp_path / "result.json").write_text(json.dumps({"splits": {"heldout": {"untrained": figures, "rl": figures}}}))
    done = table(tmp_path)
    assert done.stdout.splitlines() == [
        "| split | n | untrained | rl |",
        "| --- | --- | --- | --- |",
        "| heldout | 4 | 0.50 [0.10, 0.90] | 0.50 [0.10, 0.90] |",
        "| — fetch | 2 | 0.50 [0.10, 0.90] | 0.50 [0.10, 0.90] |",
        "| — clean | 2 | - [0.10, 0.90] | - [0.10, 0.90] |",
    ]


def test_what_is_no_result_is_said(tmp_path):
    done = table(tmp_path)
    assert done.returncode == 2 and "holds no result of a run that has ended" in done.stderr
