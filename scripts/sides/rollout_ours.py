"""This package's slots engine; environments answer at once."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
from rollout_work import Work, arguments, serve
from serving import Shape

from jaxmtrl.config.sections import ModelSection, SamplingSection
from jaxmtrl.models.decoder import Network
from jaxmtrl.parallel.mesh import make_mesh
from jaxmtrl.sampling.engine import Engine

STEP, COARSE, LONG = 128, 256, 1024  # columns between two attention buckets, up to LONG and above


def make_engine(shape: Shape, largest: Work) -> Engine:
    sizes = {name: getattr(shape, name) for name in ("layers", "embed", "heads", "kv_heads", "head_dim", "mlp")}
    network = Network.from_section(ModelSection(**sizes), shape.vocab, "float32")
    first = -(-(largest.prompt + largest.action) // STEP) * STEP
    step = STEP if largest.longest <= LONG else COARSE
    length = max(first, -(-largest.longest // step) * step)
    buckets = {*range(first, min(length, LONG), STEP), *range(LONG, length, COARSE), length}
    section = SamplingSection(
        slots=largest.episodes,
        cache_length=length,
        attention_buckets=tuple(sorted(buckets)),
        prefill_rows=min(8, largest.episodes),
        prefill_buckets=(largest.observation + 1, largest.prompt),  # an observation brings the last action token along
        decode_chunk=largest.action,
        max_action_tokens=largest.action,
    )
    engine = Engine(network, section, (), make_mesh(1, 1, 1, jax.devices()[:1]))
    engine.load(jax.jit(network.init)(jax.random.key(0)), 0)
    return engine


def play(engine: Engine, vocab: int, work: Work) -> int:
    """All episodes at once; returns the tokens that were sampled."""
    prompts, observations = work.pieces(vocab)
    slots = {engine.open((work.seed, number), 1.0): number for number in range(work.episodes)}
    turns = np.zeros(work.episodes, int)
    for slot, number in slots.items():
        engine.submit(slot, prompts[number])
    sampled = 0
    while engine.busy:
        for action in engine.step():
            number = slots[action.slot]
            sampled += len(action.ids)
            turns[number] += 1
            if turns[number] < work.turns:
                engine.submit(action.slot, observations[number, turns[number] - 1])
    for slot in slots:
        engine.close(slot)
    return sampled


if __name__ == "__main__":
    shape, largest = arguments()
    made = make_engine(shape, largest)
    serve(lambda work: play(made, shape.vocab, work), dataclasses.replace(largest, turns=min(2, largest.turns)))
