"""Which backend runs the commands of policies. It never falls back to one that protects less than was asked for."""

from __future__ import annotations

import tempfile
from pathlib import Path

from jaxmtrl.envs.swe.sandbox.advice import cannot_open
from jaxmtrl.envs.swe.sandbox.api import Backend, Base, Limits
from jaxmtrl.envs.swe.sandbox.bwrap import Bubblewrap
from jaxmtrl.envs.swe.sandbox.local import Local
from jaxmtrl.envs.swe.sandbox.oci import Containers
from jaxmtrl.envs.swe.sandbox.probes import refusal
from jaxmtrl.errors import ConfigError, SandboxFailure

NAMES = ("auto", "bwrap", "podman", "docker", "local")
_ENGINES = ("podman", "docker")


def choose(backend: str, *, unsafe: bool = False, images: bool = False) -> Backend:
    """The backend of that name if it works here; auto: bubblewrap, or for container images podman or docker.

    Args:
        unsafe: allows local, which protects from nothing.
        images: whether the bases are container images, which bubblewrap does not open.

    Raises:
        ConfigError: none works; says what each lacks and the cure.
    """
    if backend not in NAMES:
        raise ConfigError("the sandbox", [f"backend must be one of {', '.join(NAMES)}, got {backend!r}."])
    if backend == "local":
        if not unsafe:
            raise ConfigError(
                "the sandbox",
                [
                    "backend local runs a policy's commands with all your rights; if that is what you want, say "
                    "unsafe: true as well, else choose bwrap."
                ],
            )
        return Local()
    if backend == "auto":
        candidates = _ENGINES if images else ("bwrap",)
    else:
        candidates = (backend,)
    mistakes = []
    for name in candidates:
        lack = _lack(name)
        if lack is None:
            return Bubblewrap() if name == "bwrap" else Containers(name)
        mistakes.append(f"{name}: {lack}")
    if backend == "auto" and not images:
        mistakes.append("podman, docker: they open container images; the tasks of this config have none.")
    mistakes.append("commands of a policy are never run unprotected unless backend: local and unsafe: true ask for it.")
    raise ConfigError("the sandbox", mistakes)


def _lack(name: str) -> str | None:
    """Why the backend does not work, with the cure; None: it has just run commands, and its walls hold."""
    if name in _ENGINES:
        for probe in Containers(name).probe():
            if not probe.passed:
                return f"{probe.found}. {probe.cure}."
        return None
    try:
        with tempfile.TemporaryDirectory(prefix="jaxmtrl-") as folder:
            tree = Path(folder) / "tree"
            tree.mkdir()
            sandbox = Bubblewrap().open(Base(tree=tree), Limits())
            try:
                return refusal(sandbox) or None
            finally:
                sandbox.close()
    except SandboxFailure as err:
        return f"{err}. {cannot_open(str(err))}."
