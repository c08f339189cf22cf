"""ALFWorld, household tasks in text: `env.factory: jaxmtrl.envs.alfworld:make`.

Importing the package itself brings nothing else in, so that its data and its generator serve scripts that run where
only the standard library is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jaxmtrl.envs.alfworld.environment import AlfworldEnvironment


def make(options: Mapping[str, Any]) -> AlfworldEnvironment:
    """The environment of `options`; see `environment.AlfworldOptions`. Raises ConfigError: all that is wrong."""
    from jaxmtrl.envs.alfworld import environment

    return environment.make(options)
