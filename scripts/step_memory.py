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

from jaxmtrl.assembly import make_learner, make_optimizers
from jaxmtrl.config.loading import load_config
from jaxmtrl.config.sections import Config
from jaxmtrl.devices import mesh_of
from jaxmtrl.errors import JaxmtrlError
from jaxmtrl.learner.device import abstract_batch
from jaxmtrl.learner.objective import Kind
from jaxmtrl.learner.state import abstract_base
from jaxmtrl.models.decoder import Network, parameter_count
from jaxmtrl.pretrained import resolve


def step_memory(config: Config, kind: Kind) -> dict[str, Any]:
    """The figures of one kind of update."""
    dtype = config.model.compute_dtype
    if dtype == "auto":
        dtype = "float32" if jax.default_backend() == "cpu" else "bfloat16"
    mesh = mesh_of(config)
    network = Network.from_section(config.model, config.text.vocab_size, dtype, config.lora)
    optimizers, base = make_optimizers(config, network), abstract_base(network, mesh)
    learner = make_learner(config, network, mesh, base, optimizers)
    rows = config.sft.batch_episodes if kind == "sft" else config.rl.tasks_per_iteration * config.algorithm.group_size
    batch = abstract_batch(
        micro_batch_rows=config.batching.micro_batch_rows,
        max_rows=rows,
        row_length=config.batching.row_length,
        episodes=rows,
        mesh=mesh,
    )
    sizes = learner.planned(kind, batch).memory_analysis()
    trained = parameter_count(network.shapes())
    return {
        "bench": "step_memory",
        "update": kind,
        "parameters": (parameter_count(network.whole.shapes()["policy"]) if base else 0) + trained,
        "trained": trained,
        "micro_batch": [config.batching.micro_batch_rows, config.batching.row_length],
        "param_dtype": config.model.param_dtype,
        "compute_dtype": dtype,
        "frozen": config.lora.frozen if base else None,
        "state_bytes": sizes.argument_size_in_bytes,
        "temporary_bytes": sizes.temp_size_in_bytes + sizes.output_size_in_bytes - sizes.alias_size_in_bytes,
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
