"""Rules about what a turn earns: parts that fit each other, the algorithm and the environment's options.

Written and reported like those of `rules.py`. What only the environment knows is checked at start-up, by `rewards/`.
"""

from __future__ import annotations

import dataclasses
import re
from functools import partial
from urllib.parse import urlsplit

from jaxmtrl.config.reward_section import PARTS, JudgeSection, RewardSection
from jaxmtrl.config.rule import Rule, rule_of
from jaxmtrl.config.sections import Config
from jaxmtrl.fields import nearest, show

REWARD_RULES: list[Rule] = []
_rule = partial(rule_of, REWARD_RULES)
_PARTS = ("reward.preset", "reward.parts")
_PENALTIES = tuple(f"reward.{name}_penalty" for name in ("invalid_action", "format", "repetition", "diversity"))


@_rule("reward.parts")
def _parts_are_known(config: Config) -> str | None:
    unknown = [name for name in config.reward.parts if name not in PARTS]
    if not unknown:
        return None
    cures = [f"did you mean {near} for {name}?" for name in unknown if (near := nearest(name, tuple(PARTS)))]
    named = ", ".join(name or show(name) for name in unknown)
    return f"reward.parts: unknown {named}; {' '.join(cures) or 'known are ' + ', '.join(PARTS)}"


@_rule("reward.parts")
def _some_part_counts(config: Config) -> str | None:
    parts = config.reward.parts
    if not parts or any(parts.values()):
        return None
    return "reward.parts: got weight 0 for every part, which pays nothing; give one of them a weight"


@_rule(*_PARTS)
def _parts_or_a_preset(config: Config) -> str | None:
    reward = config.reward
    if not reward.parts or reward.preset == "own":
        return None
    return (
        f"reward.parts: got weights beside reward.preset {reward.preset}, which stands for others; remove one of them "
        f"(the preset is {dict(RewardSection(preset=reward.preset).weights)})"
    )


@_rule(*_PARTS, "algorithm.name", "algorithm.group_baseline")
def _progress_is_seen(config: Config) -> str | None:
    algorithm = config.algorithm
    if "progress" not in config.reward.weights:
        return None
    if algorithm.name == "ppo" or (algorithm.name == "reinforce_plus_plus" and not algorithm.group_baseline):
        return None
    return (
        f"reward.parts.progress: got a weight with algorithm.name {algorithm.name}, which compares whole plays of a "
        "task or turns from one state, and among those progress adds up to the same: it would change nothing. Set "
        "algorithm.name to ppo (or reinforce_plus_plus without group_baseline), or let env.options.reward: progress "
        "pay for what a lost play had reached"
    )


@_rule(*_PARTS, "algorithm.gamma", "algorithm.discount_per", "algorithm.name")
def _progress_discounts_turns(config: Config) -> str | None:
    algorithm = config.algorithm
    if "progress" not in config.reward.weights or algorithm.gamma == 1 or algorithm.discount_per == "turn":
        return None
    return (
        f"algorithm.discount_per: got token with gamma {algorithm.gamma:g} and reward.parts.progress: gamma is taken "
        "off progress once a step, and where each token of an action counts, that would make long actions the better "
        "or worse ones; set algorithm.discount_per to turn, or algorithm.gamma to 1"
    )


@_rule(*_PARTS, "env.options")
def _progress_is_paid_once(config: Config) -> str | None:
    if "progress" not in config.reward.weights or config.env.options.get("reward") != "progress":
        return None
    return (
        "reward.parts.progress: got a weight with env.options.reward progress, which pays for the same; remove one of "
        "them"
    )


@_rule(*_PARTS, "reward.clip")
def _the_clip_leaves_progress_whole(config: Config) -> str | None:
    weights, clip = config.reward.weights, config.reward.clip
    total = sum(weights.values())
    if "progress" not in weights or clip == 0 or total <= clip + 1e-9:
        return None
    return (
        f"reward.clip: got {clip:g} with weights that add up to {total:g}: what it cuts off progress would change "
        f"which play is best; set reward.clip to {total:g} or more (0 for none), or lower the weights"
    )


@_rule("reward.invalid_action_penalty", "env.options")
def _invalid_actions_cost_once(config: Config) -> str | None:
    ours, theirs = config.reward.invalid_action_penalty, config.env.options.get("invalid_action_penalty")
    if ours == 0 or not theirs:
        return None
    return (
        f"reward.invalid_action_penalty: got {ours:g} with env.options.invalid_action_penalty {theirs}, which takes "
        "from the same actions; remove one of them"
    )


@_rule(*_PARTS, "reward.density", "reward.progress_stages")
def _density_is_of_progress(config: Config) -> str | None:
    reward, default = config.reward, RewardSection()
    if "progress" not in reward.weights and reward.density != default.density:
        return (
            f"reward.density: got {reward.density} without reward.parts.progress, whose density it is; give progress a "
            "weight, or remove it (TextWorld's simple games have env.options.reward_density)"
        )
    if reward.density != "balanced" and reward.progress_stages != default.progress_stages:
        return (
            f"reward.progress_stages: got {reward.progress_stages} with reward.density {reward.density}, which has no "
            "stages; set reward.density to balanced, or remove it"
        )
    return None


@_rule("reward.format_pattern", "reward.format_penalty")
def _a_pattern_is_one(config: Config) -> str | None:
    pattern = config.reward.format_pattern
    if not pattern:
        return None
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as err:
        return f"reward.format_pattern: got {pattern!r}, which is no regular expression ({err}); correct it"
    if config.reward.format_penalty > 0:
        return None
    return (
        f"reward.format_pattern: got {pattern!r} with reward.format_penalty 0, which looks at no pattern; set the "
        'penalty, or the pattern to ""'
    )


@_rule(*_PARTS, *_PENALTIES, "reward.clip")
def _a_clip_has_parts(config: Config) -> str | None:
    if config.reward.composed or config.reward.clip == RewardSection().clip:
        return None
    return (
        f"reward.clip: got {config.reward.clip:g} with reward.preset own, which leaves the environment's reward alone; "
        "set reward.parts to {env: 1} to have it clipped, or remove the clip"
    )


@_rule(*_PARTS, "judge.url", "judge.model")
def _a_judge_is_named(config: Config) -> str | None:
    if "judge" not in config.reward.weights or (config.judge.url and config.judge.model):
        return None
    missing = " and ".join(f"judge.{name}" for name in ("url", "model") if not getattr(config.judge, name))
    return f"{missing}: missing with reward.parts.judge; name the server and its model, or remove the part"


@_rule("judge.url", "judge.model", "judge.api_key_env")
def _a_judge_can_be_asked(config: Config) -> list[str]:
    judge, mistakes = config.judge, []
    if judge.url and not _is_address(judge.url):
        mistakes.append(
            f"judge.url: got {judge.url!r}, wanted http:// or https://, a host, and what stands before "
            "/chat/completions, such as http://localhost:8000/v1"
        )
    if judge.model and not judge.model.strip():
        mistakes.append("judge.model: got only blanks, wanted the server's name of the model")
    if judge.api_key_env and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", judge.api_key_env):
        mistakes.append(
            "judge.api_key_env: wanted the name of an environment variable, of letters, digits and '_' (the key itself "
            'must not stand in a file); name the variable, or "" where no key is needed'
        )
    return mistakes


def _is_address(url: str) -> bool:
    """Whether a request can be sent there, as far as the text tells."""
    try:
        parts = urlsplit(url)
        return (
            parts.scheme in ("http", "https")
            and bool(parts.hostname)
            and (parts.port is None or parts.port > 0)
            and url.isprintable()
            and " " not in url
        )
    except ValueError:
        return False


@_rule(*_PARTS, *(f"judge.{field.name}" for field in dataclasses.fields(JudgeSection)))
def _a_judge_is_asked(config: Config) -> str | None:
    if "judge" in config.reward.weights or config.judge == JudgeSection():
        return None
    return (
        "judge: got settings without reward.parts.judge, so that nobody is asked; give judge a weight, or remove them"
    )


@_rule(*_PARTS, "judge.deadline_s", "rollout.step_timeout_s")
def _a_judge_is_done_in_a_step(config: Config) -> str | None:
    deadline, step = config.judge.deadline_s, config.rollout.step_timeout_s
    if "judge" not in config.reward.weights or deadline < step:
        return None
    return (
        f"judge.deadline_s: got {deadline:g}, wanted less than rollout.step_timeout_s ({step:g}), since the last step "
        f"of an episode waits for its score; set rollout.step_timeout_s to {2 * deadline:g}"
    )
