"""What Python code is worth to a linter: ruff with rules of our own choice, whatever files lie about.

A real linter, because rules of our own would be few enough to learn by heart; a process with a deadline, because ruff
has no other door. Its version is pinned where the package is installed, as a newer one finds other things.
"""

from __future__ import annotations

import ast
import functools
import importlib
import json
import subprocess
import warnings

from jaxmtrl.errors import ConfigError, EnvironmentFailure

_RULES = "E,F,W,B,C4,SIM,RET,PIE,N,C90"  # errors, plain style, likely bugs, needless turns, names, tangles
_TIMEOUT_S = 10.0
_COMPLEX = 10  # branches of a function
_WIDTH = 100
_FEW = 10  # statements in which one finding costs half


def style_score(code: str) -> float:
    """1 / (1 + 10 findings / statements) for code that parses, 0 for code that does not, or says nothing.

    One finding in ten statements is worth .5, one in a hundred .91. Ten statements are counted at least, so that a
    short text is not lost by a single finding; comments are none, and what they tell the linter to overlook is not.

    Args:
        code: of one file.

    Raises:
        EnvironmentFailure: the linter cannot be run, or takes longer than 10 s.
    """
    statements = _statements(code)
    if not statements:
        return 0.0
    return 1 / (1 + _FEW * len(_findings(code)) / max(statements, _FEW))


def require_linter() -> None:
    """Raises ConfigError if ruff is not installed."""
    try:
        _linter()
    except (ImportError, FileNotFoundError) as err:
        raise ConfigError(
            "reward.parts",
            [
                "reward.parts.style: got a weight, and the linter ruff is not installed; install it (pip install -e "
                '".[style]" -c constraints.txt), or remove the part'
            ],
        ) from err


def _statements(code: str) -> int:
    """0 for what is no Python."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of odd escapes, which the linter tells too
            return sum(isinstance(node, ast.stmt) for node in ast.walk(ast.parse(code)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return 0


def _findings(code: str) -> list[dict]:
    command = [_linter(), "check", "--isolated", "--no-cache", "--ignore-noqa", "--output-format=json"]
    command += [f"--select={_RULES}", f"--line-length={_WIDTH}", f"--config=lint.mccabe.max-complexity={_COMPLEX}", "-"]
    try:
        done = subprocess.run(
            command, input=code.encode("utf-8", "replace"), capture_output=True, timeout=_TIMEOUT_S, check=False
        )
        if done.returncode not in (0, 1):  # 1: something was found
            raise EnvironmentFailure(f"ruff ended with exit code {done.returncode}: {done.stderr.decode()[-300:]}")
        return json.loads(done.stdout)
    except (OSError, ImportError, subprocess.TimeoutExpired, ValueError) as err:
        raise EnvironmentFailure(f"the style of {len(code)} characters of code was not told: {err}") from err


@functools.cache
def _linter() -> str:
    return importlib.import_module("ruff.__main__").find_ruff_bin()
