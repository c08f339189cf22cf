"""How much work a step is, by formula: FLOPs and bytes, and the time they take at a chip's peak rates.

A product counts two FLOPs a weight and token. Letters: T tokens a row, N heads, H head dim, C cache columns.
"""

from __future__ import annotations

from dataclasses import dataclass

from jaxmtrl.models.decoder import DecoderConfig
from jaxmtrl.planning.topology import Chip


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """Time of a step at the roofline, where nothing but the slowest of three limits counts; real steps take longer."""

    compute_s: float
    memory_s: float
    network_s: float  # 0 where the traffic is not known

    @property
    def seconds(self) -> float:
        """Of a step whose computing, reading and sending overlap in full."""
        return max(self.compute_s, self.memory_s, self.network_s)

    @property
    def limit(self) -> str:
        """Which of them it is."""
        parts = {"compute": self.compute_s, "memory": self.memory_s, "network": self.network_s}
        return max(parts, key=lambda name: parts[name])


def estimate(chip: Chip, *, flops: float, read: float, received: float) -> Estimate:
    """At the chip's peaks; arguments are a chip's share."""
    return Estimate(compute_s=flops / chip.flops, memory_s=read / chip.bandwidth, network_s=received / chip.link)


def block_weights(config: DecoderConfig) -> int:
    """Weights of all blocks that a token is multiplied by."""
    heads = config.embed * (2 * config.heads + 2 * config.kv_heads) * config.head_dim
    return config.layers * (heads + 3 * config.embed * config.mlp)


def head_weights(config: DecoderConfig) -> int:
    """Weights of the output head."""
    return config.embed * config.vocab_rows


def forward_flops(config: DecoderConfig, *, tokens: int, columns: float, scored: int) -> float:
    """Of reading tokens.

    Args:
        tokens: how many.
        columns: that a token attends to, on average: T / 2 within full rows.
        scored: tokens whose logits are computed.
    """
    attention = 4 * config.layers * config.heads * config.head_dim * columns
    return tokens * (2 * block_weights(config) + attention) + 2 * scored * head_weights(config)


def update_flops(config: DecoderConfig, *, rows: int, row_length: int, action_share: float) -> tuple[float, float]:
    """Of one pass over so many rows: those of the model (a forward and twice as much backward), and those computed.

    More is computed where blocks and logits are computed again (`model.remat`; logits always are).
    """
    tokens, scored = rows * row_length, round(rows * row_length * action_share)
    forward = forward_flops(config, tokens=tokens, columns=row_length / 2, scored=scored)
    head = 2 * scored * head_weights(config)
    attention = 4 * config.layers * config.heads * config.head_dim * row_length / 2 * tokens
    blocks = forward - head
    again = {
        "none": 0.0,
        "dots": attention,
        "attention": blocks - attention,
        "block": blocks,
        "offload": blocks,
    }[config.remat]
    return 3 * forward, 3 * forward + again + head
