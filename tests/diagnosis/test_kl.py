"""The pull of the KL, in the reward and in the loss, and the wrong sign in either."""

from __future__ import annotations

import pytest
from doctor_bench import bench, by_name, episodes, failures, sound_gauge

from jaxmtrl.diagnosis.kl import check_kl
from jaxmtrl.learner import objective, targets

LOSS = "algorithm.kl_place=loss"
SIGN = "the KL pulls back to the reference"


def test_a_sound_kl_in_the_reward_passes():
    assert failures(check_kl(bench(), sound_gauge(), episodes())) == []


@pytest.mark.parametrize("kind", ["k1", pytest.param("k3", marks=pytest.mark.slow)])
def test_a_sound_kl_in_the_loss_passes(kind: str):
    findings = by_name(check_kl(bench(LOSS, f"algorithm.kl_kind={kind}"), sound_gauge(), episodes()))
    assert failures(list(findings.values())) == []
    assert findings[SIGN].number == pytest.approx(0.5, abs=0.01)  # policy half a nat above the reference


def test_a_config_without_a_kl_has_none_to_check():
    (finding,) = check_kl(bench("algorithm.kl_coef=0", "algorithm.kl_target=0"), sound_gauge(), episodes())
    assert finding.passed and "not used" in finding.said


def test_the_wrong_sign_in_the_reward_is_caught(monkeypatch: pytest.MonkeyPatch):
    right = targets.kl_penalised_rewards
    monkeypatch.setattr(
        targets, "kl_penalised_rewards", lambda *args, kl_coef, **rest: right(*args, kl_coef=-kl_coef, **rest)
    )
    finding = by_name(check_kl(bench(), sound_gauge(), episodes()))[SIGN]
    assert not finding.passed and finding.number == pytest.approx(0.5, abs=0.01)


def test_the_wrong_sign_in_the_loss_is_caught(monkeypatch: pytest.MonkeyPatch):
    right = objective.kl_loss
    monkeypatch.setattr(objective, "kl_loss", lambda *args, **rest: -right(*args, **rest))
    finding = by_name(check_kl(bench(LOSS, "algorithm.kl_kind=k1"), sound_gauge(), episodes()))[SIGN]
    assert not finding.passed and finding.number == pytest.approx(-0.5, abs=0.01)
