"""Plays TextWorld games and writes how long the episodes are and which tokens were sampled, for `bench_update.py`.

    python scripts/update_episodes.py --out FILE.npz [--games 32] [--max-steps 20]

Games of w2-o3-q4 from seed 1 on (built if they are missing), as halfway through training: every other one is the
expert's, which wins in a few steps; the others take admissible actions at random until the limit. Tokens are those of
a tokenizer trained on these plays (2,000 entries), ChatML as template.
"""

from __future__ import annotations

import argparse
import contextlib
import sys

import numpy as np

from jaxmtrl.envs.base import load_environment
from jaxmtrl.errors import JaxmtrlError
from jaxmtrl.rollout.demonstrate import demonstrate, explore, scripted_episode
from jaxmtrl.rollout.pool import MultiprocessPool
from jaxmtrl.text.template import chatml
from jaxmtrl.text.tokenizer import train_bpe

FACTORY = "jaxmtrl.envs.textworld:make"


def _pool(options: dict) -> MultiprocessPool:
    return MultiprocessPool(FACTORY, options, workers=2, step_timeout_s=60.0, reset_timeout_s=120.0, recycle_after=0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True)
    parser.add_argument("--games", type=int, default=32)
    parser.add_argument("--max-steps", type=int, default=20)
    given = parser.parse_args()
    options = {
        "games": "custom",
        "level": "w2-o3-q4",
        "show_admissible": True,
        "splits": {"train": {"first_seed": 1, "count": given.games, "max_steps": given.max_steps}},
    }
    try:
        environment = load_environment(FACTORY, options)
        tasks = environment.split("train").tasks
        environment.prepare(tasks, lambda done, total: None)
        with contextlib.closing(_pool(options)) as pool:
            experts = demonstrate(environment, pool, tasks[::2])
            others = explore(pool, tasks[1::2], seed=(0,), max_failed_share=0.5, at_once=32)
    except JaxmtrlError as err:
        print(f"error: {err}", file=sys.stderr)
        return 2
    plays = [play for play in [*experts, *others] if play]
    tokenizer = train_bpe([text for play in plays for turn in play for text in (turn.observation, turn.action)], 2000)
    template = chatml(tokenizer)
    lengths, masks = [], []
    for number, play in enumerate(plays):
        episode = scripted_episode(
            tasks[number], play, group=number, tokenizer=tokenizer, template=template, system_prompt=""
        )
        mask = [np.repeat([False, True], [len(turn.prompt_ids), len(turn.action_ids)]) for turn in episode.turns]
        masks.append(np.concatenate(mask))
        lengths.append(len(masks[-1]))
    action = np.zeros((len(masks), max(lengths)), bool)
    for row, mask in enumerate(masks):
        action[row, : len(mask)] = mask
    np.savez(given.out, lengths=np.asarray(lengths), action=action)
    print(
        f"{len(lengths)} episodes of {min(lengths)} to {max(lengths)} tokens, {action.sum() / sum(lengths):.0%} sampled"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
