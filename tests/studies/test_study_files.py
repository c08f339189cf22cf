"""Every study of the repository can be read, has a valid config for each of its cells, and runs at its smoke sizes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from jaxmtrl.config.loading import config_to_dict, load_config
from jaxmtrl.errors import ConfigError
from jaxmtrl.studies.grid import Study
from jaxmtrl.studies.reading import read_configs, read_study

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "studies").glob("*.yaml"))
NAMES = [path.stem for path in FILES]
WANTED = {
    "complexity", "model_size", "step_budget", "transfer", "alfworld_mixes", "sft_rl_budget", "algorithms",
    "reward_density", "hyper_parameters", "curriculum_vs_direct", "cross_domain_prior",
}  # fmt: skip


def test_every_study_of_the_source_is_there():
    assert set(NAMES) == WANTED


@pytest.mark.parametrize("path", FILES, ids=NAMES)
def test_every_cell_of_a_study_has_a_valid_config(path, tmp_path):
    study, base = read_study(path)
    assert study.name == path.stem
    configs = read_configs(study, base, tmp_path)
    assert len(configs) == len(study.grid) * len(study.seeds) >= 6
    run = list(configs)[-1]  # of the last seed, whose config is made from that of the first
    assert config_to_dict(configs[run]) == config_to_dict(load_config(run.config, run.overrides))


@pytest.mark.parametrize("path", FILES, ids=NAMES)
def test_a_smoke_grid_has_two_cells_and_stays_small(path, tmp_path):
    study, base = read_study(path)
    configs = read_configs(study, base, tmp_path, smoke=True)
    assert len(configs) >= 2
    for config in configs.values():
        plays = config.rl.iterations * config.rl.tasks_per_iteration * config.algorithm.group_size
        assert plays <= 8 and config.pretrain.plays <= 8 and sum(config.evaluation.splits.values()) <= 6


def test_no_two_cells_of_a_study_are_the_same_run(tmp_path):
    for path in FILES:
        study, base = read_study(path)
        seen = [
            {**config_to_dict(config), "run": None, "after": (run.before, run.policy)}
            for run, config in read_configs(study, base, tmp_path).items()
            if run.seed == study.seeds[0]
        ]
        assert all(one not in seen[:index] for index, one in enumerate(seen)), path.name


def test_the_studies_that_are_run_here_are_timed_for_three_hours():
    for name in ("complexity", "sft_rl_budget"):
        study: Study = read_study(ROOT / "studies" / f"{name}.yaml")[0]
        minutes = study.minutes_before + study.minutes_per_run * len(study.grid) * len(study.seeds)
        assert minutes <= 185 and len(study.seeds) == 3, name


def test_a_split_of_fewer_than_a_hundred_games_is_refused(tmp_path):
    text = (ROOT / "studies" / "complexity.yaml").read_text().replace("../configs", str(ROOT / "configs"))
    changed = tmp_path / "complexity.yaml"
    changed.write_text(text.replace("evaluation.splits: {heldout: 100}", "evaluation.splits: {heldout: 99}"))
    study, base = read_study(changed)
    with pytest.raises(ConfigError, match="every cell: evaluation.splits.heldout: got 99, wanted >= 100 tasks"):
        read_configs(study, base, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("path", FILES, ids=NAMES)
def test_a_smoke_grid_runs(path, tmp_path):
    pytest.importorskip("textworld")
    done = subprocess.run(
        [sys.executable, "-m", "jaxmtrl.study", "--config", str(path), "--smoke", "--runs", str(tmp_path)],
        env=os.environ | {"XLA_FLAGS": "--xla_backend_optimization_level=0"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    pages = tmp_path / f"{path.stem}_smoke"
    assert all((pages / f"{path.stem}.{ending}").stat().st_size > 100 for ending in ("md", "csv", "json", "png"))
