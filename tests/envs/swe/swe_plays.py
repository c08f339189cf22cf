"""Plays of one task by a list of answers."""

from __future__ import annotations


def play(env, task, actions):
    """The first observation, and the results of the actions up to the episode's end."""
    first, results = env.reset(task), []
    for action in actions:
        results.append(env.step(action))
        if results[-1].done or results[-1].truncated:
            break
    return first, results
