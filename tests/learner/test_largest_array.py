"""No array of logits of all tokens exists in an update, forward or backward: read off the compiled program."""

from __future__ import annotations

import jax

from jaxmtrl.config.sections import AlgorithmSection, ModelSection, OptimizerSection
from jaxmtrl.learner.device import abstract_batch
from jaxmtrl.learner.optimizer import make_optimizer
from jaxmtrl.learner.programs import Learner
from jaxmtrl.learner.score import CHUNK_COLUMNS
from jaxmtrl.models.decoder import Network
from jaxmtrl.parallel.mesh import make_mesh
from jaxmtrl.planning.hlo import largest_array

ROWS, COLUMNS, VOCAB = 2, 512, 6000


def test_logits_are_never_more_than_one_chunk():
    section = ModelSection(layers=2, embed=32, heads=4, kv_heads=2, head_dim=8, mlp=64)
    network, mesh = Network.from_section(section, VOCAB, "float32"), make_mesh(1, 1, 1, jax.devices()[:1])
    optimizer = make_optimizer(
        OptimizerSection(), network, learning_rate=1.0, critic_learning_rate=1.0, total_steps=1, warmup_steps=0
    )
    algorithm = AlgorithmSection(name="ppo", minibatches=1, entropy_coef=0.01)
    learner = Learner(network, mesh, optimizers={"policy": optimizer}, algorithm=algorithm, temperature=1.0)
    batch = abstract_batch(micro_batch_rows=ROWS, max_rows=ROWS, row_length=COLUMNS, episodes=ROWS, mesh=mesh)
    size, shape = largest_array(learner.planned("policy", batch).as_text())
    chunk = ROWS * CHUNK_COLUMNS * VOCAB * 4
    assert size <= chunk, shape
    assert chunk * 8 == ROWS * COLUMNS * VOCAB * 4  # what all logits would be
