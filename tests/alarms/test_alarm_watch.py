"""From iterations to messages: once an episode of trouble, the same after a resume, and what follows by itself."""

from __future__ import annotations

import json

import pytest
from alarm_plays import at_random, earning, figures_of, healthy, householder, looking, played, told
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxmtrl.alarms.actions import Turned, turned
from jaxmtrl.alarms.history import REMEMBERED, History, Look, Mean, fell, mean
from jaxmtrl.alarms.state import AlarmState
from jaxmtrl.alarms.watch import measure, watch
from jaxmtrl.config.alarms_section import ALARMS, MOST_REMEMBERED, AlarmsSection
from jaxmtrl.scores import Score, fall_interval

STALL = {"return/positive_share": 0.0, "episode/success": 0.0}
FINE = {"return/positive_share": 0.5, "episode/success": 0.5}


def through_json(state: AlarmState) -> AlarmState:
    return AlarmState.of(json.loads(json.dumps(state.as_dict(), allow_nan=False)))


class Result:
    success, ci95, n = 0.5, (0.4, 0.6), 100


def test_an_alarm_is_told_once_and_once_again_when_the_trouble_comes_back():
    """Ten stalled iterations, five more, six sound ones, ten stalled: raised at 10, over at 20, raised at 31."""
    section = AlarmsSection(stall_iterations=10, calm=5)
    out = told([STALL] * 15 + [FINE] * 6 + [STALL] * 10, section)
    assert [(finished, text.split(":")[0]) for finished, text in out.messages] == [
        (10, "alarm stalled_binary_reward since RL iteration 1"),
        (20, "alarm stalled_binary_reward is over"),
        (31, "alarm stalled_binary_reward since RL iteration 22"),
    ]
    assert "no sign of it since iteration 16 (it began with 1)" in out.messages[1][1]
    curve = [values["alarm/stalled_binary_reward"] for values in out.values]
    assert curve == [0.0] * 9 + [1.0] * 10 + [0.0] * 11 + [1.0]


def test_a_short_calm_does_not_end_an_alarm():
    section = AlarmsSection(stall_iterations=1, calm=3)
    rows = ([STALL] + [FINE] * 2) * 5
    assert len(told(rows, section).messages) == 1
    assert len(told(rows, AlarmsSection(stall_iterations=1, calm=2)).messages) == 10


def test_every_alarm_has_a_curve_and_those_that_are_off_have_none():
    assert {f"alarm/{name}" for name in ALARMS} <= set(told(healthy(1)).values[0])
    values = told(healthy(1), AlarmsSection(echo_trap="off")).values[0]
    assert "alarm/echo_trap" not in values and "alarm/forgetting" in values


def test_switched_off_it_measures_and_remembers_nothing_else():
    batch = played(at_random, tasks=2)
    out = told([STALL] * 12, AlarmsSection(on=False), batches=[batch] * 12)
    assert out.messages == [] and out.state.history == History() and out.state.verbs
    assert "action/command_entropy_nats" in out.values[0] and not any(n.startswith("alarm/") for n in out.values[0])


def test_while_the_critic_warms_up_there_is_nothing_to_judge():
    batch = played(at_random, tasks=2)
    where = {"finished": 1, "iterations": 1, "reward_scale": None}
    seen = watch(AlarmsSection(stall_iterations=1), AlarmState(), batch, STALL, **where, rl=False)
    assert seen == measure(AlarmsSection(), AlarmState(), batch, reward_scale=None)
    assert watch(AlarmsSection(stall_iterations=1), AlarmState(), batch, STALL, **where).values["alarm/echo_trap"] == 0


def test_an_alarm_that_is_off_is_silent():
    assert told([STALL] * 12, AlarmsSection(stalled_binary_reward="off")).messages == []


def _some_rows(kinds: list[int]) -> tuple[list[dict[str, float]], list]:
    """Iterations and batches of very different kinds, one for each number."""
    speakers = [at_random, looking, householder]
    batches = [played(speakers[kind], tasks=2, plays=2, seed=number) for number, kind in enumerate(kinds)]
    extra = [{"update/gradient_norm": 1.0 + 9 * (kind == 1), "policy/sampled_entropy_nats": 1 / (1 + n)} for n, kind in
             enumerate(kinds)]  # fmt: skip
    return [figures_of(batch) | more for batch, more in zip(batches, extra)], batches


@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(0, 2), min_size=1, max_size=12), st.integers(0, 12))
def test_resumed_equals_unbroken(kinds, broken_at):
    """Through JSON after one iteration, or after each: the same messages, curves and state."""
    rows, batches = _some_rows(kinds)
    section = AlarmsSection(opening=2, window=2, stall_iterations=2, calm=1, swing_window=4, prior_success=1.0)

    def once(state):
        return through_json(state) if len(state.history.looks) == broken_at else state

    unbroken = told(rows, section, batches=batches)
    for through in (once, through_json):
        resumed = told(rows, section, batches=batches, through=through)
        assert (resumed.state, resumed.messages, resumed.values) == (unbroken.state, unbroken.messages, unbroken.values)


def test_a_state_with_everything_in_it_goes_through_json():
    state = told([STALL] * 12, AlarmsSection(stalled_binary_reward="reward_scaling")).state
    state = state.evaluated("heldout", 3, Result()).evaluated("heldout", 5, Result())
    assert state.ringing and state.turned and state.splits and through_json(state) == state
    assert AlarmState.of({}) == AlarmState() == through_json(AlarmState())


def test_what_is_remembered_is_bounded():
    """However long a run, a checkpoint holds the last 50 iterations, the opening and nothing that no rule reads."""
    out = told([row | {"some/metric": 1.0} for row in healthy(200)])
    assert len(out.state.history.looks) == MOST_REMEMBERED and len(out.state.history.opening) == 5
    assert out.state.history.looks[-1].finished == 200 and out.state.history.opening[0].finished == 1
    assert set(out.state.history.looks[0].values) <= set(REMEMBERED)
    assert len(json.dumps(out.state.as_dict())) < 50_000


def test_harder_tasks_are_no_collapse():
    """A new level halves success at once: the history begins anew, and a fall within the level counts."""
    rows = healthy(20, episode__success=lambda i: 0.8 if i < 7 else 0.2)
    assert "early_collapse" in told(rows).raised()
    assert told(rows, tasks=lambda i: "easy" if i < 7 else "hard").raised() == {}
    rows = healthy(20, episode__success=lambda i: 0.9 if i < 7 else 0.8 if i < 12 else 0.2)
    assert told(rows, tasks=lambda i: "easy" if i < 7 else "hard").raised()["early_collapse"] > 12


def test_an_iteration_of_which_little_is_known_is_no_trouble():
    """All episodes failed, no optimizer step was taken: nothing is measured, and nothing is made of it."""
    rows = healthy(12)
    rows[7] = {"episode/failed": 64.0, "episode/success": float("nan")}
    out = told(rows)
    assert out.messages == [] and out.state.history.looks[7].values == {}
    assert told([{}] * 30).messages == []


@given(st.integers(2, 30), st.randoms())
@settings(max_examples=20, deadline=None)
def test_the_order_in_which_metrics_come_says_nothing(count, random):
    rows = healthy(count, episode__success=lambda i: 0.5 if i < 6 else 0.0)
    shuffled = [dict(random.sample(list(row.items()), len(row))) for row in rows]
    assert told(shuffled).messages == told(rows).messages


def test_verbs_that_were_understood_are_remembered_over_iterations():
    """Three verbs are understood at random play; the householder says three others, so that it covers none of them."""
    state = measure(AlarmsSection(), AlarmState(), played(at_random), reward_scale=None).state
    assert set(state.verbs) == {"look", "open", "take", "hit"}
    seen = measure(AlarmsSection(), state, played(householder), reward_scale=None)
    assert seen.state.verbs == state.verbs and seen.values["action/verb_coverage"] == 0
    seen = measure(AlarmsSection(), state, played(looking), reward_scale=None)
    assert 0.25 <= seen.values["action/verb_coverage"] <= 1


def test_only_a_run_that_scales_rewards_has_a_scaled_variance():
    batch = [earning(1), earning(0, group=1)]
    assert "return/scaled_variance" not in measure(AlarmsSection(), AlarmState(), batch, reward_scale=None).values
    values = measure(AlarmsSection(), AlarmState(), batch, reward_scale=4.0).values
    assert values["return/scaled_variance"] == 4.0 and values["return/scaled_variance_fits"] == 1


def test_a_fall_counts_the_best_of_windows_and_its_error():
    """Means over two: .5, .7, .5 of errors .1, so √(.01 / 2) = .0707 each. From .7 to .5 are 2 errors of √2 · .0707."""
    history = History()
    for finished, success in enumerate((0.4, 0.6, 0.8, 0.2), start=1):
        values = {"episode/success": success, "episode/success_error": 0.1}
        history = history.including(Look.of(finished, values), opening=2, window=2)
    best = history.best["episode/success"]
    assert (best.value, best.finished) == (pytest.approx(0.7), 3) and best.error == pytest.approx(0.0707, abs=1e-4)
    last = Mean(value=0.5, error=best.error, finished=4)
    assert fell(best, last, share=0.2, errors=1.9) and not fell(best, last, share=0.3, errors=1.9)
    assert not fell(best, last, share=0.2, errors=2.1)
    assert mean(history.looks, "episode/success") == pytest.approx(0.5) and mean(history.looks, "kl/none") is None


def test_the_interval_of_a_fall_is_newcombes():
    """His example (a): 56/70 and 48/80: .2 [.0524, .3339] by method 10."""
    before = Score(iteration=0, n=70, success=0.8, low=0.6918, high=0.8769)
    now = Score(iteration=1, n=80, success=0.6, low=0.4904, high=0.7004)
    assert fall_interval(before, now) == (pytest.approx(0.0524, abs=2e-4), pytest.approx(0.3339, abs=2e-4))


def test_an_evaluation_of_nothing_is_none():
    class Nothing(Result):
        success, n = float("nan"), 0

    assert AlarmState().evaluated("heldout", 1, Nothing()) == AlarmState()


# What follows


def test_a_kl_warm_up_begins_low_and_grows():
    """Raised after iteration 10: .01 in the next, .055 after 50 more, .1 after 100 and from then on."""
    section = AlarmsSection(stalled_binary_reward="kl_warm_up")
    out = told([STALL] * 12, section)
    assert out.state.turned == {"kl_warm_up": 10} and "0.01 from the next iteration on and grows to 0.1" in out.text(
        "stalled_binary_reward"
    )
    weights = [turned(section, out.state.turned, finished).kl_coef for finished in (10, 60, 110, 500)]
    assert weights == pytest.approx([0.01, 0.055, 0.1, 0.1])
    assert turned(section, out.state.turned, 60).named(1.0) == {"kl/coef": pytest.approx(0.055)}


def test_nothing_is_turned_before_an_alarm_nor_by_a_message():
    assert turned(AlarmsSection(), {}, 10) == Turned() and Turned().named(2.0) == {}
    assert told([STALL] * 12).state.turned == {}


def test_reward_scaling_aims_at_a_variance():
    section = AlarmsSection(stalled_binary_reward="reward_scaling", scaled_variance=4.0)
    state = told([STALL] * 12, section).state
    assert turned(section, state.turned, 12) == Turned(return_variance=4.0)
    assert turned(section, state.turned, 12).named(1.5) == {"return/reward_scale": 1.5}


def test_what_has_begun_is_not_begun_again():
    """The warm-up of the first time of trouble goes on; to begin it anew would take the weight back to .01."""
    section = AlarmsSection(stalled_binary_reward="kl_warm_up", stall_iterations=2, calm=1)
    out = told([STALL] * 2 + [FINE] + [STALL] * 2, section)
    assert out.state.turned == {"kl_warm_up": 2}
    assert "kl_warm_up began after iteration 2 already" in out.messages[-1][1]


def test_stop_gives_its_reason_once():
    """A run that is resumed all the same is not stopped again by the trouble that it was resumed with."""
    section = AlarmsSection(stalled_binary_reward="stop")
    out = told([STALL] * 15, section)
    (reason,) = out.stops
    assert (
        reason.startswith("alarm stalled_binary_reward since RL iteration 1: no play had") and "easier tasks" in reason
    )
    assert out.messages[0][1].endswith("The run stops here.") and out.state.turned == {}


def test_two_alarms_at_once_both_give_their_reason():
    section = AlarmsSection(
        stalled_binary_reward="stop", cross_domain_prior_collapse="stop", stall_iterations=3, prior_success=0.5
    )
    batch = played(householder)
    out = told([figures_of(batch)] * 3, section, batches=[batch] * 3)
    (reason,) = out.stops
    assert "cross_domain_prior_collapse" in reason and "stalled_binary_reward" in reason


def test_the_facade_reads_metrics_it_is_given_before_its_own_figures():
    """What it measures itself wins: a caller cannot log one variance and have another judged."""
    batch = [earning(1), earning(0, group=1)]
    metrics = {"return/variance": 99.0, "kl/reference_nats": 0.5}
    seen = watch(AlarmsSection(), AlarmState(), batch, metrics, finished=1, iterations=9, reward_scale=None)
    assert seen.state.history.looks[0].values["return/variance"] == 0.25
    assert seen.state.history.looks[0].values["kl/reference_nats"] == 0.5
