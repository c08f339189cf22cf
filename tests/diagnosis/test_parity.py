"""Sampler against learner, and the count of compilations: sound, and with a bug planted in each."""

from __future__ import annotations

import pytest
from doctor_bench import DirectPool, bench, by_name, failures, rehearsal
from short_env import TASKS

from jaxmtrl.diagnosis.bench import rehearse
from jaxmtrl.diagnosis.compiled import check_compiled
from jaxmtrl.diagnosis.parity import check_parity
from jaxmtrl.learner import objective, programs, update


def test_a_sound_trainer_passes():
    findings = [*check_parity(bench(), rehearsal()), *check_compiled(rehearsal())]
    assert failures(findings) == []
    assert "temperature 0.7" in findings[0].said


def test_three_turns_are_played():
    assert max(len(episode.turns) for episode in rehearsal().episodes) >= 3


def test_a_learner_that_forgets_the_temperature_is_caught(monkeypatch: pytest.MonkeyPatch):
    right = update.score
    for module in (update, objective):
        monkeypatch.setattr(module, "score", lambda *args, temperature, **rest: right(*args, temperature=1.0, **rest))
    findings = by_name(check_parity(bench(), rehearse(bench(), DirectPool(), TASKS)))
    gap = findings["sampler and learner agree"]
    assert not gap.passed and gap.number is not None and gap.number > 0.01
    assert "temperature" in gap.cure


@pytest.mark.slow
def test_a_learner_that_compiles_at_every_call_is_caught(monkeypatch: pytest.MonkeyPatch):
    right = programs.Learner._call

    def forgetful(self, name, *args, **kwargs):
        self._programs.clear()
        return right(self, name, *args, **kwargs)

    monkeypatch.setattr(programs.Learner, "_call", forgetful)
    (finding,) = check_compiled(rehearse(bench(), DirectPool(), TASKS))
    assert not finding.passed
    # score and its reference, targets and update: all again in the second iteration, and counted by jax as well.
    assert finding.number is not None and finding.number >= 4
