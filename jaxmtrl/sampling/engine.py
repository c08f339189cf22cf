"""The slots engine: plays many episodes at once, each owning a row of the KV cache for its whole life.

A turn is a prefill of the tokens that are new since the last action (which also samples the action's first token)
and then decode in chunks until a stop token or the cap. The last token of an action is never fed to the network
until the next turn, whose prefill begins with it. Knows nothing of text, environments or episodes beyond a slot.
Letters: S slots, R prefill rows, P prefill bucket, A action cap, C cache length, V vocab.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np
from jax.sharding import Mesh

from jaxmtrl.config.sections import SamplingSection
from jaxmtrl.errors import CapacityError
from jaxmtrl.models.decoder import Network, Params
from jaxmtrl.models.kv_cache import Cache, cache_length
from jaxmtrl.sampling.compiled import compile_programs
from jaxmtrl.sampling.programs import Report, SlotState, Weights
from jaxmtrl.types import TurnStop


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sampled:
    """One finished action."""

    slot: int
    ids: np.ndarray  # i32 [n], 1 ≤ n ≤ A, the stop token included if it was sampled
    logprobs: np.ndarray  # f32 [n]
    stop: TurnStop


@dataclasses.dataclass(kw_only=True)
class _Prompt:
    """A slot's tokens on their way into the cache."""

    slot: int
    ids: np.ndarray
    first: bool  # it opens the episode, so that others may share it


SHARED_PREFIX = 16  # tokens two first prompts must have in common before copying a cache row beats computing it


class Engine:
    """Host side of the slots: `open` a slot, `submit` its prompts, `step` until its action comes back, `close` it."""

    def __init__(
        self,
        network: Network,
        section: SamplingSection,
        stop_ids: Sequence[int],
        mesh: Mesh,
        base: Params | None = None,
        table: np.ndarray | None = None,
    ):
        """
        Args:
            base: placed parameters beside those that `load` gets, `network.init_base`; None where there are none.
            table: of the mask of actions, i16 [N, V] with V the rows of the logits; None without one.
        """
        self._section, self._masked = section, table is not None
        self._programs = compile_programs(network, section, tuple(sorted(stop_ids)), mesh, table)
        self._base = self._programs.read(base or {})
        self._cache: Cache = self._programs.empty_cache()
        self._state: SlotState = self._programs.empty_state()
        self._report: Any = None  # array of the chunk under way, or None
        self._weights: Weights | None = None  # until the first `load`
        self.version = -1
        self._cached = np.zeros(section.slots, np.int64)  # columns of the cache that are written
        self._ends = np.zeros(section.slots, np.int64)  # columns when the current prompt was in
        self._carry: list[np.ndarray] = [np.zeros(0, np.int32)] * section.slots  # sampled but not yet fed
        self._queue: deque[_Prompt] = deque()
        self._heads: dict[int, np.ndarray] = {}  # first prompt of each open slot, as far as it is in the cache
        self._playing: set[int] = set()  # slots whose action is being decoded
        self._free = list(range(section.slots - 1, -1, -1))
        self.tokens_prefilled = 0
        self.tokens_copied = 0  # taken over from another slot's cache instead of being prefilled
        self.tokens_sampled = 0

    @property
    def programs(self) -> int:
        """Programs compiled so far; stays at the plan."""
        return self._programs.count

    @property
    def plan(self) -> str:
        """The compiled programs in one line."""
        return self._programs.plan

    @property
    def free_slots(self) -> int:
        return len(self._free)

    @property
    def busy(self) -> bool:
        """Whether `step` has anything to do."""
        return bool(self._queue or self._playing or self._report is not None)

    def load(self, params: Params, version: int) -> None:
        """Plays with `params` from here on. Every slot must be closed: a cache of old weights is never read again."""
        if len(self._free) != self._section.slots:
            raise RuntimeError(f"{self._section.slots - len(self._free)} slots hold a cache of older weights")
        self._weights = None  # its memory is free before the new ones are laid out
        self._weights = self._programs.weights({**self._base, **self._programs.read(params)})
        self.version = version

    def unload(self) -> None:
        """Gives the weights' memory back until the next `load`; every slot must be closed."""
        if len(self._free) == self._section.slots:
            self._weights = None

    @property
    def _loaded(self) -> Weights:
        if self._weights is None:
            raise RuntimeError("the engine has no weights yet; call load first")
        return self._weights

    def open(self, seed: Sequence[int], temperature: float, root: int = 0) -> int:
        """Takes a slot for a new episode whose draws depend on `seed` (two 32-bit numbers) alone, not on the slot.

        Args:
            root: state of the mask of actions in which each of its actions begins; 0 allows everything.
        """
        slot = self._free.pop()
        self._cached[slot] = 0
        self._carry[slot] = np.zeros(0, np.int32)
        self._state = self._programs.open(
            self._state,
            np.int32(slot),
            np.asarray(seed, np.uint32),
            np.float32(temperature),
            np.int32(root) if self._masked else None,
        )
        return slot

    def close(self, slot: int) -> None:
        """Gives a slot back; its action, if one is under way, is dropped."""
        if slot in self._playing:
            self._playing.discard(slot)
            self._state = self._programs.stop(self._state, np.int32(slot))
        self._queue = deque(prompt for prompt in self._queue if prompt.slot != slot)
        self._heads.pop(slot, None)
        self._cached[slot] = 0
        self._free.append(slot)
        self._shrink()

    def _shrink(self) -> None:
        """Gives back the columns that only episodes that have ended needed."""
        section, smallest = self._section, self._programs.lengths[0]
        if len(self._free) == section.slots:
            if cache_length(self._cache) != smallest:
                self._cache = ()  # its memory is free before the new one is laid out
                self._cache = self._programs.empty_cache()
            return
        wanted = max(int(self._cached.max()) + section.max_action_tokens, section.prefill_buckets[-1])
        if wanted < cache_length(self._cache):
            self._cache = self._programs.fitted(self._cache, wanted)

    def _grow(self, needed: int) -> None:
        if needed > cache_length(self._cache):
            self._cache = self._programs.fitted(self._cache, needed)

    def rewind(self, slot: int) -> None:
        """Empties the cache of a slot between two actions; its episode goes on, and so do its draws."""
        if slot in self._playing or any(prompt.slot == slot for prompt in self._queue):
            raise RuntimeError(f"slot {slot} is in the middle of an action")
        self._cached[slot], self._carry[slot] = 0, np.zeros(0, np.int32)
        self._heads.pop(slot, None)

    def room(self, slot: int) -> int:
        """Cache columns left for new prompt tokens and the action together."""
        return int(self._section.cache_length - self._cached[slot] - len(self._carry[slot]))

    def submit(self, slot: int, ids: np.ndarray) -> None:
        """Queues the tokens new since the slot's last action; the action's cap shrinks to the room that is left.

        Raises:
            CapacityError: no action token would fit after them.
        """
        if len(ids) > self.room(slot):
            raise CapacityError(
                f"{len(ids)} new tokens leave no room for an action: slot has {self.room(slot)} of "
                f"{self._section.cache_length} columns; raise sampling.cache_length or end the episode"
            )
        first = self._cached[slot] == 0
        self._queue.append(
            _Prompt(slot=slot, ids=np.concatenate([self._carry[slot], ids]).astype(np.int32), first=first)
        )
        self._carry[slot] = np.zeros(0, np.int32)

    def start(self) -> None:
        """Sends the device off to prefill the prompts that wait and to decode one chunk, and does not wait for it.

        Until `step` fetches what comes of it, the host may open, submit and close slots meanwhile.
        """
        if self._report is not None:
            return
        # A decode step costs the same however few slots take part, so whatever waits is read first: once round, since a
        # prompt that is longer than the largest bucket comes in pieces, which leave the others a chunk in between.
        for _ in range(len(self._queue)):
            if self._queue:
                self._prefill()
        if self._playing:
            needed = int(max(self._cached[slot] for slot in self._playing)) + self._section.decode_chunk
            self._grow(min(needed, self._section.cache_length))
            self._cache, self._state, self._report = self._programs.decode(self._loaded, self._cache, self._state)

    @property
    def working(self) -> bool:
        """Whether the device is still busy with what `start` began, so that `step` would wait."""
        return self._report is not None and not self._report.is_ready()

    def step(self) -> list[Sampled]:
        """Waits for what `start` began (and begins it, if nobody has), and returns the actions that ended."""
        self.start()
        if self._report is None:
            return []
        report, self._report = Report.of(self._report), None
        finished = []
        for slot in sorted(self._playing):
            count = int(report.emitted[slot])
            self._cached[slot] = self._ends[slot] + count - 1
            if not report.active[slot]:
                ids, logprobs = report.tokens[slot, :count].copy(), report.logprobs[slot, :count].copy()
                finished.append(self._finish(slot, ids, logprobs))
        return finished

    def _finish(self, slot: int, ids: np.ndarray, logprobs: np.ndarray) -> Sampled:
        self._playing.discard(slot)
        self._carry[slot] = ids[-1:]
        self.tokens_sampled += len(ids)
        stopped = int(ids[-1]) in self._programs.stop_ids
        return Sampled(slot=slot, ids=ids, logprobs=logprobs, stop=TurnStop.STOP_TOKEN if stopped else TurnStop.LENGTH)

    def _take_prompts(self) -> tuple[int, list[_Prompt]]:
        """The next prompts to prefill, all of one bucket: that of the first in the queue.

        What a first prompt shares with another slot's (the same task, the same system prompt) is copied; one that will
        share a prompt taken just before it waits for the next call. One token left to read is read by decode.
        """
        bucket, taken, waiting = 0, [], []
        while self._queue and (not taken or len(taken) < self._programs.rows[bucket]):
            prompt = self._queue.popleft()
            if prompt.first and self._cached[prompt.slot] == 0:
                if any(other.first and _common(other.ids, prompt.ids) >= SHARED_PREFIX for other in taken):
                    waiting.append(prompt)
                    continue
                prompt = self._share(prompt)
            if len(prompt.ids) == 1:
                self._begin(prompt)
            elif not taken or self._bucket(prompt) == bucket:
                bucket = self._bucket(prompt)
                taken.append(prompt)
            else:
                waiting.append(prompt)
        self._queue.extendleft(reversed(waiting))
        return bucket, taken

    def _bucket(self, prompt: _Prompt) -> int:
        buckets = self._section.prefill_buckets
        return next((bucket for bucket in buckets if bucket >= len(prompt.ids)), buckets[-1])

    def _budget(self, slot: int) -> int:
        """Cap of the action that follows a prompt; its last token needs no column of its own until the next turn."""
        return int(min(self._section.max_action_tokens, self._section.cache_length - self._ends[slot] + 1))

    def _begin(self, prompt: _Prompt) -> None:
        slot, at = prompt.slot, int(self._cached[prompt.slot])
        self._ends[slot] = at + 1
        self._grow(at + 1)
        self._state = self._programs.begin(
            self._state, np.int32(slot), prompt.ids[0], np.int32(at), np.int32(self._budget(slot))
        )
        if prompt.first:
            self._heads[slot] = np.concatenate([self._heads.get(slot, prompt.ids[:0]), prompt.ids])
        self.tokens_prefilled += 1
        self._playing.add(slot)

    def _share(self, prompt: _Prompt) -> _Prompt:
        """Copies the longest prefix that an open slot has already read, and returns what is left to read.

        At least one token is always left, since the first action token is drawn from what its prefill computes.
        """
        shared = {slot: min(_common(head, prompt.ids), len(prompt.ids) - 1) for slot, head in self._heads.items()}
        source = max(shared, key=lambda slot: (shared[slot], -slot), default=None)
        if source is None or shared[source] < SHARED_PREFIX:
            return prompt
        count = shared[source]
        self._cache = self._programs.copy(self._cache, source, prompt.slot)
        self._cached[prompt.slot] = count
        self._heads[prompt.slot] = prompt.ids[:count]
        self.tokens_copied += count
        return dataclasses.replace(prompt, ids=prompt.ids[count:])

    def _prefill(self) -> None:
        """One call of the smallest program that holds the first prompt of the queue; longer ones go in pieces."""
        bucket, taken = self._take_prompts()
        if not taken:
            return
        rows = self._programs.rows[bucket]
        slots = np.full(rows, self._section.slots, np.int32)  # beyond the last slot: an empty row
        tokens = np.zeros((rows, bucket), np.int32)
        starts, counts = np.zeros(rows, np.int32), np.zeros(rows, np.int32)
        last, budgets = np.zeros(rows, bool), np.zeros(rows, np.int32)
        for row, prompt in enumerate(taken):
            piece = prompt.ids[:bucket]
            slots[row], counts[row], starts[row] = prompt.slot, len(piece), self._cached[prompt.slot]
            tokens[row, : len(piece)] = piece
            last[row] = len(prompt.ids) <= bucket
            self._cached[prompt.slot] += len(piece)
            self.tokens_prefilled += len(piece)
            if prompt.first:
                self._heads[prompt.slot] = np.concatenate([self._heads.get(prompt.slot, piece[:0]), piece])
            if last[row]:
                self._ends[prompt.slot] = self._cached[prompt.slot]
                budgets[row] = self._budget(prompt.slot)
                self._playing.add(prompt.slot)
            else:
                self._queue.appendleft(_Prompt(slot=prompt.slot, ids=prompt.ids[bucket:], first=prompt.first))
        self._grow(max(int((starts + counts).max()), bucket))
        self._cache, self._state = self._programs.prefill(
            self._loaded, self._cache, self._state, slots, tokens, starts, counts, last, budgets
        )


def _common(one: np.ndarray, other: np.ndarray) -> int:
    """Length of the longest common prefix."""
    length = min(len(one), len(other))
    different = np.flatnonzero(one[:length] != other[:length])
    return int(different[0]) if len(different) else length
