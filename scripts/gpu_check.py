"""Checks and times the update and the sampler on a GPU; see `gpu_check.sh`. Prints one JSON line.

    parity_f32_max    largest difference of log-probs between GPU and CPU, a small model, the same tokens, f32, nats
    cudnn_gap         largest difference of cuDNN's attention from XLA's, bf16
    update            one update of a model of Qwen2.5-1.5B's shape in bf16: tokens/s and MFU (model FLOPs by
                      `planning/work.py` over the peak of the GPU), with XLA's attention and with cuDNN's
    rollout           64 slots of the same model: sampled tokens/s and the engine's choice of attention

`--tiny` tries everything but cuDNN at toy size, on whatever device there is.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from jaxmtrl.batch import Targets, TokenBatch
from jaxmtrl.config.model_section import ModelSection
from jaxmtrl.config.sections import AlgorithmSection, OptimizerSection, SamplingSection
from jaxmtrl.learner.device import micro_batch_order, put_batch
from jaxmtrl.learner.optimizer import make_optimizer
from jaxmtrl.learner.programs import Learner
from jaxmtrl.learner.state import init_state
from jaxmtrl.models.attention import attend, attend_fused
from jaxmtrl.models.decoder import Network
from jaxmtrl.parallel.mesh import make_mesh
from jaxmtrl.planning.topology import CHIPS
from jaxmtrl.planning.work import update_flops
from jaxmtrl.sampling.engine import Engine

QWEN = ModelSection(
    layers=28, embed=1536, heads=12, kv_heads=2, head_dim=128, mlp=8960, qkv_bias=True, param_dtype="bfloat16"
)
TINY = ModelSection(layers=2, embed=64, heads=4, kv_heads=2, head_dim=16, mlp=128, param_dtype="bfloat16")
ACTION_SHARE = 0.1


def rows(count: int, columns: int, vocab: int) -> TokenBatch:
    """One episode a row; the last of every ten tokens is an action."""
    rng, shape = np.random.default_rng(0), (count, columns)
    return TokenBatch(
        tokens=rng.integers(0, vocab, shape).astype(np.int32),
        segment_ids=np.repeat(np.arange(count, dtype=np.int32)[:, None], columns, axis=1),
        positions=np.tile(np.arange(columns, dtype=np.int32), (count, 1)),
        action_mask=np.tile(np.arange(columns) % 10 == 9, (count, 1)),
        behaviour_logprobs=np.zeros(shape, np.float32),
        rewards=np.zeros(shape, np.float32),
        turn_ids=np.zeros(shape, np.int32),
        anchor_ids=np.full(shape, -1, np.int32),
        bootstrap_mask=np.zeros(shape, bool),
        group_ids=np.arange(count, dtype=np.int32),
    )


def learner_of(network: Network, mesh) -> tuple[Learner, object]:
    optimizer = make_optimizer(
        OptimizerSection(name="adamw8"),
        network,
        learning_rate=1e-6,
        critic_learning_rate=1e-6,
        total_steps=100,
        warmup_steps=0,
    )
    algorithm = AlgorithmSection(name="ppo", minibatches=1)
    return Learner(network, mesh, optimizers={"policy": optimizer}, algorithm=algorithm, temperature=1.0), optimizer


def parity() -> float:
    """Log-probs of a small model on the GPU and on the CPU."""
    found = []
    for device in (jax.devices()[0], jax.devices("cpu")[0]):
        mesh = make_mesh(1, 1, 1, [device])
        network = Network.from_section(dataclasses.replace(TINY, param_dtype="float32"), 1000, "float32")
        learner, _ = learner_of(network, mesh)
        params = jax.device_put(jax.device_get(jax.jit(network.init)(jax.random.key(0))), device)
        batch = put_batch(rows(4, 256, 1000), micro_batch_rows=4, max_rows=4, mesh=mesh)
        with jax.default_matmul_precision("highest"):
            found.append(np.asarray(learner.score(params, batch).logprobs))
    return float(np.abs(found[0] - found[1]).max())


def cudnn_gap() -> float | str:
    """cuDNN against XLA with a causal mask of two segments."""
    keys = jax.random.split(jax.random.key(0), 3)
    query = jax.random.normal(keys[0], (2, 512, 12, 128), jnp.bfloat16)
    parts = [jax.random.normal(key, (2, 2, 512, 128), jnp.bfloat16) for key in keys[1:]]
    columns = jnp.arange(512)
    seen = (columns <= columns[:, None]) & ((columns < 200) == (columns < 200)[:, None])
    seen = jnp.broadcast_to(seen, (2, 512, 512))
    try:
        fused = jax.jit(attend_fused)(query, *parts, seen).astype(jnp.float32)
    except Exception as err:  # whatever cuDNN says of this GPU
        return str(err).splitlines()[0][:200]
    return float(jnp.abs(fused - jax.jit(attend)(query, *parts, seen).astype(jnp.float32)).max())


def update(section: ModelSection, vocab: int, attention: str, *, columns: int, peak: float) -> dict | str:
    """Tokens a second of the compiled update, of three after the first."""
    mesh = make_mesh(1, 1, 1, jax.devices()[:1])
    network = Network.from_section(section, vocab, "bfloat16").for_learning(mesh, attention)
    learner, optimizer = learner_of(network, mesh)
    count, micro = 16, 4
    batch = put_batch(rows(count, columns, vocab), micro_batch_rows=micro, max_rows=count, mesh=mesh)
    number = jnp.zeros(batch.rows.tokens.shape, jnp.float32)
    targets = Targets(
        advantages=number + 1, returns=number, old_logprobs=number, old_values=number, ref_logprobs=None,
        learn=batch.rows.action_mask,
    )  # fmt: skip
    order = micro_batch_order(np.random.default_rng(0), used=count // micro, count=count // micro, epochs=1)
    try:
        state = init_state(network, optimizer, mesh, jax.random.key(0))
        seconds = []
        for _ in range(4):
            began = time.perf_counter()
            state, metrics = learner.update("policy", state, batch, targets, order)
            int(metrics.steps)
            seconds.append(time.perf_counter() - began)
    except Exception as err:  # out of memory, or cuDNN
        return str(err).splitlines()[0][:200]
    model, _ = update_flops(network.config, rows=count, row_length=columns, action_share=ACTION_SHARE)
    best = min(seconds[1:])
    return {
        "seconds": [round(taken, 3) for taken in seconds],
        "tokens_per_s": round(count * columns / best),
        "mfu": round(model / best / peak, 3),
    }


def rollout(section: ModelSection, vocab: int, *, slots: int, prompt: int) -> dict:
    """Sampled tokens a second of the engine: every slot reads a prompt and samples 64 tokens, twice."""
    mesh = make_mesh(1, 1, 1, jax.devices()[:1])
    network = Network.from_section(section, vocab, "bfloat16")
    sampling = SamplingSection(
        slots=slots,
        cache_length=2 * prompt,
        attention_buckets=(2 * prompt,),
        prefill_buckets=(prompt,),
        prefill_rows=4,
        max_action_tokens=64,
        decode_chunk=16,
    )
    engine = Engine(network, sampling, (), mesh)
    engine.load(jax.jit(network.init)(jax.random.key(0)), 0)
    rng, seconds = np.random.default_rng(0), []
    for turn in range(2):
        opened = [engine.open((turn, number), 1.0) for number in range(slots)]
        began = time.perf_counter()
        for slot in opened:
            engine.submit(slot, rng.integers(0, vocab, prompt).astype(np.int32))
        while engine.busy:
            engine.step()
        seconds.append(time.perf_counter() - began)
        for slot in opened:
            engine.close(slot)
    return {"sampled_tokens_per_s": round(slots * 64 / min(seconds)), "seconds": seconds, "plan": engine.plan}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", metavar="FOLDER")
    parser.add_argument("--tiny", action="store_true")
    given = parser.parse_args()
    device = jax.devices()[0]
    if device.platform != "gpu" and not given.tiny:
        print(f"error: jax finds no GPU here, only {device}; install jax with CUDA, or try --tiny", file=sys.stderr)
        return 2
    kind = device.device_kind.lower()
    chip = next((chip for name, chip in CHIPS.items() if name in kind), CHIPS["cpu" if given.tiny else "h100"])
    section, vocab = (TINY, 1000) if given.tiny else (QWEN, 151_936)
    columns, ways = (128, ("xla",)) if given.tiny else (2048, ("xla", "cudnn"))
    line = {
        "bench": "gpu_check",
        "device": device.device_kind,
        "peak_flops": chip.flops,
        "parity_f32_max": parity(),
        "cudnn_gap": cudnn_gap(),
        "update": {way: update(section, vocab, way, columns=columns, peak=chip.flops) for way in ways},
        "rollout": rollout(section, vocab, slots=8 if given.tiny else 64, prompt=64 if given.tiny else 512),
    }
    text = json.dumps(line)
    print(text)
    if given.out:
        Path(given.out, "gpu_check.json").write_text(text + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
