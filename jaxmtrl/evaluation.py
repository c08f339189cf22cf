"""How good a policy is: fixed tasks of every split, mean with its confidence interval, failures kept apart."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from jaxmtrl.envs.base import Environment
from jaxmtrl.models.decoder import Network, parameter_count
from jaxmtrl.rewards.recipe import PREFIX as REWARD
from jaxmtrl.rollout.collect import Player
from jaxmtrl.rollout.plays import seeded_plays
from jaxmtrl.scores import wilson_interval
from jaxmtrl.types import Episode, Task


@dataclass(frozen=True, kw_only=True)
class SplitResult:
    """What one policy did on one split. Failed episodes count in `failed` and nowhere else."""

    success: float  # share of played episodes that were solved; NaN if none was played to its end
    ci95: tuple[float, float]  # Wilson interval of `success`
    n: int  # episodes played to an end
    failed: int
    mean_return: float
    mean_turns: float
    invalid_action_rate: float  # share of turns the environment did not understand
    pass_ratio: float | None = None  # mean share of tests passed at the end; None where no episode tells of tests
    kinds: Mapping[str, SplitResult] = field(default_factory=dict)  # the same by kind of task, where tasks have one

    def as_dict(self) -> dict:
        """For result.json; a mean over nothing is null."""
        kinds = {kind: result.as_dict() for kind, result in self.kinds.items()}
        return {
            "success": _rounded(self.success, 4),
            "ci95": [round(bound, 4) for bound in self.ci95],
            "n": self.n,
            "failed": self.failed,
            "return": _rounded(self.mean_return, 4),
            "turns": _rounded(self.mean_turns, 2),
            "invalid_action_rate": _rounded(self.invalid_action_rate, 4),
            **({"pass_ratio": round(self.pass_ratio, 4)} if self.pass_ratio is not None else {}),
            **({"kinds": kinds} if kinds else {}),
        }


def _rounded(value: float, places: int) -> float | None:
    return round(value, places) if math.isfinite(value) else None


def summarise(episodes: Sequence[Episode]) -> SplitResult:
    """The figures of some episodes of one policy."""
    played = [episode for episode in episodes if not episode.failed]
    n = len(played)
    wins = sum(episode.success for episode in played)
    turns = [turn for episode in played for turn in episode.turns]
    return SplitResult(
        success=wins / n if n else math.nan,
        ci95=wilson_interval(wins, n),
        n=n,
        failed=len(episodes) - n,
        mean_return=sum(episode.episode_return for episode in played) / n if n else math.nan,
        mean_turns=len(turns) / n if n else math.nan,
        invalid_action_rate=sum(turn.metrics.get("invalid_action", 0.0) for turn in turns) / len(turns)
        if turns
        else math.nan,
        pass_ratio=_pass_ratio(played),
    )


def _pass_ratio(played: Sequence[Episode]) -> float | None:
    """Mean over episodes; one that was cut before its tests were run passed none."""
    ends = [episode.turns[-1].metrics.get("pass_ratio") if episode.turns else None for episode in played]
    if all(share is None for share in ends):
        return None
    return sum(share or 0.0 for share in ends) / len(ends)


def by_kind(episodes: Sequence[Episode], tasks: Sequence[Task]) -> dict[str, SplitResult]:
    """The figures of each kind of task, in the order in which kinds first come; empty where tasks name no kind.

    Args:
        tasks: those that were played; `payload["kind"]` is what an environment calls their kind.
    """
    kinds = {task.id: str(task.payload["kind"]) for task in tasks if "kind" in task.payload}
    return {
        kind: summarise([episode for episode in episodes if kinds.get(episode.task_id) == kind])
        for kind in dict.fromkeys(kinds.values())
    }


def episode_metrics(episodes: Sequence[Episode]) -> dict[str, float]:
    """The figures of a batch of training episodes under the names they are logged by."""
    summary = summarise(episodes)
    truncated = [episode for episode in episodes if episode.stop.value == "truncated"]
    lengths = [len(turn.action_ids) for episode in episodes for turn in episode.turns]
    return {
        "episode/success": summary.success,
        "episode/return": summary.mean_return,
        "episode/turns": summary.mean_turns,
        "episode/truncated_share": len(truncated) / max(1, summary.n),
        "episode/failed": float(summary.failed),
        "episode/invalid_action_rate": summary.invalid_action_rate,
        "episode/context_drops": sum(turn.fresh for e in episodes for turn in e.turns) / max(1, len(episodes)),
        "episode/action_tokens_per_turn": float(np.mean(lengths)) if lengths else float("nan"),
        **turn_metrics(episodes),
    }


def turn_metrics(episodes: Sequence[Episode]) -> dict[str, float]:
    """What turns tell of themselves: of which parts rewards were made, and what an environment counts.

    Returns:
        reward/steps_per_reward: turns of all played episodes for each turn whose own reward of the environment was not
            0; NaN where none was. And for every metric <group>/<name> that turns carry, the mean over played episodes
            of its sum. Of reward/<part>: weights times these add up to episode/return, but for what a clip took.
    """
    played = [episode for episode in episodes if not episode.failed]
    turns = [turn for episode in played for turn in episode.turns]
    paid = sum(turn.metrics.get(f"{REWARD}env", turn.reward) != 0 for turn in turns)
    names = dict.fromkeys(name for turn in turns for name in turn.metrics if "/" in name)
    sums = {name: sum(turn.metrics.get(name, 0.0) for turn in turns) / len(played) for name in names}
    return {f"{REWARD}steps_per_reward": len(turns) / paid if paid else math.nan, **sums}


def run_result(network: Network, results: Mapping[str, Any], *, seed: int, wall_s: float) -> dict[str, Any]:
    """What result.json holds: every policy on every split, and how large the model was."""
    trained = parameter_count(network.shapes())
    frozen = parameter_count(network.whole.shapes()["policy"]) if network.adapted else 0
    return {
        "splits": results,
        "seed": seed,
        "model_params": trained + frozen,
        "trained_params": trained,
        "wall_s": round(wall_s, 1),
    }


def evaluate(
    player: Player,
    environment: Environment,
    splits: Mapping[str, int],
    *,
    temperature: float,
    seed: int,
    report: Callable[[str, Episode], None] | None = None,
    staged: Callable[[Sequence[Task]], Sequence[Task]] = lambda tasks: tasks,
) -> dict[str, SplitResult]:
    """Plays the first n tasks of each split once, the same ones with the same draws for every policy.

    Args:
        splits: how many tasks of which split.
        temperature: of the policy; 0 is greedy.
        seed: of the draws at a temperature above 0.
        report: called with the split's name and each episode as it ends.
        staged: gives tasks the stage of the action space that they are played in.
    """
    results = {}
    for number, (name, count) in enumerate(splits.items()):
        tasks = staged(environment.split(name).tasks[:count])
        plays = seeded_plays(tasks, group_size=1, seed=(seed, 0xE7A1, number))
        episodes = player.play(
            plays,
            temperature=temperature,
            report=(lambda episode, name=name: report(name, episode)) if report else None,
        )
        results[name] = replace(summarise(episodes), kinds=by_kind(episodes, tasks))
    return results


def success_table(
    results: Mapping[str, Mapping[str, Mapping[str, Any]]], policies: Sequence[str]
) -> tuple[list[str], list[list[Any]]]:
    """Columns and rows of success with its interval: a row a split and one for each kind of its tasks.

    Args:
        results: split → policy → figures, as in result.json.
        policies: every policy there may be, in the order of the columns.
    """
    shown = [policy for policy in policies if any(policy in by for by in results.values())]
    rows = []
    for split, by in results.items():
        rows.append([split, by[shown[0]]["n"], *[_cell(by[policy]) for policy in shown]])
        for kind, figures in by[shown[0]].get("kinds", {}).items():
            of_kind = [by[policy]["kinds"][kind] for policy in shown]
            rows.append([f"  {kind}", figures["n"], *map(_cell, of_kind)])
    return ["split", "n", *shown], rows


def _cell(figure: Mapping[str, Any]) -> str:
    low, high = figure["ci95"]
    success = "-" if figure["success"] is None else f"{figure['success']:.2f}"
    return f"{success} [{low:.2f}, {high:.2f}]"
