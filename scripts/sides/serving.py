"""How a side of a comparison is driven, and the model that all sides have. Knows the standard library alone."""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A Llama-like decoder; the defaults are SmolLM2-135M's."""

    layers: int = 30
    embed: int = 576
    heads: int = 9
    kv_heads: int = 3
    head_dim: int = 64
    mlp: int = 1536
    vocab: int = 49_152


def serve(warm_up: Callable[[], object], work: Callable[[dict[str, Any]], dict[str, Any] | None]) -> None:
    """Answers every line of standard input, JSON, with the seconds that `work` took for it and what it returned.

    Args:
        warm_up: called before the first answer, so that compilation is not timed.
    """
    began = time.perf_counter()
    warm_up()
    print(json.dumps({"ready_s": time.perf_counter() - began}), flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        began = time.perf_counter()
        figures = work(asked) or {}
        figures["seconds"] = time.perf_counter() - began
        figures["peak_bytes"] = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # of the process so far
        print(json.dumps(figures), flush=True)
