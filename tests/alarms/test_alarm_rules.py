"""Each alarm rings on the trouble it is named after and is silent on the sound run beside it.

Beside series that are made up there are recorded ones (curves.json): runs of this package that collapsed, stalled or
learnt.
"""

from __future__ import annotations

import random

import numpy as np
import pytest
from alarm_plays import (
    CURVES,
    at_random,
    figures_of,
    healthy,
    householder,
    looking,
    noise,
    played,
    recorded,
    told,
)

from jaxmtrl.alarms.figures import share_error
from jaxmtrl.alarms.rules import swings
from jaxmtrl.config.alarms_section import AlarmsSection

SECTION = AlarmsSection()
TO_THE_END = AlarmsSection(early_iterations=100, certainty=6.0)  # a collapse may be late


def ramp(begin: float, end: float, first: int, last: int):
    """A series that goes from one value to the other between two iterations and stays on either side."""
    return lambda i: begin + (end - begin) * min(1.0, max(0.0, (i - first) / (last - first)))


# Recorded runs


@pytest.mark.parametrize(
    ("name", "raised"),
    [
        ("ppo_toy_collapse", {"early_collapse": 9}),
        ("ppo_rooms_collapse", {"early_collapse": 8}),
        ("ppo_rooms_fall", {"early_collapse": 11}),
        ("ppo_rooms_dip", {"early_collapse": 6}),
        ("ppo_toy_stall", {"stalled_binary_reward": 10}),
        ("quickstart_0", {}),
        ("quickstart_1", {}),
        ("quickstart_2", {}),
        ("ppo_toy", {}),
        ("gigpo_toy", {}),
        ("rloo_toy", {}),
        ("ppo_rooms_slow", {}),
    ],
)
def test_recorded_runs_that_went_wrong_are_told_from_those_that_learnt(name, raised):
    assert told(recorded(name)).raised() == raised, CURVES[name]["what"]


def test_a_recorded_dip_is_over_when_half_of_it_is_won_back():
    """Success .41 .55 .45 .27 .27 .31 … .39 .48: the best three are .47; .39 = .47 (1 - .165) is enough."""
    messages = told(recorded("ppo_rooms_dip") + healthy(8, episode__success=lambda i: 0.45)).messages
    assert [text.split(":")[0] for _, text in messages] == [
        "alarm early_collapse since RL iteration 4",
        "alarm early_collapse is over",
    ]


# Made-up runs


@pytest.mark.parametrize("count", [1, 6, 20, 40, 120])
def test_a_run_that_learns_is_left_in_peace(count):
    assert told(healthy(count)).messages == []


def test_early_collapse_tells_what_fell_and_what_the_notes_say():
    """Success .4 until iteration 6, then 0 from 9 on; the mean of 7 to 9 is 1/2 of .4, less than 2/3 of it."""
    rows = healthy(
        20,
        episode__success=ramp(0.4, 0.0, 6, 9),
        policy__sampled_entropy_nats=ramp(0.5, 2.0, 6, 9),
        kl__reference_nats=ramp(0.01, 0.5, 6, 9),
    )
    out = told(rows)
    assert out.raised()["early_collapse"] == 9
    text = out.text("early_collapse")
    assert "success fell from 0.4 to 0.133" in text and "since RL iteration 4" in text
    assert "token entropy went from 0.5 to 1.5 nats" in text and "KL to the reference went from 0.01 to 0.337" in text
    assert "kl_coef 0.01, kl_coef_end 0.1" in text and "learning_rate" in text


def test_a_collapse_that_goes_on_is_not_over_when_it_is_no_longer_early():
    """Raised at 9 and as bad at 60: an alarm that ended at iteration 20 + calm would tell of a cure."""
    out = told(healthy(60, episode__success=ramp(0.4, 0.0, 6, 9)))
    assert [finished for finished, text in out.messages if "early_collapse" in text] == [9]
    assert out.values[-1]["alarm/early_collapse"] == 1


@pytest.mark.parametrize(("recovered", "over"), [(0.45, False), (0.55, True)])
def test_a_collapse_is_over_when_half_of_what_counts_is_won_back(recovered, over):
    """From .6 to .2: raised below .4; over above .6 (1 - .165) = .5. At .45 it would come and go with chance."""
    falls, rises = ramp(0.6, 0.2, 6, 9), ramp(0.0, recovered - 0.2, 12, 14)
    out = told(healthy(30, episode__success=lambda i: falls(i) + rises(i)))
    assert any("early_collapse is over" in text for _, text in out.messages) is over


def test_a_collapse_whose_entropy_falls_gets_no_word_on_large_steps():
    rows = healthy(20, episode__success=ramp(0.4, 0.0, 6, 9), policy__sampled_entropy_nats=ramp(0.5, 0.1, 6, 9))
    assert "learning_rate" not in told(rows).text("early_collapse")


@pytest.mark.parametrize(("plays", "raised"), [(16, False), (256, True)])
def test_a_fall_within_chance_is_no_collapse(plays, raised):
    """.5 to .3 in batches of 16 is 2 standard errors over three iterations, and it may well be luck; of 256 it is 8."""
    error = (0.5 * 0.5 / plays) ** 0.5
    rows = healthy(12, episode__success=ramp(0.5, 0.3, 6, 7), episode__success_error=lambda i: error)
    assert ("early_collapse" in told(rows).raised()) is raised


def test_a_collapse_of_the_return_counts_where_nothing_was_ever_solved():
    """Shaped returns from .5 to .1 at no success; the same beside a success that holds is another reward, not worse."""
    falls = ramp(0.5, 0.1, 6, 9)
    lost = healthy(15, episode__success=lambda i: 0.0, episode__return=falls)
    assert "mean return fell from 0.5" in told(lost).text("early_collapse")
    assert "early_collapse" not in told(healthy(15, episode__return=falls)).raised()


def test_negative_returns_collapse_by_getting_worse():
    """From -1 to -2 loses more than a third of 1; from -2 to -1 gains; from -4 to -5, a quarter, is not enough."""
    for begin, end, raised in ((-1.0, -2.0, True), (-2.0, -1.0, False), (-4.0, -5.0, False)):
        rows = healthy(15, episode__success=lambda i: 0.0, episode__return=ramp(begin, end, 6, 9))
        assert ("early_collapse" in told(rows).raised()) is raised


def test_a_late_collapse_is_early_only_as_far_as_early_iterations():
    """.6 until 40, then .4, .2, 0: the mean of 40 to 42 has lost a third."""
    rows = healthy(60, episode__success=ramp(0.6, 0.0, 40, 43))
    assert "early_collapse" not in told(rows).raised()
    assert told(rows, AlarmsSection(early_iterations=60)).raised()["early_collapse"] == 42


def late_fall():
    """Success and return of .7 that fall to .3 between iterations 60 and 63 of 100, and stay there."""
    falls = ramp(0.7, 0.3, 60, 63)
    return healthy(100, episode__success=falls, episode__return=falls)


def test_a_late_fall_for_good_is_no_oscillation_and_is_told_by_evaluations_or_by_early_iterations():
    """One way down is one swing of three. An evaluated split that fell as far rings, whenever that is."""
    assert told(late_fall()).raised() == {}
    evaluated = iter([Result(0.7, 0.604, 0.781)] * 50 + [Result(0.3, 0.219, 0.396)] * 50)
    out = told(late_fall(), through=lambda state: state.evaluated("heldout", len(state.history.looks), next(evaluated)))
    assert out.raised() == {"forgetting": 52}
    watched = told(late_fall(), TO_THE_END)
    assert watched.raised() == {"early_collapse": 63}
    assert "success fell from 0.7 to 0.433" in watched.text("early_collapse")


def by_chance(level, name: str):
    """Iterations of 64 plays whose success and return scatter around a level as chance has it."""
    rng, rows = random.Random(name), []
    for i, row in enumerate(healthy(100), start=1):
        wins = sum(rng.random() < level(i) for _ in range(64))
        error = share_error(np.repeat([1.0, 0.0], [wins, 64 - wins]))
        scattered = {"episode/success": wins / 64, "episode/return": wins / 64}
        rows.append(row | scattered | {"episode/success_error": error, "return/standard_error": error})
    return rows


@pytest.mark.parametrize("run", range(10))
def test_chance_alone_is_neither_a_collapse_nor_an_oscillation(run):
    """Around .5, and on the way from .1 to .9, watched for a collapse to the end."""
    for name, level in {"steady": lambda i: 0.5, "rising": ramp(0.1, 0.9, 1, 90)}.items():
        assert told(by_chance(level, f"{name} {run}"), TO_THE_END).raised() == {}, name


def square(low: float, high: float, period: int, first: int):
    """A return that jumps between two values from an iteration on."""
    return lambda i: low if i < first or (i // period) % 2 else high


def test_late_oscillation_counts_swings_after_half_of_the_run():
    """Returns jump between .4 and .8 every 4 iterations from 40 of 80 on: three jumps are there by iteration 52."""
    rows = healthy(80, episode__return=square(0.4, 0.8, 4, 40), episode__success=lambda i: 0.6)
    out = told(rows)
    assert set(out.raised()) == {"late_oscillation"} and 48 <= out.raised()["late_oscillation"] <= 53
    text = out.text("late_oscillation")
    assert "swung 3 times" in text and "between 0.4 and 0.8" in text and "reward_scale running" in text


def test_the_same_swings_early_are_exploration():
    rows = healthy(80, episode__return=square(0.4, 0.8, 4, 1), episode__success=lambda i: 0.6)
    assert told(rows[:39], iterations=80).raised() == {}
    assert told(rows, iterations=80).raised() == {"late_oscillation": 40}
    assert told(rows, AlarmsSection(late_from=0.0), iterations=80).raised() == {"late_oscillation": 20}


@pytest.mark.parametrize(
    ("scaled", "seen", "cure"),
    [
        (0.5, "0.5, not 1 to 10", "Bring the variance"),
        (30.0, "30, not 1 to 10", "Bring the variance"),
        (3.0, "3, as it should be", "halve optimizer.learning_rate"),
    ],
)
def test_an_oscillation_is_laid_to_the_scale_only_if_scaled_returns_leave_one_to_ten(scaled, seen, cure):
    rows = healthy(80, episode__return=square(0.4, 0.8, 4, 40), return__scaled_variance=lambda i: scaled)
    text = told(rows).text("late_oscillation")
    assert seen in text and cure in text


def test_binary_returns_that_are_not_scaled_are_not_held_against_one_to_ten():
    """Their variance is .25 at most, so that the rule would never be met."""
    rows = healthy(80, episode__return=square(0.4, 0.8, 4, 40))
    assert "variance" not in told(rows).text("late_oscillation") and told(healthy(80)).raised() == {}


def test_swings_within_chance_are_none():
    """The same jumps where an iteration's mean is only known to .15: five errors are .75, and they are .4."""
    rows = healthy(80, episode__return=square(0.4, 0.8, 4, 40), return__standard_error=lambda i: 0.15)
    assert told(rows).raised() == {}


def test_swings_are_ways_between_extremes():
    """0 1 .8 0 .2 1: up, down, up, begun at 0, 1 and 3. A slow rise with dips of .2 is one; a flat line none."""
    assert swings([0, 1, 0.8, 0, 0.2, 1], 0.5) == [0, 1, 3]
    assert swings([0, 0.3, 0.1, 0.5, 0.3, 0.9], 0.5) == [0]
    assert swings([1, 0.5, 0], 0.5) == [0] and swings([1, 1, 1], 0.5) == [] and swings([1, 2], 0) == [] == swings([], 1)


def test_degenerate_repetition_is_repeats_with_less_to_say():
    rises = ramp(0.15, 0.6, 10, 20)
    rows = healthy(
        30, action__repeated_useless_rate=rises, action__command_entropy_nats=ramp(3, 1, 10, 20), **_nothing_gained(30)
    )
    out = told(rows)
    assert set(out.raised()) == {"degenerate_repetition"}
    text = out.text("degenerate_repetition")
    assert "rose from 15% to" in text and "command entropy fell from 3 to" in text and "entropy_coef" in text


@pytest.mark.parametrize("one", ["action/repeated_useless_rate", "action/command_entropy_nats", "action/verb_coverage"])
def test_one_sign_of_repetition_alone_is_none(one):
    """Fewer different things are said by whoever learns what to say; repeats rise where a game grows harder."""
    series = {
        "action/repeated_useless_rate": ramp(0.15, 0.6, 10, 20),
        "action/command_entropy_nats": ramp(3, 1, 10, 20),
        "action/verb_coverage": ramp(0.9, 0.3, 10, 20),
    }[one]
    assert told(healthy(30, **{one.replace("/", "__"): series})).raised() == {}


def test_a_policy_that_repeated_from_the_start_has_not_degenerated():
    rows = healthy(30, action__repeated_useless_rate=lambda i: 0.6, action__command_entropy_nats=ramp(3, 1, 10, 20))
    assert told(rows).raised() == {}


def _nothing_gained(count: int):
    return {"episode__return": lambda i: 0.35, "episode__success": lambda i: 0.35}


def _trap(count: int = 40, **other):
    """RAGEN's three signs in their order: spread from 10 on, entropy from 14 on, a gradient of 6 at 22."""
    signs = {
        "return__group_std": ramp(0.4, 0.05, 10, 16),
        "policy__sampled_entropy_nats": ramp(1.2, 0.3, 14, 20),
        "update__gradient_norm": lambda i: 6.0 if i == 22 else 1.0,
        **_nothing_gained(count),
    }
    return healthy(count, **{**signs, **other})


def test_echo_trap_needs_all_its_signs():
    out = told(_trap())
    assert out.raised() == {"echo_trap": 22}
    text = out.text("echo_trap")
    assert "from 0.4 to 0.05" in text and "from 1.2 to 0.3 nats" in text and "reached 6 (1 before)" in text
    assert "drop_uniform_groups" in text and "clip_high 0.28" in text
    for name, sound in {
        "return__group_std": lambda i: 0.4,
        "policy__sampled_entropy_nats": lambda i: 1.2,
        "update__gradient_norm": lambda i: 1.0,
        "episode__return": ramp(0.35, 0.8, 10, 20),
    }.items():
        assert told(_trap(**{name: sound})).raised() == {}, name


def test_a_trap_after_gains_that_are_lost_again_is_one():
    """The return rises from .35 to .8 and is back at .5 when the gradient spikes: above the opening, but fallen."""
    rises_and_falls = lambda i: ramp(0.35, 0.8, 6, 12)(i) - ramp(0.0, 0.3, 16, 20)(i)  # noqa: E731
    assert told(_trap(episode__return=rises_and_falls)).raised() == {"echo_trap": 22}


def test_without_groups_the_trap_is_seen_in_the_spread_over_all_tasks():
    rows = [{k: v for k, v in row.items() if k != "return/group_std"} for row in _trap()]
    assert told(rows).raised() == {}
    rows = [row | {"return/variance": ramp(0.16, 0.0025, 10, 16)(i)} for i, row in enumerate(rows, start=1)]
    assert told(rows).raised() == {"echo_trap": 22}


class Result:
    """An evaluation, as `evaluation.SplitResult` is."""

    def __init__(self, success: float, low: float, high: float, n: int = 100):
        self.success, self.ci95, self.n = success, (low, high), n


@pytest.mark.parametrize(
    ("best", "last", "raised"),
    [
        (Result(0.9, 0.826, 0.945), Result(0.7, 0.604, 0.781), True),
        (Result(0.9, 0.699, 0.972, 20), Result(0.7, 0.481, 0.855, 20), False),
        (Result(0.9, 0.896, 0.904, 20_000), Result(0.85, 0.845, 0.855, 20_000), False),
    ],
)
def test_forgetting_is_a_fall_beyond_its_interval(best, last, raised):
    """Of 100 tasks .90 [.826, .945] and then .70 [.604, .781]: .2 - √(.074² + .081²) = .09 above 0. Of 20 tasks .90
    [.699, .972] and .70 [.481, .855]: .2 - √(.201² + .155²) < 0. A fall of .05 is certain and does not matter."""
    results = iter([best, last])

    def through(state):
        result = next(results, None)
        return state if result is None else state.evaluated("heldout", len(state.history.looks), result)

    out = told(healthy(6), through=through)
    assert out.raised() == ({"forgetting": 3} if raised else {})
    if raised:
        text = out.text("forgetting")
        assert "heldout 0.90 (iteration 1) to 0.70 (iteration 2), a fall of 0.20 [0.09, 0.3" in text
        assert "tenth" in text and "since RL iteration 2" in text


def test_a_stall_is_no_reward_or_rewards_all_alike():
    """Nothing in ten iterations; or every task's plays alike at .5 success. One reward, one difference, or mastery: no
    stall."""
    nothing = {"return__positive_share": lambda i: 0.0, "episode__success": lambda i: 0.0}
    alike = {"return__group_std": lambda i: 0.0, "episode__success": lambda i: 0.5}
    assert told(healthy(9, **nothing)).raised() == {}
    assert "no play had a positive return for 10" in told(healthy(10, **nothing)).text("stalled_binary_reward")
    assert "all rewarded alike for 10" in told(healthy(10, **alike)).text("stalled_binary_reward")
    assert told(healthy(10, **nothing | {"return__positive_share": lambda i: float(i == 5)})).raised() == {}
    assert told(healthy(10, **alike | {"return__group_std": lambda i: 0.1 * (i == 5)})).raised() == {}
    assert told(healthy(10, **alike | {"episode__success": lambda i: 1.0})).raised() == {}


# Games that are really played


def games(*speakers):
    """Batches of the toy, a policy each, and what evaluation says of them."""
    batches = [played(speak, seed=number) for number, speak in enumerate(speakers)]
    return [figures_of(batch) for batch in batches], batches


def test_a_policy_that_ends_up_looking_around_repeats_itself():
    rows, batches = games(*[at_random] * 5, *[looking] * 4)
    out = told(rows, batches=batches)
    assert "degenerate_repetition" in out.raised()
    values = out.values
    assert values[0]["action/repeated_useless_rate"] < 0.3 < 0.6 < values[-1]["action/repeated_useless_rate"]
    rows, batches = games(*[at_random] * 9)
    assert told(rows, batches=batches).raised() == {}


def test_a_policy_that_was_taught_elsewhere_is_told_from_noise():
    """Both are never understood and never win; the householder says three verbs over and over, and is told by them."""
    rows, batches = games(*[householder] * 4)
    out = told(rows, batches=batches)
    assert out.raised() == {"cross_domain_prior_collapse": 3}
    text = out.text("cross_domain_prior_collapse")
    assert "100% of turns are not understood" in text and "its verbs: go " in text and "sft.demonstrations" in text
    rows, batches = games(*[noise] * 4)
    assert told(rows, batches=batches).raised() == {}
    rows, batches = games(*[at_random] * 4)
    assert told(rows, batches=batches).raised() == {}


def test_a_policy_that_was_understood_and_then_dissolves_has_no_foreign_prior():
    rows, batches = games(*[at_random] * 5, *[householder] * 4)
    assert "cross_domain_prior_collapse" not in told(rows, batches=batches).raised()


def test_games_that_nobody_wins_stall():
    rows, batches = games(*[noise] * 10)
    assert told(rows, batches=batches).raised() == {"stalled_binary_reward": 10}
    rows, batches = games(*[at_random] * 10)
    assert max(row["episode/success"] for row in rows) > 0 and told(rows, batches=batches).raised() == {}
