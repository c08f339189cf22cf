"""What the commands of software tasks share: arguments that make sense, threads, and an end in words."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from jaxmtrl.errors import JaxmtrlError


def positive(convert: Callable[[str], float]) -> Callable[[str], float]:
    """The type of an argument that is a number above 0."""

    def parse(words: str) -> float:
        number = convert(words)
        if not number > 0:
            raise argparse.ArgumentTypeError(f"must be above 0, got {words}")
        return number

    parse.__name__ = convert.__name__
    return parse


def named(words: str) -> Path:
    """The type of an argument that names a file or folder."""
    if not words.strip() or "\0" in words:
        raise argparse.ArgumentTypeError(f"must name a file or folder, got {words!r}")
    return Path(words)


@contextmanager
def threads(jobs: int) -> Iterator[ThreadPoolExecutor]:
    """Threads that are waited for at the end, unless it is the keyboard that ends it: a test may take minutes more."""
    pool = ThreadPoolExecutor(jobs)
    patient = True
    try:
        yield pool
    except KeyboardInterrupt:
        patient = False
        raise
    finally:
        pool.shutdown(wait=patient, cancel_futures=True)


def ended(run: Callable[[], int], *, interrupted: str) -> int:
    """Runs a command; the exit code, once what ended it has been said in a line.

    Args:
        interrupted: what stands of the work when somebody ends it, and how it goes on.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return run()
    except JaxmtrlError as err:
        print(f"error: {err}", file=sys.stderr)
    except OSError as err:  # a full disk, missing rights
        words = f"error: {err.filename or 'a file'}: {err.strerror or err}; mend that, then give the same command again"
        print(words, file=sys.stderr)
    except KeyboardInterrupt:
        print(f"interrupted; {interrupted}", file=sys.stderr)
        sys.stderr.flush()
        os._exit(130)  # threads may wait for tests that take minutes; their sandboxes end with this process
    return 2
