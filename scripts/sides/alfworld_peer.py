"""The official ALFWorld engine as a process: `alfworld_official.py` under an interpreter that has it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

_SCRIPT = Path(__file__).with_name("alfworld_official.py")


class OfficialPeer:
    """One game at a time in a process of its own; nice, so that it yields to what is timed."""

    def __init__(self, python: str, *, quick: bool):
        """
        Args:
            python: interpreter with the official engine.
            quick: keep what it works out again and again; prints the same, ten times as fast.
        """
        self._process = subprocess.Popen(
            [python, str(_SCRIPT), *(["--quick"] if quick else [])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def reset(self, problem: str, task: str, wording: str) -> dict[str, Any]:
        """A new game; the answer has observation, admissible, won, done, reward and seconds of processor time."""
        return self._ask({"problem": problem, "task": task, "wording": wording})

    def step(self, command: str) -> dict[str, Any]:
        return self._ask({"command": command})

    def close(self) -> None:
        """Ends the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def _ask(self, request: dict[str, str]) -> dict[str, Any]:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(
                f"error: the official engine ended with code {self._process.wait()} on {str(request)[:200]}; "
                "bash scripts/setup_alfworld_official.sh makes an environment for it."
            )
        return json.loads(line)
