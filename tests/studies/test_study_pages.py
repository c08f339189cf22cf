"""What a study writes: four files that agree, all of them new or none."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from jaxmtrl.studies import pages
from jaxmtrl.studies.findings import Findings
from jaxmtrl.studies.grid import Cell, Claim, Run, Smoke, Study, runs_of
from jaxmtrl.studies.table import figures_of, verdicts_of

SHARES = {"small": [0.6, 0.7, 0.65], "large": [0.2, 0.3, 0.25]}


def made_study() -> Study:
    return Study(
        name="sizes",
        about="Which size is better.",
        base="b",
        cells={"small": Cell(), "large": Cell(), "slow": Cell()},
        sources=["T3"],
        published={
            "small/heldout/rl": "T3/w2-o3-q4/7B/PPO",
            "large/heldout/rl": "T3/w2-o3-q4/1.5B/PPO",
        },
        claims=[Claim(says="Small | is better.", higher="small/heldout/rl", lower="large/heldout/rl")],
        notes=["Mind the step."],
        minutes_per_run=1,
        smoke=Smoke(cells=["small"]),
    )


def findings(**changed) -> Findings:
    study = made_study()
    runs = runs_of(study, Path("b"), Path("r"))
    results: dict[Run, dict] = {}
    for run in runs:
        if run.cell in SHARES:
            played = {"n": 100, "failed": 1, "turns": 5.5, "invalid_action_rate": 0.25}
            by = {"untrained": {**played, "success": 0.0}, "rl": {**played, "success": SHARES[run.cell][run.seed]}}
            params = {"small": 370_000, "large": 1_300_000}[run.cell]
            results[run] = {"splits": {"heldout": by}, "seed": run.seed, "model_params": params, "wall_s": 90.0}
    figures = figures_of(study, results)
    values = {
        "study": study,
        "figures": figures,
        "verdicts": verdicts_of(study, figures),
        "seeds": [0, 1, 2],
        "missing": [run for run in runs if run not in results],
        "ended": len(results),
        "minutes": 9.0,
        "machines": ["2 CPU cores"],
        "command": "python -m jaxmtrl.study --config sizes.yaml",
        "smoke": False,
    }
    return Findings(**(values | changed))


def test_the_json_has_seeds_n_and_rows():
    content = pages.as_json(findings())
    assert content["seeds"] == [0, 1, 2] and content["n"] == 100
    row = next(row for row in content["rows"] if (row["cell"], row["policy"]) == ("small", "rl"))
    assert row["success"] == 0.65 and row["by_seed"] == {"0": 0.6, "1": 0.7, "2": 0.65}
    assert row["ci95"] == [0.5258, 0.7742] and row["published_success"] == 0.98 and row["failed"] == 3
    claim = content["claims"][0]
    assert claim["difference"] == 0.4 and claim["direction"] == "agrees" and claim["published"] == [0.98, 0.8]
    assert content["missing"] == ["slow_s0", "slow_s1", "slow_s2"] and content["minutes_per_run"] == 1.5
    json.dumps(content, allow_nan=False)


def test_the_csv_has_a_column_for_every_seed():
    rows = list(csv.DictReader(io.StringIO(pages.as_csv(findings()))))
    assert len(rows) == 4
    assert [rows[1][f"seed_{seed}"] for seed in (0, 1, 2)] == ["0.6", "0.7", "0.65"]
    assert rows[1]["ci95_low"] == "0.5258" and rows[0]["published"] == ""


def test_the_page_says_sizes_numbers_and_what_is_missing():
    page = pages.as_markdown(findings(), "sizes.png")
    assert "0.37M (small), 1.30M (large) parameters" in page and "n = 100 games a seed" in page
    assert "(the source: Qwen2.5-1.5B-Instruct and Qwen2.5-7B-Instruct)" in page
    assert "| small | .00 [.00, .04] | .65 [.53, .77] | .60 .70 .65 | .98 (T3) |" in page
    assert r"| Small \| is better. | the paper's numbers | .98 against .80 (told apart) | .65 against .25 |" in page
    assert "**Not complete**: without slow_s0, slow_s1, slow_s2" in page
    assert "- Mind the step." in page and "12 episodes failed and count nowhere" in page
    assert "1.5 min of training a run on 2 CPU cores" in page
    assert "- T3: The 1.5B model on w2-o3-q4 has .80 here" in page


def test_a_page_of_a_smoke_grid_says_that_it_shows_nothing():
    assert pages.as_markdown(findings(smoke=True), "").startswith("# Study: sizes (smoke grid: it shows that")
    assert "smoke" not in pages.as_markdown(findings(), "")


def test_all_files_are_written_and_nothing_else_is_left(tmp_path):
    files, no_picture = pages.write_pages(findings(), tmp_path)
    assert no_picture == ""
    assert [path.name for path in files] == ["sizes.csv", "sizes.json", "sizes.md", "sizes.png"]
    assert sorted(tmp_path.iterdir()) == files
    assert (tmp_path / "sizes.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("step", ["draw", "as_csv", "as_json", "as_markdown"])
def test_when_writing_breaks_the_old_files_stand_whole(tmp_path, monkeypatch, step):
    pages.write_pages(findings(), tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def broken(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pages, step, broken)
    with pytest.raises(OSError):
        pages.write_pages(findings(minutes=99.0), tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_without_matplotlib_the_page_has_no_picture(tmp_path, monkeypatch):
    monkeypatch.setattr(pages, "draw", lambda *arguments: "no picture, since matplotlib is missing")
    files, no_picture = pages.write_pages(findings(), tmp_path)
    assert no_picture and [path.name for path in files] == ["sizes.csv", "sizes.json", "sizes.md"]
    assert "![" not in (tmp_path / "sizes.md").read_text()
