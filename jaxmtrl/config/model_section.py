"""The settings of the decoder: sizes, what sets published families apart, and precision."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic.dataclasses import dataclass

from jaxmtrl.config.setting import CONFIG, Above0, Positive, setting


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class ModelSection:
    from_pretrained: Annotated[
        str,
        setting(
            "folder or hub id of a published Llama, Qwen2.5 or Qwen3 model to begin with; its sizes, rope, tokenizer "
            "and chat template are taken over and left out here; empty begins with random weights"
        ),
    ] = ""
    layers: Annotated[Positive, setting("L, decoder blocks")] = 4
    embed: Annotated[Positive, setting("D, width of the residual stream")] = 128
    heads: Annotated[Positive, setting("N, attention heads")] = 4
    kv_heads: Annotated[Positive, setting("K, key and value heads; divides heads")] = 2
    head_dim: Annotated[Positive, setting("H, width of one head; even, for rotary positions")] = 32
    mlp: Annotated[Positive, setting("F, width of the gated MLP")] = 384
    tied_head: Annotated[bool, setting("the output head shares the embedding table")] = True
    vocab_multiple: Annotated[
        Positive,
        setting(
            "the embedding table has a multiple of this many rows, so that mesh.tensor can split it; rows beyond the "
            "vocabulary have probability 0"
        ),
    ] = 1
    qkv_bias: Annotated[bool, setting("queries, keys and values have a bias, as in Qwen2.5")] = False
    qk_norm: Annotated[bool, setting("each head's query and key pass an RMS norm, as in Qwen3")] = False
    rope_theta: Annotated[Above0, setting("base of the rotary position frequencies")] = 10_000.0
    rope_scaling: Annotated[
        Literal["none", "linear", "llama3", "yarn"],
        setting("how rotary positions are stretched to contexts longer than those trained on"),
    ] = "none"
    rope_factor: Annotated[float, setting("how many times longer, for rope_scaling", ge=1.0, allow_inf_nan=False)] = 1.0
    rope_original_length: Annotated[
        Positive, setting("context before stretching, for rope_scaling llama3 and yarn", unit="tokens")
    ] = 8192
    rope_low_frequency: Annotated[
        Above0, setting("llama3 stretches what turns fewer times than this in the original context in full")
    ] = 1.0
    rope_high_frequency: Annotated[
        Above0, setting("llama3 leaves what turns more often than this in the original context; above the low one")
    ] = 4.0
    rope_beta_fast: Annotated[
        Above0, setting("yarn leaves what turns more often than this in the original context")
    ] = 32.0
    rope_beta_slow: Annotated[
        Above0, setting("yarn stretches what turns fewer times than this in full; below rope_beta_fast")
    ] = 1.0
    rope_truncate: Annotated[bool, setting("yarn rounds those two bounds outwards to whole dimensions")] = True
    rope_attention_factor: Annotated[
        Above0 | None, setting("yarn multiplies turned queries and keys by it; null: 0.1 ln(rope_factor) + 1")
    ] = None
    norm_eps: Annotated[Above0, setting("epsilon of the RMS norms")] = 1e-6
    param_dtype: Annotated[Literal["float32", "bfloat16"], setting("dtype of parameters")] = "float32"
    compute_dtype: Annotated[
        Literal["auto", "float32", "bfloat16"],
        setting("dtype of activations; auto is bfloat16 on TPU and GPU, float32 on CPU"),
    ] = "auto"
    critic: Annotated[
        Literal["head", "separate"],
        setting("head: the critic reads the policy's last hidden state; separate: it has a decoder of its own"),
    ] = "head"
    attention: Annotated[
        Literal["auto", "xla", "splash", "cudnn"],
        setting(
            "how the learner attends within rows: splash: TPU kernel; cudnn: GPU kernel, bfloat16 alone; xla: "
            "anywhere; auto: splash on a TPU, else xla"
        ),
    ] = "auto"
    remat: Annotated[
        Literal["none", "dots", "attention", "block", "offload"],
        setting(
            "what blocks keep for the backward pass, the rest being computed again: none: everything; dots: products "
            "with weights; attention: their input and their attention's output; block: their input alone; offload: "
            "that, in the host's memory (TPU and GPU)"
        ),
    ] = "block"
