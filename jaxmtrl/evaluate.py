"""`python -m jaxmtrl.evaluate --run DIR [--split NAME …]`: plays held-out tasks with a policy of a run."""

from __future__ import annotations

import argparse
import json
import sys


def main(arguments: list[str] | None = None) -> int:
    """Parses the command line, plays, prints one JSON line a split."""
    from jaxmtrl.config.help import describe_config
    from jaxmtrl.envs.help import describe_environments
    from jaxmtrl.errors import JaxmtrlError

    parser = argparse.ArgumentParser(
        prog="python -m jaxmtrl.evaluate",
        description="Plays fixed tasks with a policy of a run: success with its 95 % interval, steps, invalid actions.",
        epilog=f"Fields of the run's config:\n\n{describe_config()}\n{describe_environments()}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--run", required=True, metavar="DIR", help="run folder, for example runs/quickstart")
    parser.add_argument(
        "--split", action="append", metavar="NAME", help="split to play, may be repeated; all evaluated ones if absent"
    )
    parser.add_argument("--n", type=int, metavar="N", help="tasks a split; as in the run's config if absent")
    parser.add_argument(
        "--policy",
        default="latest",
        choices=("latest", "untrained", "pretrain", "sft", "rl"),
        help="policy at the end of a stage, or of the newest checkpoint (default)",
    )
    parser.add_argument(
        "--temperature", type=float, metavar="T", help="sampling temperature, 0 is greedy; as in the config if absent"
    )
    parser.add_argument("--episodes", metavar="FILE", help="write the played episodes here, one JSON line each")
    parser.add_argument(
        "--server",
        default="",
        metavar="URL",
        help="an OpenAI-compatible server (vLLM; up to /v1) plays instead of the policy, in the run's tokens",
    )
    parser.add_argument("--server-model", default="", metavar="NAME", help="the server's model, if it has several")
    parsed = parser.parse_args(arguments)
    try:
        from jaxmtrl.replay import evaluate_run

        results = evaluate_run(
            parsed.run,
            splits=parsed.split,
            n=parsed.n,
            policy=parsed.policy,
            temperature=parsed.temperature,
            episodes_file=parsed.episodes,
            server=parsed.server,
            server_model=parsed.server_model,
        )
    except JaxmtrlError as err:
        print(f"error: {err}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    for split, figures in results.items():
        print(json.dumps({"split": split, "policy": parsed.server or parsed.policy, **figures}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
