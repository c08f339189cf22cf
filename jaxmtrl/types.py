"""What an episode is made of: the nouns that environments, rollout and learner share.

Host side only: standard dataclasses and numpy; no jax, so that rollout workers stay light.
Letters: P prompt tokens of a turn, A action tokens of a turn, G plays of one task.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np


@dataclass(frozen=True, kw_only=True)
class Task:
    """One thing to do in one environment; the same task always starts in the same state."""

    id: str  # unique within its environment, for example "w2-o3-q4/30001"
    seed: int  # seeds whatever the environment draws at reset
    # Small and picklable; the environment's own but for "kind", by which evaluation reports too, "max_steps", by which
    # a curriculum's step budget cuts a game earlier, and "action_stage", which says what commands may be used.
    payload: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class StepResult:
    """What the environment answers to one action."""

    observation: str
    reward: float  # of this step alone, never cumulative
    done: bool  # the task is over, won or lost
    truncated: bool = False  # a limit (steps, tokens) cut it; exclusive with done
    success: bool = False  # it was solved; a lost game is done without success
    metrics: Mapping[str, float] = field(default_factory=dict)  # for example {"invalid_action": 1.0}


class EpisodeStop(str, Enum):
    """How an episode ended."""

    DONE = "done"  # the environment says the task is over (won or lost)
    TRUNCATED = "truncated"  # a step or token limit cut it
    FAILED = "failed"  # environment or infrastructure broke; masked out, never scored 0


class TurnStop(str, Enum):
    """How the sampling of one action ended."""

    STOP_TOKEN = "stop_token"  # the policy chose to end its turn
    LENGTH = "length"  # the token cap cut it; an end-of-turn token is inserted with mask 0


@dataclass(frozen=True, kw_only=True)
class Turn:
    """One exchange: what was new to read, and what the policy sampled in answer."""

    prompt_ids: np.ndarray  # i32 [P], only the tokens new since the last action; all of the context where `fresh`
    action_ids: np.ndarray  # i32 [A], exactly as sampled, stop token included if it was sampled
    action_logprobs: np.ndarray  # f32 [A], under the behaviour policy at the sampling temperature
    reward: float
    stop: TurnStop
    observation: str = ""  # the text behind prompt_ids, for people
    action: str = ""  # the text the environment was given, for people
    state: str = ""  # the environment's own name of the state in which the turn began; "" if it has none
    metrics: Mapping[str, float] = field(default_factory=dict)
    support_ids: np.ndarray | None = None  # i32 [A], rows of the mask of actions; None without one
    fresh: bool = False  # older turns were dropped before this one, so that its context was read anew


@dataclass(frozen=True, kw_only=True)
class Episode:
    """One play of one task, from first observation to its end."""

    task_id: str
    group: int  # index of the task within the batch; plays of one task share it
    index: int  # which play of the group, 0 <= index < G
    turns: tuple[Turn, ...]
    stop: EpisodeStop
    success: bool
    policy_version: int  # update count of the weights that played (the oldest, if they changed)
    tail_ids: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int32))
    # i32: what was read after the last action; only of truncated episodes, whose value is bootstrapped there
    error: str = ""  # why a failed episode failed
    metrics: Mapping[str, float] = field(default_factory=dict)

    @property
    def episode_return(self) -> float:
        """Undiscounted sum of the turns' rewards."""
        return float(sum(turn.reward for turn in self.turns))

    @property
    def failed(self) -> bool:
        return self.stop is EpisodeStop.FAILED


@dataclass(frozen=True, kw_only=True)
class EpisodeGroup:
    """G plays of one task, in order of their index, failed ones included."""

    episodes: tuple[Episode, ...]
