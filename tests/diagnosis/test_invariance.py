"""Layouts that must not matter, and the two classic ways in which they come to matter."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
import pytest
from doctor_bench import bench, episodes, failures, fresh_gauge, sound_gauge

from jaxmtrl.diagnosis.invariance import Layouts, check_invariance, check_micro_batches, check_packing
from jaxmtrl.learner.objective import Objective
from jaxmtrl.models import layers


@pytest.mark.slow
def test_a_sound_trainer_passes():
    findings = check_invariance(bench(), sound_gauge(), episodes())
    assert failures(findings) == []
    assert all(finding.number is not None and 0 < finding.number < 1e-5 for finding in findings)  # really measured


def test_attention_across_episodes_of_a_row_is_caught(monkeypatch: pytest.MonkeyPatch):
    right = layers.attend_rows
    monkeypatch.setattr(layers, "attend_rows", lambda q, k, v, ids, way: right(q, k, v, jnp.zeros_like(ids)))
    assert not check_packing(Layouts(bench(), fresh_gauge(), episodes())).passed


@pytest.mark.slow
def test_a_mean_of_means_is_caught(monkeypatch: pytest.MonkeyPatch):
    right = Objective.loss

    def mean_a_micro_batch(self, network, params, rows, targets, weights, *rest):
        own = dataclasses.replace(
            weights, policy=weights.policy / jnp.sum(weights.policy), token=weights.token / jnp.sum(weights.token)
        )
        return right(self, network, params, rows, targets, own, *rest)

    monkeypatch.setattr(Objective, "loss", mean_a_micro_batch)
    finding = check_micro_batches(Layouts(bench(), fresh_gauge(), episodes()))
    assert not finding.passed and finding.number is not None and finding.number > 0.01
