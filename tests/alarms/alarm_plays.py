"""What the tests of the alarms share: made-up iterations, recorded curves, and games that are really played."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from jaxmtrl.alarms.state import AlarmState
from jaxmtrl.alarms.watch import watch
from jaxmtrl.config.alarms_section import AlarmsSection
from jaxmtrl.envs.toy import ToyEnv, make
from jaxmtrl.types import Episode, EpisodeStop, Turn, TurnStop

CURVES = json.loads((Path(__file__).parent / "curves.json").read_text(encoding="utf-8"))
IDS = np.zeros(1, np.int32)


def turn(action: str = "look", *, reward: float = 0.0, observation: str = "", state: str = "", invalid=None) -> Turn:
    metrics = {} if invalid is None else {"invalid_action": float(invalid)}
    return Turn(
        prompt_ids=IDS,
        action_ids=IDS,
        action_logprobs=np.zeros(1, np.float32),
        reward=reward,
        stop=TurnStop.STOP_TOKEN,
        observation=observation,
        action=action,
        state=state,
        metrics=metrics,
    )


def episode(*turns: Turn, group: int = 0, index: int = 0, success: bool = False, failed: bool = False) -> Episode:
    stop = EpisodeStop.FAILED if failed else EpisodeStop.DONE
    return Episode(
        task_id=str(group), group=group, index=index, turns=turns, stop=stop, success=success, policy_version=0
    )


def earning(*rewards: float, group: int = 0, index: int = 0) -> Episode:
    """One that gets these rewards, and has won if they are above 0."""
    turns = [turn(reward=reward) for reward in rewards]
    return episode(*turns, group=group, index=index, success=sum(rewards) > 0)


@dataclass
class Told:
    """What a run of iterations led to."""

    state: AlarmState = field(default_factory=AlarmState)
    messages: list[tuple[int, str]] = field(default_factory=list)  # after which iteration
    values: list[Mapping[str, float]] = field(default_factory=list)  # of each iteration
    stops: list[str] = field(default_factory=list)

    def raised(self) -> dict[str, int]:
        """Alarms that were raised, and after which iteration first."""
        first: dict[str, int] = {}
        for finished, text in self.messages:
            if " since RL iteration " in text:
                first.setdefault(text.split()[1], finished)
        return first

    def text(self, name: str) -> str:
        """The first message of an alarm."""
        return next(text for _, text in self.messages if text.startswith(f"alarm {name} "))


def told(
    rows: Iterable[Mapping[str, float]],
    section: AlarmsSection | None = None,
    *,
    iterations: int | None = None,
    batches: Sequence[Sequence[Episode]] | None = None,
    tasks: Callable[[int], str] = lambda finished: "",
    reward_scale: float | None = None,
    through: Callable[[AlarmState], AlarmState] = lambda state: state,
) -> Told:
    """Watches iterations of these metrics (and of these episodes, if any).

    Args:
        through: what the state goes through after each iteration.
    """
    rows = list(rows)
    out = Told()
    for finished, row in enumerate(rows, start=1):
        seen = watch(
            section or AlarmsSection(),
            out.state,
            batches[finished - 1] if batches else [],
            row,
            finished=finished,
            iterations=iterations or len(rows),
            reward_scale=reward_scale,
            tasks=tasks(finished),
        )
        out.state = through(seen.state)
        out.messages += [(finished, text) for text in seen.messages]
        out.values.append(seen.values)
        out.stops += [seen.stop] if seen.stop else []
    return out


def healthy(count: int = 40, *, plays: int = 64, **changed: Callable[[int], float]) -> list[dict[str, float]]:
    """Iterations of a run that learns: success .3 to .8, entropies and spread within tasks fall, repeats vanish.

    Args:
        changed: series that are otherwise, functions of the iteration 1, 2, …; names with "/" as "__".
    """
    rows = []
    for i in range(1, count + 1):
        done = min(1.0, i / 40)
        success = 0.3 + 0.5 * done + 0.03 * math.sin(2.4 * i)
        error = math.sqrt(success * (1 - success) / plays)
        row = {
            "episode/success": success,
            "episode/success_error": error,
            "episode/return": success,
            "episode/invalid_action_rate": 0.4 - 0.3 * done,
            "return/standard_error": error,
            "return/variance": success * (1 - success),
            "return/group_std": 0.4 - 0.25 * done,
            "return/positive_share": success,
            "policy/sampled_entropy_nats": 1.2 - 0.8 * done,
            "update/gradient_norm": 0.9 + 0.3 * math.sin(1.7 * i),
            "action/command_entropy_nats": 3.0 - done,
            "action/verb_coverage": 0.9,
            "action/repeated_useless_rate": 0.2 - 0.15 * done,
        }
        rows.append(row | {name.replace("__", "/"): series(i) for name, series in changed.items()})
    return rows


def recorded(name: str) -> list[dict[str, float]]:
    """Iterations of a recorded run; what it did not record is rebuilt as for rewards of 0 and 1."""
    curve = CURVES[name]
    rows = []
    for i, success in enumerate(curve["success"]):
        n = curve["tasks"] * min(curve["plays"], 2)
        smooth = (success * n + 2) / (n + 4)
        row = {
            "episode/success": success,
            "episode/success_error": math.sqrt(smooth * (1 - smooth) / (n + 4)),
            "episode/return": curve["return"][i],
            "return/standard_error": math.sqrt(smooth * (1 - smooth) / (n + 4)),
            "return/variance": success * (1 - success),
            "return/positive_share": float(curve["return"][i] > 0),
            "episode/invalid_action_rate": curve["invalid"][i],
            "policy/sampled_entropy_nats": curve["entropy"][i],
            "update/gradient_norm": curve["gradient"][i],
        }
        if "uniform" in curve:
            row["return/group_std"] = (1 - curve["uniform"][i]) * math.sqrt(success * (1 - success))
        rows.append(row)
    return rows


@functools.cache
def toy():
    return make({"reward": "sparse", "train_tasks": 32, "heldout_tasks": 8})


Speaker = Callable[[ToyEnv, int, np.random.Generator], str]  # environment, turn 0, 1, … → what is said


def played(speak: Speaker, *, tasks: int = 8, plays: int = 4, seed: int = 0) -> list[Episode]:
    """Games of the toy, played by a policy that is a function."""
    episodes = []
    for group, task in enumerate(toy().split("train").tasks[:tasks]):
        for index in range(plays):
            rng, env = np.random.default_rng((seed, group, index)), toy().make_env()
            observation, turns, result = env.reset(task), [], None
            while result is None or not (result.done or result.truncated):
                action, state = speak(env, len(turns), rng), env.state()
                result = env.step(action)
                turns.append(
                    turn(
                        action,
                        reward=result.reward,
                        observation=observation,
                        state=state,
                        invalid=result.metrics["invalid_action"],
                    )
                )
                observation = result.observation
            episodes.append(episode(*turns, group=group, index=index, success=result.success))
    return episodes


def at_random(env: ToyEnv, _: int, rng: np.random.Generator) -> str:
    """Something that would be obeyed."""
    return str(rng.choice(env.admissible()))


def looking(env: ToyEnv, number: int, rng: np.random.Generator) -> str:
    """Hardly anything but looking around."""
    return "look" if rng.random() < 0.9 else at_random(env, number, rng)


def householder(env: ToyEnv, number: int, rng: np.random.Generator) -> str:
    """A policy that was taught to keep house elsewhere: the same few verbs, which the toy does not know."""
    return str(rng.choice(["go to fridge 1", "go to shelf 2", "put mug 1 in fridge 1", "use desklamp 1"]))


def noise(env: ToyEnv, number: int, rng: np.random.Generator) -> str:
    """A policy that was never taught anything."""
    return "".join(chr(c) for c in rng.integers(97, 123, 12))


def figures_of(episodes: Sequence[Episode]) -> dict[str, float]:
    """What `evaluation.episode_metrics` would say of them, as far as the alarms read it."""
    turns = [t for e in episodes for t in e.turns]
    return {
        "episode/success": float(np.mean([e.success for e in episodes])),
        "episode/return": float(np.mean([e.episode_return for e in episodes])),
        "episode/invalid_action_rate": float(np.mean([t.metrics["invalid_action"] for t in turns])),
    }
