"""The settings of what a turn earns: parts by weight, penalties, clip; and of the model that judges, if one does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from jaxmtrl.config.setting import CONFIG, Above0, Count, Positive, Weight, setting

PARTS = {
    "env": "the environment's own reward",
    "progress": "gamma times progress after the step, less progress before it",
    "success": "1 on the step that solves the task",
    "pass_ratio": "the metric of that name when the episode ends",
    "style": "a linter's score of the code written when the episode ends",
    "judge": "a model's score of the whole episode when it ends",
}
PRESETS: Mapping[str, Mapping[str, float]] = {
    "own": {},
    "hybrid_text": {"env": 0.8, "progress": 0.2},
    "hybrid_code": {"env": 0.6, "pass_ratio": 0.3, "style": 0.1},
    "verified_binary": {"success": 1.0},
    "verified_ratio": {"pass_ratio": 1.0},
}


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class RewardSection:
    preset: Annotated[
        Literal["own", "hybrid_text", "hybrid_code", "verified_binary", "verified_ratio"],
        setting(
            "own: the environment's reward as it is; hybrid_text: parts env 0.8, progress 0.2; hybrid_code: env 0.6, "
            "pass_ratio 0.3, style 0.1; verified_binary: success 1; verified_ratio: pass_ratio 1"
        ),
    ] = "own"
    parts: Annotated[
        dict[str, Weight],
        setting(
            "weights by name, in place of a preset. " + "; ".join(f"{name}: {about}" for name, about in PARTS.items())
        ),
    ] = Field(default_factory=dict)
    density: Annotated[
        Literal["sparse", "balanced", "dense"],
        setting(
            "how often the part progress pays; dense: on every step that leads nearer or away; balanced: where another "
            "stage of progress_stages is reached or lost; sparse: never"
        ),
    ] = "dense"
    progress_stages: Annotated[
        int,
        setting("equal stages of the way for density balanced; 2 pays every 2 commands of 4, 3 every 2.7 of 8", ge=2),
    ] = 2
    clip: Annotated[
        Weight,
        setting("a step's reward, all parts weighted and penalties taken, is kept in -clip..clip; 0 leaves it alone"),
    ] = 1.0
    invalid_action_penalty: Annotated[
        Weight, setting("taken for an action whose metric invalid_action is 1: the environment did nothing")
    ] = 0.0
    format_penalty: Annotated[Weight, setting("taken for an action that is not as format_pattern says")] = 0.0
    format_pattern: Annotated[
        str,
        setting(
            'regular expression that a whole action must match; "" is one line of at most 200 characters that is not '
            "blank, tags taken off"
        ),
    ] = ""
    repetition_penalty: Annotated[
        Weight,
        setting("taken for an action done before in the episode on the same observation and with the same answer"),
    ] = 0.0
    diversity_penalty: Annotated[
        Weight,
        setting("taken as the episode ends, times the share of its actions that had been said in it before"),
    ] = 0.0

    @property
    def weights(self) -> Mapping[str, float]:
        """Weight of each part that counts."""
        given = self.parts or PRESETS[self.preset] or {"env": 1.0}
        return {name: weight for name, weight in given.items() if weight > 0}

    @property
    def penalties(self) -> Mapping[str, float]:
        """What each fault costs, of those that cost something."""
        costs = {
            "invalid_action": self.invalid_action_penalty,
            "format": self.format_penalty,
            "repetition": self.repetition_penalty,
            "diversity": self.diversity_penalty,
        }
        return {name: cost for name, cost in costs.items() if cost > 0}

    @property
    def composed(self) -> bool:
        """Whether anything but the environment's own reward is paid."""
        return bool(self.preset != "own" or self.parts or self.penalties)

    @property
    def stages(self) -> int:
        """Stages that progress is rounded down to: 0 leaves it as it is, 1 leaves nothing of it."""
        return {"sparse": 1, "balanced": self.progress_stages, "dense": 0}[self.density]


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class JudgeSection:
    url: Annotated[
        str, setting('the OpenAI-compatible server of reward.parts.judge, up to and with /v1; "" for none')
    ] = ""
    model: Annotated[str, setting("the server's name of the model")] = ""
    api_key_env: Annotated[
        str, setting('environment variable that holds the key, which is written down nowhere; "" where none is needed')
    ] = ""
    instructions: Annotated[str, setting("what makes an episode good, in words, added to what the judge is told")] = ""
    deadline_s: Annotated[
        Above0, setting("of one score, retries included; less than rollout.step_timeout_s", unit="s")
    ] = 15.0
    retries: Annotated[
        Count, setting("further requests where one failed by connection, time, overload or an answer without a score")
    ] = 2
    max_tokens: Annotated[Positive, setting("cap of the judge's answer", unit="tokens")] = 512
    cache: Annotated[str, setting('folder of scores by content, kept between runs; "" keeps none')] = ".cache/judge"
