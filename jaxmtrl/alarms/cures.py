"""What to do about each alarm: the notes' cure in the names of a config."""

from __future__ import annotations

from jaxmtrl.config.alarms_section import AlarmName

CURES: dict[AlarmName, str] = {
    "early_collapse": (
        "Begin with a weak KL and let it grow: algorithm.kl_coef 0.01, kl_coef_end 0.1 (practice notes)."
    ),
    "late_oscillation": "Look at the scale of rewards first (practice notes).",
    "degenerate_repetition": (
        "Watch action/verb_coverage and action/command_entropy_nats, reward diversity or take something off for "
        "repeats (practice notes), and raise algorithm.entropy_coef (0.005 held the quickstart up)."
    ),
    "echo_trap": (
        "Learn from the tasks whose plays differ (algorithm.drop_uniform_groups true), let rare tokens rise "
        "(algorithm.clip_high 0.28, clip_low 0.2), use a critic (algorithm.name ppo), and go back to a checkpoint "
        "before the spike (RAGEN's StarPO-S)."
    ),
    "cross_domain_prior_collapse": (
        "RL does not unlearn words that are never understood: fine-tune on demonstrations of this environment first "
        "(sft.demonstrations 60 to 100), name the commands in text.system_prompt, or start from a policy that was "
        "never fine-tuned on another environment."
    ),
    "forgetting": (
        "Keep a tenth of each batch for the old tasks, played anew (practice notes), raise algorithm.kl_coef, and take "
        "the checkpoint at which the split was best."
    ),
    "stalled_binary_reward": (
        "Reward partial progress (a denser reward, or the share of tests passed: .22 in the study's table 12 where a "
        "binary reward had .042), begin with easier tasks, fine-tune on demonstrations first, or raise "
        "algorithm.group_size."
    ),
}
LOOK_AT_STEPS = "Token entropy rose: the steps may be too large, so halve optimizer.learning_rate."
NO_SCALE = (
    "They are not scaled: set alarms.late_oscillation reward_scaling or algorithm.reward_scale running, and halve "
    "optimizer.learning_rate if it goes on."
)
OUT_OF_BOUNDS = (
    "Bring the variance of scaled returns within those bounds: alarms.late_oscillation reward_scaling aims at "
    "alarms.scaled_variance, with algorithm.reward_scale none until then."
)
SCALE_FITS = "The scale is right, so halve optimizer.learning_rate, or raise algorithm.kl_coef."
