"""Advice on pairings that are allowed and known to go wrong: what, why, by which evidence, and the cure.

The evidence is that of "A Practitioner's Guide to Multi-turn Agentic Reinforcement Learning" (arXiv 2510.01132, called
the study; one seed and 100 tasks a number), of the papers named, and of this package's own quickstart. Unlike the rules
of `rules.py` nothing here stops a run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from jaxmtrl.config.sections import Config

Advice = Callable[[Config], str | None]  # a sentence or more where it applies

REAL_MODEL = 10**8  # parameters; smaller ones are toys that start from nothing
SMALL_MODEL = 3 * 10**9  # up to here the study's evidence is for PPO
LARGE_MODEL = 7 * 10**9  # from here RLOO is not far behind
MANY_STEPS = 40  # of an episode
_GROUPED = ("rloo", "grpo", "gspo", "gigpo")
_NORMALISED = ("grpo", "gspo", "gigpo")

ADVICE: list[Advice] = []


def advice(config: Config) -> list[str]:
    """What is known against a valid config, one text a pairing, in a fixed order; empty if nothing is."""
    return [text for rule in ADVICE if (text := rule(config)) is not None]


def parameter_estimate(config: Config) -> int:
    """Parameters of the policy: embedding, blocks and head; the critic and norms left out.

    The vocabulary is taken as configured; the byte tokenizer's is 256 and a few control tokens.
    """
    model = config.model
    vocabulary = config.text.vocab_size if config.text.tokenizer != "byte" else 256
    tables = vocabulary * model.embed * (1 if model.tied_head else 2)
    attention = 2 * model.embed * model.head_dim * (model.heads + model.kv_heads)  # queries and output; keys and values
    return tables + model.layers * (attention + 3 * model.embed * model.mlp)


def _rule(check: Advice) -> Advice:
    ADVICE.append(check)
    return check


# Which method


@_rule
def _small_models_learn_by_ppo(config: Config) -> str | None:
    name = config.algorithm.name
    if name == "ppo" or parameter_estimate(config) > SMALL_MODEL:
        return None
    return (
        f"algorithm.name: {name} with a model of at most 3B parameters. In the study's table 10 (1.5B) PPO reached .88 "
        "on w2-o3-q4 and .59 on w4-o6-q8, RLOO .51 and .00, GRPO .18 and .02, REINFORCE++ .18 and .00. (The released "
        "code of the others has faults that may explain part of it: groups of one, credit for the last turn only.) "
        "algorithm.name ppo is the safe choice."
    )


@_rule
def _large_models_learn_by_ppo_or_rloo(config: Config) -> str | None:
    name = config.algorithm.name
    if name not in ("grpo", "reinforce_plus_plus") or parameter_estimate(config) < LARGE_MODEL:
        return None
    return (
        f"algorithm.name: {name} with a model of 7B parameters or more. In the study's table 10 (7B) GRPO reached .79 "
        "on w2-o3-q4 and .36 on w4-o6-q8, REINFORCE++ .72 and .33; RLOO .97 and .47, PPO .98 and .72. rloo may do "
        "where tasks are short, ppo does on both."
    )


@_rule
def _long_episodes_avoid_reinforce_plus_plus(config: Config) -> str | None:
    steps = max(_numbers(config.env.options, "max_steps"), default=0)
    if config.algorithm.name != "reinforce_plus_plus" or steps <= MANY_STEPS:
        return None
    return (
        f"algorithm.name: reinforce_plus_plus with episodes of up to {steps} steps. Without a critic the noise of "
        f"every later step enters each token's return; the practice notes advise against it above {MANY_STEPS} steps "
        "(a rule of thumb: the study tried it up to 24, with .00 at 1.5B and .33 at 7B, table 10). Set "
        "algorithm.name to ppo."
    )


@_rule
def _groups_want_four_plays(config: Config) -> str | None:
    algorithm = config.algorithm
    grouped = algorithm.name in _GROUPED or algorithm.group_baseline
    if not grouped or algorithm.group_size >= 4:
        return None
    return (
        f"algorithm.group_size: {algorithm.group_size} with {algorithm.name}. The baseline is the mean of so few plays "
        "that it adds noise of its own, and with rare success most groups are uniform and teach nothing. The study's "
        "paper has 4 plays a task (GRPO, appendix C); its released recipes play once, which is no baseline at all. "
        "Set 4 or more."
    )


# What is rewarded


@_rule
def _ppo_dislikes_medium_density(config: Config) -> str | None:
    own = config.env.options.get("reward_density") == "balanced"
    if config.algorithm.name != "ppo" or not (own or config.reward.density == "balanced"):
        return None
    place, cure = ("env.options.reward_density", ", or algorithm.name to rloo") if own else ("reward.density", "")
    return (
        f"{place}: balanced with algorithm.name ppo. The study's worst pairing: .29 (+.00) with a reward every 2.89 "
        f"steps, .41 sparse, .58 dense (table 11, 7B); RLOO had .55, .35 and .55. Set it to dense or sparse{cure}."
    )


@_rule
def _binary_rewards_stall(config: Config) -> str | None:
    own = config.env.options.get("reward") == "binary"
    if not own and config.reward.preset != "verified_binary":
        return None
    place, cure = ("env.options.reward: ", "ratio") if own else ("reward.preset: verified_", "verified_ratio")
    return (
        f"{place}binary. Where success is rare there is nothing to learn from: in the study's table 12 GRPO went from "
        ".04 to .042 with a binary reward and to .22 with the share of tests passed. Set it to "
        f"{cure} where there are tests."
    )


@_rule
def _judges_mislead(config: Config) -> str | None:
    own = config.env.options.get("reward")
    if own not in ("judge", "model") and "judge" not in config.reward.weights:
        return None
    place = f"env.options.reward: {own}" if own in ("judge", "model") else "reward.parts.judge"
    return (
        f"{place}. What a model thinks of an answer can be won without "
        "solving the task: in the study's table 12 tests written by models gave .072 and .093, the real tests .22. "
        "Use verified outcomes where there are any."
    )


@_rule
def _tests_count_once(config: Config) -> str | None:
    weights, own = config.reward.weights, config.env.options.get("reward")
    if own != "ratio" or not {"env", "pass_ratio"} <= set(weights):
        return None
    return (
        f"reward.parts.pass_ratio: {weights['pass_ratio']:g} beside env {weights['env']:g} with env.options.reward "
        "ratio. Both are the share of tests passed, which then counts twice and says nothing new. Set "
        "env.options.reward to binary, or reward.preset to verified_ratio."
    )


# Credit over time


@_rule
def _discount_per_token_forgets(config: Config) -> str | None:
    algorithm = config.algorithm
    if algorithm.gamma == 1 or algorithm.discount_per != "token":
        return None
    tokens = math.ceil(math.log(0.01) / math.log(algorithm.gamma)) if algorithm.gamma > 0 else 1
    return (
        f"algorithm.gamma: {algorithm.gamma:g} at every action token. A reward counts less than 1 % from {tokens} "
        "tokens on (.99^500 = .0066), and long commands cost more than short ones. In the study's table 13 gamma .99 "
        "gave .66, gamma 1 at the same KL and temperature .78 and .90. Set it to 1, or algorithm.discount_per to "
        "turn."
    )


# The reference


@_rule
def _a_strong_kl_holds_back(config: Config) -> str | None:
    algorithm = config.algorithm
    if algorithm.kl_coef < 0.1 or algorithm.kl_coef_end is not None or algorithm.kl_target > 0:
        return None
    return (
        f"algorithm.kl_coef: {algorithm.kl_coef:g} throughout. The study's sweep found .01 best (.90; .005 gave .66, "
        ".001 .43; table 13) and tried nothing as strong; the practice notes name a KL that is too strong as a cause "
        "of early collapse. Set 0.01, or start there and let algorithm.kl_coef_end be 0.1."
    )


@_rule
def _a_weak_kl_lets_go(config: Config) -> str | None:
    algorithm = config.algorithm
    real = parameter_estimate(config) >= REAL_MODEL
    if not real or algorithm.name != "ppo" or algorithm.kl_target > 0 or not 0 < algorithm.kl_coef <= 0.001:
        return None
    return (
        f"algorithm.kl_coef: {algorithm.kl_coef:g} with a pretrained model. In the study's sweep KL .001 oscillated "
        "and collapsed (.43 and .57 at epoch 30), .01 with the same gamma reached .71 to .90 (table 13). Set 0.01."
    )


@_rule
def _the_reference_has_seen_the_demonstrations(config: Config) -> str | None:
    algorithm, sft = config.algorithm, config.sft
    base = algorithm.kl_reference == "base" or (config.lora.rank > 0 and algorithm.kl_reference is None)
    if algorithm.kl_coef == 0 or not base or sft.demonstrations == 0:
        return None
    return (
        f"algorithm.kl_reference: base with {sft.demonstrations} demonstrations. The KL then pulls the policy back to "
        "what it was before SFT, and away from what the demonstrations taught; the study's reference is the policy "
        "that SFT left (appendix C). Set algorithm.kl_reference to before_rl."
    )


@_rule
def _an_adapter_is_narrower_than_its_weight(config: Config) -> str | None:
    rank, model = config.lora.rank, config.model
    narrow = {"key", "value"} & set(config.lora.targets)
    width = min(model.embed, model.kv_heads * model.head_dim) if narrow else model.embed
    if rank < width:
        return None
    return (
        f"lora.rank: {rank} with weights of {width} inputs or outputs. Adapters of that rank have more parameters than "
        "the weights they stand beside, and can say no more. Set 8 to 64, or lora.rank 0 to train the weights."
    )


@_rule
def _adapters_want_trained_weights(config: Config) -> str | None:
    if config.lora.rank == 0 or config.model.from_pretrained:
        return None
    return (
        f"lora.rank: {config.lora.rank} without model.from_pretrained. The weights under the adapters are random and "
        "stay so. Name a model, or set lora.rank to 0."
    )


@_rule
def _group_normalisation_wants_the_kl_in_the_loss(config: Config) -> str | None:
    algorithm = config.algorithm
    if algorithm.name not in _NORMALISED or algorithm.kl_coef == 0 or algorithm.kl_place == "loss":
        return None
    return (
        f"algorithm.kl_place: reward with algorithm.name {algorithm.name}. The penalty becomes part of the return that "
        "is compared within the group: where all plays earn the same, the deviation is the penalty's own, and "
        "dividing by it blows the KL up to full size whatever algorithm.kl_coef says. GRPO has it in the loss (arXiv "
        "2402.03300; the study's appendix C too). Set algorithm.kl_place to loss."
    )


# The policy loss


@_rule
def _dropped_turns_want_long_rows(config: Config) -> str | None:
    rows, cache = config.batching.row_length, config.sampling.cache_length
    if config.sampling.context == "stop" or rows > 2 * cache:
        return None
    return (
        f"sampling.context: drop with batching.row_length {rows} and sampling.cache_length {cache}. A training episode "
        "lies in one row with all its contexts, and each drop reads one anew: the row ends before much was dropped. "
        f"Set batching.row_length to {4 * cache} or more."
    )


@_rule
def _one_step_a_batch_never_clips(config: Config) -> str | None:
    algorithm = config.algorithm
    if algorithm.epochs * algorithm.minibatches > 1:
        return None
    return (
        "algorithm.epochs and algorithm.minibatches: one optimizer step a batch. Note that the policy is then the old "
        "policy: every ratio is 1 and clip_low, clip_high, dual_clip and value_clip never act, as in the study's "
        "released code. That is sound; more minibatches take more steps from each batch."
    )


@_rule
def _sequence_ratios_are_narrow(config: Config) -> str | None:
    algorithm = config.algorithm
    if algorithm.ratio != "sequence" or max(algorithm.clip_low, algorithm.clip_high) < 0.1:
        return None
    return (
        f"algorithm.clip_low and algorithm.clip_high: {algorithm.clip_low:g} and {algorithm.clip_high:g} with ratio "
        "sequence. The geometric mean over an episode hardly leaves 1, so that nothing is ever clipped; GSPO uses "
        "0.0003 and 0.0004 (arXiv 2507.18071). Set those."
    )


@_rule
def _group_advantages_are_not_whitened(config: Config) -> str | None:
    algorithm = config.algorithm
    if algorithm.name not in _GROUPED or algorithm.whiten_advantages is not True:
        return None
    return (
        f"algorithm.whiten_advantages: true with algorithm.name {algorithm.name}. Groups are centred already; "
        "whitening over tokens shifts the mean again, by however many tokens winners and losers wrote, so that "
        "uniform groups get an advantage too, and it scales each batch by its own luck. The study whitened PPO's and "
        "not RLOO's. Leave it null."
    )


@_rule
def _grpo_averages_over_tokens(config: Config) -> str | None:
    algorithm = config.algorithm
    if algorithm.name not in ("grpo", "gspo") or algorithm.loss_mean != "token":
        return None
    return (
        f"algorithm.loss_mean: token with algorithm.name {algorithm.name}. Note that long episodes then weigh more (as "
        "in the study's code and DAPO, arXiv 2503.14476). The method's own paper has sequence_token_mean, which "
        "punishes long failures less; constant has neither bias (Dr. GRPO, arXiv 2503.20783)."
    )


@_rule
def _importance_weights_want_older_play(config: Config) -> str | None:
    if config.algorithm.importance_cap == 0 or config.rollout.overlap:
        return None
    return (
        f"algorithm.importance_cap: {config.algorithm.importance_cap:g} with rollout.overlap false. Play is never "
        "older than the policy, so that the weights only undo the rounding between sampler and learner: of use in "
        "bfloat16, 1 within 0.0001 in float32. Set it to 0, or rollout.overlap to true."
    )


# The critic, and what comes before RL


@_rule
def _the_value_loss_leaves_the_trunk_alone(config: Config) -> str | None:
    algorithm = config.algorithm
    shared = algorithm.name == "ppo" and config.model.critic == "head" and parameter_estimate(config) < REAL_MODEL
    if not shared or algorithm.value_coef < 0.1:
        return None
    return (
        f"algorithm.value_coef: {algorithm.value_coef:g} with model.critic head on a small trunk that starts from "
        "nothing. In the quickstart's runs a value loss of full weight made PPO lose ground; at 0.01, where the head "
        "learns as fast (Adam does not see scale), PPO added 22 to 27 points. Set 0.01, or model.critic to separate."
    )


@_rule
def _stalling_keeps_its_value(config: Config) -> str | None:
    algorithm = config.algorithm
    if algorithm.name != "ppo" or not algorithm.bootstrap_truncated or algorithm.gamma < 1:
        return None
    return (
        "algorithm.bootstrap_truncated: true with gamma 1. A truncated episode then earns the critic's value of its "
        "last state in full, so a policy that stalls until the limit keeps the value of a win it never brings home. "
        "PPO with a separate critic on the toy chain fell from .53 to 0 that way within 15 iterations (one run of "
        "tests/training/learning.yaml with this setting). Set it to false where the limit is part of the task, or "
        "gamma below 1 with discount_per turn."
    )


@_rule
def _sft_is_one_epoch(config: Config) -> str | None:
    sft = config.sft
    if sft.demonstrations == 0 or sft.epochs == 1 or parameter_estimate(config) < REAL_MODEL:
        return None
    return (
        f"sft.epochs: {sft.epochs} with a pretrained model. More passes narrow the policy that RL has to vary. The "
        "study trains for exactly one epoch, at 1e-6 (appendix C); the practice notes' three epochs at 5e-6 have no "
        "evidence behind them. Set sft.epochs to 1."
    )


@_rule
def _first_stages_have_ten_to_twenty_verbs(config: Config) -> str | None:
    sizes = [len(adds) for adds in config.actions.stages.values()]
    if len(sizes) < 2 or sum(sizes) < 10 or 10 <= sizes[0] <= 20:
        return None
    return (
        f"actions.stages: {sizes[0]} of {sum(sizes)} verbs in the first. The practice notes begin with 10 to 20 basic "
        "commands and add at most 20 % a stage: with fewer, games are hard to win and RL has little to learn from; "
        "with more, there is little left to stage. (A rule of thumb, without evidence.)"
    )


@_rule
def _something_is_evaluated_that_is_not_trained_on(config: Config) -> str | None:
    course, evaluated = config.curriculum, config.evaluation.splits
    levels = (level.train for level in course.levels.values())
    if not evaluated or not {config.env.train_split, course.core_split, *course.mixture, *levels}.issuperset(evaluated):
        return None
    return (
        f"evaluation.splits: {', '.join(evaluated)}, and all of it is trained on, so that success tells what was "
        "learnt by heart. Set a split that is held out."
    )


def _numbers(options: Any, name: str) -> Iterator[float]:
    """Every number called `name` at any depth of an environment's options."""
    if isinstance(options, dict):
        for key, value in options.items():
            if key == name and isinstance(value, int | float) and not isinstance(value, bool):
                yield value
            yield from _numbers(value, name)
