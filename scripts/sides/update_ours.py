"""This package's compiled update: episodes packed into rows, logits of action tokens alone, no array of all of them."""

from __future__ import annotations

import json
import sys

import jax
import numpy as np
from serving import Shape, serve
from update_work import CLIP, LEARNING_RATE, VALUE_COEF, UpdateWork, episodes

from jaxmtrl.batch import Targets
from jaxmtrl.config.model_section import ModelSection
from jaxmtrl.config.sections import AlgorithmSection, OptimizerSection
from jaxmtrl.learner.device import micro_batch_order, put_batch, row_places
from jaxmtrl.learner.optimizer import make_optimizer
from jaxmtrl.learner.programs import Learner
from jaxmtrl.learner.state import init_state
from jaxmtrl.models.decoder import Network
from jaxmtrl.parallel.mesh import make_mesh
from jaxmtrl.parallel.sharding import rows_sharding
from jaxmtrl.rollout.pack import pack, packing_efficiency
from jaxmtrl.types import Episode, EpisodeStop, Turn, TurnStop


class Side:
    """The learner and its state."""

    def __init__(self, shape: Shape, remat: str, micro_rows: int, row_length: int):
        sizes = {name: getattr(shape, name) for name in ("layers", "embed", "heads", "kv_heads", "head_dim", "mlp")}
        self._mesh = make_mesh(1, 1, 1, jax.devices()[:1])
        network = Network.from_section(ModelSection(remat=remat, **sizes), shape.vocab, "float32")
        network = network.for_learning(self._mesh, "auto")
        optimizer = make_optimizer(
            OptimizerSection(),
            network,
            learning_rate=LEARNING_RATE,
            critic_learning_rate=LEARNING_RATE,
            total_steps=1000,
            warmup_steps=0,
        )
        algorithm = AlgorithmSection(
            name="ppo", minibatches=1, clip_low=CLIP, clip_high=CLIP, value_coef=VALUE_COEF, value_clip=0.0
        )
        self._learner = Learner(
            network, self._mesh, optimizers={"policy": optimizer}, algorithm=algorithm, temperature=1.0
        )
        self._state = init_state(network, optimizer, self._mesh, jax.random.key(0))
        self._vocab, self._micro_rows, self._row_length = shape.vocab, micro_rows, row_length

    def update(self, work: UpdateWork) -> dict:
        """One optimizer step over all episodes."""
        data = episodes(work, self._vocab)
        packed = pack(
            [_episode(data.tokens[row, :length], data.action[row, :length]) for row, length in enumerate(data.lengths)],
            row_length=self._row_length,
        )
        rows = packed.tokens.shape[0]
        batch = put_batch(packed, micro_batch_rows=self._micro_rows, max_rows=rows, mesh=self._mesh)
        places = row_places(rows, used=int(batch.used), micro_batch_rows=self._micro_rows)

        def credit(per_episode: np.ndarray) -> jax.Array:
            """[E, longest] to where each token lies in [n, M, T]."""
            dealt = np.zeros((batch.rows.tokens.shape[0] * self._micro_rows, self._row_length), np.float32)
            owner = np.asarray(packed.segment_ids)
            laid = np.where(owner >= 0, per_episode[owner, np.asarray(packed.positions)], 0)
            dealt[places] = np.where(packed.action_mask, laid, 0)
            return jax.device_put(dealt.reshape(batch.rows.tokens.shape), rows_sharding(self._mesh))

        targets = Targets(
            advantages=credit(data.advantages),
            returns=credit(data.returns),
            old_logprobs=credit(data.old_logprobs),
            old_values=credit(np.zeros_like(data.returns)),
            ref_logprobs=None,
            learn=batch.rows.action_mask,
        )
        order = micro_batch_order(
            np.random.default_rng(0), used=int(batch.used), count=batch.rows.tokens.shape[0], epochs=1
        )
        self._state, metrics = self._learner.update("policy", self._state, batch, targets, order)
        steps = int(metrics.steps)
        assert steps == 1, steps
        return {
            "tokens": int(data.lengths.sum()),
            "columns": rows * self._row_length,
            "useful_share": packing_efficiency(packed),
        }


def _episode(tokens: np.ndarray, action: np.ndarray) -> Episode:
    """Turns of what was read and then sampled; what was read last is left out, as nobody learns from it."""
    turns, start = [], 0
    while start < len(tokens) and action[start:].any():
        began = start + int(np.argmax(action[start:]))
        ended = began + (int(np.argmin(action[began:])) or len(tokens) - began)
        turns.append(
            Turn(
                prompt_ids=tokens[start:began],
                action_ids=tokens[began:ended],
                action_logprobs=np.zeros(ended - began, np.float32),
                reward=0.0,
                stop=TurnStop.LENGTH,
            )
        )
        start = ended
    return Episode(
        task_id="",
        group=0,
        index=0,
        turns=tuple(turns),
        stop=EpisodeStop.DONE,
        success=False,
        policy_version=0,
    )


if __name__ == "__main__":
    shape, first = Shape(**json.loads(sys.argv[1])), UpdateWork(**json.loads(sys.argv[2]))
    side = Side(shape, remat=sys.argv[3], micro_rows=int(sys.argv[4]), row_length=int(sys.argv[5]))
    serve(lambda: side.update(first), lambda asked: side.update(UpdateWork(**asked)))
