"""Loss and gradient do not depend on how a batch is padded, packed or cut into micro-batches."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Literal

import numpy as np

from jaxmtrl.diagnosis.bench import Bench
from jaxmtrl.diagnosis.finding import Finding, below
from jaxmtrl.diagnosis.gauge import Gauge, Reading, difference
from jaxmtrl.diagnosis.material import longest, one_a_row
from jaxmtrl.rollout.pack import pack
from jaxmtrl.types import Episode

LARGEST = 1e-5  # relative, of loss and gradient, in f32

Name = Literal["whole", "halves", "singles", "padded", "packed"]


class Layouts:
    """One batch laid out in five ways, each measured when it is first asked for: score, credit and update.

    whole: an episode a row, all rows in one micro-batch. halves, singles: the same rows in two micro-batches, or in one
    each. padded: whole with twice the columns, and another token on the padding. packed: two episodes or more a row.
    """

    def __init__(self, bench: Bench, gauge: Gauge, episodes: list[Episode]):
        self._bench, self._gauge, self._episodes = bench, gauge, episodes
        self._readings: dict[Name, Reading] = {}
        self.rows, self.width = len(episodes), longest(episodes)

    def reading(self, name: Name) -> Reading:
        """What an update sees of this layout."""
        if name not in self._readings:
            self._readings[name] = self._measure(name)
        return self._readings[name]

    def apart(self, *names: Name) -> float:
        """The largest difference of these layouts from the whole one."""
        return float(np.max([difference(self.reading("whole"), self.reading(name)) for name in names]))

    def _measure(self, name: Name) -> Reading:
        bench, rows, width = self._bench, self.rows, self.width
        reference = bench.reference if bench.config.algorithm.kl_weight > 0 else None
        if name == "packed":  # as many columns as padded, so that they share their programs
            batch = pack(self._episodes, row_length=2 * width, num_episodes=rows, pad_id=bench.pad_id)
        else:
            pad_id = int(self._episodes[0].turns[0].prompt_ids[0]) if name == "padded" else bench.pad_id
            columns = 2 * width if name == "padded" else width
            batch = one_a_row(self._episodes, row_length=columns, pad_id=pad_id)
        micro_batch_rows = {"halves": rows // 2, "singles": 1}.get(name, rows)
        placed = self._gauge.place(batch, micro_batch_rows=micro_batch_rows, max_rows=rows)
        return self._gauge.measure(bench.params, placed, reference=reference)


def check_invariance(bench: Bench, gauge: Gauge, episodes: list[Episode]) -> list[Finding]:
    """Five layouts of one batch.

    Args:
        episodes: some, with rewards that differ.
    """
    layouts = Layouts(bench, gauge, episodes)
    first: Sequence[Name] = ("whole", "halves", "singles", "padded")
    with ThreadPoolExecutor(max_workers=2) as pool:  # nearly all of the time is compilation, which runs beside Python
        list(pool.map(layouts.reading, first))
    return [check_padding(layouts), check_packing(layouts), check_micro_batches(layouts)]


def check_padding(layouts: Layouts) -> Finding:
    """As many columns again, of another token."""
    return _finding(
        "padding changes nothing",
        layouts.apart("padded"),
        f"{layouts.width} columns of padding after each row of {layouts.width}, of another id",
        "a padding column is attended to or counted: look for masks made by comparing ids with the pad id",
    )


def check_packing(layouts: Layouts) -> Finding:
    """Several episodes a row."""
    return _finding(
        "packing changes nothing",
        layouts.apart("packed"),
        f"{layouts.rows} episodes, two or more a row against one a row",
        "episodes of one row see each other: attention must stay within segment_ids, positions restart at 0",
    )


def check_micro_batches(layouts: Layouts) -> Finding:
    """The same rows at once, by twos and one by one."""
    return _finding(
        "micro-batches change nothing",
        layouts.apart("halves", "singles"),
        f"{layouts.rows} rows at once, by twos and one by one",
        "losses must be summed with the denominators of the whole minibatch, not averaged a micro-batch",
    )


def _finding(name: str, number: float, said: str, cure: str) -> Finding:
    return below(name, number, LARGEST, unit="relative", said=said, cure=cure)
