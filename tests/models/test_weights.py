"""Published tensors and ours: a part that is read is that part of the whole, whatever is cut."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest
import tiny

from jaxmtrl.models.decoder import Network
from jaxmtrl.models.weights import tensors

SECTION = dataclasses.replace(tiny.MODEL, qkv_bias=True, qk_norm=True, tied_head=False, vocab_multiple=64)
NETWORK = Network.from_section(SECTION, 259, "float32")
POLICY = NETWORK.init(jax.random.key(0))["policy"]


def at(path):
    leaf = POLICY
    for name in path:
        leaf = leaf[name]
    return np.asarray(leaf)


def test_every_parameter_has_one_published_twin():
    paths = sorted(tensor.path for tensor in tensors(NETWORK.config))
    leaves = jax.tree_util.tree_leaves_with_path(POLICY)
    assert paths == sorted(tuple(key.key for key in path) for path, _ in leaves)
    names = [name for tensor in tensors(NETWORK.config) for name in tensor.names]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("tensor", list(tensors(NETWORK.config)), ids=lambda tensor: tensor.name)
def test_a_part_is_that_part_of_the_whole(tensor):
    """Cut along every dimension, head widths and layers too; rows beyond the vocabulary read as zero."""
    ours = at(tensor.path).copy()
    if tensor.padded:
        ours[259:] = 0.0
    stored = {name: tensor.write(ours[layer] if tensor.layers else ours) for layer, name in enumerate(tensor.names)}
    assert {array.shape for array in stored.values()} == {tensor.shape}
    rng = np.random.default_rng(0)
    for _ in range(8):
        edges = [np.sort(rng.choice(size + 1, 2, replace=False)) for size in ours.shape]
        index = tuple(slice(int(low), int(high)) for low, high in edges)
        part = tensor.read(index, lambda name, cuts: stored[name][cuts], np.float32)
        np.testing.assert_array_equal(part, ours[index])
    whole = tensor.read((slice(None),) * ours.ndim, lambda name, cuts: stored[name][cuts], np.float32)
    np.testing.assert_array_equal(whole, ours)


def test_a_published_query_is_heads_times_widths_by_embedding():
    """Row h * 8 + w of q_proj is column (head h, width w) of ours."""
    query = next(tensor for tensor in tensors(NETWORK.config) if tensor.path[-1] == "query")
    ours = at(query.path)[1]  # [D, N, H]
    published = query.write(ours)
    assert published.shape == (32, 32)
    np.testing.assert_array_equal(published[2 * 8 + 3], ours[:, 2, 3])
