"""The border between strings and token ids: the ledger of one episode.

What was sampled is what is trained: ids go in as the sampler made them and come out the same. Only new observations are
tokenised; nothing that stands in the ledger is ever rendered or tokenised again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from jaxmtrl.text.template import ChatTemplate
from jaxmtrl.text.tokenizer import Tokenizer
from jaxmtrl.types import Turn, TurnStop


class Transcript:
    """Grows by `observe`, then `act` (or `force`), then `reward`, and again.

    After the last action of a truncated episode one more `observe` leaves its ids in `tail_ids`. Calls out of order are
    mistakes of the program and raise ValueError.
    """

    def __init__(self, template: ChatTemplate, tokenizer: Tokenizer, system_prompt: str = ""):
        """
        Args:
            template: how messages become ids.
            tokenizer: the one `template` was made with.
            system_prompt: first message of the episode; empty leaves it out.
        """
        self._template = template
        self._tokenizer = tokenizer
        self._system_prompt = system_prompt
        self._turns: list[Turn] = []
        self._observation: str | None = None  # read, but not yet answered
        self._state = ""  # of the environment when it said so
        self._prompt_ids = _frozen([])
        self._fresh = False  # the prompt is a whole context
        self._rewarded = True  # the last action
        self._length = 0

    def observe(self, text: str, state: str = "") -> np.ndarray:
        """Takes an observation and returns the ids that are new since the last action, i32 [P], to be prefilled.

        The first time that is the whole first prompt. If the cap cut the action before, the turn end it lacks comes
        first. `state` is the environment's own name of where it stands, kept with the turn that follows.
        """
        if self._observation is not None:
            raise ValueError("observe was called twice without an action between.")
        if self._turns:
            ids = self._after(self._turns[-1], text)
        else:
            ids = self._template.first_prompt(self._system_prompt, text)
        self._observation, self._state, self._prompt_ids, self._fresh = text, state, _frozen(ids), False
        self._length += len(ids)
        return self._prompt_ids

    def drop_turns(self, limit: int, longest: int | None = None) -> np.ndarray | None:
        """Begins a new context in place of the last `observe`: what was said first, and as much of the end as fits.

        The first exchange stays, since it tells the task; the turns after it go, oldest first, until no more than
        `limit` tokens are left. Sampled actions keep their ids; prompts are put together of the same texts.

        Args:
            limit: tokens of the new context.
            longest: the most tokens that the ledger may then have, both contexts counted; None as many as it takes.

        Returns:
            The whole new context, i32 [P], to be read into an empty cache; None, and nothing changes, if there is no
            turn to drop, or even without any that may go one of the limits is passed.
        """
        if self._observation is None:
            raise ValueError("turns are dropped before an action; call observe first.")
        if len(self._turns) < 2:
            return None
        first = self._turns[0]
        for oldest in range(2, len(self._turns) + 1):
            kept = [first, *self._turns[oldest:]]
            spans = [first.prompt_ids, first.action_ids]
            for before, turn in zip(kept, kept[1:]):
                spans += [self._after(before, turn.observation), turn.action_ids]
            ids = np.concatenate([*spans, self._after(kept[-1], self._observation)])
            length = self._length + len(ids) - len(self._prompt_ids)
            if len(ids) <= limit and (longest is None or length <= longest):
                self._prompt_ids, self._fresh, self._length = _frozen(ids), True, length
                return self._prompt_ids
        return None

    def _after(self, turn: Turn, observation: str) -> np.ndarray:
        return self._template.next_prompt(observation, stopped=turn.stop is TurnStop.STOP_TOKEN)

    def act(
        self,
        action_ids: Sequence[int] | np.ndarray,
        logprobs: Sequence[float] | np.ndarray,
        stop: TurnStop,
        support_ids: np.ndarray | None = None,
    ) -> str:
        """Takes an action exactly as it was sampled and returns the text for the environment.

        The text leaves control tokens out, also such as were sampled in the middle, and surrounding space; it may be
        empty. The ledger keeps every id.

        Args:
            action_ids: [A], A >= 1, the stop id included if it was sampled.
            logprobs: [A], of the behaviour policy.
            stop: whether a stop id ended the action or the cap did.
            support_ids: [A], rows of the mask of actions that the tokens were drawn under; None without a mask.
        """
        ids, logprobs = _frozen(action_ids), _frozen(logprobs, np.float32)
        self._check_action(ids, logprobs, stop)
        text = self._tokenizer.decode(ids).strip()
        self._append(ids, logprobs, stop, text, support_ids)
        return text

    def force(self, action_text: str, supports: Callable[[np.ndarray], np.ndarray] | None = None) -> np.ndarray:
        """Takes an expert's action instead of a sampled one: its ids and the turn end, i32 [A], log-probs 0.

        Args:
            supports: the rows of the mask of actions for ids; None without a mask.
        """
        ids = _frozen(np.append(self._tokenizer.encode(action_text), self._template.turn_end))
        logprobs = _frozen(np.zeros(len(ids)), np.float32)
        self._check_action(ids, logprobs, TurnStop.STOP_TOKEN)
        self._append(ids, logprobs, TurnStop.STOP_TOKEN, action_text.strip(), supports(ids) if supports else None)
        return ids

    def reward(self, reward: float, metrics: Mapping[str, float] | None = None) -> None:
        """Says what the last action earned."""
        if self._rewarded:
            raise ValueError("reward was called without an action to earn it.")
        self._turns[-1] = replace(self._turns[-1], reward=float(reward), metrics=dict(metrics or {}))
        self._rewarded = True

    @property
    def turns(self) -> tuple[Turn, ...]:
        """All turns that have an action; one whose environment never answered has reward 0."""
        return tuple(self._turns)

    @property
    def tail_ids(self) -> np.ndarray:
        """i32 [n], what was read since the last action; empty while none has followed it."""
        return self._prompt_ids if self._observation is not None else _frozen([])

    @property
    def ids(self) -> np.ndarray:
        """i32 [n], the whole episode so far, in the order the model saw it, one context after the other."""
        spans = [ids for turn in self._turns for ids in (turn.prompt_ids, turn.action_ids)]
        return np.concatenate([*spans, self.tail_ids])

    @property
    def action_mask(self) -> np.ndarray:
        """bool [n], True where the policy sampled the token: by lengths, never by comparing ids with pad or stop."""
        spans = [(len(ids), kind) for t in self._turns for ids, kind in ((t.prompt_ids, False), (t.action_ids, True))]
        spans.append((len(self.tail_ids), False))
        return np.repeat([kind for _, kind in spans], [length for length, _ in spans])

    @property
    def length(self) -> int:
        """Tokens so far: `len(ids)`."""
        return self._length

    def _check_action(self, ids: np.ndarray, logprobs: np.ndarray, stop: TurnStop) -> None:
        if self._observation is None:
            raise ValueError("an action must answer an observation; call observe first.")
        if not self._rewarded:
            raise ValueError("the action before was never rewarded; call reward, with 0.0 if it earned nothing.")
        if len(ids) == 0 or ids.shape != logprobs.shape:
            raise ValueError(
                f"an action is one token or more, each with a log-prob; got {ids.shape} and {logprobs.shape}."
            )
        stops = [n for n, id_ in enumerate(ids.tolist()) if id_ in self._template.stop_ids]
        expected = [len(ids) - 1] if stop is TurnStop.STOP_TOKEN else []
        if stops != expected:
            raise ValueError(
                f"an action that ended by {stop.value} has stop ids at {expected}, got {stops} in {ids.tolist()}: the "
                f"sampler must stop at the first of {sorted(self._template.stop_ids)} and hand it over."
            )

    def _append(
        self, ids: np.ndarray, logprobs: np.ndarray, stop: TurnStop, text: str, support_ids: np.ndarray | None
    ) -> None:
        turn = Turn(
            prompt_ids=self._prompt_ids,
            action_ids=ids,
            action_logprobs=logprobs,
            reward=0.0,
            stop=stop,
            observation=self._observation or "",
            action=text,
            state=self._state,
            support_ids=None if support_ids is None else _frozen(support_ids),
            fresh=self._fresh,
        )
        self._turns.append(turn)
        self._observation, self._rewarded = None, False
        self._length += len(ids)


def _frozen(values: Sequence[float] | np.ndarray, dtype: type = np.int32) -> np.ndarray:
    """A read-only copy: samplers reuse their buffers, and a ledger is not edited."""
    array = np.array(values, dtype)
    array.setflags(write=False)
    return array
