"""The settings of the alarms: what counts as trouble in RL, and what follows by itself.

Numbers are compared with those of the first RL iterations ("the opening") or with the best so far, always as means
over `window` iterations.
"""

from __future__ import annotations

from typing import Annotated, Literal, get_args

from pydantic.dataclasses import dataclass

from jaxmtrl.config.setting import CONFIG, Above0, Positive, Share, setting

AlarmName = Literal[
    "early_collapse",
    "late_oscillation",
    "degenerate_repetition",
    "echo_trap",
    "cross_domain_prior_collapse",
    "forgetting",
    "stalled_binary_reward",
]
ALARMS: tuple[AlarmName, ...] = get_args(AlarmName)
Reaction = Literal["off", "message", "kl_warm_up", "reward_scaling", "stop"]
MOST_REMEMBERED = 50  # iterations; no rule looks back further, but for the opening and the best so far


@dataclass(frozen=True, kw_only=True, config=CONFIG)
class AlarmsSection:
    on: Annotated[
        bool,
        setting(
            "RL is watched for trouble; each alarm below is off, a message with its cure, or a message after which by "
            "itself: kl_warm_up (the KL weight goes from kl_from to kl_to), reward_scaling (rewards are scaled to "
            "scaled_variance), stop (the run ends)"
        ),
    ] = True
    # how
    opening: Annotated[
        int, setting("first RL iterations, whose mean later ones are compared with", ge=1, le=MOST_REMEMBERED)
    ] = 5
    window: Annotated[int, setting("RL iterations that are averaged and judged", ge=2, le=MOST_REMEMBERED)] = 3
    calm: Annotated[Positive, setting("RL iterations without its signs after which an alarm is over")] = 5
    certainty: Annotated[
        Above0, setting("a fall counts if it is more than so many standard errors of the difference")
    ] = 3.0
    # early collapse
    early_collapse: Annotated[
        Reaction, setting("success falls soon after RL began; the return, where nothing is solved")
    ] = "message"
    early_iterations: Annotated[Positive, setting("RL iterations in which a collapse is early")] = 20
    collapse_fall: Annotated[Share, setting("share of the best so far that a collapse has lost")] = 0.33
    # late oscillation
    late_oscillation: Annotated[Reaction, setting("the return swings up and down late in training")] = "message"
    late_from: Annotated[Share, setting("share of rl.iterations from which it is late")] = 0.5
    swing_window: Annotated[int, setting("RL iterations in which swings are counted", ge=4, le=MOST_REMEMBERED)] = 20
    swings: Annotated[int, setting("ways up and down, in turn, that are an oscillation", ge=2)] = 3
    swing_errors: Annotated[
        Above0,
        setting(
            "least size of a swing, in standard errors of an iteration's mean return; at 4 a sixth of steady runs of "
            "100 iterations would ring, at 5 one of 400"
        ),
    ] = 5.0
    swing_least: Annotated[Share, setting("least size of a swing, as a share of the mean return")] = 0.2
    variance_low: Annotated[Above0, setting("least variance of scaled returns that the practice notes want")] = 1.0
    variance_high: Annotated[Above0, setting("largest variance of scaled returns that they want")] = 10.0
    # degenerate repetition
    degenerate_repetition: Annotated[
        Reaction, setting("commands that changed nothing are given again, and fewer different ones")
    ] = "message"
    repetition_rate: Annotated[Share, setting("least share of turns that repeat what had changed nothing")] = 0.3
    repetition_rise: Annotated[Share, setting("how far above the opening that share must be")] = 0.1
    variety_fall: Annotated[
        Share, setting("share of the opening's command entropy or verb coverage that must be lost")
    ] = 0.3
    # echo trap
    echo_trap: Annotated[
        Reaction,
        setting(
            "returns of plays of one task become alike and tokens certain, while gradients grow and nothing is gained"
        ),
    ] = "message"
    echo_spread_fall: Annotated[
        Share, setting("share of the opening's deviation of returns within tasks that a trap has lost")
    ] = 0.5
    echo_entropy_fall: Annotated[Share, setting("share of the opening's token entropy that it has lost")] = 0.25
    gradient_spike: Annotated[Above0, setting("a gradient norm spikes at so many times the median before")] = 3.0
    # cross-domain prior collapse
    cross_domain_prior_collapse: Annotated[
        Reaction, setting("the policy came to RL with commands that this environment does not understand")
    ] = "message"
    prior_invalid: Annotated[Share, setting("least share of turns not understood, in the opening and after it")] = 0.8
    prior_success: Annotated[Share, setting("largest success of a policy with foreign words")] = 0.02
    prior_noise: Annotated[
        Share, setting("entropy of its verbs over that of verbs all different, from which it says noise, not words")
    ] = 0.8
    # forgetting
    forgetting: Annotated[Reaction, setting("an evaluated split is solved less often than it once was")] = "message"
    forgetting_drop: Annotated[
        Share, setting("least fall of success since its best; the 95 % interval of the fall must be above 0 too")
    ] = 0.1
    # stalled binary reward
    stalled_binary_reward: Annotated[
        Reaction, setting("no play is rewarded, or plays of every task are rewarded alike, so that nothing is learnt")
    ] = "message"
    stall_iterations: Annotated[
        int,
        setting("RL iterations in a row that are a stall", ge=1, le=MOST_REMEMBERED),
    ] = 10
    mastered: Annotated[Share, setting("success from which equal rewards are no trouble")] = 0.95
    # what follows by itself
    kl_from: Annotated[
        Above0,
        setting("KL weight with which kl_warm_up begins, as the practice notes have it"),
    ] = 0.01
    kl_to: Annotated[Above0, setting("KL weight to which it grows, as they have it")] = 0.1
    kl_iterations: Annotated[Positive, setting("RL iterations from kl_from to kl_to")] = 100
    scaled_variance: Annotated[
        Above0,
        setting("variance of all returns so far to which reward_scaling brings them; 3 is the middle of 1 to 10"),
    ] = 3.0

    def reaction(self, alarm: AlarmName) -> Reaction:
        """What an alarm does; off for all where the section is off."""
        return getattr(self, alarm) if self.on else "off"
