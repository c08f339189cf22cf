"""The reference page of the environments that come with the package, for `--help`."""

from __future__ import annotations

from jaxmtrl.envs.alfworld.environment import AlfworldOptions
from jaxmtrl.envs.options import describe_options
from jaxmtrl.envs.swe.settings import SweOptions
from jaxmtrl.envs.textworld import TextWorldOptions
from jaxmtrl.envs.toy import ToyOptions

_OPTIONS = {
    "jaxmtrl.envs.textworld:make": TextWorldOptions,
    "jaxmtrl.envs.alfworld:make": AlfworldOptions,
    "jaxmtrl.envs.swe:make": SweOptions,
    "jaxmtrl.envs.toy:make": ToyOptions,
}


def describe_environments() -> str:
    """One paragraph an environment: what to write as `env.factory`, then its options as in `describe_config`."""
    parts = [f"env.options with env.factory {factory}:\n{describe_options(kind)}" for factory, kind in _OPTIONS.items()]
    return "\n\n".join(parts) + "\n"
