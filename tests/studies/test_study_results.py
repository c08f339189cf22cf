"""A result.json that is damaged, or another run's, is one error with the place in it; a sound one is read as it is."""

from __future__ import annotations

import json

import pytest

from jaxmtrl.config.loading import load_config
from jaxmtrl.errors import JaxmtrlError
from jaxmtrl.run_folder import RunFolder
from jaxmtrl.studies.grid import Run
from jaxmtrl.studies.results import result_of

FIGURES = {"success": 0.5, "n": 4, "failed": 0, "turns": 2.5, "invalid_action_rate": 0.0, "ci95": [0.1, 0.9]}
NONE_PLAYED = {**FIGURES, "success": None, "n": 0, "turns": None, "invalid_action_rate": None}
SOUND = {"splits": {"heldout": {"rl": FIGURES, "sft": NONE_PLAYED}}, "seed": 3, "model_params": 10, "wall_s": 7}


@pytest.fixture
def run(tmp_path):
    base = tmp_path / "base.yaml"
    base.write_text("env: {factory: 'jaxmtrl.envs.toy:make'}\n")
    overrides = (f"run.dir={tmp_path}", "run.name=a_s3", "run.seed=3")
    RunFolder.open(load_config(base, overrides)).close()
    return Run(cell="a", seed=3, folder=tmp_path / "a_s3", config=base, overrides=overrides)


def read(run: Run):
    return result_of(run, load_config(run.config, run.overrides))


def test_a_sound_result_is_read_as_it_stands(run):
    assert read(run) is None
    (run.folder / "result.json").write_text(json.dumps(SOUND))
    assert read(run) == SOUND


@pytest.mark.parametrize(
    ("content", "place"),
    [
        ("", "EOF"),
        (json.dumps(SOUND)[:40], "EOF"),
        ("5", "got 5"),
        ("[]", "got "),
        (json.dumps({**SOUND, "splits": None}), "splits: "),
        (json.dumps({**SOUND, "splits": {"heldout": 5}}), "splits.heldout: "),
        (
            json.dumps({**SOUND, "splits": {"heldout": {"rl": {**FIGURES, "success": 1.5}}}}),
            "splits.heldout.rl.success: ",
        ),
        (json.dumps({**SOUND, "splits": {"heldout": {"rl": {"success": 0.5}}}}), "splits.heldout.rl.n: "),
        (json.dumps({**SOUND, "wall_s": float("nan")}), "wall_s: "),
        (json.dumps({**SOUND, "wall_s": -1}), "wall_s: "),
        (json.dumps({**SOUND, "seed": 4}), "seed: got 4, wanted 3"),
    ],
)
def test_a_damaged_result_is_one_error_with_the_place_and_the_cure(run, content, place):
    (run.folder / "result.json").write_text(content)
    with pytest.raises(
        JaxmtrlError, match="a_s3/result.json cannot be read as a run's result .*remove this file"
    ) as it:
        read(run)
    assert place in str(it.value)
