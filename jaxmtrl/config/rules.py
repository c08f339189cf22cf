"""Rules between fields of a config: what each section alone cannot know.

Every rule names the fields it reads, so that it is left out when one of them is already reported as wrong.
Messages name the fields with their values, and the cure. Those of the algorithm alone stand in `algorithm_rules.py`,
those of the curriculum in `curriculum_rules.py`, of the action space in `actions_rules.py`, of the alarms in
`alarms_rules.py`, of rewards in `reward_rules.py`.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection
from functools import partial

from jaxmtrl.config.actions_rules import ACTIONS_RULES
from jaxmtrl.config.alarms_rules import ALARMS_RULES
from jaxmtrl.config.algorithm_rules import ALGORITHM_RULES
from jaxmtrl.config.curriculum_rules import CURRICULUM_RULES
from jaxmtrl.config.lora_section import LoraSection
from jaxmtrl.config.reward_rules import REWARD_RULES
from jaxmtrl.config.rule import Rule, rule_of
from jaxmtrl.config.sections import Config

SMALLEST_BPE = 300  # entries
RULES: list[Rule] = []
_rule = partial(rule_of, RULES)


def broken_rules(config: Config, *, without: Collection[str] = ()) -> list[str]:
    """Messages of all rules that `config` breaks, those of the algorithm and of rewards last.

    Args:
        config: a config whose fields are each valid alone.
        without: dotted names of fields that are known to be wrong; rules that read them say nothing.
    """
    messages = []
    for rule in (*RULES, *CURRICULUM_RULES, *ACTIONS_RULES, *ALARMS_RULES, *ALGORITHM_RULES, *REWARD_RULES):
        if not any(field in without for field in rule.fields):
            found = rule.check(config)
            messages += [found] if isinstance(found, str) else found or ()
    return messages


@_rule("env.factory")
def _factory_is_an_import_string(config: Config) -> str | None:
    if re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", config.env.factory):
        return None
    return (
        f"env.factory: got {config.env.factory!r}, wanted package.module:function, "
        "for example jaxmtrl.envs.textworld:make"
    )


@_rule("text.tokenizer", "text.template", "model.from_pretrained")
def _pretrained_text_has_a_model(config: Config) -> str | None:
    text = config.text
    if config.model.from_pretrained or "pretrained" not in (text.tokenizer, text.template):
        return None
    field, cure = ("tokenizer", "bpe or byte") if text.tokenizer == "pretrained" else ("template", "chatml")
    return (
        f"text.{field}: got pretrained, and model.from_pretrained names no model; set the latter to a folder or hub "
        f"id, or text.{field} to {cure}"
    )


@_rule("text.tokenizer", "text.vocab_size")
def _a_trained_tokenizer_has_all_bytes(config: Config) -> str | None:
    text = config.text
    if text.tokenizer != "bpe" or text.vocab_size >= SMALLEST_BPE:
        return None
    return (
        f"text.vocab_size: got {text.vocab_size}, wanted >= {SMALLEST_BPE} with text.tokenizer bpe: 256 bytes and the "
        "control tokens come before the first merge"
    )


@_rule("model.heads", "model.kv_heads")
def _kv_heads_divide_heads(config: Config) -> str | None:
    heads, kv_heads = config.model.heads, config.model.kv_heads
    if heads % kv_heads == 0:
        return None
    divisors = ", ".join(str(number) for number in range(1, heads + 1) if heads % number == 0)
    return (
        f"model.kv_heads: got {kv_heads}, which does not divide model.heads ({heads}); set model.kv_heads to {divisors}"
    )


@_rule("model.head_dim")
def _head_dim_is_even(config: Config) -> str | None:
    width = config.model.head_dim
    if width % 2 == 0:
        return None
    return f"model.head_dim: got {width}, wanted an even number (rotary positions turn pairs); set {width + 1}"


@_rule("model.rope_factor", "model.rope_scaling")
def _a_rope_factor_has_a_scaling(config: Config) -> str | None:
    factor, scaling = config.model.rope_factor, config.model.rope_scaling
    if factor == 1.0 or scaling != "none":
        return None
    return (
        f"model.rope_factor: got {factor:g}, which model.rope_scaling (none) does not use; set model.rope_scaling to "
        "linear, llama3 or yarn, or model.rope_factor to 1"
    )


@_rule("model.rope_low_frequency", "model.rope_high_frequency")
def _llama3_bounds_ascend(config: Config) -> str | None:
    low, high = config.model.rope_low_frequency, config.model.rope_high_frequency
    if low < high:
        return None
    return (
        f"model.rope_high_frequency: got {high:g}, wanted more than model.rope_low_frequency ({low:g}); "
        f"set it to {4 * low:g}"
    )


@_rule("model.rope_beta_slow", "model.rope_beta_fast")
def _yarn_bounds_ascend(config: Config) -> str | None:
    slow, fast = config.model.rope_beta_slow, config.model.rope_beta_fast
    if slow < fast:
        return None
    return (
        f"model.rope_beta_fast: got {fast:g}, wanted more than model.rope_beta_slow ({slow:g}); set it to {32 * slow:g}"
    )


@_rule("sampling.attention_buckets", "sampling.cache_length")
def _attention_buckets_end_at_the_cache(config: Config) -> str | None:
    buckets, length = config.sampling.attention_buckets, config.sampling.cache_length
    if _ascending(buckets) and buckets[-1] == length:
        return None
    cure = sorted({bucket for bucket in buckets if bucket < length} | {length})
    return (
        f"sampling.attention_buckets: got {list(buckets)}, wanted ascending lengths that end at "
        f"sampling.cache_length ({length}); set {cure}"
    )


@_rule("sampling.prefill_buckets", "sampling.cache_length")
def _prefill_buckets_fit_the_cache(config: Config) -> str | None:
    buckets, length = config.sampling.prefill_buckets, config.sampling.cache_length
    if _ascending(buckets) and buckets[-1] <= length:
        return None
    cure = sorted({min(bucket, length) for bucket in buckets} or {min(64, length)})
    return (
        f"sampling.prefill_buckets: got {list(buckets)}, wanted ascending lengths up to sampling.cache_length "
        f"({length}); set {cure}"
    )


@_rule("sampling.max_action_tokens", "sampling.cache_length")
def _an_action_fits_the_cache(config: Config) -> str | None:
    cap, length = config.sampling.max_action_tokens, config.sampling.cache_length
    if cap < length:
        return None
    return (
        f"sampling.max_action_tokens: got {cap}, wanted less than sampling.cache_length ({length}), which also holds "
        "the prompts; lower the first or raise the second"
    )


@_rule("batching.row_length", "sampling.max_action_tokens")
def _a_row_has_room_for_an_action(config: Config) -> str | None:
    row, cap = config.batching.row_length, config.sampling.max_action_tokens
    if row > 2 * cap:
        return None
    return (
        f"batching.row_length: got {row}, wanted more than 2 * sampling.max_action_tokens ({2 * cap}): a row holds a "
        "whole training episode; raise batching.row_length to the longest episode you want to learn from"
    )


@_rule("run.dir")
def _a_run_has_a_disk(config: Config) -> str | None:
    if "://" not in config.run.dir:
        return None
    return (
        f"run.dir: got {config.run.dir}, wanted a folder on a disk, as records are appended line by line; a bucket can "
        "hold checkpoint.folder"
    )


@_rule("batching.row_length", "mesh.sequence")
def _a_row_is_split_evenly(config: Config) -> str | None:
    row, shards = config.batching.row_length, config.mesh.sequence
    if row % shards == 0:
        return None
    return (
        f"batching.row_length: got {row}, wanted a multiple of mesh.sequence ({shards}); set it to "
        f"{-(-row // shards) * shards}"
    )


@_rule("model.attention", "mesh.sequence")
def _split_rows_attend_by_xla(config: Config) -> str | None:
    if config.mesh.sequence == 1 or config.model.attention in ("auto", "xla"):
        return None
    return (
        f"model.attention: got {config.model.attention}, wanted auto or xla where mesh.sequence "
        f"({config.mesh.sequence}) splits rows: kernels attend within whole rows; set model.attention to auto"
    )


@_rule("algorithm.minibatches", "rl.tasks_per_iteration", "algorithm.group_size")
def _a_minibatch_has_an_episode(config: Config) -> str | None:
    minibatches, tasks, group = (
        config.algorithm.minibatches,
        config.rl.tasks_per_iteration,
        config.algorithm.group_size,
    )
    if minibatches <= tasks * group:
        return None
    return (
        f"algorithm.minibatches: got {minibatches}, wanted at most the {tasks * group} episodes of an iteration "
        f"(rl.tasks_per_iteration {tasks} x algorithm.group_size {group}); lower it or play more"
    )


@_rule("rollout.ray_address", "rollout.backend")
def _an_address_has_a_cluster(config: Config) -> str | None:
    address, backend = config.rollout.ray_address, config.rollout.backend
    if not address or backend == "ray":
        return None
    return (
        f"rollout.ray_address: got {address!r}, which rollout.backend {backend} does not use; set rollout.backend to "
        'ray, or rollout.ray_address to ""'
    )


@_rule("rollout.ray_cpus")
def _more_than_one_cpu_is_a_whole_number(config: Config) -> str | None:
    cpus = config.rollout.ray_cpus
    if cpus <= 1 or cpus == int(cpus):
        return None
    return f"rollout.ray_cpus: got {cpus:g}; Ray counts more than one CPU in whole ones: set {int(cpus) + 1}"


@_rule("rollout.overlap", "algorithm.importance_cap")
def _overlap_is_corrected(config: Config) -> str | None:
    if not config.rollout.overlap or config.algorithm.importance_cap >= 1:
        return None
    return (
        f"algorithm.importance_cap: got {config.algorithm.importance_cap:g}, wanted at least 1 with rollout.overlap "
        "true: play is one update behind and must be weighted; set algorithm.importance_cap to 2, or "
        "rollout.overlap to false"
    )


@_rule("rollout.overlap", "evaluation.every")
def _overlap_leaves_the_sampler_no_time_to_evaluate(config: Config) -> str | None:
    if not config.rollout.overlap or config.evaluation.every == 0:
        return None
    return (
        f"evaluation.every: got {config.evaluation.every}, wanted 0 with rollout.overlap true: the sampler "
        "plays the next batch all the time; set evaluation.every to 0 (stage ends are evaluated anyway), or "
        "rollout.overlap to false"
    )


@_rule("pretrain.batch_episodes", "pretrain.plays")
def _a_pretraining_batch_fits_the_plays(config: Config) -> str | None:
    batch, plays = config.pretrain.batch_episodes, config.pretrain.plays
    if plays == 0 or batch <= plays:
        return None
    return (
        f"pretrain.batch_episodes: got {batch}, wanted at most pretrain.plays ({plays}); lower the first or raise the "
        "second (0 plays skips pretraining)"
    )


@_rule("sft.batch_episodes", "sft.demonstrations")
def _an_sft_batch_fits_the_demonstrations(config: Config) -> str | None:
    batch, demonstrations = config.sft.batch_episodes, config.sft.demonstrations
    if demonstrations == 0 or batch <= demonstrations:
        return None
    return (
        f"sft.batch_episodes: got {batch}, wanted at most sft.demonstrations ({demonstrations}); lower the first or "
        "raise the second (0 demonstrations skips SFT)"
    )


@_rule("sft.validation_share", "sft.demonstrations")
def _a_demonstration_is_left_to_train_on(config: Config) -> str | None:
    share, demonstrations = config.sft.validation_share, config.sft.demonstrations
    if demonstrations == 0 or demonstrations - round(share * demonstrations) >= 1:
        return None
    return (
        f"sft.validation_share: got {share}, which leaves none of sft.demonstrations ({demonstrations}) to train on; "
        "lower the share or raise the demonstrations"
    )


_LORA = tuple(f"lora.{field.name}" for field in dataclasses.fields(LoraSection))


@_rule(*_LORA)
def _adapters_have_a_rank(config: Config) -> str | None:
    given = [name for name in _LORA[1:] if _value(config.lora, name) != _value(LoraSection(), name)]
    if config.lora.rank or not given:
        return None
    return (
        f"{given[0]}: got {_value(config.lora, given[0])!r} with lora.rank 0, which trains the weights and has no "
        f"adapters; set lora.rank (16 is usual), or remove {', '.join(given)}"
    )


@_rule("lora.targets")
def _targets_are_named_once(config: Config) -> str | None:
    targets = config.lora.targets
    again = sorted({name for name in targets if targets.count(name) > 1})
    if not again:
        return None
    return f"lora.targets: got {', '.join(again)} more than once; name each weight once"


@_rule("lora.rank", "pretrain.plays")
def _pretraining_is_of_whole_weights(config: Config) -> str | None:
    if not (config.lora.rank and config.pretrain.plays):
        return None
    return (
        f"pretrain.plays: got {config.pretrain.plays} with lora.rank {config.lora.rank}, but a model that starts from "
        "nothing has no weights worth freezing; set pretrain.plays or lora.rank to 0"
    )


def _value(section: LoraSection, name: str) -> object:
    return getattr(section, name.removeprefix("lora."))


def _ascending(lengths: tuple[int, ...]) -> bool:
    """Strictly ascending and not empty."""
    return bool(lengths) and all(low < high for low, high in zip(lengths, lengths[1:]))
