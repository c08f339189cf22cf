"""What every command finds around it, whatever the backend: variables, and what a path may look like."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath

from jaxmtrl.envs.swe.sandbox.api import VENV

MOST_COMMAND = 512 << 10  # bytes of one command
HOME = "/tmp"
_SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
_QUIET = {  # so that nothing asks, pages, colours, or waits for a network that is not there
    "HOME": HOME,
    "USER": "agent",
    "LOGNAME": "agent",
    "LANG": "C.UTF-8",
    "TERM": "dumb",
    "NO_COLOR": "1",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "EDITOR": "true",
    "GIT_EDITOR": "true",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_AUTHOR_NAME": "agent",
    "GIT_AUTHOR_EMAIL": "agent@localhost",
    "GIT_COMMITTER_NAME": "agent",
    "GIT_COMMITTER_EMAIL": "agent@localhost",
    "DEBIAN_FRONTEND": "noninteractive",
    "PIP_NO_INDEX": "1",
    "PIP_NO_INPUT": "1",
    "PIP_RETRIES": "0",
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
}


def variables(*, venv: str | None, more: Mapping[str, str] | None) -> dict[str, str]:
    """Every variable of a command; nothing comes from our own environment."""
    found = dict(_QUIET, PATH=_SYSTEM_PATH)
    if venv is not None:
        found |= {"PATH": f"{venv}/bin:{_SYSTEM_PATH}", "VIRTUAL_ENV": venv}
    for name, value in (more or {}).items():
        if not name or "=" in name or "\0" in name + value:
            raise ValueError(f"{name!r} with value {value!r} cannot be a variable")
        found[name] = value
    return found


def is_program(content: bytes) -> bool:
    """Whether a file that is shown to a command can be run."""
    return content.startswith(b"#!")


def venv_place(has_venv: bool) -> str | None:
    return VENV if has_venv else None


def checked(path: str) -> str:
    """`path` if it is absolute and goes straight to a file."""
    if not path.startswith("/") or "\0" in path or ".." in path.split("/") or str(PurePosixPath(path)) != path:
        raise ValueError(f"a file within a sandbox is named by a plain absolute path, got {path!r}")
    return path
