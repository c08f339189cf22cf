"""A PPO update as trainers on torch usually do it: rows padded to the longest of a micro-batch, all logits formed."""

from __future__ import annotations

import dataclasses
import json
import sys

import numpy as np
import torch
from serving import Shape, serve
from torch_llama import make_llama
from update_work import CLIP, LEARNING_RATE, VALUE_COEF, UpdateWork, episodes


class Learner:
    """Policy, value head and AdamW."""

    def __init__(self, shape: Shape):
        self._policy = make_llama(shape, longest=8192).train()
        self._value = torch.nn.Linear(shape.embed, 1)
        parameters = [*self._policy.parameters(), *self._value.parameters()]
        self._optimizer = torch.optim.AdamW(parameters, lr=LEARNING_RATE)
        self._parameters = parameters
        self._vocab = shape.vocab

    def update(self, work: UpdateWork) -> dict:
        """One optimizer step over all rows, gradients accumulated over micro-batches."""
        data = episodes(work, self._vocab)
        order = np.random.default_rng(work.seed).permutation(len(data.lengths))  # as minibatches of PPO are drawn
        total = int(data.action[:, 1:].sum())
        padded = 0
        for start in range(0, len(order), work.micro_rows):
            rows = order[start : start + work.micro_rows]
            longest = int(data.lengths[rows].max())
            padded += longest * len(rows)
            self._micro_batch(data, rows, longest, total)
        torch.nn.utils.clip_grad_norm_(self._parameters, 1.0)
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        return {"tokens": int(data.lengths.sum()), "columns": padded}

    def _micro_batch(self, data, rows, longest: int, total: int) -> None:
        def cut(array):
            return torch.from_numpy(np.ascontiguousarray(array[rows, :longest]))

        tokens, action = cut(data.tokens).long(), cut(data.action)[:, 1:]
        real = torch.from_numpy((np.arange(longest) < data.lengths[rows][:, None]).astype(np.int64))
        hidden = self._policy.model(input_ids=tokens, attention_mask=real, use_cache=False).last_hidden_state
        logits = self._policy.lm_head(hidden)[:, :-1]
        logprobs = torch.log_softmax(logits, dim=-1)
        chosen = logprobs.gather(-1, tokens[:, 1:, None])[..., 0]
        values = self._value(hidden)[:, :-1, 0]
        ratio = torch.exp(chosen - cut(data.old_logprobs)[:, 1:])
        advantages = cut(data.advantages)[:, 1:]
        surrogate = -torch.minimum(ratio * advantages, ratio.clamp(1 - CLIP, 1 + CLIP) * advantages)
        value_loss = 0.5 * (values - cut(data.returns)[:, 1:]) ** 2
        loss = ((surrogate + VALUE_COEF * value_loss) * action).sum() / total
        loss.backward()


if __name__ == "__main__":
    shape, first = Shape(**json.loads(sys.argv[1])), UpdateWork(**json.loads(sys.argv[2]))
    learner = Learner(shape)
    small = dataclasses.replace(first, kind="dense", rows=1, columns=64)
    serve(lambda: learner.update(small), lambda asked: learner.update(UpdateWork(**asked)))
