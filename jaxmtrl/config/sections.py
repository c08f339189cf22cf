"""Every setting of a run: type, default, bound, unit and one sentence each.

Knows no environment (each validates its own `env.options`) and no file format (`loading.py` reads YAML).
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from jaxmtrl.config.actions_section import ActionsSection
from jaxmtrl.config.alarms_section import AlarmsSection
from jaxmtrl.config.curriculum_section import CurriculumSection
from jaxmtrl.config.lora_section import LoraSection
from jaxmtrl.config.model_section import ModelSection
from jaxmtrl.config.optimizer_section import OptimizerSection
from jaxmtrl.config.reward_section import JudgeSection, RewardSection
from jaxmtrl.config.sampling_section import SamplingSection
from jaxmtrl.config.setting import CONFIG, Above0, Count, NonNegative, Positive, Share, setting


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class RunSection:
    name: Annotated[
        str,
        setting(
            "name of the run; its folder is dir/name",
            form="of letters, digits, '.', '_' and '-' that begins with a letter or a digit",
            pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$",
        ),
    ]
    dir: Annotated[str, setting("folder that holds run folders", min_length=1)] = "runs"
    seed: Annotated[int, setting("seed of everything random in the run", ge=0, lt=2**31)] = 0
    compilation_cache: Annotated[str, setting('folder of compiled programs kept between runs; "" keeps none')] = (
        ".cache/jax"
    )
    timeline: Annotated[
        bool,
        setting(
            "write timeline.json when the run ends: what sampler, environments and learner did when (the last 200 000 "
            "spans), for ui.perfetto.dev"
        ),
    ] = False


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class EnvSection:
    factory: Annotated[str, setting('import string "package.module:function" of the environment')]
    options: Annotated[dict[str, Any], setting("the environment's own options, validated by itself")] = Field(
        default_factory=dict
    )
    train_split: Annotated[str, setting("split whose tasks are trained on", min_length=1)] = "train"


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class TextSection:
    tokenizer: Annotated[
        Literal["byte", "bpe", "pretrained"],
        setting(
            "byte: 256 bytes, nothing to train; pretrained: that of model.from_pretrained, which sets it; bpe: "
            "byte-pair pieces trained on the training tasks' text"
        ),
    ] = "bpe"
    vocab_size: Annotated[
        Positive, setting("entries of a trained tokenizer, control tokens included; 300 or more", unit="tokens")
    ] = 1024
    template: Annotated[
        Literal["chatml", "pretrained"],
        setting("how messages become tokens; pretrained: that of model.from_pretrained, which sets it if it has one"),
    ] = "chatml"
    system_prompt: Annotated[str, setting("first message of every episode; empty leaves it out")] = ""


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class MeshSection:
    data: Annotated[int, setting("devices along which rows are split; -1 takes what the other axes leave", ge=-1)] = -1
    fsdp: Annotated[Positive, setting("devices along which rows and weights are split")] = 1
    tensor: Annotated[Positive, setting("devices along which heads, MLP and vocabulary are split")] = 1
    sequence: Annotated[
        Positive,
        setting("devices along which the tokens of a row are split, for rows too long for one; divides row_length"),
    ] = 1
    sampling_tensor: Annotated[
        Count,
        setting(
            "the same for the sampler, whose mesh is a host's own devices with slots over the rest; 0: the most that "
            "divide model.kv_heads and those devices"
        ),
    ] = 0


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class RolloutSection:
    backend: Annotated[
        Literal["multiprocess", "ray"],
        setting(
            "multiprocess: processes on this machine; ray: on the nodes of a Ray cluster, which have the same packages "
            'and files; wants pip install -e ".[ray]"'
        ),
    ] = "multiprocess"
    workers: Annotated[Positive, setting("environment processes")] = 2
    ray_address: Annotated[
        str,
        setting(
            'the Ray cluster: auto (one on this machine), host:port or ray://host:port; "" is what RAY_ADDRESS names, '
            "else one that is started and ends with the run"
        ),
    ] = ""
    ray_cpus: Annotated[Above0, setting("CPUs that a worker reserves in the Ray cluster; less than 1 is fine")] = 0.25
    open_episodes: Annotated[
        Positive, setting("episodes open at once; more than sampling.slots hides slow environments")
    ] = 48
    step_timeout_s: Annotated[Above0, setting("deadline of one environment step", unit="s")] = 20.0
    reset_timeout_s: Annotated[
        Above0, setting("deadline of one environment reset, start-up of a worker included", unit="s")
    ] = 60.0
    recycle_after: Annotated[Count, setting("episodes after which a worker is replaced, against leaks; 0 never")] = 2000
    max_failed_share: Annotated[Share, setting("share of failed episodes in one batch above which the run stops")] = 0.5
    overlap: Annotated[
        bool, setting("play the next batch, one update behind, while the current one is learnt from")
    ] = False


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class AlgorithmSection:
    name: Annotated[
        Literal["ppo", "rloo", "grpo", "reinforce_plus_plus", "gspo", "gigpo"],
        setting(
            "ppo: critic and GAE; rloo: leave-one-out baseline of the group; grpo: the group's mean and deviation; "
            "gspo: grpo with ratio sequence; gigpo: grpo plus the same for turns that began in the same state; "
            "reinforce_plus_plus: reward to go, whitened over the batch"
        ),
    ] = "ppo"
    group_size: Annotated[Positive, setting("G, plays of one task in a batch")] = 1
    scale_by_std: Annotated[
        bool, setting("grpo, gspo, gigpo divide by the group's standard deviation; false is Dr. GRPO")
    ] = True
    group_baseline: Annotated[
        bool, setting("reinforce_plus_plus takes the group's mean return off first; wants a group of 2 or more")
    ] = False
    anchor_weight: Annotated[
        NonNegative, setting("weight of gigpo's turn advantages beside its episode advantages")
    ] = 1.0
    # credit over time
    gamma: Annotated[Share, setting("discount, per what discount_per says")] = 1.0
    discount_per: Annotated[
        Literal["token", "turn"],
        setting("where gamma counts: at every action token, or once a turn, at its last action token"),
    ] = "token"
    credit: Annotated[
        Literal["token", "turn", "bilevel"],
        setting(
            "steps of ppo's GAE: action tokens; whole turns, one advantage a turn; or bilevel: turns first (by gamma), "
            "then the tokens of each turn towards its advantage (by gamma_token)"
        ),
    ] = "token"
    gamma_token: Annotated[Share, setting("discount between two tokens of a turn, for credit bilevel")] = 1.0
    lam: Annotated[Share, setting("lambda of GAE, for ppo")] = 1.0
    lam_critic: Annotated[Share | None, setting("lambda of the critic's returns; null: lam")] = None
    lam_adaptive: Annotated[
        NonNegative,
        setting("a > 0 makes the policy's lambda 1 - 1 / (a n) for an episode of n action tokens, 0.05 is usual"),
    ] = 0.0
    bootstrap_truncated: Annotated[
        bool,
        setting(
            "a truncated episode goes on with the critic's value of its last state; false scores the limit as an end, "
            "as when the step budget is part of the task"
        ),
    ] = True
    # what enters and what is left out
    reward_scale: Annotated[
        Literal["none", "running"],
        setting("running divides rewards by the standard deviation of all episode returns seen so far"),
    ] = "none"
    drop_uniform_groups: Annotated[
        bool, setting("groups whose plays all earned the same are counted and left out of the loss (dynamic sampling)")
    ] = False
    overlong: Annotated[
        Literal["keep", "filter", "penalty"],
        setting(
            "truncated episodes: learnt from like others; left out of the loss; or kept, with overlong_penalty taken "
            "from the last reward of episodes that come near batching.row_length"
        ),
    ] = "keep"
    overlong_penalty: Annotated[
        float, setting("penalty of an episode of batching.row_length tokens", ge=0.0, le=1e6, allow_inf_nan=False)
    ] = 1.0
    overlong_from: Annotated[
        Count, setting("length from which the penalty rises in proportion, up to batching.row_length", unit="tokens")
    ] = 0
    whiten_advantages: Annotated[
        bool | None,
        setting("advantages to mean 0, variance 1 over the batch's action tokens; null: for ppo, reinforce_plus_plus"),
    ] = None
    # the policy loss
    ratio: Annotated[
        Literal["token", "turn", "sequence"],
        setting("whose likelihood ratio is clipped: a token's, or the geometric mean of a turn's or an episode's"),
    ] = "token"
    clip_low: Annotated[Share, setting("how far below 1 the ratio may count")] = 0.2
    clip_high: Annotated[NonNegative, setting("how far above 1 the ratio may count")] = 0.2
    dual_clip: Annotated[float, setting("bound of ratio times a negative advantage; 0 turns it off", ge=0.0)] = 0.0
    loss_mean: Annotated[
        Literal["token", "sequence_token_mean", "sequence_token_sum", "constant"],
        setting("what the policy loss is averaged over, always with global counts"),
    ] = "token"
    loss_constant: Annotated[
        Positive, setting("loss_mean constant divides each episode's sum over tokens by this", unit="tokens")
    ] = 1024
    entropy_coef: Annotated[NonNegative, setting("weight of the entropy bonus")] = 0.0
    # the critic
    value_clip: Annotated[
        NonNegative, setting("how far a value may move from the old one in its loss; 0 turns it off")
    ] = 0.5
    value_coef: Annotated[NonNegative, setting("weight of the value loss")] = 0.5
    # the reference
    kl_coef: Annotated[NonNegative, setting("weight of the KL to the reference (kl_reference), at first")] = 0.0
    kl_coef_end: Annotated[
        NonNegative | None, setting("weight it reaches in equal steps after kl_iterations; null: it stays")
    ] = None
    kl_iterations: Annotated[Positive, setting("RL iterations from kl_coef to kl_coef_end")] = 100
    kl_target: Annotated[
        NonNegative,
        setting("> 0 adapts the weight after each iteration so that the KL comes to this", unit="nats a token"),
    ] = 0.0
    kl_horizon: Annotated[Positive, setting("episodes over which an adaptive weight may change by a fifth")] = 1000
    kl_reference: Annotated[
        Literal["before_rl", "base"] | None,
        setting(
            "the reference: the policy as RL began, or as the run began (with adapters: those off); null: base with "
            "adapters, else before_rl"
        ),
    ] = None
    kl_memory: Annotated[
        Literal["device", "host"],
        setting("where the reference's weights wait; host: in the host's memory, fetched for each batch"),
    ] = "device"
    kl_place: Annotated[Literal["reward", "loss"], setting("where the KL enters")] = "reward"
    kl_kind: Annotated[
        Literal["k1", "k2", "k3"],
        setting("estimate of the KL a token; in the loss each has the gradient of the reverse KL"),
    ] = "k1"
    # what was learnt before
    ewc_coef: Annotated[
        NonNegative,
        setting(
            "elastic weight consolidation: weight of leaving what counted on earlier levels of the curriculum; costs "
            "two copies of the policy"
        ),
    ] = 0.0
    ewc_decay: Annotated[
        Share, setting("share of the earlier levels' importance that is kept when one more has been learnt")
    ] = 0.9
    # play by older weights
    importance_cap: Annotated[
        float, setting("largest importance weight of what older weights played; 0 gives everything 1", ge=0.0)
    ] = 0.0
    importance_level: Annotated[
        Literal["token", "sequence", "sequence_mean"],
        setting("weights of tokens; of episodes, the product of their tokens'; or the geometric mean of them"),
    ] = "token"
    importance_beyond: Annotated[
        Literal["truncate", "mask"],
        setting("weights above the cap are cut to it, or their tokens left out of the loss"),
    ] = "truncate"
    importance_floor: Annotated[
        Share, setting("with importance_beyond mask, weights below this are left out as well")
    ] = 0.0
    # how often
    epochs: Annotated[Positive, setting("passes over one batch")] = 1
    minibatches: Annotated[Positive, setting("optimizer steps a pass")] = 4

    @property
    def kl_weight(self) -> float:
        """The largest weight that the KL to the reference ever starts from; 0 for a run without reference."""
        return max(self.kl_coef, self.kl_coef_end or 0.0)


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class BatchingSection:
    row_length: Annotated[
        Positive,
        setting("T, tokens of a packed row; a training episode that would outgrow it is truncated", unit="tokens"),
    ] = 1024
    micro_batch_rows: Annotated[Positive, setting("rows whose gradient is taken at once")] = 8


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class PretrainSection:
    plays: Annotated[
        Count,
        setting(
            "random plays of training tasks that are read like any text, every token learnt; for models that start "
            "from nothing; 0 skips the stage"
        ),
    ] = 0
    epochs: Annotated[Positive, setting("passes over the plays")] = 1
    batch_episodes: Annotated[Positive, setting("plays an optimizer step")] = 8
    learning_rate: Annotated[Above0, setting("learning rate of pretraining")] = 1e-3


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class SftSection:
    demonstrations: Annotated[
        Count, setting("expert episodes, from the first tasks of the train split; 0 skips the stage")
    ] = 64
    epochs: Annotated[Positive, setting("passes over the demonstrations at most")] = 4
    batch_episodes: Annotated[Positive, setting("demonstrations an optimizer step")] = 16
    learning_rate: Annotated[Above0, setting("learning rate of SFT")] = 1e-3
    validation_share: Annotated[
        float, setting("share of demonstrations kept to choose the best epoch", ge=0.0, lt=1.0)
    ] = 0.1
    patience: Annotated[Positive, setting("epochs without a better validation loss before SFT ends")] = 3


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class CriticWarmupSection:
    iterations: Annotated[Count, setting("batches of play from which only the critic learns")] = 2
    epochs: Annotated[Positive, setting("passes over each of them")] = 2


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class RlSection:
    iterations: Annotated[Count, setting("play-and-update rounds; 0 skips the stage")] = 50
    tasks_per_iteration: Annotated[Positive, setting("tasks a round; episodes are this times algorithm.group_size")] = (
        64
    )


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class EvaluationSection:
    splits: Annotated[dict[str, Positive], setting("how many tasks of which split are played at stage ends")] = Field(
        default_factory=dict
    )
    temperature: Annotated[NonNegative, setting("of the policy under evaluation; 0 is greedy")] = 0.0
    every: Annotated[Count, setting("RL iterations between evaluations of the first split on the way; 0 never")] = 0


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class CheckpointSection:
    every: Annotated[Positive, setting("iterations (pretraining and SFT: epochs) between checkpoints")] = 10
    keep: Annotated[Positive, setting("checkpoints kept besides the stages' ends")] = 2
    folder: Annotated[
        str,
        setting(
            'where they lie, of this run alone: a folder or gs://bucket/name (pip install -e ".[tpu]"), which all '
            'hosts of a run must be able to write; "" for the run folder'
        ),
    ] = ""


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class LogSection:
    tensorboard: Annotated[bool, setting("write TensorBoard curves beside metrics.jsonl")] = True
    episodes: Annotated[Count, setting("whole episodes written to episodes.jsonl an iteration")] = 4
    console_every_s: Annotated[NonNegative, setting("least time between two progress lines", unit="s")] = 5.0


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class Config:
    """A whole run. A YAML file has one mapping a section; only `run` and `env` are required."""

    run: Annotated[RunSection, setting("name, folder and seed")]
    env: Annotated[EnvSection, setting("what is played")]
    text: Annotated[TextSection, setting("tokenizer and template")] = TextSection()
    model: Annotated[ModelSection, setting("the decoder")] = ModelSection()
    lora: Annotated[LoraSection, setting("low-rank adapters")] = LoraSection()
    mesh: Annotated[MeshSection, setting("how devices are laid out")] = MeshSection()
    rollout: Annotated[RolloutSection, setting("environment processes")] = RolloutSection()
    sampling: Annotated[SamplingSection, setting("how the policy plays")] = SamplingSection()
    reward: Annotated[RewardSection, setting("what a turn earns")] = RewardSection()
    judge: Annotated[JudgeSection, setting("the model behind reward.parts.judge")] = JudgeSection()
    algorithm: Annotated[AlgorithmSection, setting("how credit is assigned and the policy improved")] = (
        AlgorithmSection()
    )
    optimizer: Annotated[OptimizerSection, setting("what moves the parameters")] = OptimizerSection()
    batching: Annotated[BatchingSection, setting("shapes of the update")] = BatchingSection()
    pretrain: Annotated[PretrainSection, setting("language modelling of random play")] = PretrainSection()
    sft: Annotated[SftSection, setting("supervised fine-tuning on demonstrations")] = SftSection()
    critic_warmup: Annotated[CriticWarmupSection, setting("the critic before RL")] = CriticWarmupSection()
    rl: Annotated[RlSection, setting("reinforcement learning")] = RlSection()
    curriculum: Annotated[CurriculumSection, setting("which tasks when, and how many steps")] = CurriculumSection()
    actions: Annotated[ActionsSection, setting("which commands may be used when")] = ActionsSection()
    alarms: Annotated[AlarmsSection, setting("trouble in RL, told while it trains")] = AlarmsSection()
    evaluation: Annotated[EvaluationSection, setting("fixed held-out tasks")] = EvaluationSection()
    checkpoint: Annotated[CheckpointSection, setting("what survives a crash")] = CheckpointSection()
    log: Annotated[LogSection, setting("what is written down")] = LogSection()
