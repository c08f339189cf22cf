"""A copy of a config that is small enough to be tried out in seconds, and what was made smaller.

Sizes shrink; everything that decides whether the numbers are right stays: environment, text, temperature, algorithm,
tied head, grouped heads, kind of critic, remat, adapters.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from jaxmtrl.config.sections import Config, ModelSection, SamplingSection

LONGEST = 4096  # tokens; an episode that needs more is tried out cut short
_GROUPED = ("rloo", "grpo", "gspo", "gigpo")
_TASKS = 2  # played in one iteration


@dataclass(frozen=True, kw_only=True)
class Shrunk:
    """The small config, and one line such as "model.embed 4096 → 64" for each size that differs."""

    config: Config
    changes: tuple[str, ...]


def shrink(config: Config, *, tokens: int) -> Shrunk:
    """A small copy of `config`.

    Args:
        tokens: of an episode of a few turns; cache and rows get no longer than that.
    """
    length = min(config.sampling.cache_length, max(64, min(tokens, LONGEST)))
    sampling = _sampling(config.sampling, length)
    grouped = config.algorithm.name in _GROUPED or config.algorithm.group_size > 1
    group = min(config.algorithm.group_size, 2) if grouped else 1
    episodes = _TASKS * group
    small = dataclasses.replace(
        config,
        model=_model(config.model),
        rollout=dataclasses.replace(
            config.rollout, workers=min(2, config.rollout.workers), open_episodes=8, max_failed_share=1.0, overlap=False
        ),
        sampling=sampling,
        algorithm=dataclasses.replace(
            config.algorithm,
            group_size=group,
            minibatches=min(config.algorithm.minibatches, 2),
            epochs=min(config.algorithm.epochs, 2),
        ),
        batching=dataclasses.replace(
            config.batching,
            row_length=max(min(config.batching.row_length, length), 2 * sampling.max_action_tokens + 1),
            micro_batch_rows=min(config.batching.micro_batch_rows, max(1, episodes // 2)),
        ),
        lora=dataclasses.replace(config.lora, rank=min(config.lora.rank, 4)),
        rl=dataclasses.replace(config.rl, tasks_per_iteration=_TASKS),
        evaluation=dataclasses.replace(config.evaluation, every=0),
    )
    return Shrunk(config=small, changes=_changes(config, small))


def _model(section: ModelSection) -> ModelSection:
    """Two layers, D ≤ 64, as many query heads to a key-value head as before."""
    kv_heads = min(section.kv_heads, 2)
    heads = kv_heads * (section.heads // section.kv_heads)
    embed = min(section.embed, 64)
    head_dim = min(section.head_dim, max(8, 64 // heads // 2 * 2))
    return dataclasses.replace(
        section,
        layers=min(section.layers, 2),
        embed=embed,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        mlp=max(8, min(section.mlp, round(section.mlp * embed / section.embed))),
        param_dtype="float32",
        compute_dtype="float32",
    )


def _sampling(section: SamplingSection, length: int) -> SamplingSection:
    """At most two attention and two prefill buckets, so that crossing from one to the next is still tried."""
    cap = min(section.max_action_tokens, 12, length // 4)
    half = max(1, length // 2)
    attention = (half, length) if len(section.attention_buckets) > 1 else (length,)
    short = min(section.prefill_buckets[0], 32, length)
    long = min(section.prefill_buckets[-1], 128, length)
    slots = min(section.slots, 8)
    return dataclasses.replace(
        section,
        slots=slots,
        cache_length=length,
        attention_buckets=attention,
        prefill_rows=min(section.prefill_rows, slots, 4),
        prefill_buckets=(short, long) if len(section.prefill_buckets) > 1 and short < long else (long,),
        decode_chunk=min(section.decode_chunk, cap),
        max_action_tokens=cap,
    )


def _changes(before: Config, after: Config) -> tuple[str, ...]:
    lines = []
    for section in ("model", "lora", "sampling", "batching", "algorithm", "rl"):
        old, new = getattr(before, section), getattr(after, section)
        for field in dataclasses.fields(old):
            was, is_ = getattr(old, field.name), getattr(new, field.name)
            if was != is_:
                lines.append(f"{section}.{field.name} {_show(was)} → {_show(is_)}")
    return tuple(lines)


def _show(value: object) -> str:
    return "/".join(map(str, value)) if isinstance(value, tuple) else str(value)
