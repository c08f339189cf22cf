"""Times one PPO update against torch's usual one on the same episodes, and prints one JSON line.

    bash scripts/test_parity.sh -k nothing || true       # makes .venv-parity with torch and transformers
    python scripts/update_episodes.py --out .cache/update_episodes.npz
    python scripts/bench_update.py --torch .venv-parity/bin/python --episodes .cache/update_episodes.npz

A model of SmolLM2-135M's shape with random weights in f32, policy and value head, AdamW, one optimizer step over all
episodes. The peer draws micro-batches of `--micro-rows` episodes, pads them to their longest, forms all logits
and keeps all activations; ours packs episodes into rows of `--row-length` and forms the logits of action tokens alone.
Every side is a process of its own; they work in turns, and medians are compared.

    tokens_per_s_vs_torch          rows of one length (16 x 768, 11 % of it sampled)
    memory_saving_vs_torch         the peer's peak (whole process) over ours, there
    ragged_tokens_per_s_vs_torch   episodes of `--episodes`
    gemm_share                     our model FLOPs a second, dense, over the machine's best matrix product's

`useful_share`: tokens of episodes over columns that are computed, packed and padded.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import platform
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "sides"))
sys.path.insert(0, str(Path(__file__).parent))
from bench_limits import gemm_rate
from driver import Side
from serving import Shape
from update_work import UpdateWork

from jaxmtrl.rollout.pack import first_fit


def model_flops(shape: Shape, rows: int, columns: int, action_share: float) -> float:
    """Of a forward pass and a backward pass of twice as much; logits of action tokens alone."""
    heads = shape.embed * (2 * shape.heads + 2 * shape.kv_heads) * shape.head_dim
    blocks = shape.layers * (heads + 3 * shape.embed * shape.mlp)
    attention = 4 * shape.layers * shape.heads * shape.head_dim * columns / 2
    tokens = rows * columns
    return 3 * tokens * (2 * blocks + attention + 2 * action_share * shape.embed * shape.vocab)


def best_row_length(lengths: list[int]) -> int:
    """The multiple of 64 tokens, from the longest episode to twice that, whose packed rows hold least padding.

    Episodes of one row do not look at each other, so longer rows cost no attention.
    """
    shortest = -(-max(lengths) // 64) * 64

    def columns(row_length: int) -> int:
        places = first_fit(dict(enumerate(lengths)), row_length)
        return row_length * (1 + max(row for row, _ in places.values()))

    return min(range(shortest, 2 * shortest + 1, 64), key=columns)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch", metavar="PYTHON", help="interpreter with torch and transformers")
    parser.add_argument("--episodes", metavar="FILE", help=".npz of update_episodes.py")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--micro-rows", type=int, default=4, help="of the peer")
    parser.add_argument("--our-micro-rows", type=int, default=2)
    parser.add_argument("--kinds", default="dense,ragged", help="which works")
    parser.add_argument(
        "--row-length",
        type=int,
        default=0,
        help="of ragged episodes packed; 0: what packs best up to twice the longest",
    )
    parser.add_argument("--remat", default="dots", help="model.remat of ours")
    parser.add_argument("--rows", type=int, default=UpdateWork.rows)
    parser.add_argument("--columns", type=int, default=UpdateWork.columns)
    parser.add_argument("--layers", type=int, default=Shape.layers, help="fewer for a quick look")
    parser.add_argument("--vocab", type=int, default=Shape.vocab)
    return parser.parse_args()


def main() -> int:
    given = arguments()
    shape = Shape(layers=given.layers, vocab=given.vocab)
    dense = UpdateWork(rows=given.rows, columns=given.columns, micro_rows=given.micro_rows)
    works = {"dense": (dense, given.columns)} if "dense" in given.kinds else {}
    if given.episodes and "ragged" in given.kinds:
        import numpy as np

        lengths = np.load(given.episodes)["lengths"].tolist()
        ragged = dataclasses.replace(dense, kind="ragged", file=str(Path(given.episodes).resolve()))
        works["ragged"] = (ragged, given.row_length or best_row_length(lengths))

    def as_json(value: Shape | UpdateWork) -> str:
        return json.dumps(dataclasses.asdict(value))

    figures: dict[str, dict] = {"ours": {}, "peers": {}}
    gemm = [gemm_rate()]
    # One work after the other, so that a side's peak is that of its work.
    for name, (work, row_length) in works.items():
        ours = Side(
            sys.executable,
            "update_ours.py",
            as_json(shape),
            as_json(work),
            given.remat,
            str(given.our_micro_rows),
            str(row_length),
        )
        sides = {"ours": ours}
        if given.torch:
            sides["peers"] = Side(given.torch, "update_torch.py", as_json(shape), as_json(work))
        answers: dict[str, list[dict]] = {side: [] for side in sides}
        for number in range(given.rounds):
            for side, process in sides.items():
                answers[side].append(process.play(as_json(dataclasses.replace(work, seed=number))))
        gemm.append(gemm_rate())
        for side, process in sides.items():
            process.close()
            found, seconds = answers[side], [answer["seconds"] for answer in answers[side]]
            figures[side][name] = {
                "seconds": [round(taken, 2) for taken in seconds],
                "tokens": found[0]["tokens"],
                "useful_share": round(found[0]["tokens"] / found[0]["columns"], 3),
                "tokens_per_s": round(found[0]["tokens"] / statistics.median(seconds), 1),
                "peak_gb": round(max(answer["peak_bytes"] for answer in found) / 1e9, 2),
            }
    ratios = {}
    for name, prefix in (("dense", ""), ("ragged", "ragged_")):
        if name in works and given.torch:
            one, other = figures["ours"][name], figures["peers"][name]
            ratios[f"{prefix}tokens_per_s_vs_torch"] = one["tokens_per_s"] / other["tokens_per_s"]
            ratios[f"{prefix}memory_saving_vs_torch"] = other["peak_gb"] / one["peak_gb"]
    if "dense" in works:
        seconds = statistics.median(figures["ours"]["dense"]["seconds"])
        ratios["gemm_share"] = model_flops(shape, given.rows, given.columns, 7 / 64) / seconds / max(gemm)
    line = {
        "bench": "update",
        "work": {"layers": shape.layers, "vocab": shape.vocab, "remat": given.remat}
        | {name: {"rows": work.rows, "row_length": length} for name, (work, length) in works.items()},
        **figures,
        "ratios": {name: round(ratio, 3) for name, ratio in ratios.items()},
        "gemm_gflop_s": [round(rate / 1e9, 1) for rate in gemm],
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
    }
    print(json.dumps(line))
    return 0


if __name__ == "__main__":
    sys.exit(main())
