"""Drives the sides of a comparison: each a process of its own, which waits while others work."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

SIDES = Path(__file__).parent


class Side:
    """One side; its script answers every line of standard input with one of figures (`serving.serve`)."""

    def __init__(self, python: str, script: str, *arguments: str):
        """
        Args:
            python: its interpreter.
            script: a file of this folder.
            arguments: of the script.
        """
        environment = os.environ | {"PYTHONPATH": f"{SIDES.parents[1]}:{SIDES}", "JAX_PLATFORMS": "cpu"}
        self._name = " ".join([script, *(part for part in arguments if not part.startswith("{"))])
        self._process = subprocess.Popen(
            [python, str(SIDES / script), *arguments],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        print(f"{self._name}: ready after {self._answer()['ready_s']:.0f} s", file=sys.stderr, flush=True)

    def play(self, work: str) -> dict[str, Any]:
        """Works once on what a line of JSON says; the figures, with `seconds`."""
        assert self._process.stdin is not None
        self._process.stdin.write(work + "\n")
        self._process.stdin.flush()
        figures = self._answer()
        print(f"  {self._name}: {figures['seconds']:.1f} s", file=sys.stderr, flush=True)
        return figures

    def close(self) -> None:
        """Ends the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"{self._name} ended with code {self._process.wait()}")
        return json.loads(line)
