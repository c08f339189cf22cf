"""The settings of the optimizer."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic.dataclasses import dataclass

from jaxmtrl.config.setting import CONFIG, Above0, Count, NonNegative, Positive, setting


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
        Literal["constant", "linear", "cosine", "steps"],
        setting(
            "shape of the rate after warm-up; linear, cosine: to 10 % at the end of a stage; steps: in RL alone, times "
            "decay_factor after every decay_every optimizer steps"
        ),
    ] = "constant"
    decay_factor: Annotated[float, setting("what decay steps leaves of the rate", gt=0.0, lt=1.0)] = 0.9
    decay_every: Annotated[
        Positive,
        setting(
            "optimizer steps of RL after which decay steps lowers the rate; an iteration takes algorithm.epochs times "
            "algorithm.minibatches"
        ),
    ] = 100
    b1: Annotated[float, setting("Adam's first-moment decay", ge=0.0, lt=1.0)] = 0.9
    b2: Annotated[float, setting("Adam's second-moment decay", ge=0.0, lt=1.0)] = 0.95
    eps: Annotated[Above0, setting("Adam's epsilon")] = 1e-8
    weight_decay: Annotated[NonNegative, setting("decoupled weight decay, on matrices only")] = 0.0
    gradient_clip: Annotated[Above0, setting("global norm above which gradients are scaled down")] = 1.0
