"""Environments of one's own: whatever they do wrong outside a worker is one error that names the place."""

from __future__ import annotations

import sys
import textwrap

import pytest

from jaxmtrl.envs.base import ask, load_environment
from jaxmtrl.errors import ConfigError, EnvironmentFailure
from jaxmtrl.tasks import tasks_of
from jaxmtrl.types import Task


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Writes a module and gives its name."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(text: str, name: str = "their_env") -> str:
        sys.modules.pop(name, None)
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(text))
        return name

    yield write
    sys.modules.pop("their_env", None)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("1 / 0", r"cannot be imported: ZeroDivisionError: .*their_env.py, line 1"),
        ("def make(", "cannot be imported: SyntaxError"),
        ("import sys; sys.exit(0)", r"cannot be imported: SystemExit: 0 .*their_env.py, line 1"),
        ("import nothing_like_it", "cannot be imported: No module named 'nothing_like_it'. Install"),
        ("def make(options):\n    1 / 0", r"did not make an environment: ZeroDivisionError: .*their_env.py, line 2"),
        ("def make(options):\n    raise SystemExit(0)", "did not make an environment: SystemExit: 0"),
        ("def make():\n    pass", "did not make an environment: TypeError"),
        ("make = 3", "did not make an environment: TypeError"),
        ("def make(options):\n    return None", "returned NoneType, which has no make_env"),
        ("def made(options):\n    return None", "has no 'make'; it offers: none"),
    ],
)
def test_a_factory_that_does_not_work(module, text, part):
    with pytest.raises(ConfigError, match=part):
        load_environment(f"{module(text)}:make", {})


class Given:
    """An environment that answers what it was given, or raises it."""

    def __init__(self, names, tasks):
        self.names, self.tasks = names, tasks

    def split_names(self):
        return self.names

    def split(self, name):
        if isinstance(self.tasks, Exception):
            raise self.tasks
        return type("Split", (), {"tasks": self.tasks})


@pytest.mark.parametrize(
    ("names", "tasks", "error", "part"),
    [
        (None, [], EnvironmentFailure, "split names failed: TypeError"),
        (["train"], ValueError("no data"), EnvironmentFailure, "its split 'train' failed: ValueError: no data"),
        (["train"], [], ConfigError, "must hold a sequence of Tasks, got none"),
        (["train"], (task for task in ()), ConfigError, "must hold a sequence of Tasks, got a generator"),
        (["train"], [{"id": 1}], ConfigError, "must hold a sequence of Tasks, got a dict among them"),
    ],
)
def test_a_split_that_is_none(names, tasks, error, part):
    with pytest.raises(error, match=part):
        tasks_of(Given(names, tasks), "train", None, "env.train_split")


def test_a_sound_split_passes():
    tasks = [Task(id="a", seed=0)]
    assert tasks_of(Given(["train"], tasks), "train", None, "env.train_split") == tasks


def test_a_question_that_raises_names_itself_and_our_own_errors_pass_unchanged():
    def raising(err):
        raise err

    with pytest.raises(EnvironmentFailure, match=r"making 3 games failed: OSError: disk .*test_base.py, line \d+"):
        ask("making 3 games", lambda: raising(OSError("disk")))
    with pytest.raises(ConfigError, match="1 mistake in x"):
        ask("making 3 games", lambda: raising(ConfigError("x", ["y"])))
