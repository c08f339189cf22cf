"""Bytes one optimizer step of a config needs, as the compiler says; prints one JSON line a kind of update.

python scripts/step_memory.py --config configs/textworld_smollm2.yaml [lora.rank=16 model.param_dtype=bfloat16 ...]

Nothing is played or computed and no weights are read: the update of SFT and of RL is compiled for this machine's
devices, with batches as full as the config allows. `state_bytes` are parameters, frozen ones too, and Adam's moments;
`temporary_bytes` gradients, activations and logits. The sampler's weights and cache come on top (doctor counts them).
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
from typing import Any

import jax
import numpy as np

from jaxmtrl.assembly import make_learner, make_optimizers
from jaxmtrl.batch import Targets, TokenBatch
from jaxmtrl.config.loading import load_config
from jaxmtrl.config.sections import Config
from jaxmtrl.errors import JaxmtrlError
from jaxmtrl.learner.device import micro_batch_order, put_batch
from jaxmtrl.learner.objective import Kind
from jaxmtrl.learner.state import abstract_base, abstract_state
from jaxmtrl.models.decoder import Network, parameter_count
from jaxmtrl.parallel.mesh import make_mesh
from jaxmtrl.parallel.sharding import rows_sharding
from jaxmtrl.pretrained import resolve


def full_rows(rows: int, columns: int) -> TokenBatch:
    """One episode a row, every column taken."""
    shape = (rows, columns)
    return TokenBatch(
        tokens=np.zeros(shape, np.int32),
        segment_ids=np.repeat(np.arange(rows, dtype=np.int32)[:, None], columns, axis=1),
        positions=np.tile(np.arange(columns, dtype=np.int32), (rows, 1)),
        action_mask=np.tile(np.arange(columns) % 2 == 1, (rows, 1)),
        behaviour_logprobs=np.zeros(shape, np.float32),
        rewards=np.zeros(shape, np.float32),
        turn_ids=np.zeros(shape, np.int32),
        anchor_ids=np.full(shape, -1, np.int32),
        bootstrap_mask=np.zeros(shape, bool),
        group_ids=np.arange(rows, dtype=np.int32),
    )


def step_memory(config: Config, kind: Kind) -> dict[str, Any]:
    """The figures of one kind of update."""
    dtype = config.model.compute_dtype
    if dtype == "auto":
        dtype = "float32" if jax.default_backend() == "cpu" else "bfloat16"
    mesh = make_mesh(config.mesh.data, config.mesh.fsdp, config.mesh.tensor)
    network = Network.from_section(config.model, config.text.vocab_size, dtype, config.lora)
    optimizers, base = make_optimizers(config, network), abstract_base(network, mesh)
    learner = make_learner(config, network, mesh, base, optimizers)
    state = abstract_state(network, optimizers[kind], mesh)
    rows = config.sft.batch_episodes if kind == "sft" else config.rl.tasks_per_iteration * config.algorithm.group_size
    host = full_rows(rows, config.batching.row_length)
    batch = put_batch(host, micro_batch_rows=config.batching.micro_batch_rows, max_rows=rows, mesh=mesh)
    targets = None
    if kind == "policy":
        number = jax.device_put(np.zeros(batch.rows.tokens.shape, np.float32), rows_sharding(mesh))
        targets = Targets(
            advantages=number,
            returns=number,
            old_logprobs=number,
            old_values=number,
            ref_logprobs=number if config.algorithm.kl_coef > 0 and config.algorithm.kl_place == "loss" else None,
            learn=batch.rows.action_mask,
        )
    order = micro_batch_order(np.random.default_rng(0), used=int(batch.used), count=int(batch.used), epochs=1)
    sizes = learner.memory(kind, state, batch, targets, order)
    trained = parameter_count(state.params)
    return {
        "bench": "step_memory",
        "update": kind,
        "parameters": (parameter_count(network.whole.shapes()["policy"]) if base else 0) + trained,
        "trained": trained,
        "micro_batch": [config.batching.micro_batch_rows, config.batching.row_length],
        "param_dtype": config.model.param_dtype,
        "compute_dtype": dtype,
        "frozen": config.lora.frozen if base else None,
        "state_bytes": sizes["arguments"],
        "temporary_bytes": sizes["temporaries"] + sizes["results"],
        "devices": mesh.size,
        "machine": f"{jax.devices()[0].device_kind}, {platform.machine()}",
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", required=True, help="YAML file of a run")
    parser.add_argument("overrides", nargs="*", help="section.field=value")
    arguments = parser.parse_intermixed_args()
    try:
        config = resolve(load_config(arguments.config, arguments.overrides))
        for kind in ("sft", "policy"):
            print(json.dumps(step_memory(config, kind)), flush=True)
    except JaxmtrlError as err:
        print(f"error: {err}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
