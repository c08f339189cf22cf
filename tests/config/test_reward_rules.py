"""What a turn earns as a config says it: presets, and one sentence for each thing that does not fit."""

from __future__ import annotations

from pathlib import Path

import pytest

from jaxmtrl.config.help import describe_config
from jaxmtrl.config.loading import load_config
from jaxmtrl.config.reward_section import PARTS, PRESETS, RewardSection
from jaxmtrl.errors import ConfigError

TOY = Path(__file__).parents[2] / "configs" / "toy.yaml"
JUDGE = ["reward.parts={env: 1, judge: 0.1}", "judge.url=http://h/v1", "judge.model=m"]


def test_presets_are_what_the_notes_say():
    assert {name: dict(weights) for name, weights in PRESETS.items()} == {
        "own": {},
        "hybrid_text": {"env": 0.8, "progress": 0.2},
        "hybrid_code": {"env": 0.6, "pass_ratio": 0.3, "style": 0.1},
        "verified_binary": {"success": 1.0},
        "verified_ratio": {"pass_ratio": 1.0},
    }
    for name, weights in PRESETS.items():
        section = RewardSection(preset=name)  # pyright: ignore[reportArgumentType]
        assert (section.composed, section.clip) == (name != "own", 1.0)
        assert section.weights == (weights or {"env": 1.0})


def test_a_part_of_weight_0_is_none_and_penalties_compose():
    assert RewardSection(parts={"env": 1.0, "judge": 0.0}).weights == {"env": 1.0}
    section = RewardSection(format_penalty=0.1)
    assert section.composed and section.weights == {"env": 1.0} and section.penalties == {"format": 0.1}


def test_density_is_stages():
    assert [RewardSection(density=d).stages for d in ("sparse", "balanced", "dense")] == [1, 2, 0]


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (["reward.parts={progres: 1, env: 1}"], "reward.parts: unknown progres; did you mean progress for progres?"),
        (["reward.parts={zzz: 1}"], "reward.parts: unknown zzz; known are env, progress, success"),
        (["reward.parts={env: 0}"], "reward.parts: got weight 0 for every part"),
        (["reward.parts.env=-1"], "reward.parts.env: got -1, wanted mapping of name to number >= 0"),
        (["reward.preset=hybrid_txt"], "did you mean hybrid_text?"),
        (["reward.preset=hybrid_text", "reward.parts.env=1"], "reward.parts: got weights beside reward.preset"),
        (
            ["reward.preset=hybrid_text", "algorithm.name=rloo", "algorithm.group_size=4"],
            "progress adds up to the same",
        ),
        (
            ["reward.preset=hybrid_text", "algorithm.gamma=0.9", "algorithm.discount_per=token"],
            "algorithm.discount_per: got token with gamma 0.9 and reward.parts.progress",
        ),
        (
            ["reward.preset=hybrid_text", "env.options.reward=progress"],
            "reward.parts.progress: got a weight with env.options.reward progress",
        ),
        (
            ["reward.parts={env: 1, progress: 0.5}"],
            "reward.clip: got 1 with weights that add up to 1.5",
        ),
        (
            ["reward.invalid_action_penalty=0.1", "env.options.invalid_action_penalty=0.1"],
            "reward.invalid_action_penalty: got 0.1 with env.options.invalid_action_penalty 0.1",
        ),
        (["reward.density=balanced"], "reward.density: got balanced without reward.parts.progress"),
        (
            ["reward.preset=hybrid_text", "reward.progress_stages=3"],
            "reward.progress_stages: got 3 with",
        ),
        (["reward.format_pattern='['", "reward.format_penalty=0.1"], "which is no regular expression"),
        (["reward.format_pattern=.*"], "reward.format_pattern: got '.*' with reward.format_penalty 0"),
        (["reward.clip=2"], "reward.clip: got 2 with reward.preset own"),
        (["reward.parts={env: 1, judge: 0.1}"], "judge.url and judge.model: missing with reward.parts.judge"),
        (["judge.model=m"], "judge: got settings without reward.parts.judge"),
        ([*JUDGE, "judge.deadline_s=30"], "judge.deadline_s: got 30, wanted less than rollout.step_timeout_s"),
    ],
)
def test_one_thing_that_does_not_fit_is_one_sentence(overrides, sentence):
    with pytest.raises(ConfigError) as caught:
        load_config(TOY, overrides)
    assert len(caught.value.mistakes) == 1 and sentence in caught.value.mistakes[0]


@pytest.mark.parametrize(
    "overrides",
    [
        ["reward.preset=hybrid_text", "reward.density=balanced", "reward.progress_stages=3"],
        ["reward.preset=hybrid_text", "algorithm.gamma=0.9", "algorithm.discount_per=turn"],
        ["reward.preset=hybrid_text", "algorithm.name=reinforce_plus_plus"],
        ["reward.parts={env: 1}", "reward.clip=0.5"],
        ["reward.parts={env: 1, progress: 0.5}", "reward.clip=0"],
        ["reward.preset=verified_ratio", "algorithm.name=rloo", "algorithm.group_size=4"],
        JUDGE,
    ],
)
def test_what_fits_is_let_through(overrides):
    assert load_config(TOY, overrides).reward.composed


def test_help_names_every_part():
    page = " ".join(describe_config().split())
    assert all(f"{name}: {about}" in page for name, about in PARTS.items()) and "judge.deadline_s = 15.0" in page
