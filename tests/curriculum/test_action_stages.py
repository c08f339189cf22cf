"""When a stage of the action space is left, worked out by hand; and that a state goes through JSON."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from jaxmtrl.config.actions_section import ActionsSection
from jaxmtrl.curriculum.action_stages import StageState, after_iteration, evaluated_stage, figures
from jaxmtrl.types import Episode, EpisodeStop, Turn, TurnStop

STAGES = {"a": ("go",), "b": ("take",), "c": ("put",)}


def section(**changes) -> ActionsSection:
    plain = {"every": 2, "least": 10, "confirmations": 1, "stay": 0, "advance_above": 0.7}
    return ActionsSection(stages=STAGES, **{**plain, **changes})


def batch(wins: int, games: int = 10, failed: int = 0, **metrics: float) -> list[Episode]:
    nothing = np.zeros(0, np.int32)
    turn = Turn(
        prompt_ids=nothing,
        action_ids=nothing,
        action_logprobs=np.zeros(0, np.float32),
        reward=0.0,
        stop=TurnStop.STOP_TOKEN,
        metrics=metrics,
    )
    return [
        Episode(
            task_id="t",
            group=0,
            index=0,
            turns=(turn,),
            stop=EpisodeStop.FAILED if number >= games else EpisodeStop.DONE,
            success=number < wins,
            policy_version=0,
        )
        for number in range(games + failed)
    ]


def course(made: ActionsSection, wins: list[int], **how) -> list[int]:
    """The stage after each iteration of ten games."""
    state, found = StageState.start(made), []
    for iteration, won in enumerate(wins):
        step = after_iteration(made, state, batch(won, **how), iteration + 1)
        state = StageState.start(made, json.loads(json.dumps(dataclasses.asdict(step.state))))
        assert state == step.state
        found.append(state.stage)
    return found


def test_a_stage_is_left_above_the_gate_after_every_measurement():
    """Measured after 2, 4, 6: 8 + 8 of 20, 7 + 7 (not above .7), 8 + 9."""
    assert course(section(), [8, 8, 7, 7, 8, 9]) == [0, 1, 1, 1, 1, 2]


def test_two_confirmations_and_a_stay_hold_it_back():
    assert course(section(confirmations=2), [9] * 8) == [0, 0, 0, 1, 1, 1, 1, 2]
    assert course(section(stay=5), [9] * 8) == [0, 0, 0, 0, 0, 1, 1, 1]


def test_a_measurement_waits_until_enough_was_played():
    assert course(section(least=40), [9] * 5) == [0, 0, 0, 1, 1]
    assert course(section(least=11, every=1), [9] * 3, failed=5) == [0, 1, 1]  # failed games do not count


def test_it_returns_only_where_it_was_told_to():
    assert course(section(), [8, 8, 0, 0, 0, 0]) == [0, 1, 1, 1, 1, 1]
    assert course(section(return_below=0.1), [8, 8, 0, 0, 0, 0]) == [0, 1, 1, 0, 0, 0]


def test_it_never_goes_below_its_start():
    assert course(section(return_below=0.1, start="b"), [0, 0, 8, 8]) == [1, 1, 1, 2]


def test_after_the_last_stage_there_is_none():
    assert course(section(every=1), [9] * 4) == [1, 2, 2, 2]


def test_iterations_alone_decide_where_they_are_named():
    made = ActionsSection(stages=STAGES, advance="iterations", at=(2, 3))
    assert course(made, [0] * 4) == [0, 1, 2, 2]


def test_other_tasks_are_measured_anew():
    made, state = section(), StageState()
    for iteration, (won, level) in enumerate([(9, "one"), (9, "two"), (9, "two")]):
        state = after_iteration(made, state, batch(won), iteration + 1, tasks=level).state
        assert state.stage == (1 if iteration == 2 else 0)


def test_a_decision_is_told_with_its_numbers():
    step = after_iteration(section(every=1), StageState(), batch(8), 1)
    assert step.message == "actions: stage a → b (success 0.80, above 0.7; n 10)"


@pytest.mark.parametrize(("evaluate", "stage"), [("current", 1), ("last", 2)])
def test_evaluations_are_played_in_the_stage_that_is_asked_for(evaluate, stage):
    assert evaluated_stage(section(evaluate=evaluate), StageState(stage=1)) == stage


def test_shares_are_of_turns_of_games_that_did_not_fail():
    found = figures([*batch(0, 3, action_refused=1.0), *batch(0, 1, action_macro=1.0)])
    assert found == {"actions/refused_share": 0.75, "actions/macro_share": 0.25}
    assert figures([]) == {"actions/refused_share": 0.0, "actions/macro_share": 0.0}
