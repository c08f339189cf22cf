"""Rules between the fields of the curriculum, and between them and how a run plays.

Written and reported like those of `rules.py`. A field that nothing would read is refused when it was set, since its
silence would be taken for an effect.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

from jaxmtrl.config.curriculum_section import CurriculumSection
from jaxmtrl.config.rule import Rule, rule_of
from jaxmtrl.config.sections import Config

CURRICULUM_RULES: list[Rule] = []
_rule = partial(rule_of, CURRICULUM_RULES)

_OF_LEVELS = (
    "start", "every", "harder_above", "easier_below", "confirmations", "stay", "certain", "evaluation_tasks",
    "evaluation_least", "replay_share", "regression_every", "forgetting_drop",
)  # fmt: skip
_OF_BUDGETS = (
    "budget_factor", "budget_every", "budget_change", "budget_tighten_above", "budget_loosen_below", "budget_least",
    "budget_most",
)  # fmt: skip
_OF_MASTERY = ("mastery_above", "mastery_iterations")


def _read_only_with(switch: str, fields: tuple[str, ...], on: Callable[[CurriculumSection], bool], cure: str) -> None:
    """A rule that refuses `fields` that were set while `switch` leaves them without effect."""

    def check(config: Config) -> str | None:
        section, default = config.curriculum, CurriculumSection()
        idle = [name for name in fields if getattr(section, name) != getattr(default, name)]
        if on(section) or not idle:
            return None
        got = getattr(section, switch)
        return (
            f"curriculum.{idle[0]}: got {getattr(section, idle[0])!r}, which nothing reads with curriculum.{switch} "
            f"{_shown(got)}; {cure}, or remove {', '.join(f'curriculum.{name}' for name in idle)}"
        )

    _rule(f"curriculum.{switch}", *(f"curriculum.{name}" for name in fields))(check)


_read_only_with("levels", _OF_LEVELS, lambda section: bool(section.levels), "name levels")
_read_only_with("core_split", ("core_share",), lambda section: bool(section.core_split), "name the core split")
_read_only_with("step_budget", _OF_BUDGETS, lambda section: section.step_budget, "set it to true")
_read_only_with("mastery", _OF_MASTERY, lambda section: section.mastery != "none", "say what follows from mastery")
_read_only_with("mastery", ("mastery_weight",), lambda section: section.mastery == "sample_less", "set sample_less")


@_rule("curriculum.levels", "curriculum.mixture")
def _levels_or_a_mixture(config: Config) -> str | None:
    section = config.curriculum
    if not (section.levels and section.mixture):
        return None
    return (
        f"curriculum.mixture: got {', '.join(section.mixture)} beside curriculum.levels {', '.join(section.levels)}, "
        "and both say what is trained on; remove one of them (curriculum.core_split goes with either)"
    )


@_rule("curriculum.levels")
def _level_names_can_name_curves(config: Config) -> list[str]:
    return [
        f"curriculum.levels: got the name {name!r}, wanted letters, digits, '.', '_' and '-', as curves are named "
        "after levels; rename it"
        for name in config.curriculum.levels
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name)
    ]


@_rule("curriculum.start", "curriculum.levels")
def _the_start_is_a_level(config: Config) -> str | None:
    section = config.curriculum
    if not section.levels or not section.start or section.start in section.levels:
        return None
    return f"curriculum.start: got {section.start!r}, wanted one of curriculum.levels: {', '.join(section.levels)}"


@_rule("curriculum.levels", "curriculum.core_split", "env.train_split")
def _evaluations_are_of_unseen_tasks(config: Config) -> list[str]:
    section = config.curriculum
    trained = {config.env.train_split, section.core_split, *(level.train for level in section.levels.values())}
    return [
        f"curriculum.levels.{name}.evaluate: got {level.evaluate}, a split that is trained on, so that it would tell "
        "what was learnt by heart; name one that is held out"
        for name, level in section.levels.items()
        if level.evaluate in trained
    ]


@_rule("curriculum.easier_below", "curriculum.harder_above")
def _gates_leave_room_between(config: Config) -> str | None:
    section = config.curriculum
    if section.easier_below < section.harder_above:
        return None
    return (
        f"curriculum.easier_below: got {section.easier_below:g}, wanted less than curriculum.harder_above "
        f"({section.harder_above:g}), or every evaluation would be beyond a gate; lower the first or raise the second"
    )


@_rule("curriculum.evaluation_least", "curriculum.evaluation_tasks")
def _enough_is_evaluated_to_decide(config: Config) -> str | None:
    section = config.curriculum
    if section.evaluation_least is None or section.evaluation_least <= section.evaluation_tasks:
        return None
    return (
        f"curriculum.evaluation_least: got {section.evaluation_least}, wanted at most curriculum.evaluation_tasks "
        f"({section.evaluation_tasks}), or no evaluation would ever count; lower the first or raise the second"
    )


@_rule("curriculum.core_share", "curriculum.replay_share", "curriculum.core_split", "curriculum.levels")
def _something_is_left_for_the_level(config: Config) -> str | None:
    section = config.curriculum
    core = section.core_share if section.core_split else 0.0
    replay = section.replay_share if section.levels else 0.0
    if core + replay < 1:
        return None
    given = [
        f"curriculum.{name} {getattr(section, name):g}"
        for name, share in (("core_share", core), ("replay_share", replay))
        if share
    ]
    return f"{' + '.join(given)}: wanted less than 1 together, as the rest of a batch is the level's own; lower them"


@_rule("curriculum.budget_loosen_below", "curriculum.budget_tighten_above")
def _a_budget_can_stand_still(config: Config) -> str | None:
    section = config.curriculum
    if section.budget_loosen_below < section.budget_tighten_above:
        return None
    return (
        f"curriculum.budget_loosen_below: got {section.budget_loosen_below:g}, wanted less than "
        f"curriculum.budget_tighten_above ({section.budget_tighten_above:g}); lower the first or raise the second"
    )


@_rule("curriculum.budget_least", "curriculum.budget_factor", "curriculum.budget_most")
def _the_factor_is_between_its_caps(config: Config) -> str | None:
    section = config.curriculum
    if section.budget_least <= section.budget_factor <= section.budget_most:
        return None
    return (
        f"curriculum.budget_factor: got {section.budget_factor:g}, wanted at least curriculum.budget_least "
        f"({section.budget_least:g}) and at most curriculum.budget_most ({section.budget_most:g}); move one of them"
    )


@_rule("curriculum.mastery", "curriculum.levels", "curriculum.mixture", "curriculum.step_budget")
def _mastery_has_something_to_change(config: Config) -> str | None:
    section = config.curriculum
    needs = {
        "raise_level": (len(section.levels) > 1, "at least two curriculum.levels"),
        "tighten_budget": (section.step_budget, "curriculum.step_budget true"),
        "sample_less": (len(section.mixture) > 1, "at least two splits in curriculum.mixture"),
    }
    there, what = needs.get(section.mastery, (True, ""))
    if there:
        return None
    return (
        f"curriculum.mastery: got {section.mastery}, which wants {what}; set that, or curriculum.mastery to "
        f"{', '.join([*(name for name, (possible, _) in needs.items() if possible), 'none'])}"
    )


@_rule(
    "rollout.overlap",
    "curriculum.levels",
    "curriculum.mixture",
    "curriculum.core_split",
    "curriculum.step_budget",
)
def _a_curriculum_follows_what_was_learnt(config: Config) -> str | None:
    if not config.rollout.overlap or not config.curriculum.on:
        return None
    asked = [name for name in ("levels", "mixture", "core_split", "step_budget") if getattr(config.curriculum, name)]
    return (
        f"rollout.overlap: got true with curriculum.{asked[0]}, wanted false: the next batch would be played before it "
        "is known what this one says about its level and budget; set rollout.overlap to false"
    )


@_rule("algorithm.ewc_coef", "curriculum.levels")
def _what_holds_a_policy_are_levels(config: Config) -> str | None:
    if config.algorithm.ewc_coef == 0 or config.curriculum.levels:
        return None
    return (
        f"algorithm.ewc_coef: got {config.algorithm.ewc_coef:g} without curriculum.levels, wanted 0: what counted is "
        "taken down when a level has been learnt; name levels, or set it to 0"
    )


def _shown(value: object) -> str:
    """A switch that is off, in words."""
    return "false" if value is False else str(value) if value else "empty"
