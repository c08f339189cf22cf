"""The errors a person at the keyboard may meet; each says what, where, got, wanted and the next move.

Knows nothing of the rest of the package, so that every floor may raise them.
"""

from __future__ import annotations

from collections.abc import Sequence


class JaxmtrlError(Exception):
    """Base of every error that is addressed to the user rather than to a developer."""


class ConfigError(JaxmtrlError):
    """One or more mistakes in a config file or its overrides, all of them listed at once."""

    def __init__(self, source: str, mistakes: Sequence[str]):
        self.source = source
        self.mistakes = tuple(mistakes)
        count = f"{len(self.mistakes)} mistake" + ("s" if len(self.mistakes) != 1 else "")
        lines = "\n".join(f"  - {mistake}" for mistake in self.mistakes)
        super().__init__(f"{count} in {source}:\n{lines}")

    def __reduce__(self) -> tuple[type[ConfigError], tuple[str, tuple[str, ...]]]:
        return type(self), (self.source, self.mistakes)  # else it would be made again of its message alone


class ResumeError(JaxmtrlError):
    """A run folder exists already and does not belong to the config that was given."""


class CheckpointError(JaxmtrlError):
    """A checkpoint could not be written or read."""


class RecordError(JaxmtrlError):
    """A file that a run wrote was damaged by something else than a crash."""


class EnvironmentFailure(JaxmtrlError):
    """An environment could not be made, reset or stepped; carries environment, task and turn."""


class SandboxFailure(EnvironmentFailure):
    """A sandbox could not be made or used; the machine's fault, so that the episode has failed, whoever plays it."""


class TooManyFailures(JaxmtrlError):
    """So many episodes failed that training on the rest would say nothing."""


class NonFiniteError(JaxmtrlError):
    """A loss or gradient was NaN or infinite; names the dumped rows and the last good checkpoint."""


class StoppedByAlarm(JaxmtrlError):
    """A run was saved and ended because an alarm that should stop it was raised; the same command goes on."""


class TokenizerError(JaxmtrlError):
    """A tokenizer or template cannot serve as a token ledger."""


class ModelFolderError(JaxmtrlError):
    """A folder of published weights cannot be read, does not fit together, or cannot be written."""


class ServerError(JaxmtrlError):
    """An external server that should play cannot be reached or does not answer as it must."""


class CapacityError(JaxmtrlError):
    """Something is larger than the compiled shapes allow."""
