"""The vanilla sampler of `google-tunix`: text in, text out, the history read anew every turn.

Its tokens are words here, one word an id, so that the work in tokens is that of the other sides.
"""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
from flax import nnx
from rollout_work import Work, arguments, serve
from serving import Shape
from tunix.generate.sampler import CacheConfig, Sampler
from tunix.models.llama3.model import Llama3, ModelConfig


class Words:
    """A tokenizer whose text is its ids."""

    def encode(self, text: str, **_: object) -> list[int]:
        return [int(word) for word in text.split()]

    def decode(self, ids, **_: object) -> str:
        return " ".join(str(int(token)) for token in ids)

    def bos_id(self) -> int:
        return 1

    def eos_id(self) -> int:
        return 2

    def pad_id(self) -> int:
        return 0


def make_sampler(shape: Shape, largest: Work) -> Sampler:
    config = ModelConfig(
        num_layers=shape.layers,
        vocab_size=shape.vocab,
        embed_dim=shape.embed,
        hidden_dim=shape.mlp,
        num_heads=shape.heads,
        head_dim=shape.head_dim,
        num_kv_heads=shape.kv_heads,
        rope_theta=10_000,
        norm_eps=1e-6,
        weight_tying=True,
    )
    model = Llama3(config, rngs=nnx.Rngs(0))
    model = nnx.merge(nnx.graphdef(model), _f32(nnx.state(model)))
    # Room for the beginning-of-sequence token that it puts before every prompt.
    cache = CacheConfig(largest.longest + largest.action + 2, shape.layers, shape.kv_heads, shape.head_dim)
    return Sampler(model, Words(), cache)


def _f32(state: nnx.State) -> nnx.State:
    import jax

    return jax.tree.map(lambda leaf: leaf.astype(jnp.float32), state)


def play(sampler: Sampler, vocab: int, work: Work) -> int:
    """All episodes in one batch; returns the tokens that were sampled."""
    prompts, observations = work.pieces(vocab)
    words = Words()
    histories = [words.decode(prompt % (vocab - 3) + 3) for prompt in prompts]
    sampled = 0
    for turn in range(work.turns):
        out = sampler(
            histories,
            max_generation_steps=work.action,
            max_prompt_length=work.longest + 1,  # one length, or it compiles anew every turn
            temperature=1.0,
            top_p=1.0,
            eos_tokens=[vocab - 1],
            seed=turn,
        )
        actions = [[int(token) for token in tokens][: work.action] for tokens in out.tokens]
        sampled += work.action * len(actions)  # an early end would only make it faster
        histories = [f"{history} {words.decode(action)}" for history, action in zip(histories, actions)]
        if turn + 1 < work.turns:
            spoken = observations[:, turn] % (vocab - 3) + 3
            histories = [f"{history} {words.decode(said)}" for history, said in zip(histories, spoken)]
    return sampled


if __name__ == "__main__":
    shape, largest = arguments()
    made = make_sampler(shape, largest)
    serve(lambda work: play(made, shape.vocab, work), dataclasses.replace(largest, turns=1))
