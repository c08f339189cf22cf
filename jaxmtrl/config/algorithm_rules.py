"""Rules between the fields of the algorithm and its optimizer: what belongs to what, and what shuts out what.

Written and reported like those of `rules.py`. A field that a method would not read is refused when it was set, since
its silence would be taken for an effect.
"""

from __future__ import annotations

from functools import partial

from jaxmtrl.config.optimizer_section import OptimizerSection
from jaxmtrl.config.rule import Rule, rule_of
from jaxmtrl.config.sections import Config

ALGORITHM_RULES: list[Rule] = []
_rule = partial(rule_of, ALGORITHM_RULES)

_WHY_A_GROUP = {
    "rloo": "leave-one-out needs a peer",
    "grpo": "the mean and deviation of one play say nothing",
    "gspo": "the mean and deviation of one play say nothing",
    "gigpo": "the mean and deviation of one play say nothing",
}


@_rule("algorithm.name", "algorithm.group_size")
def _a_group_has_peers(config: Config) -> str | None:
    algorithm = config.algorithm
    if algorithm.name not in _WHY_A_GROUP or algorithm.group_size >= 2:
        return None
    return (
        f"algorithm.group_size: got {algorithm.group_size}, wanted at least 2 for algorithm.name {algorithm.name} "
        f"({_WHY_A_GROUP[algorithm.name]}); set algorithm.group_size to 4, or algorithm.name to ppo"
    )


@_rule("algorithm.group_baseline", "algorithm.name", "algorithm.group_size")
def _a_group_baseline_has_a_group(config: Config) -> str | None:
    algorithm = config.algorithm
    if not algorithm.group_baseline:
        return None
    if algorithm.name != "reinforce_plus_plus":
        return (
            f"algorithm.group_baseline: got true with algorithm.name {algorithm.name}, wanted false: only "
            "reinforce_plus_plus reads it; remove it, or set algorithm.name to reinforce_plus_plus"
        )
    if algorithm.group_size >= 2:
        return None
    return (
        f"algorithm.group_size: got {algorithm.group_size}, wanted at least 2 with algorithm.group_baseline true (the "
        "mean return of one play is its own, which leaves nothing); set algorithm.group_size to 4, or "
        "algorithm.group_baseline to false"
    )


@_rule("algorithm.drop_uniform_groups", "algorithm.group_size")
def _groups_of_one_are_not_dropped(config: Config) -> str | None:
    algorithm = config.algorithm
    if not algorithm.drop_uniform_groups or algorithm.group_size >= 2:
        return None
    return (
        f"algorithm.drop_uniform_groups: got true with algorithm.group_size {algorithm.group_size}, wanted groups of "
        "at least 2: a group of one is always uniform, so that nothing would be learnt from; set algorithm.group_size "
        "to 4, or algorithm.drop_uniform_groups to false"
    )


@_rule("algorithm.name", "algorithm.ratio")
def _gspo_clips_sequences(config: Config) -> str | None:
    algorithm = config.algorithm
    if algorithm.name != "gspo" or algorithm.ratio == "sequence":
        return None
    return (
        f"algorithm.ratio: got {algorithm.ratio}, wanted sequence with algorithm.name gspo, which is grpo with the "
        "ratio of whole episodes; set algorithm.ratio to sequence, or algorithm.name to grpo"
    )


@_rule("algorithm.name", "algorithm.group_baseline", "algorithm.gamma", "algorithm.discount_per")
def _group_returns_are_not_discounted(config: Config) -> str | None:
    algorithm = config.algorithm
    whole_returns = algorithm.name in ("rloo", "grpo", "gspo")
    if not whole_returns and not (algorithm.name == "reinforce_plus_plus" and algorithm.group_baseline):
        return None
    if algorithm.gamma == 1 and algorithm.discount_per == "token":
        return None
    return (
        f"algorithm.gamma: got {algorithm.gamma:g} with discount_per {algorithm.discount_per}, wanted 1 and token with "
        f"algorithm.name {algorithm.name}{'' if whole_returns else ' and group_baseline true'}, whose returns are not "
        "discounted; set both, or algorithm.name to ppo"
    )


@_rule("algorithm.name", "algorithm.gamma", "algorithm.discount_per")
def _gigpo_discounts_turns(config: Config) -> str | None:
    algorithm = config.algorithm
    if algorithm.name != "gigpo" or algorithm.gamma == 1 or algorithm.discount_per == "turn":
        return None
    return (
        f"algorithm.discount_per: got {algorithm.discount_per} with gamma {algorithm.gamma:g}, wanted turn with "
        "algorithm.name gigpo, which compares the discounted returns of turns; set algorithm.discount_per to turn, or "
        "algorithm.gamma to 1"
    )


@_rule("algorithm.credit", "algorithm.name")
def _only_gae_has_steps_to_choose(config: Config) -> str | None:
    algorithm = config.algorithm
    if algorithm.credit == "token" or algorithm.name == "ppo":
        return None
    return (
        f"algorithm.credit: got {algorithm.credit}, wanted token with algorithm.name {algorithm.name}: the others are "
        "steps of GAE, which only ppo has; set algorithm.credit to token, or algorithm.name to ppo"
    )


@_rule("algorithm.credit", "algorithm.gamma", "algorithm.discount_per")
def _credit_of_turns_discounts_turns(config: Config) -> str | None:
    algorithm = config.algorithm
    if algorithm.credit == "token" or algorithm.gamma == 1 or algorithm.discount_per == "turn":
        return None
    return (
        f"algorithm.discount_per: got {algorithm.discount_per} with gamma {algorithm.gamma:g}, wanted turn with "
        f"algorithm.credit {algorithm.credit}, whose steps are turns; set algorithm.discount_per to turn, or "
        "algorithm.gamma to 1"
    )


@_rule("algorithm.gamma_token", "algorithm.credit")
def _a_token_discount_is_for_bilevel(config: Config) -> str | None:
    algorithm = config.algorithm
    if algorithm.gamma_token == 1 or algorithm.credit == "bilevel":
        return None
    return (
        f"algorithm.gamma_token: got {algorithm.gamma_token:g} with algorithm.credit {algorithm.credit}, wanted 1: "
        "only bilevel reads it; set algorithm.credit to bilevel, or discount by algorithm.gamma"
    )


@_rule("algorithm.lam_critic", "algorithm.name", "algorithm.credit")
def _a_critic_lambda_is_for_token_gae(config: Config) -> str | None:
    algorithm = config.algorithm
    if algorithm.lam_critic is None or (algorithm.name == "ppo" and algorithm.credit == "token"):
        return None
    return (
        f"algorithm.lam_critic: got {algorithm.lam_critic:g} with algorithm.name {algorithm.name} and algorithm.credit "
        f"{algorithm.credit}, wanted null: only ppo with credit token has a second lambda; remove it, or set name to "
        "ppo and credit to token"
    )


@_rule("algorithm.lam_adaptive", "algorithm.name", "algorithm.credit")
def _an_adaptive_lambda_is_for_token_gae(config: Config) -> str | None:
    algorithm = config.algorithm
    if algorithm.lam_adaptive == 0 or (algorithm.name == "ppo" and algorithm.credit == "token"):
        return None
    return (
        f"algorithm.lam_adaptive: got {algorithm.lam_adaptive:g} with algorithm.name {algorithm.name} and "
        f"algorithm.credit {algorithm.credit}, wanted 0: it counts the action tokens that lambda bridges, which only "
        "ppo with credit token does; remove it, or set name to ppo and credit to token"
    )


@_rule("algorithm.kl_coef", "algorithm.kl_coef_end", "algorithm.kl_target")
def _the_kl_weight_moves_from_somewhere_in_one_way(config: Config) -> str | None:
    algorithm = config.algorithm
    moves = {"kl_coef_end": algorithm.kl_coef_end, "kl_target": algorithm.kl_target or None}
    given = {name: value for name, value in moves.items() if value is not None}
    if len(given) == 2:
        return (
            f"algorithm.kl_target: got {algorithm.kl_target:g} beside algorithm.kl_coef_end {algorithm.kl_coef_end:g}, "
            "wanted one of them: the first adapts the weight to the KL, the second to the iteration; set kl_target to "
            "0, or kl_coef_end to null"
        )
    if not given or algorithm.kl_coef > 0:
        return None
    ((name, value),) = given.items()
    return (
        f"algorithm.kl_coef: got 0 with algorithm.{name} {value:g}, wanted more than 0: the weight starts there, and a "
        f"run whose weight is 0 keeps no reference; set algorithm.kl_coef to 0.001 or more, or remove {name}"
    )


@_rule("algorithm.importance_cap", "rollout.overlap")
def _an_importance_cap_is_off_or_at_least_one(config: Config) -> str | None:
    cap = config.algorithm.importance_cap
    if cap == 0 or cap >= 1 or config.rollout.overlap:  # overlap has a rule of its own
        return None
    return (
        f"algorithm.importance_cap: got {cap:g}, wanted 0 (off) or at least 1: fresh play has weight 1, which the cap "
        "must leave alone; set 2"
    )


@_rule("algorithm.importance_floor", "algorithm.importance_beyond", "algorithm.importance_cap")
def _an_importance_floor_masks(config: Config) -> str | None:
    algorithm = config.algorithm
    if algorithm.importance_floor == 0 or (algorithm.importance_beyond == "mask" and algorithm.importance_cap > 0):
        return None
    return (
        f"algorithm.importance_floor: got {algorithm.importance_floor:g} with algorithm.importance_beyond "
        f"{algorithm.importance_beyond} and algorithm.importance_cap {algorithm.importance_cap:g}, wanted mask and a "
        "cap of at least 1: what lies below the floor is left out, not cut; set both, or importance_floor to 0"
    )


@_rule("algorithm.overlong", "algorithm.overlong_from", "batching.row_length")
def _an_overlong_penalty_has_room_to_rise(config: Config) -> str | None:
    start, row = config.algorithm.overlong_from, config.batching.row_length
    if config.algorithm.overlong != "penalty" or start < row:
        return None
    return (
        f"algorithm.overlong_from: got {start}, wanted less than batching.row_length ({row}) with algorithm.overlong "
        f"penalty, which rises from the one to the other; set {max(0, row * 3 // 4)}"
    )


@_rule("algorithm.dual_clip")
def _dual_clip_is_off_or_above_one(config: Config) -> str | None:
    if config.algorithm.dual_clip == 0 or config.algorithm.dual_clip > 1:
        return None
    return (
        f"algorithm.dual_clip: got {config.algorithm.dual_clip:g}, wanted 0 (off) or above 1: it bounds ratios that "
        "the clip lets grow; 3 is usual"
    )


@_rule("model.critic", "algorithm.name")
def _a_critic_of_its_own_is_for_ppo(config: Config) -> str | None:
    if config.model.critic != "separate" or config.algorithm.name == "ppo":
        return None
    return (
        f"model.critic: got separate with algorithm.name {config.algorithm.name}, wanted head: only ppo has a critic "
        "to train, and a second decoder would take memory for nothing; set it to head, or algorithm.name to ppo"
    )


@_rule("optimizer.decay", "optimizer.decay_factor", "optimizer.decay_every")
def _drops_of_the_rate_are_asked_for(config: Config) -> str | None:
    section, default = config.optimizer, OptimizerSection()
    given = [name for name in ("decay_factor", "decay_every") if getattr(section, name) != getattr(default, name)]
    if section.decay == "steps" or not given:
        return None
    return (
        f"optimizer.{given[0]}: got {getattr(section, given[0]):g} with optimizer.decay {section.decay}, which does "
        f"not read it; set optimizer.decay to steps, or remove {', '.join(f'optimizer.{name}' for name in given)}"
    )
