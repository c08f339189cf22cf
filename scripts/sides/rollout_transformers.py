"""`transformers` with torch: history read anew every turn, or its cache kept across turns. Every sequence in one batch.

The third argument says which: "reread" or "cached".
"""

from __future__ import annotations

import dataclasses
import sys

import torch
from rollout_work import Work, arguments, serve
from torch_llama import make_llama
from transformers import DynamicCache, LlamaForCausalLM


def play(model: LlamaForCausalLM, vocab: int, cached: bool, work: Work) -> int:
    """All episodes in one batch; returns the tokens that were sampled."""
    prompts, observations = (torch.tensor(piece, dtype=torch.long) for piece in work.pieces(vocab))
    history, sampled = prompts, 0
    cache = DynamicCache() if cached else None
    for turn in range(work.turns):
        before = history.shape[1]
        # With a cache, `generate` reads only what the cache has not: the last action token and the observation.
        history = model.generate(
            history,
            attention_mask=torch.ones_like(history),
            past_key_values=cache if cached else None,
            max_new_tokens=work.action,
            min_new_tokens=work.action,
            do_sample=True,
            temperature=1.0,
            top_k=0,
            top_p=1.0,
            use_cache=True,
            pad_token_id=0,
        )
        sampled += (history.shape[1] - before) * work.episodes
        if turn + 1 < work.turns:
            history = torch.cat([history, observations[:, turn]], dim=1)
    return sampled


if __name__ == "__main__":
    torch.set_grad_enabled(False)
    shape, largest = arguments()
    made = make_llama(shape, largest.longest).eval()
    kept = sys.argv[3] == "cached"
    serve(lambda work: play(made, shape.vocab, kept, work), dataclasses.replace(largest, turns=min(2, largest.turns)))
