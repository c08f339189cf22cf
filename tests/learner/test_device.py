from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from bag_network import make_batch

from jaxmtrl.errors import CapacityError, ConfigError
from jaxmtrl.learner.device import micro_batch_order, put_batch, row_places
from jaxmtrl.parallel.mesh import make_mesh


@pytest.fixture(scope="module")
def mesh():
    return make_mesh(2, 2, 2)


def test_rows_are_dealt_to_micro_batches_in_turn(mesh):
    batch = make_batch([[10 + row] for row in range(5)])
    device = put_batch(batch, micro_batch_rows=4, max_rows=12, mesh=mesh)
    assert device.rows.tokens.shape == (3, 4, 24) and int(device.used) == 2
    # 5 rows, 2 micro-batches: rows 0, 2, 4 to the first and 1, 3 to the second.
    places = row_places(5, used=2, micro_batch_rows=4)
    assert places.tolist() == [0, 4, 1, 5, 2]
    for name in ("tokens", "segment_ids", "positions", "action_mask", "rewards", "turn_ids"):
        flat = np.asarray(getattr(device.rows, name)).reshape(12, 24)
        np.testing.assert_array_equal(flat[places], getattr(batch, name))
    np.testing.assert_array_equal(device.rows.group_ids, batch.group_ids)


def test_padding_rows_are_no_episode(mesh):
    rows = put_batch(make_batch([[12]]), micro_batch_rows=4, max_rows=8, mesh=mesh).rows
    assert np.asarray(rows.segment_ids)[0, 1:].max() == -1 and np.asarray(rows.segment_ids)[1].max() == -1
    assert not np.asarray(rows.action_mask)[0, 1:].any() and np.asarray(rows.turn_ids)[1].max() == -1


def test_rows_are_spread_over_the_devices_that_split_rows(mesh):
    rows = put_batch(make_batch([[12]]), micro_batch_rows=4, max_rows=8, mesh=mesh).rows
    assert rows.tokens.addressable_shards[0].data.shape == (2, 1, 24)
    assert rows.group_ids.sharding.is_fully_replicated


def test_a_batch_without_episodes_uses_no_micro_batch(mesh):
    empty = make_batch([[], []])
    assert int(put_batch(empty, micro_batch_rows=4, max_rows=8, mesh=mesh).used) == 0


def test_too_many_rows_are_refused_with_both_numbers(mesh):
    with pytest.raises(CapacityError, match=r"9 packed rows .* 8;"):
        put_batch(make_batch([[12]] * 9), micro_batch_rows=4, max_rows=8, mesh=mesh)


def test_micro_batches_that_do_not_spread_are_refused_with_the_cure(mesh):
    with pytest.raises(ConfigError, match=r"multiple of .* = 4, got 6; 8 would do"):
        put_batch(make_batch([[12]]), micro_batch_rows=6, max_rows=8, mesh=mesh)


def test_an_action_that_begins_an_episode_is_refused(mesh):
    batch = make_batch([[10, 10]])
    mask = batch.action_mask.copy()
    mask[0, 10] = True  # the first token of the second episode
    with pytest.raises(ValueError, match="column 10: an action token begins episode 1"):
        put_batch(dataclasses.replace(batch, action_mask=mask), micro_batch_rows=4, max_rows=8, mesh=mesh)


def test_every_pass_takes_every_used_micro_batch_once():
    order = micro_batch_order(np.random.default_rng(0), used=5, count=8, epochs=3)
    assert order.dtype == np.int32 and order.shape == (3, 8)
    assert (np.sort(order[:, :5], axis=1) == np.arange(5)).all() and (order[:, 5:] == [5, 6, 7]).all()
    assert len({tuple(row) for row in order.tolist()}) == 3
