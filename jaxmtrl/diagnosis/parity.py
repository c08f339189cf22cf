"""Sampler and learner give the same tokens the same log-probs, and an update starts where sampling ended."""

from __future__ import annotations

import numpy as np

from jaxmtrl.diagnosis.bench import Bench, Rehearsal
from jaxmtrl.diagnosis.finding import Finding, below, none_of
from jaxmtrl.diagnosis.material import ledger
from jaxmtrl.rollout.pack import episode_length

LARGEST_GAP = 1e-4  # nats, in f32


def check_parity(bench: Bench, rehearsal: Rehearsal) -> list[Finding]:
    """Log-probs of real episodes, decoded from the cache turn by turn, against one full pass over each row."""
    gaps, turns, most = [np.zeros(0)], 0, 0
    for number, episode in enumerate(rehearsal.episodes):
        if episode_length(episode) == 0:
            continue
        place = ledger(rehearsal.batch, number, episode)
        sampled = np.concatenate([turn.action_logprobs for turn in episode.turns])
        gaps.append(np.abs(sampled - rehearsal.logprobs[place.row, place.sampled]))
        turns, most = turns + len(episode.turns), max(most, len(episode.turns))
    gap = np.concatenate(gaps)
    temperature = bench.config.sampling.temperature
    said = f"{gap.size} action tokens, {turns} turns, {most} an episode, temperature {temperature:g}, f32"
    cure = (
        "sampler and learner read other tokens, positions or temperatures: compare learner/score.py with "
        "sampling/programs.py at the first token that differs"
    )
    clipped = rehearsal.first_clip_fraction
    return [
        below(
            "sampler and learner agree",
            float(np.max(gap)) if gap.size else float("nan"),
            LARGEST_GAP,
            unit="nats",
            said=said,
            cure=cure,
        ),
        none_of(
            "the first step clips nothing",
            clipped,
            what="of its tokens",
            said="clip fraction of the first step, whose ratios are all 1",
            cure="the old log-probs must be the learner's own, of the same weights and batch: see learner/targets.py",
        ),
    ]
