"""The settings of the sampler: slots, cache, shapes of its programs, and how it draws."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic.dataclasses import dataclass

from jaxmtrl.config.setting import CONFIG, Above0, Positive, Share, setting


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class SamplingSection:
    slots: Annotated[Positive, setting("S, episodes that hold a KV cache on the device at once")] = 32
    cache_length: Annotated[Positive, setting("C, longest episode", unit="tokens")] = 1024
    attention_buckets: Annotated[
        tuple[Positive, ...],
        setting("cache lengths that decode is compiled for; the last is cache_length", unit="tokens"),
    ] = (512, 1024)
    cache_dtype: Annotated[
        Literal["auto", "float32", "bfloat16", "int8"],
        setting("dtype of cached keys and values; int8 with a scale a head and column; auto: that of activations"),
    ] = "auto"
    attention: Annotated[
        Literal["auto", "xla"],
        setting("auto: on a TPU or GPU, kernels are tried against XLA at start-up and the faster is kept; xla: never"),
    ] = "auto"
    context: Annotated[
        Literal["stop", "drop"],
        setting(
            "an episode that outgrows the cache is truncated; or goes on without its oldest turns (the first exchange "
            "stays), in a context that is read anew"
        ),
    ] = "stop"
    context_keep: Annotated[
        Share, setting("share of the cache that context drop leaves filled: small ones drop less often")
    ] = 0.5
    prefill_rows: Annotated[
        Positive, setting("R, slots prefilled in one call of the smallest bucket; the others hold as many tokens")
    ] = 8
    prefill_buckets: Annotated[
        tuple[Positive, ...],
        setting("prompt lengths that prefill is compiled for; longer prompts go in pieces", unit="tokens"),
    ] = (64, 256)
    decode_chunk: Annotated[Positive, setting("decode steps between two returns to the host", unit="tokens")] = 8
    max_action_tokens: Annotated[Positive, setting("cap of one action", unit="tokens")] = 24
    temperature: Annotated[Above0, setting("sampling temperature in training; log-probs are taken at it too")] = 1.0
