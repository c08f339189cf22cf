"""An environment that tells what it sees of its process, for tests of the worker pool: the action says what to tell.

It answers whatever it is asked, well-formed or not; `faulty_env` holds the faults that end workers.
"""

from __future__ import annotations

import ctypes
import dataclasses
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from jaxmtrl.types import StepResult, Task

BAD_ANSWERS = {
    "nan": {"reward": float("nan")},
    "huge reward": {"reward": 1e300},
    "text reward": {"reward": "1"},
    "half a surrogate": {"observation": "file \udc80"},
    "no text": {"observation": None},
    "both ends": {"done": True, "truncated": True},
    "int done": {"done": 1},
    "bad metric": {"metrics": {"x": float("inf")}},
    "list metrics": {"metrics": [1.0]},
}
GOOD_ANSWER = StepResult(observation="", reward=0.0, done=False)


class ProbeEnv:
    def __init__(self, options):
        self.options = options

    def admissible(self):
        return self.payload["admissible"]

    def reset(self, task: Task) -> str:
        self.payload = task.payload
        self.random = random.Random(task.seed)
        self.steps = 0
        return task.payload.get("observation", f"start {task.seed}")

    def step(self, action: str) -> StepResult:
        self.steps += 1
        if action in BAD_ANSWERS:
            return dataclasses.replace(GOOD_ANSWER, **BAD_ANSWERS[action])
        verb, _, rest = action.partition(" ")
        observation, reward, done = "", 0.0, False
        match verb:
            case "modules":
                observation = " ".join(name for name in rest.split() if name in sys.modules)
            case "pid":
                observation = str(os.getpid())
            case "cwd":
                observation = os.getcwd()
            case "sleeper":  # a child that outlives its parent unless it is killed too
                observation = str(subprocess.Popen(["sleep", "600"]).pid)
            case "print":
                print("junk")
                ctypes.CDLL(None).puts(b"junk from C")
            case "big":
                observation = "x" * int(rest)
            case "sleep":
                time.sleep(float(rest))
            case "numpy":
                return StepResult(
                    observation="n", reward=np.float32(0.5), done=np.bool_(False), metrics={"m": np.int64(2)}
                )
            case "quit":
                sys.exit(3)
            case "garbage":  # over the worker's own channel, whichever descriptor that is
                for descriptor in range(3, 64):
                    try:
                        os.write(descriptor, b"garbage " * 4)
                    except OSError:
                        continue
                time.sleep(600)
            case "play":
                observation, reward = f"{self.steps}: {rest} {self.random.random()}", float(self.steps)
                done = self.steps == 3
        return StepResult(observation=observation, reward=reward, done=done, success=done)

    def close(self) -> None:
        if self.options.get("close") == "raise":
            raise RuntimeError("close is broken too")
        if self.options.get("closed_folder"):
            with open(os.path.join(self.options["closed_folder"], str(os.getpid())), "a") as log:
                log.write("closed\n")


class ProbeEnvironment:
    def __init__(self, options):
        self.options = options

    def warm_up(self):
        if self.options.get("warm_up") == "raise":
            raise RuntimeError("it stays cold")
        if self.options.get("warm_up"):
            Path(self.options["warm_up"]).touch()

    def make_env(self) -> ProbeEnv:
        return ProbeEnv(self.options)


def make(options):
    """Options: `exists`, a path that must exist; `close`; `closed_folder`, where closes are counted by process;
    `warm_up`, a file that tells of it, or "raise"."""
    if "exists" in options and not os.path.exists(options["exists"]):
        raise FileNotFoundError(options["exists"])
    return ProbeEnvironment(options)


def make_broken(options):
    raise RuntimeError("this environment never works")


def is_alive(pid):
    """Whether a process runs; one that is dead and waits for its parent to look does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_until(true, seconds=5.0):
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "did not happen in time"
        time.sleep(0.01)
