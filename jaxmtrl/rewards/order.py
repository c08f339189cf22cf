"""Proves, before anything is played, that no play which leaves its task unsolved can earn as much as one that wins."""

from __future__ import annotations

from jaxmtrl.envs.base import OwnReturns
from jaxmtrl.rewards.recipe import Recipe

_SLACK = 1e-9
_BY_STEP = ("invalid_action", "format", "repetition")  # penalties that any step may cost; diversity is taken once


def order_mistakes(recipe: Recipe, own: OwnReturns | None, max_steps: int) -> list[str]:
    """What is wrong with a recipe; empty if every win of a task earns more than any other play of that task.

    Returns are sums of rewards over an episode, undiscounted. Bounds on both, for T ≤ H = `max_steps` steps with
    rewards clip(g_t - f_t), where g_t = Σ w·part and f_t = Σ penalty·fault ≥ 0:

    *Parts.* The environment's own reward sums to ≥ W for a win and ≤ L for other plays (`OwnReturns`). Success sums to
    1 and 0. pass_ratio sums to 1 and < 1 (`parts.pass_ratio` refuses anything else), style and judge to something in
    0..1, being paid once. Progress telescopes: Σ(γΦ_{t+1} - Φ_t) = γΦ_T - Φ_0 - (1-γ)(Φ_1 + … + Φ_{T-1}). With
    0 ≤ Φ ≤ top that is ≥ -Φ_0 - (1-γ)(H-1)·top for a win, whose Φ_T is 0, and ≤ -Φ_0 + γ·top for any play. Φ_0 is the
    same for all plays of a task, so it is left out on both sides.

    *Faults.* They cost a win at most H times each penalty a step, and the one of diversity once; and others nothing.

    *Clip.* With lo ≤ g_t ≤ hi and clip c: clip(g-f) ≤ max(g, -c) ≤ g + max(0, -c-lo), because clip rises with its
    argument and f ≥ 0; clip(g-f) ≥ min(g, c) - f ≥ g - max(0, hi-c) - f. Summed over H steps this is added to the most
    of others and taken from the least of a win; both are 0 where the clip does not reach the parts.

    Args:
        own: of the environment; None where the recipe does not weigh it.
        max_steps: H, of the longest episode.
    """
    weights, gamma = recipe.weights, recipe.gamma
    if own is None and weights.get("env"):
        return []
    own = own or OwnReturns(win_least=0.0, other_most=0.0)
    top = recipe.potential(1.0)
    low, high = _step_bounds(recipe, own)
    cut = recipe.clip or float("inf")
    win = {
        "env": weights.get("env", 0.0) * own.win_least,
        "success": weights.get("success", 0.0),
        "pass_ratio": weights.get("pass_ratio", 0.0),
        "progress": -weights.get("progress", 0.0) * (1 - gamma) * (max_steps - 1) * top,
        "penalties": -_penalties(recipe, max_steps),
        "clip": -max_steps * max(0.0, high - cut),
    }
    other = {
        "env": weights.get("env", 0.0) * own.other_most,
        "pass_ratio": weights.get("pass_ratio", 0.0),
        "progress": weights.get("progress", 0.0) * gamma * top,
        "style": weights.get("style", 0.0),
        "judge": weights.get("judge", 0.0),
        "clip": max_steps * max(0.0, -cut - low),
    }
    gap = sum(win.values()) - sum(other.values())
    never_reached = bool(weights.get("pass_ratio"))  # by other plays, whose pass_ratio is below 1
    if gap > _SLACK or (never_reached and gap > -_SLACK):
        return []
    return [
        f"a win is sure of {sum(win.values()):.3g} ({_listed(win)}) within {max_steps} steps, and a play that does not "
        f"solve its task could earn up to {sum(other.values()):.3g} ({_listed(other)}), so that losing could pay; "
        f"{_cure(recipe, own, win, gap)}"
    ]


def _step_bounds(recipe: Recipe, own: OwnReturns) -> tuple[float, float]:
    """Least and most that the weighted parts of one step can be, penalties left out."""
    others = {name: weight for name, weight in recipe.weights.items() if name != "env"}
    env = recipe.weights.get("env", 0.0)
    return env * own.step_least - others.get("progress", 0.0), env * own.step_most + sum(others.values())


def _penalties(recipe: Recipe, max_steps: int) -> float:
    """The most that all faults of one episode can cost."""
    by_step = sum(recipe.penalties.get(name, 0.0) for name in _BY_STEP)
    return max_steps * by_step + recipe.penalties.get("diversity", 0.0)


def _listed(bounds: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:+.3g}" for name, value in bounds.items() if value) or "nothing"


def _cure(recipe: Recipe, own: OwnReturns, win: dict[str, float], gap: float) -> str:
    """The change that is nearest to hand: smaller penalties where they are to blame, else more for winning."""
    if win["clip"]:
        return "raise reward.clip to the sum of the weights, or set it to 0"
    if win["penalties"] and gap - win["penalties"] > _SLACK:
        share = 0.9 * (gap - win["penalties"]) / -win["penalties"]
        return f"multiply the penalties by {share:.2g}, or give winning a larger weight"
    margin = own.win_least - own.other_most
    if recipe.weights.get("env") and margin > _SLACK:
        enough = recipe.weights["env"] - gap / margin
        return f"set reward.parts.env to more than {enough:.3g}, or the other weights lower in proportion"
    return (
        "give success a weight (reward.preset verified_binary pays nothing else), or what a loss can earn a lower one"
    )
