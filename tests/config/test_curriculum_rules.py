"""The curriculum's settings: what goes together, and what is refused with all fields named and the cure."""

from __future__ import annotations

import pytest

from jaxmtrl.config.catalogue import settings
from jaxmtrl.config.curriculum_rules import CURRICULUM_RULES
from jaxmtrl.config.curriculum_section import CurriculumSection, LevelSection
from jaxmtrl.config.loading import load_config, save_config
from jaxmtrl.errors import ConfigError

SMALLEST = "run: {name: a}\nenv: {factory: 'package.module:make'}\n"
TWO = ["levels.small={train: s, evaluate: s_test}", "levels.large={train: l, evaluate: l_test}"]
MIXED = ["mixture.s=1", "mixture.l=0.5"]


@pytest.fixture
def path(tmp_path):
    (tmp_path / "run.yaml").write_text(SMALLEST, encoding="utf-8")
    return tmp_path / "run.yaml"


def load(path, overrides):
    """Names without a known section are the curriculum's."""
    known = {name.split(".")[0] for name in settings()}
    return load_config(path, [text if text.split(".")[0] in known else f"curriculum.{text}" for text in overrides])


def mistakes(path, *overrides: str) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        load(path, overrides)
    return caught.value.mistakes


def test_nothing_is_asked_for_by_default(path):
    section = load_config(path).curriculum
    assert section == CurriculumSection() and not section.on and section.first_level == ""
    assert (section.every, section.harder_above, section.easier_below) == (5, 0.75, 0.4)
    assert (section.budget_factor, section.budget_every, section.budget_change) == (2, 10, 0.25)
    assert (section.replay_share, section.mastery_above, section.mastery_iterations) == (0.1, 0.8, 3)


@pytest.mark.parametrize(
    "overrides",
    [
        TWO,
        [*TWO, "start=large", "every=1", "certain=true", "confirmations=1", "stay=0", "replay_share=0"],
        [*TWO, "core_split=c", "core_share=0.89", "mastery=raise_level", "mastery_above=0.9"],
        [*TWO, "evaluation_tasks=20", "evaluation_least=20"],
        [*TWO, "evaluation_tasks=20"],
        MIXED,
        [*MIXED, "mastery=sample_less", "mastery_weight=0.25", "core_split=s", "core_share=0.99"],
        ["step_budget=true", "budget_factor=1.25", "budget_most=1.25", "mastery=tighten_budget"],
        ["core_split=c"],
    ],
)
def test_what_goes_together_loads_and_is_written_back(path, overrides, tmp_path):
    config = load(path, overrides)
    assert config.curriculum.on
    save_config(config, tmp_path / "saved.yaml")
    assert load_config(tmp_path / "saved.yaml") == config


def test_levels_are_read_in_their_order(path):
    section = load(path, TWO).curriculum
    assert list(section.levels) == ["small", "large"] and section.first_level == "small"
    assert section.levels["large"] == LevelSection(train="l", evaluate="l_test")
    assert load(path, [*TWO, "start=large"]).curriculum.first_level == "large"


@pytest.mark.parametrize(
    ("overrides", "parts"),
    [
        (["harder_above=0.9", "stay=3"], ["harder_above: got 0.9", "levels empty", "remove", "curriculum.stay"]),
        (["replay_share=0.2", *MIXED], ["replay_share: got 0.2", "name levels"]),
        (["core_share=0.3"], ["core_share: got 0.3", "curriculum.core_split empty", "name the core split"]),
        (["budget_factor=3"], ["budget_factor: got 3.0", "curriculum.step_budget false", "set it to true"]),
        (["mastery_above=0.9"], ["mastery_above: got 0.9", "curriculum.mastery none"]),
        (
            [*TWO, "mastery=raise_level", "mastery_weight=0.1"],
            ["mastery_weight: got 0.1", "mastery raise_level", "set sample_less"],
        ),
        ([*TWO, *MIXED], ["curriculum.mixture: got s, l beside curriculum.levels small, large", "remove one"]),
        (["levels={'a b': {train: s, evaluate: t}}"], ["the name 'a b'", "rename it"]),
        ([*TWO, "start=huge"], ["curriculum.start: got 'huge'", "small, large"]),
        ([*TWO, "levels.large.evaluate=s"], ["levels.large.evaluate: got s, a split that is trained on"]),
        ([*TWO, "levels.large.evaluate=train"], ["levels.large.evaluate: got train"]),
        ([*TWO, "core_split=s_test"], ["levels.small.evaluate: got s_test", "held out"]),
        ([*TWO, "easier_below=0.75"], ["easier_below: got 0.75", "curriculum.harder_above (0.75)"]),
        ([*TWO, "evaluation_tasks=20", "evaluation_least=21"], ["evaluation_least: got 21", "evaluation_tasks (20)"]),
        (
            [*TWO, "core_split=c", "core_share=0.95"],
            ["curriculum.core_share 0.95 + curriculum.replay_share 0.1: wanted less than 1 together"],
        ),
        (["core_split=c", "core_share=1"], ["curriculum.core_share 1: wanted less than 1"]),
        (["step_budget=true", "budget_loosen_below=0.8"], ["budget_loosen_below: got 0.8", "tighten_above (0.75)"]),
        (["step_budget=true", "budget_factor=5"], ["budget_factor: got 5", "budget_least (1.25)", "budget_most (4)"]),
        (["mastery=raise_level"], ["mastery: got raise_level", "two curriculum.levels", "mastery to none"]),
        ([*MIXED, "mastery=tighten_budget"], ["got tighten_budget", "step_budget true", "to sample_less, none"]),
        ([*TWO, "mastery=sample_less"], ["got sample_less", "two splits", "to raise_level, none"]),
        (
            [*TWO, "rollout.overlap=true", "algorithm.importance_cap=2"],
            ["rollout.overlap: got true with curriculum.levels", "false"],
        ),
        (["harder_above=1.5", *TWO], ["curriculum.harder_above: got 1.5, wanted number >= 0 and <= 1"]),
        (["levels.a={train: s}"], ["curriculum.levels.a.evaluate: missing, wanted text", "held out"][:1]),
        (["levels.a={train: s, evaluate: t, tests: 3}"], ["curriculum.levels.a.tests: unknown field"]),
        (["mixture.s=0"], ["curriculum.mixture.s: got 0, wanted mapping of name to number > 0"]),
        (["budget_least=0.5", "step_budget=true"], ["curriculum.budget_least: got 0.5, wanted number >= 1"]),
        (["mastery=raise"], ['curriculum.mastery: got "raise"', "did you mean raise_level?"]),
    ],
)
def test_each_mistake_is_one_message_with_its_cure(path, overrides, parts):
    (message,) = mistakes(path, *overrides)
    for part in parts:
        assert part in message


def test_all_mistakes_come_at_once(path):
    found = mistakes(
        path, *TWO, "start=x", "easier_below=0.8", "core_share=0.5", "budget_every=3", "mastery=sample_less"
    )
    assert len(found) == 5


def test_every_field_but_the_switches_is_read_by_a_rule():
    """A field that no rule reads would be taken without a word where nothing reads it."""
    read = {field for rule in CURRICULUM_RULES for field in rule.fields}
    own = {name for name in settings() if name.startswith("curriculum.") and ".NAME." not in name}
    assert own - read == set()


def test_a_hold_on_what_was_learnt_wants_levels(path):
    assert load(path, [*TWO, "algorithm.ewc_coef=1"]).algorithm.ewc_coef == 1
    (mistake,) = mistakes(path, "algorithm.ewc_coef=1")
    assert mistake.startswith("algorithm.ewc_coef: got 1 without curriculum.levels") and "set it to 0" in mistake
