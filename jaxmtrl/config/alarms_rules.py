"""Rules between the alarms' fields and the rest of a config: what could never ring, and what could never follow.

Written and reported like those of `rules.py`.
"""

from __future__ import annotations

import dataclasses
from functools import partial

from jaxmtrl.config.alarms_section import ALARMS, AlarmsSection, Reaction
from jaxmtrl.config.rule import Rule, rule_of
from jaxmtrl.config.sections import Config

ALARMS_RULES: list[Rule] = []
_rule = partial(rule_of, ALARMS_RULES)
_REACTIONS = tuple(f"alarms.{name}" for name in ALARMS)
_DEFAULTS = {field.name: field.default for field in dataclasses.fields(AlarmsSection)}


@_rule("alarms.on", *_REACTIONS)
def _alarms_that_are_off_do_nothing(config: Config) -> str | None:
    alarms = config.alarms
    acting = [name for name in ALARMS if getattr(alarms, name) not in ("off", "message")]
    if alarms.on or not acting:
        return None
    return (
        f"alarms.{acting[0]}: got {getattr(alarms, acting[0])} with alarms.on false, which watches for nothing; set "
        "alarms.on to true, or remove " + ", ".join(f"alarms.{name}" for name in acting)
    )


@_rule("algorithm.kl_coef", "algorithm.kl_target", *_REACTIONS)
def _a_kl_warm_up_has_a_reference(config: Config) -> str | None:
    name = _first("kl_warm_up", config)
    if name is None:
        return None
    if config.algorithm.kl_coef == 0:
        return (
            f"algorithm.kl_coef: got 0 with alarms.{name} kl_warm_up, wanted more than 0: a run whose weight is 0 "
            f"keeps no reference; set algorithm.kl_coef to 0.001, or alarms.{name} to message"
        )
    if config.algorithm.kl_target == 0:
        return None
    return (
        f"alarms.{name}: got kl_warm_up with algorithm.kl_target {config.algorithm.kl_target:g}, which moves the same "
        f"weight; set algorithm.kl_target to 0, or alarms.{name} to message"
    )


@_rule("algorithm.reward_scale", *_REACTIONS)
def _rewards_are_scaled_once(config: Config) -> str | None:
    name = _first("reward_scaling", config)
    if name is None or config.algorithm.reward_scale == "none":
        return None
    return (
        f"alarms.{name}: got reward_scaling with algorithm.reward_scale {config.algorithm.reward_scale}, which scales "
        f"them already; set algorithm.reward_scale to none, or alarms.{name} to message"
    )


@_rule("alarms.forgetting", "evaluation.every", "evaluation.splits")
def _forgetting_is_looked_for(config: Config) -> str | None:
    reaction, evaluation = config.alarms.forgetting, config.evaluation
    if reaction in ("off", "message") or (evaluation.every and evaluation.splits):
        return None
    return (
        f"alarms.forgetting: got {reaction}, but evaluation.every ({evaluation.every}) and evaluation.splits "
        f"({', '.join(evaluation.splits) or 'none'}) evaluate nothing during RL; set evaluation.every to 10 and name a "
        "split, or alarms.forgetting to message"
    )


@_rule("alarms.early_iterations", "alarms.window")
def _a_collapse_has_time_to_be_early(config: Config) -> str | None:
    alarms = config.alarms
    if alarms.early_iterations >= 2 * alarms.window:
        return None
    return (
        f"alarms.early_iterations: got {alarms.early_iterations}, wanted at least twice alarms.window "
        f"({alarms.window}): one mean is compared with an earlier one; set {2 * alarms.window} or more"
    )


@_rule("alarms.swings", "alarms.swing_window")
def _swings_fit_their_window(config: Config) -> str | None:
    alarms = config.alarms
    if alarms.swings < alarms.swing_window:
        return None
    return (
        f"alarms.swings: got {alarms.swings}, wanted less than alarms.swing_window ({alarms.swing_window}), which has "
        f"one step less than iterations; set alarms.swings to {min(3, alarms.swing_window - 1)}"
    )


@_rule("alarms.variance_low", "alarms.variance_high", "alarms.scaled_variance")
def _variance_bounds_ascend(config: Config) -> str | None:
    low, high, aim = (config.alarms.variance_low, config.alarms.variance_high, config.alarms.scaled_variance)
    if low >= high:
        return f"alarms.variance_high: got {high:g}, wanted more than alarms.variance_low ({low:g}); set {10 * low:g}"
    if low <= aim <= high:
        return None
    return (
        f"alarms.scaled_variance: got {aim:g}, wanted alarms.variance_low ({low:g}) to alarms.variance_high "
        f"({high:g}), between which returns are to be; set {(low * high) ** 0.5:.2g}"
    )


@_rule("alarms.kl_from", "alarms.kl_to")
def _a_kl_warm_up_ascends(config: Config) -> str | None:
    start, end = config.alarms.kl_from, config.alarms.kl_to
    if start <= end:
        return None
    return f"alarms.kl_to: got {end:g}, wanted at least alarms.kl_from ({start:g}); set it to {10 * start:g}"


@_rule("alarms.kl_from", "alarms.kl_to", "alarms.kl_iterations", "alarms.scaled_variance", *_REACTIONS)
def _what_follows_is_asked_for(config: Config) -> str | None:
    alarms = config.alarms
    read_by: dict[str, Reaction] = {
        "kl_from": "kl_warm_up",
        "kl_to": "kl_warm_up",
        "kl_iterations": "kl_warm_up",
        "scaled_variance": "reward_scaling",
    }
    for field, reaction in read_by.items():
        if getattr(alarms, field) != _DEFAULTS[field] and _first(reaction, config) is None:
            return (
                f"alarms.{field}: got {getattr(alarms, field):g}, which only {reaction} reads, and no alarm is set to "
                f"that; set alarms.early_collapse or another to {reaction}, or remove alarms.{field}"
            )
    return None


def _first(reaction: Reaction, config: Config) -> str | None:
    """The first alarm that is set to `reaction`."""
    return next((name for name in ALARMS if getattr(config.alarms, name) == reaction), None)
