"""An external server as the player: any OpenAI-compatible one that takes token ids and gives them back, such as vLLM.

Offers what `sampling.engine.Engine` offers to the rollout. Every turn sends the whole episode as ids; a server with
prefix caching reads only what is new. For evaluation: its log-probs are the server's, of whatever weights it holds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from jaxmtrl.errors import ServerError
from jaxmtrl.sampling.engine import Sampled
from jaxmtrl.types import TurnStop

MASKED = (
    "a server samples whatever it likes, and actions.enforce is mask: it cannot play the way the policy does. Evaluate "
    "the policy itself (no --server), or a run whose actions.enforce is prompt or admissible."
)
_PATIENCE_S = 0.02  # how long `step` waits for an answer before environments are looked at again
_PROBE_TOKENS = 8
_ID_PREFIX = "token_id:"  # of tokens that a server was asked to name by their ids


@dataclass(kw_only=True)
class _Slot:
    """One episode's ids, and how they are sampled."""

    seed: tuple[int, ...]
    temperature: float
    ids: list[int] = field(default_factory=list)
    turns: int = 0
    answer: Future[Sampled] | None = None


class ServerEngine:
    """Plays up to `slots` episodes at once by requests to one server."""

    def __init__(
        self,
        url: str,
        *,
        model: str,
        probe: np.ndarray,
        decode: Callable[[np.ndarray], str],
        stop_ids: Sequence[int],
        slots: int,
        cache_length: int,
        max_action_tokens: int,
        timeout_s: float = 120.0,
        retries: int = 3,
        api_key: str = "none",
    ):
        """Asks the server for its models and a few tokens, so that a wrong address or model is met before games are.

        Args:
            url: up to and with /v1.
            model: the server's name of it; empty takes the only one it has.
            probe: i32 [n], a prompt to try; `decode` must read the ids of its answer as the server does.
            decode: ids without control tokens as text.
            stop_ids: end an action.
            slots: requests at once.
            cache_length: longest episode, in tokens.
            max_action_tokens: cap of one action.
            timeout_s: of one request.
            retries: of a request that failed by connection, time or overload, with growing pauses.

        Raises:
            ServerError: there is no such server or model, it does not give token ids back, or has other tokens.
        """
        try:
            import openai
        except ImportError as err:
            raise ServerError('a server is asked by the openai library: pip install -e ".[server]"') from err
        self._openai = openai
        self._client = openai.OpenAI(base_url=url, api_key=api_key, timeout=timeout_s, max_retries=retries)
        self._url, self._stop_ids = url, frozenset(stop_ids)
        self._cap, self._length = max_action_tokens, cache_length
        self._slots: dict[int, _Slot] = {}
        self._free = list(range(slots - 1, -1, -1))
        self._threads = ThreadPoolExecutor(max_workers=slots, thread_name_prefix="server")
        self.version = 0
        self._model = model or self._only_model()
        self._try(probe, decode)

    @property
    def free_slots(self) -> int:
        return len(self._free)

    @property
    def busy(self) -> bool:
        """Whether `step` has anything to do."""
        return any(slot.answer is not None for slot in self._slots.values())

    def open(self, seed: Sequence[int], temperature: float, root: int = 0) -> int:
        """Takes a slot for a new episode. Raises ServerError for one under a mask of actions, which no server knows."""
        if root:
            raise ServerError(MASKED)
        slot = self._free.pop()
        self._slots[slot] = _Slot(seed=tuple(int(number) for number in seed), temperature=temperature)
        return slot

    def close(self, slot: int) -> None:
        """Gives a slot back; an answer that is still under way is not waited for and goes nowhere."""
        answer = self._slots.pop(slot).answer
        if answer is not None:
            answer.cancel()
        self._free.append(slot)

    def rewind(self, slot: int) -> None:
        """Forgets what a slot has read; its episode goes on."""
        self._slots[slot].ids = []

    def room(self, slot: int) -> int:
        """Tokens left for a new prompt and an action together."""
        return self._length - len(self._slots[slot].ids)

    def submit(self, slot: int, ids: np.ndarray) -> None:
        """Asks for the action that follows the tokens new since the last one."""
        held = self._slots[slot]
        held.ids += [int(token) for token in ids]
        cap = min(self._cap, self._length - len(held.ids) + 1)
        seed = int(np.random.SeedSequence([*held.seed, held.turns]).generate_state(1)[0] >> 1)  # 31 bits
        held.turns += 1
        held.answer = self._threads.submit(self._sample, slot, list(held.ids), cap, held.temperature, seed)

    working = False  # the server works by itself

    def start(self) -> None:
        """Nothing: a request is on its way once it is submitted."""

    def step(self) -> list[Sampled]:
        """Waits a moment for answers and returns those that came.

        Raises:
            ServerError: a request failed for good.
        """
        pending = [held.answer for held in self._slots.values() if held.answer is not None]
        done, _ = wait(pending, timeout=_PATIENCE_S, return_when=FIRST_COMPLETED)
        finished = []
        for slot in sorted(self._slots):
            held = self._slots[slot]
            if held.answer in done and held.answer is not None:
                sampled, held.answer = held.answer.result(), None
                held.ids += sampled.ids.tolist()
                finished.append(sampled)
        return finished

    def shut(self) -> None:
        """Ends the threads; requests under way are left to themselves."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._client.close()

    def _only_model(self) -> str:
        names = [model.id for model in self._ask("its models", lambda: list(self._client.models.list()))]
        if len(names) != 1:
            raise ServerError(f"{self._url} has the models {', '.join(names) or 'none'}; name one with --server-model.")
        return names[0]

    def _try(self, probe: np.ndarray, decode: Callable[[np.ndarray], str]) -> None:
        """Raises ServerError unless the server's ids mean here what they mean there."""
        cap = min(self._cap, _PROBE_TOKENS)
        answer = self._complete(probe.tolist(), cap, temperature=0.0, seed=0, skip_special_tokens=True)
        theirs, ours = answer.choices[0].text, decode(self._sampled(-1, answer, cap).ids)
        # The last character may be cut in the middle, which each side shows in its own way.
        if theirs.strip().rstrip("\ufffd") != ours.strip().rstrip("\ufffd"):
            raise ServerError(
                f"{self._url} has other tokens than the run: ids that it wrote as {theirs!r} are {ours!r} here. Serve "
                "the model that the run began with, or one exported from it."
            )

    def _sample(self, slot: int, ids: list[int], cap: int, temperature: float, seed: int) -> Sampled:
        """One action that follows `ids`; runs in a thread."""
        return self._sampled(slot, self._complete(ids, cap, temperature, seed, skip_special_tokens=False), cap)

    def _complete(self, ids: list[int], cap: int, temperature: float, seed: int, *, skip_special_tokens: bool) -> Any:
        return self._ask(
            "a completion",
            lambda: self._client.completions.create(
                model=self._model,
                prompt=ids,
                max_tokens=cap,
                temperature=temperature,
                logprobs=0,  # of the sampled tokens alone
                seed=seed,
                extra_body={
                    "stop_token_ids": sorted(self._stop_ids),
                    "return_token_ids": True,
                    "return_tokens_as_token_ids": True,
                    "skip_special_tokens": skip_special_tokens,
                    "add_special_tokens": False,
                    "top_p": 1.0,
                    "top_k": -1,  # nor anything else that a model's folder may ask for
                    "min_p": 0.0,
                    "repetition_penalty": 1.0,
                },
            ),
        )

    def _sampled(self, slot: int, answer: Any, cap: int) -> Sampled:
        choice = answer.choices[0]
        tokens = list(getattr(choice.logprobs, "tokens", None) or [])
        ids = getattr(choice, "token_ids", None)
        if ids is None and tokens and all(str(token).startswith(_ID_PREFIX) for token in tokens):
            ids = [int(token.removeprefix(_ID_PREFIX)) for token in tokens]
        if ids is None:
            raise ServerError(
                f"{self._url} gives no token ids back (neither token_ids nor logprobs of {_ID_PREFIX} tokens), and its "
                "text would have to be tokenised anew. vLLM 0.10.2 or newer does; start one."
            )
        logprobs = [float("nan") if value is None else value for value in (choice.logprobs.token_logprobs or [])]
        ids, logprobs = list(ids)[:cap], logprobs[:cap]
        stops = [at for at, token in enumerate(ids) if token in self._stop_ids]
        if stops:
            ids = ids[: stops[0] + 1]
        elif choice.finish_reason == "stop" and len(ids) < cap:  # the token that stopped it was kept back
            reason = getattr(choice, "stop_reason", None)
            ids.append(reason if reason in self._stop_ids else min(self._stop_ids))
        if not ids:
            raise ServerError(f"{self._url} answered with no token at all ({choice.finish_reason}); ask its log.")
        padded = np.full(len(ids), np.nan, np.float32)
        padded[: len(logprobs)] = logprobs[: len(ids)]
        stopped = ids[-1] in self._stop_ids
        return Sampled(
            slot=slot,
            ids=np.asarray(ids, np.int32),
            logprobs=padded,
            stop=TurnStop.STOP_TOKEN if stopped else TurnStop.LENGTH,
        )

    def _ask(self, what: str, request: Any) -> Any:
        """A request with its failures as one error for people."""
        try:
            return request()
        except self._openai.OpenAIError as err:
            reason = str(err).splitlines()[0] if str(err) else type(err).__name__
            raise ServerError(f"{self._url} was asked for {what} and gave none: {reason[:300]}") from err
