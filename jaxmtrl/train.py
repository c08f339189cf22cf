"""`python -m jaxmtrl.train --config F [section.field=value …]`: pretraining, SFT, critic warm-up, RL, evaluation.

Thin on purpose: every environment process imports this module again, so nothing heavy is imported at its top.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

_LOST = (
    "error: another process of the run is gone ({}); start the same command again on every host, and the run goes on "
    "from its last checkpoint"
)
_NOT_MET = (
    "error: the processes of the run did not meet; start the same command on every host at about the same time, with "
    "--processes as many and --coordinator the host:port of process 0"
)
_GRACE_S = 20.0  # what a process that was asked to stop has for it


def main(arguments: list[str] | None = None) -> int:
    """Parses the command line, runs, and turns errors meant for people into one message and exit code 2."""
    from jaxmtrl.config.help import describe_config
    from jaxmtrl.envs.help import describe_environments

    parser = argparse.ArgumentParser(
        prog="python -m jaxmtrl.train",
        description="Trains the run that a config describes. Starting the same command again resumes it.",
        epilog=f"{describe_config()}\n{describe_environments()}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--config", required=True, metavar="FILE", help="YAML file with one mapping a section")
    parser.add_argument(
        "--hosts",
        action="store_true",
        help="one of several processes that train together, one a host, all started by this command; on Cloud TPU they "
        "find each other, elsewhere by the three options below",
    )
    parser.add_argument("--coordinator", metavar="HOST:PORT", help="with --hosts: of process 0, the same everywhere")
    parser.add_argument("--processes", type=int, metavar="N", help="with --hosts: how many there are")
    parser.add_argument("--process-id", type=int, metavar="I", help="with --hosts: which this is, from 0")
    parser.add_argument(
        "overrides", nargs="*", metavar="section.field=value", help="replaces single fields, read as YAML"
    )
    parser.add_argument("--watched", help=argparse.SUPPRESS)  # by `_watch`, which reads this file
    parsed = parser.parse_intermixed_args(arguments)
    if not parsed.hosts and any(part is not None for part in (parsed.coordinator, parsed.processes, parsed.process_id)):
        parser.error("--coordinator, --processes and --process-id want --hosts beside them")
    if parsed.hosts and not parsed.watched:
        return _watch(sys.argv[1:] if arguments is None else arguments)
    if parsed.watched:
        _end_with(os.getppid())
    code = _run(parsed)
    if parsed.hosts and code:
        sys.stdout.flush()
        os._exit(code)  # leaving in good order would wait for processes that may be gone
    return code


def _run(parsed: argparse.Namespace) -> int:
    """Trains; the exit code."""
    from jaxmtrl.config.loading import load_config
    from jaxmtrl.errors import JaxmtrlError

    try:
        config = load_config(parsed.config, parsed.overrides)
        from jaxmtrl.assembly import use_compilation_cache
        from jaxmtrl.training import train

        if parsed.hosts:
            from jaxmtrl.parallel.hosts import join

            join(parsed.coordinator, parsed.processes, parsed.process_id)
            Path(parsed.watched).write_text("met")
        use_compilation_cache(config.run.compilation_cache)
        train(config)
    except KeyboardInterrupt:
        print("interrupted; the same command goes on from the last checkpoint", file=sys.stderr)
        return 130
    except Exception as err:
        if parsed.hosts:
            from jaxmtrl.parallel.hosts import is_lost_peer

            if is_lost_peer(err):
                print(_LOST.format(str(err).strip().splitlines()[0][:160]), file=sys.stderr, flush=True)
                return 3
        if isinstance(err, JaxmtrlError):
            print(f"error: {err}", file=sys.stderr, flush=True)
            return 2
        if isinstance(err, OSError):  # a full disk, missing rights: the last checkpoint stands
            where = err.filename or "a file"
            print(f"error: {where}: {err.strerror}; mend that, then the same command goes on", file=sys.stderr)
            return 4 if parsed.hosts else 2  # a bucket may be back soon, and a new start is worth it
        if parsed.hosts:
            traceback.print_exc()
            return 1
        raise
    return 0


def _watch(arguments: Sequence[str]) -> int:
    """Has a process of its own train, and says what happened where jax ends it without a word that helps.

    When a process of the run is gone, jax aborts the others from a thread of its own, past every handler.
    """
    with tempfile.NamedTemporaryFile("r") as word:
        child = subprocess.Popen([sys.executable, "-m", "jaxmtrl.train", *arguments, "--watched", word.name])
        asked = []

        def stop(number: int, frame: object) -> None:
            asked.append(number)
            child.send_signal(signal.SIGINT)  # jax keeps SIGTERM for itself where processes train together
            patience = threading.Timer(_GRACE_S, child.kill)
            patience.daemon = True
            patience.start()

        signal.signal(signal.SIGTERM, stop)
        while True:
            try:
                code = child.wait()
                break
            except KeyboardInterrupt:  # the keyboard speaks to the child as well
                continue
        met = bool(word.read())
    if asked:
        return 128 + asked[0]
    if code == -signal.SIGABRT:
        print(_LOST.format("its end is told above") if met else _NOT_MET, file=sys.stderr, flush=True)
        return 3
    return code if code >= 0 else 128 - code


def _end_with(parent: int) -> None:
    """Ends this process when its parent has ended, however that came."""

    def look() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(3)

    threading.Thread(target=look, daemon=True).start()


if __name__ == "__main__":
    sys.exit(main())
