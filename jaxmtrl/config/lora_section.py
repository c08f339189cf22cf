"""The settings of low-rank adapters and of the frozen weights under them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic.dataclasses import dataclass

from jaxmtrl.config.setting import CONFIG, Above0, Count, Positive, setting

Target = Literal["query", "key", "value", "out", "gate", "up", "down"]


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class LoraSection:
    rank: Annotated[
        Count,
        setting("r of the low-rank adapters that are trained in place of the decoder's weights; 0 trains the weights"),
    ] = 0
    alpha: Annotated[Above0, setting("an adapter's output is multiplied by alpha / rank")] = 16.0
    targets: Annotated[
        tuple[Target, ...],
        setting(
            "weights of every block that have an adapter: query, key, value, out of attention, gate, up, down of the "
            "MLP",
            min_length=1,
        ),
    ] = ("query", "key", "value", "out", "gate", "up", "down")
    dropout: Annotated[
        float,
        setting(
            "share of an adapter's inputs left out while demonstrations are learnt; never in RL, whose ratios must "
            "begin at 1",
            ge=0.0,
            lt=1.0,
        ),
    ] = 0.0
    frozen: Annotated[
        Literal["whole", "int8", "int4", "nf4"],
        setting("how the blocks' frozen matrices are kept: whole, in model.param_dtype, or quantised (QLoRA)"),
    ] = "whole"
    tile: Annotated[
        Positive, setting("inputs that share one scale of a quantised matrix; where they do not fit, a divisor of it")
    ] = 32
