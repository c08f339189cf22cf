"""Software tasks in sandboxes: `env.factory: jaxmtrl.envs.swe:make`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jaxmtrl.envs.swe.environment import SweEnvironment


def make(options: Mapping[str, Any]) -> SweEnvironment:
    """The environment of `options`; see `environment.SweOptions`. Raises ConfigError: all that is wrong."""
    from jaxmtrl.envs.swe import environment

    return environment.make(options)
