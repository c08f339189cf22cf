"""The settings of the optimizer."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic.dataclasses import dataclass

from jaxmtrl.config.setting import CONFIG, Above0, Count, NonNegative, setting


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class OptimizerSection:
    name: Annotated[
        Literal["adamw", "adamw8", "adafactor"],
        setting(
            "adamw: two f32 moments a parameter, 8 bytes; adamw8: both in eight bits, about 2 bytes; adafactor: row "
            "and column sums of squares, next to nothing, without momentum"
        ),
    ] = "adamw"
    memory: Annotated[
        Literal["device", "host"],
        setting("where moments wait between steps; host: in the host's memory, fetched for each step"),
    ] = "device"
    learning_rate: Annotated[NonNegative, setting("of the policy in RL")] = 3e-4
    critic_learning_rate: Annotated[NonNegative, setting("of the critic head, in warm-up and RL")] = 1e-3
    warmup_steps: Annotated[Count, setting("optimizer steps of linear warm-up, of every stage")] = 10
    critic_warmup_steps: Annotated[
        Count | None, setting("optimizer steps of the critic's linear warm-up; null: warmup_steps")
    ] = None
    decay: Annotated[
        Literal["constant", "linear", "cosine"], setting("shape of the rate after warm-up, to 10 % at the end")
    ] = "constant"
    b1: Annotated[float, setting("Adam's first-moment decay", ge=0.0, lt=1.0)] = 0.9
    b2: Annotated[float, setting("Adam's second-moment decay", ge=0.0, lt=1.0)] = 0.95
    eps: Annotated[Above0, setting("Adam's epsilon")] = 1e-8
    weight_decay: Annotated[NonNegative, setting("decoupled weight decay, on matrices only")] = 0.0
    gradient_clip: Annotated[Above0, setting("global norm above which gradients are scaled down")] = 1.0
