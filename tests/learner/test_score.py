from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from bag_network import VOCAB, BagNetwork, make_batch, small_decoder

from jaxmtrl.batch import TokenBatch
from jaxmtrl.learner.score import CHUNK_COLUMNS, score


@dataclasses.dataclass(frozen=True)
class GivenHidden:
    """A network whose hidden states are its parameters: gradients show which of them were read."""

    def hidden(self, params, tokens, positions, segment_ids, noise=None):
        return params["hidden"]

    def critic_hidden(self, params, hidden, *read):
        return hidden

    def logits(self, params, hidden):
        return hidden @ params["head"]

    def values(self, params, hidden):
        return jnp.sum(hidden, axis=-1)


def rows_of(tokens, *, segment_ids, action_mask, bootstrap_mask=None) -> TokenBatch:
    """One packed row; positions restart with every segment."""
    segment_ids, action_mask = np.asarray([segment_ids], np.int32), np.asarray([action_mask], bool)
    starts = [int(np.argmax(segment_ids[0] == segment)) for segment in segment_ids[0]]
    nothing = np.zeros(segment_ids.shape, np.float32)
    return TokenBatch(
        tokens=np.asarray([tokens], np.int32),
        segment_ids=segment_ids,
        positions=np.where(segment_ids >= 0, np.arange(segment_ids.shape[1]) - np.asarray([starts]), 0).astype(
            np.int32
        ),
        action_mask=action_mask,
        behaviour_logprobs=nothing,
        rewards=nothing,
        turn_ids=np.where(action_mask, 0, -1).astype(np.int32),
        anchor_ids=np.full(segment_ids.shape, -1, np.int32),
        bootstrap_mask=np.zeros(segment_ids.shape, bool) if bootstrap_mask is None else np.asarray([bootstrap_mask]),
        group_ids=np.zeros(2, np.int32),
    )


def test_log_probs_are_taken_at_the_temperature():
    # Logits [1, 0], T = 0.5, token 0: log(e^2 / (e^2 + 1)) = -0.126928. Forgetting T gives -0.313262.
    # Entropy: p = 0.880797, so -(p log p + (1-p) log(1-p)) = 0.365334.
    params = {"hidden": jnp.asarray([[[1.0, 0.0], [9.0, 9.0]]]), "head": jnp.eye(2)}
    rows = rows_of([1, 0], segment_ids=[0, 0], action_mask=[0, 1])
    scores = score(GivenHidden(), params, rows, temperature=0.5)
    np.testing.assert_allclose(scores.logprobs, [[0, -0.126928]], atol=1e-6)
    np.testing.assert_allclose(scores.entropies, [[0, 0.365334]], atol=1e-6)
    np.testing.assert_allclose(scores.values, [[0, 1.0]], atol=1e-6)


def test_scores_equal_a_slow_loop_over_packed_rows_longer_than_a_chunk():
    length = CHUNK_COLUMNS + 30
    batch = make_batch([[61, 30], [90], [7], []], length=length)
    bootstrap = np.zeros(batch.tokens.shape, bool)
    bootstrap[0, 60] = bootstrap[2, 6] = True  # last columns of two episodes, both off-action
    assert not batch.action_mask[bootstrap].any()
    batch = dataclasses.replace(batch, bootstrap_mask=bootstrap, positions=np.minimum(batch.positions, 63))
    network = BagNetwork()
    params = network.init(jax.random.key(0))
    scores = jax.jit(lambda p, b: score(network, p, b, temperature=0.7))(params, batch)

    hidden = np.asarray(network.hidden(params, batch.tokens, batch.positions, None))
    expected = {name: np.zeros(batch.tokens.shape) for name in ("logprobs", "entropies", "values")}
    for row, column in np.argwhere(batch.action_mask | bootstrap):
        before = hidden[row, column - 1]
        expected["values"][row, column] = network.values(params, before)
        if batch.action_mask[row, column]:
            logits = np.asarray(network.logits(params, before), np.float64) / 0.7
            logprobs = logits - np.log(np.sum(np.exp(logits)))
            expected["logprobs"][row, column] = logprobs[batch.tokens[row, column]]
            expected["entropies"][row, column] = -np.sum(np.exp(logprobs) * logprobs)
    for name, want in expected.items():
        np.testing.assert_allclose(getattr(scores, name), want, atol=2e-5, err_msg=name)


def test_only_the_states_before_readout_columns_have_a_gradient():
    #        p0 p1 a0 o0 a1 | p0 a0 bootstrap | padding
    rows = rows_of(
        [1, 1, 0, 1, 0, 1, 0, 1, 1],
        segment_ids=[0, 0, 0, 0, 0, 1, 1, 1, -1],
        action_mask=[0, 0, 1, 0, 1, 0, 1, 0, 0],
        bootstrap_mask=[False] * 7 + [True, False],
    )
    params = {"hidden": jax.random.normal(jax.random.key(0), (1, 9, 2)), "head": jnp.eye(2)}

    def total(hidden, field):
        scores = score(GivenHidden(), {**params, "hidden": hidden}, rows, temperature=1.0, entropy_gradient=True)
        return jnp.sum(getattr(scores, field))

    read = {
        field: np.flatnonzero(np.abs(jax.grad(total)(params["hidden"], field)[0]).sum(-1)).tolist()
        for field in ("logprobs", "entropies", "values")
    }
    # The state at p0 predicts p1, the one at a0 predicts o0: neither is trained.
    assert read == {"logprobs": [1, 3, 5], "entropies": [1, 3, 5], "values": [1, 3, 5, 6]}


def test_entropy_has_no_gradient_unless_it_is_asked_for():
    rows = rows_of([1, 0], segment_ids=[0, 0], action_mask=[0, 1])
    params = {"hidden": jnp.asarray([[[1.0, 0.0], [0.0, 0.0]]]), "head": jnp.eye(2)}
    grads = jax.grad(lambda p: jnp.sum(score(GivenHidden(), p, rows, temperature=1.0).entropies))(params)
    assert all(not leaf.any() for leaf in jax.tree.leaves(grads))


def test_an_episode_never_predicts_the_first_token_of_the_next():
    rows = rows_of([1, 0, 0], segment_ids=[0, 0, 1], action_mask=[0, 1, 1])
    params = {"hidden": jnp.ones((1, 3, 2)), "head": jnp.eye(2)}
    np.testing.assert_array_equal(score(GivenHidden(), params, rows, temperature=1.0).logprobs[0, 2], 0.0)


def test_what_padding_holds_reaches_neither_scores_nor_gradients():
    rows = rows_of([1, 0, 0, 0], segment_ids=[0, 0, -1, -1], action_mask=[0, 1, 0, 0])
    hidden = jnp.asarray([[[1.0, 0.0], [jnp.nan, 0.0], [jnp.inf, 0.0], [jnp.nan, jnp.nan]]])

    def total(params):
        scores = score(GivenHidden(), params, rows, temperature=1.0, entropy_gradient=True)
        return jnp.sum(scores.logprobs) + jnp.sum(scores.entropies) + jnp.sum(scores.values)

    value, grads = jax.value_and_grad(total)({"hidden": hidden, "head": jnp.eye(2)})
    assert np.isfinite(value) and all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(grads))


def test_no_array_of_logits_is_larger_than_one_chunk():
    network, rows_count, length = BagNetwork(), 4, 4 * CHUNK_COLUMNS
    batch = make_batch([[60] * 4] * rows_count, length=length)
    params = network.init(jax.random.key(0))

    def total(params):
        scores = score(network, params, batch, temperature=1.0, entropy_gradient=True)
        return jnp.sum(scores.logprobs) + jnp.sum(scores.entropies)

    shapes = shapes_in(jax.make_jaxpr(jax.grad(total))(params).jaxpr)
    largest = max(int(np.prod(shape)) for shape in shapes if shape and shape[-1] == VOCAB)
    assert largest == rows_count * CHUNK_COLUMNS * VOCAB


def shapes_in(jaxpr) -> set[tuple[int, ...]]:
    """Shapes of everything that a jaxpr computes, inner ones included."""
    shapes = set()
    for equation in jaxpr.eqns:
        shapes |= {tuple(variable.aval.shape) for variable in equation.outvars}
        for inner in jax.tree.leaves(list(equation.params.values()), is_leaf=lambda x: hasattr(x, "eqns")):
            inner = getattr(inner, "jaxpr", inner)
            if hasattr(inner, "eqns"):
                shapes |= shapes_in(inner)
    return shapes


# The real decoder, over rows of 16 columns. An episode is p0 p1 a0 o0 a1 a2.
EPISODE = [3, 7, 11, 5, 2, 9]
MASK = [0, 0, 1, 0, 1, 1]
LENGTH = 16


@pytest.fixture(scope="module")
def decoder_logprobs():
    network, params = small_decoder()
    scored = jax.jit(lambda params, rows: score(network, params, rows, temperature=1.0).logprobs[0])
    return lambda rows: np.asarray(scored(params, rows))


def placed(*starts: int, pad: int = 0, episode=EPISODE) -> TokenBatch:
    """The episode at the given columns, as segments 0, 1, …; `pad` everywhere else."""
    tokens, segments, mask = [pad] * LENGTH, [-1] * LENGTH, [0] * LENGTH
    for segment, start in enumerate(starts):
        span = slice(start, start + len(episode))
        tokens[span], segments[span], mask[span] = episode, [segment] * len(episode), MASK
    return rows_of(tokens, segment_ids=segments, action_mask=mask)


def test_padding_side_amount_and_id_do_not_matter(decoder_logprobs):
    alone = decoder_logprobs(placed(0))[:6]
    assert (alone[np.asarray(MASK, bool)] < 0).all()
    for start in (1, 5, 10):
        for pad in (0, 9, 3):  # unused, a token that ends the episode, a token that begins it
            np.testing.assert_allclose(decoder_logprobs(placed(start, pad=pad))[start : start + 6], alone, atol=1e-5)


def test_packed_episodes_score_as_they_do_alone(decoder_logprobs):
    alone = decoder_logprobs(placed(0))[:6]
    packed = decoder_logprobs(placed(0, 6))
    np.testing.assert_allclose(packed[:6], alone, atol=1e-5)
    np.testing.assert_allclose(packed[6:12], alone, atol=1e-5)


def test_a_token_of_one_episode_changes_nothing_in_the_next(decoder_logprobs):
    rows = placed(0, 6)
    changed = rows.tokens.copy()
    changed[0, 3] = 40
    before, after = decoder_logprobs(rows), decoder_logprobs(dataclasses.replace(rows, tokens=changed))
    np.testing.assert_array_equal(before[6:], after[6:])


def test_an_observation_is_read_though_it_is_not_trained(decoder_logprobs):
    # The action mask is not the attention mask: o0 matters to a1 and a2 and not to a0, which came before it.
    before = decoder_logprobs(placed(0))
    after = decoder_logprobs(placed(0, episode=[3, 7, 11, 40, 2, 9]))
    assert before[2] == after[2]
    assert (np.abs(before[4:6] - after[4:6]) > 1e-4).all()


def masked(rows: TokenBatch, support_ids, supports) -> TokenBatch:
    return dataclasses.replace(
        rows, support_ids=np.asarray([support_ids], np.int32), supports=np.asarray(supports, bool)
    )


def test_log_probs_are_of_what_could_be_drawn():
    """Logits 1, 0, 9 of which the third could not be drawn, token 0: log(e / (e + 1)) = -0.313262; entropy .582203."""
    params = {"hidden": jnp.asarray([[[1.0, 0.0, 9.0], [0.0, 0.0, 0.0]]]), "head": jnp.eye(3)}
    rows = rows_of([1, 0], segment_ids=[0, 0], action_mask=[0, 1])
    scores = score(GivenHidden(), params, masked(rows, [0, 1], [[1, 1, 1], [1, 1, 0]]), temperature=1.0)
    np.testing.assert_allclose(scores.logprobs, [[0, -0.313262]], atol=1e-6)
    np.testing.assert_allclose(scores.entropies, [[0, 0.582203]], atol=1e-6)
    free = score(GivenHidden(), params, masked(rows, [0, 0], [[1, 1, 1], [1, 1, 0]]), temperature=1.0)
    plain = score(GivenHidden(), params, rows, temperature=1.0)
    np.testing.assert_array_equal(free.logprobs, plain.logprobs)


def test_what_could_not_be_drawn_has_no_gradient():
    rows = masked(rows_of([1, 0], segment_ids=[0, 0], action_mask=[0, 1]), [0, 1], [[1, 1, 1], [1, 1, 0]])

    def total(params):
        scores = score(GivenHidden(), params, rows, temperature=0.5, entropy_gradient=True)
        return jnp.sum(scores.logprobs) + jnp.sum(scores.entropies)

    grads = jax.grad(total)({"hidden": jnp.asarray([[[1.0, 0.0, 9.0], [0.0] * 3]]), "head": jnp.eye(3)})
    assert np.isfinite(grads["head"]).all() and not grads["head"][:, 2].any() and grads["head"][:, 0].any()


def test_under_a_mask_no_array_is_larger_than_one_chunk_of_logits():
    network, rows_count, length = BagNetwork(), 4, 4 * CHUNK_COLUMNS
    batch = make_batch([[60] * 4] * rows_count, length=length)
    batch = dataclasses.replace(
        batch, support_ids=np.zeros(batch.tokens.shape, np.int32), supports=np.ones((3, VOCAB), bool)
    )
    params = network.init(jax.random.key(0))

    def total(params):
        return jnp.sum(score(network, params, batch, temperature=1.0).logprobs)

    shapes = shapes_in(jax.make_jaxpr(jax.grad(total))(params).jaxpr)
    largest = max(int(np.prod(shape)) for shape in shapes if shape and shape[-1] == VOCAB)
    assert largest == rows_count * CHUNK_COLUMNS * VOCAB
