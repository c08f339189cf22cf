"""The alarms: one pure rule each, from what is remembered to what is wrong, with numbers, and the cure.

The practice notes name three symptoms (early collapse, late oscillation, degenerate repeats) and a fourth in passing (a
binary reward stalls). The echo trap is RAGEN's (Wang et al. 2025, https://arxiv.org/abs/2504.20073). The collapse of a
policy that was fine-tuned on another environment is the study's ("A Practitioner's Guide to Multi-turn Agentic
Reinforcement Learning", https://arxiv.org/abs/2510.01132, section 6.1). Their numbers, where they give any, are the
defaults of `config.alarms_section`; the others are ours, set so that they tell the runs apart that we have.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from jaxmtrl.alarms import history as h
from jaxmtrl.alarms.commands import entropy
from jaxmtrl.alarms.cures import CURES, LOOK_AT_STEPS, NO_SCALE, OUT_OF_BOUNDS, SCALE_FITS
from jaxmtrl.alarms.splits import Standing
from jaxmtrl.config.alarms_section import AlarmName, AlarmsSection
from jaxmtrl.scores import fall_interval

_VERBS_NAMED = 4


@dataclasses.dataclass(frozen=True, kw_only=True)
class Situation:
    """All that a rule may look at."""

    section: AlarmsSection
    history: h.History  # the present iteration is the last look
    iterations: int  # RL iterations of the whole run
    said: Counter[str]  # how often which verb was said in this iteration
    splits: Mapping[str, Standing]
    ringing: bool = False  # the alarm was raised before and is not over

    @property
    def finished(self) -> int:
        return self.history.looks[-1].finished

    @property
    def recent(self) -> Sequence[h.Look]:
        """The window that is judged; empty before there are as many iterations."""
        looks = self.history.looks[-self.section.window :]
        return looks if len(looks) == self.section.window else ()

    def recent_and_opening(self, name: str) -> tuple[float, float] | None:
        """A figure's mean over the window and over the opening, once both are there and do not overlap."""
        opening = self.history.opening
        if not self.recent or len(opening) < self.section.opening or self.recent[0].finished <= opening[-1].finished:
            return None
        recent, first = h.mean(self.recent, name), h.mean(opening, name)
        return None if recent is None or first is None else (recent, first)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Symptom:
    """What is wrong."""

    seen: str  # with numbers
    since: int  # RL iteration with which it began
    cure: str


Rule = Callable[[Situation], Symptom | None]


def early_collapse(now: Situation) -> Symptom | None:
    """Success lost much of its best within the first iterations; the return, where success never rose above chance.

    It is over when half of what had to be lost is won back.
    """
    section, best_success = now.section, now.history.best.get(h.SUCCESS)
    if not now.recent or (now.finished > section.early_iterations and not now.ringing):
        return None
    solved = best_success is not None and best_success.value > section.certainty * best_success.error
    name, word = (h.SUCCESS, "success") if solved else (h.RETURN, "mean return")
    best, recent = now.history.best.get(name), h.mean_with_error(now.recent, name)
    share = section.collapse_fall / 2 if now.ringing else section.collapse_fall
    errors = 0.0 if now.ringing else section.certainty
    if best is None or recent is None or not h.fell(best, recent, share=share, errors=errors):
        return None
    changes = _changes(now, ((h.TOKEN_ENTROPY, "token entropy"), (h.KL, "KL to the reference")))
    entropy_pair = now.recent_and_opening(h.TOKEN_ENTROPY)
    steps = f" {LOOK_AT_STEPS}" if entropy_pair is not None and entropy_pair[0] > entropy_pair[1] else ""
    return Symptom(
        seen=f"{word} fell from {best.value:.3g} to {recent.value:.3g}{changes}",
        since=best.finished + 1,
        cure=CURES["early_collapse"] + steps,
    )


def late_oscillation(now: Situation) -> Symptom | None:
    """The mean return goes up and down by more than chance and by much of itself, late in training."""
    section = now.section
    looks = [look for look in now.history.looks[-section.swing_window :] if h.RETURN in look.values]
    if len(looks) < section.swing_window or now.finished < section.late_from * now.iterations:
        return None
    returns, errors = h.series(looks, h.RETURN), h.series(looks, h.ERRORS[h.RETURN])
    chance = math.sqrt(math.fsum(e * e for e in errors) / len(errors)) if errors else 0.0
    least = max(section.swing_errors * chance, section.swing_least * abs(statistics.fmean(returns)))
    legs = swings(returns, least)
    if len(legs) < section.swings:
        return None
    scaled = h.mean(looks, h.SCALED)
    if scaled is None:
        seen, cure = "", NO_SCALE
    elif section.variance_low <= scaled <= section.variance_high:
        seen, cure = f"; the variance of scaled returns is {scaled:.3g}, as it should be", SCALE_FITS
    else:
        bounds = f"{section.variance_low:g} to {section.variance_high:g}"
        seen, cure = f"; the variance of scaled returns is {scaled:.3g}, not {bounds}", OUT_OF_BOUNDS
    return Symptom(
        seen=f"the mean return swung {len(legs)} times by {least:.3g} or more within {len(looks)} iterations, between "
        f"{min(returns):.3g} and {max(returns):.3g}{seen}",
        since=looks[legs[0]].finished,
        cure=f"{CURES['late_oscillation']} {cure}",
    )


def degenerate_repetition(now: Situation) -> Symptom | None:
    """More turns repeat what was of no use, and fewer different things are said."""
    section = now.section
    repeats = now.recent_and_opening(h.REPEATS)
    if repeats is None or repeats[0] < section.repetition_rate or repeats[0] - repeats[1] < section.repetition_rise:
        return None
    lost = []
    for name, word in ((h.COMMAND_ENTROPY, "command entropy"), (h.COVERAGE, "verb coverage")):
        pair = now.recent_and_opening(name)
        if pair is not None and pair[0] < (1 - section.variety_fall) * pair[1]:
            lost.append(f"{word} fell from {pair[1]:.3g} to {pair[0]:.3g}")
    if not lost:
        return None
    return Symptom(
        seen=f"turns that repeat what changed nothing rose from {repeats[1]:.0%} to {repeats[0]:.0%}, and "
        + " and ".join(lost),
        since=now.recent[0].finished,
        cure=CURES["degenerate_repetition"],
    )


def echo_trap(now: Situation) -> Symptom | None:
    """Plays of one task end alike, tokens become certain and gradients spike, without the return to show for it.

    The first two are also signs of learning; what sets a trap apart is that nothing was gained.
    """
    section, looks = now.section, now.history.looks
    spread, certain = now.recent_and_opening(h.SPREAD), now.recent_and_opening(h.TOKEN_ENTROPY)
    if spread is None:  # without groups, the spread over all tasks
        pair = now.recent_and_opening(h.VARIANCE)
        spread = None if pair is None else (math.sqrt(pair[0]), math.sqrt(pair[1]))
    norms, before = h.series(now.recent, h.GRADIENT), h.series(looks[: -section.window], h.GRADIENT)
    if spread is None or certain is None or not norms or not before:
        return None
    spike, usual = max(norms), statistics.median(before)
    signs = (
        spread[0] < (1 - section.echo_spread_fall) * spread[1],
        certain[0] < (1 - section.echo_entropy_fall) * certain[1],
        now.ringing or (usual > 0 and spike >= section.gradient_spike * usual),
        not _gained(now),
    )
    if not all(signs):
        return None
    return Symptom(
        seen=f"the deviation of returns fell from {spread[1]:.3g} to {spread[0]:.3g} and token entropy from "
        f"{certain[1]:.3g} to {certain[0]:.3g} nats, while the gradient norm reached {spike:.3g} ({usual:.3g} before) "
        "and the return gained nothing",
        since=now.recent[0].finished,
        cure=CURES["echo_trap"],
    )


def cross_domain_prior_collapse(now: Situation) -> Symptom | None:
    """RL began with a policy that says the same few words over and over, and they are not understood here."""
    section = now.section
    if not now.recent or (now.finished > section.early_iterations and not now.ringing):
        return None
    success, invalid = h.mean(now.recent, h.SUCCESS), h.mean(now.recent, h.INVALID)
    began = h.mean(now.history.opening, h.INVALID)
    if success is None or invalid is None or began is None:
        return None
    turns = now.said.total()
    noise = entropy(now.said) / math.log(turns) if turns > 1 else 1.0
    if success > section.prior_success or min(invalid, began) < section.prior_invalid or noise > section.prior_noise:
        return None
    often = sorted(now.said.items(), key=lambda item: (-item[1], item[0]))[:_VERBS_NAMED]
    most = ", ".join(f"{verb or '(nothing)'} {times / turns:.0%}" for verb, times in often)
    return Symptom(
        seen=f"{invalid:.0%} of turns are not understood and success is {success:.3g}, from the first iterations on; "
        f"its verbs: {most}",
        since=now.history.opening[0].finished,
        cure=CURES["cross_domain_prior_collapse"],
    )


def forgetting(now: Situation) -> Symptom | None:
    """An evaluated split fell from its best by more than the drop, and by more than chance."""
    fallen = []
    for split, standing in now.splits.items():
        best, last = standing.best, standing.now
        low, high = fall_interval(best, last)
        if best.success - last.success > now.section.forgetting_drop and low > 0:
            text = f"{split} {best.success:.2f} (iteration {best.iteration}) to {last.success:.2f} (iteration "
            text += f"{last.iteration}), a fall of {best.success - last.success:.2f} [{low:.2f}, {high:.2f}]"
            fallen.append((best.iteration, text))
    if not fallen:
        return None
    return Symptom(
        seen="success fell on " + "; ".join(text for _, text in fallen),
        since=min(finished for finished, _ in fallen) + 1,
        cure=CURES["forgetting"],
    )


def stalled_binary_reward(now: Situation) -> Symptom | None:
    """For many iterations no play was rewarded, or all plays of each task alike, and the tasks are not mastered."""
    section = now.section
    looks = now.history.looks[-section.stall_iterations :]
    if len(looks) < section.stall_iterations:
        return None
    unrewarded, alike = (all(check(look) for look in looks) for check in (_unrewarded, _alike))
    success = h.mean(looks, h.SUCCESS)
    if not (unrewarded or alike) or (success is not None and success >= section.mastered):
        return None
    what = "no play had a positive return" if unrewarded else "plays of a task were all rewarded alike"
    return Symptom(
        seen=f"{what} for {len(looks)} iterations (success {'unknown' if success is None else f'{success:.3g}'})",
        since=looks[0].finished,
        cure=CURES["stalled_binary_reward"],
    )


RULES: dict[AlarmName, Rule] = {
    "early_collapse": early_collapse,
    "late_oscillation": late_oscillation,
    "degenerate_repetition": degenerate_repetition,
    "echo_trap": echo_trap,
    "cross_domain_prior_collapse": cross_domain_prior_collapse,
    "forgetting": forgetting,
    "stalled_binary_reward": stalled_binary_reward,
}


def swings(numbers: Sequence[float], least: float) -> list[int]:
    """Where each swing began: ways up and down in turn, of `least` or more each, from one extreme to the next."""
    if least <= 0:
        return []
    began: list[int] = []
    low = high = 0
    direction = 0  # of the swing that goes on: 1 up, -1 down, 0 not known
    for index, number in enumerate(numbers):
        high = index if number > numbers[high] else high
        low = index if number < numbers[low] else low
        if direction >= 0 and numbers[high] - number >= least:
            began.append(high)
            direction, low = -1, index
        elif direction <= 0 and number - numbers[low] >= least:
            began.append(low)
            direction, high = 1, index
    return began


def _gained(now: Situation) -> bool:
    """Whether the recent return is clearly above the opening's and not clearly below its best."""
    opening, recent = h.mean_with_error(now.history.opening, h.RETURN), h.mean_with_error(now.recent, h.RETURN)
    best = now.history.best.get(h.RETURN)
    if opening is None or recent is None or best is None:
        return False
    above = recent.value - opening.value > now.section.certainty * math.hypot(opening.error, recent.error)
    return above and not h.fell(best, recent, share=0.0, errors=now.section.certainty)


def _unrewarded(look: h.Look) -> bool:
    return look.values.get(h.POSITIVE, 1.0) == 0


def _alike(look: h.Look) -> bool:
    """Whether no two plays of a task differ; without groups, no two plays of the batch."""
    return look.values.get(h.SPREAD, look.values.get(h.VARIANCE, 1.0)) == 0


def _changes(now: Situation, figures: Sequence[tuple[str, str]]) -> str:
    """How figures moved since the opening, as the rest of a sentence."""
    texts = []
    for name, word in figures:
        pair = now.recent_and_opening(name)
        if pair is not None:
            texts.append(f"{word} went from {pair[1]:.3g} to {pair[0]:.3g} nats")
    return "".join(f", {text}" for text in texts)
