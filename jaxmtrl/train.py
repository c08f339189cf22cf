"""`python -m jaxmtrl.train --config F [section.field=value …]`: pretraining, SFT, critic warm-up, RL, evaluation.

Thin on purpose: every environment process imports this module again, so nothing heavy is imported at its top.
"""

from __future__ import annotations

import argparse
import os
import sys

_LOST = (
    "error: another process of the run is gone ({}); start the same command again on every host, and the run goes on "
    "from its last checkpoint"
)


def main(arguments: list[str] | None = None) -> int:
    """Parses the command line, runs, and turns errors meant for people into one message and exit code 2."""
    from jaxmtrl.config.help import describe_config
    from jaxmtrl.config.loading import load_config
    from jaxmtrl.envs.help import describe_environments
    from jaxmtrl.errors import JaxmtrlError

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
    parsed = parser.parse_intermixed_args(arguments)
    try:
        config = load_config(parsed.config, parsed.overrides)
        from jaxmtrl.assembly import use_compilation_cache
        from jaxmtrl.training import train

        if parsed.hosts:
            from jaxmtrl.parallel.hosts import join

            join(parsed.coordinator, parsed.processes, parsed.process_id)
        use_compilation_cache(config.run.compilation_cache)
        train(config)
    except JaxmtrlError as err:
        print(f"error: {err}", file=sys.stderr)
        return 2
    except OSError as err:  # a full disk, missing rights: the last checkpoint stands
        where = err.filename or "a file"
        print(f"error: {where}: {err.strerror}; mend that, then the same command goes on", file=sys.stderr)
        return 2
    except RuntimeError as err:  # jax's: a collective that another process did not come to
        from jaxmtrl.parallel.hosts import is_lost_peer

        if not (parsed.hosts and is_lost_peer(err)):
            raise
        print(_LOST.format(str(err).strip().splitlines()[0][:160]), file=sys.stderr, flush=True)
        os._exit(3)  # leaving in good order would wait for the one that is gone
    except KeyboardInterrupt:
        print("interrupted; the same command goes on from the last checkpoint", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
