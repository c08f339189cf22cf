"""The settings of the curriculum: which tasks are trained on when, and how many steps they may take.

Three things, each off by default and each usable without the others: levels of rising difficulty (or a fixed mixture
of splits), a core split that every batch has a share of, and a step budget that follows success.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from jaxmtrl.config.setting import CONFIG, Count, Positive, Share, setting

Mastery = Literal["none", "raise_level", "tighten_budget", "sample_less"]
MOST_CONFIRMATIONS = 20  # and so many evaluations of a level are remembered


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class LevelSection:
    train: Annotated[str, setting("split that the level trains on", min_length=1)]
    evaluate: Annotated[
        str, setting("split that tells how well it is played, of which nothing is trained on", min_length=1)
    ]


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class CurriculumSection:
    # levels
    levels: Annotated[
        dict[str, LevelSection],
        setting("levels by name, from the easiest to the hardest; empty trains on env.train_split or the mixture"),
    ] = Field(default_factory=dict)
    start: Annotated[str, setting('level to begin with; "" is the first')] = ""
    every: Annotated[Positive, setting("RL iterations between evaluations of the level that is trained on")] = 5
    harder_above: Annotated[Share, setting("the next level follows where success is above this")] = 0.75
    easier_below: Annotated[Share, setting("the level before returns where success is below this")] = 0.4
    confirmations: Annotated[
        int,
        setting(
            "successive evaluations, all since the level was come to, that must be beyond the gate",
            ge=1,
            le=MOST_CONFIRMATIONS,
        ),
    ] = 2
    stay: Annotated[Count, setting("RL iterations at least from coming to a level to leaving it")] = 10
    certain: Annotated[
        bool,
        setting(
            "the 95 % interval must be beyond the gate, not the share alone: of 100 tasks 84 for harder_above 0.75, 30 "
            "for easier_below 0.4"
        ),
    ] = False
    evaluation_tasks: Annotated[Positive, setting("tasks of each level in an evaluation, the first of its split")] = 100
    evaluation_least: Annotated[
        Positive | None,
        setting("an evaluation of which fewer were played to an end is not counted; null: half of evaluation_tasks"),
    ] = None
    # earlier levels
    replay_share: Annotated[
        Share, setting("share of a batch for the levels below that were trained on, played anew, each alike")
    ] = 0.1
    regression_every: Annotated[
        Positive, setting("levels below are evaluated too in each so many evaluations of the level")
    ] = 2
    forgetting_drop: Annotated[
        Share,
        setting(
            "alarm where a level below is solved less often than at its best by more than this, the 95 % interval of "
            "the difference above 0"
        ),
    ] = 0.1
    # what a batch is made of
    core_split: Annotated[str, setting('split that every batch has tasks of, whatever the level; "" is none')] = ""
    core_share: Annotated[Share, setting("its share of a batch; 0.2 to 0.3 is usual")] = 0.25
    mixture: Annotated[
        dict[str, Annotated[float, Field(gt=0.0, le=1e6, allow_inf_nan=False)]],
        setting("instead of levels: training splits by name, each with its weight in a batch"),
    ] = Field(default_factory=dict)
    # steps
    step_budget: Annotated[
        bool,
        setting(
            "training tasks are cut after a multiple of the expert's way, never later than the environment says; "
            "evaluations are not"
        ),
    ] = False
    budget_factor: Annotated[
        float, setting("that multiple at first, and after every change of level", ge=1.0, allow_inf_nan=False)
    ] = 2.0
    budget_every: Annotated[Positive, setting("RL iterations whose success decides on a change of the factor")] = 10
    budget_change: Annotated[float, setting("the factor changes by this share of itself", gt=0.0, lt=1.0)] = 0.25
    budget_tighten_above: Annotated[Share, setting("the factor falls where training success is above this")] = 0.75
    budget_loosen_below: Annotated[Share, setting("the factor rises where training success is below this")] = 0.4
    budget_least: Annotated[float, setting("smallest factor; 1 leaves no wrong step", ge=1.0, allow_inf_nan=False)] = (
        1.25
    )
    budget_most: Annotated[float, setting("largest factor", ge=1.0, allow_inf_nan=False)] = 4.0
    # what is mastered
    mastery: Annotated[
        Mastery,
        setting(
            "what follows when training success was above mastery_above for mastery_iterations: nothing; the next "
            "level; a smaller budget_factor; or a smaller weight in the mixture, until success falls again"
        ),
    ] = "none"
    mastery_above: Annotated[Share, setting("training success that counts as mastery")] = 0.8
    mastery_iterations: Annotated[Positive, setting("successive RL iterations of it")] = 3
    mastery_weight: Annotated[
        float, setting("sample_less multiplies a mastered split's weight by this", gt=0.0, lt=1.0)
    ] = 0.5

    @property
    def on(self) -> bool:
        """Whether anything is asked for; else training goes through env.train_split as it would without."""
        return bool(self.levels or self.mixture or self.core_split or self.step_budget)

    @property
    def first_level(self) -> str:
        """The level to begin with; "" without levels."""
        return self.start or next(iter(self.levels), "")
