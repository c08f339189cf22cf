"""Nothing is learnt from observations, and they are read."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
from doctor_bench import bench, episodes, failures, fresh_gauge, sound_gauge

from jaxmtrl.diagnosis.leaks import check_leaks
from jaxmtrl.models import layers
from jaxmtrl.rollout import pack


def test_a_sound_trainer_passes():
    assert failures(check_leaks(bench(), sound_gauge(), episodes())) == []


def test_an_action_mask_with_observations_in_it_is_caught(monkeypatch: pytest.MonkeyPatch):
    right = pack._columns

    def all_trained(episode, pad_id):
        columns = right(episode, pad_id)
        turn_ids = columns.turn_ids.copy()
        turn_ids[1:] = np.maximum(turn_ids[1:], 0)  # everything but the first token, which nothing predicts
        return dataclasses.replace(columns, turn_ids=turn_ids)

    monkeypatch.setattr(pack, "_columns", all_trained)
    assert "no gradient from observations" in failures(check_leaks(bench(), sound_gauge(), episodes()))


def test_a_mask_that_drops_the_stop_token_is_caught(monkeypatch: pytest.MonkeyPatch):
    right = pack._columns

    def without_last(episode, pad_id):
        columns = right(episode, pad_id)
        last = np.append(columns.turn_ids[1:] != columns.turn_ids[:-1], True)
        return dataclasses.replace(columns, turn_ids=np.where(last, -1, columns.turn_ids).astype(np.int32))

    monkeypatch.setattr(pack, "_columns", without_last)
    assert failures(check_leaks(bench(), sound_gauge(), episodes())) == ["every action token is learnt"]


def test_a_network_that_does_not_read_what_came_before_is_caught(monkeypatch: pytest.MonkeyPatch):
    right = layers.attend_rows
    # Every token a segment of its own: what an action mask as attention mask does to observations.
    monkeypatch.setattr(
        layers,
        "attend_rows",
        lambda q, k, v, ids, way: right(q, k, v, jnp.broadcast_to(jnp.arange(ids.shape[1]), ids.shape)),
    )
    assert "observations are read, by what follows" in failures(check_leaks(bench(), fresh_gauge(), episodes()))
