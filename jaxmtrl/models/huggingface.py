"""Model folders as the Hugging Face hub has them: weights straight onto the mesh, and back into a folder.

A tensor goes from the file to the devices slice by slice, each device's part alone; no copy of the model is made on
the host, and torch is not needed.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from jaxmtrl.errors import ModelFolderError
from jaxmtrl.models import safetensors_files
from jaxmtrl.models.decoder import Network, Params
from jaxmtrl.models.families import published_config
from jaxmtrl.models.safetensors_files import SafetensorsFiles
from jaxmtrl.models.weights import Tensor, tensors
from jaxmtrl.parallel.sharding import named_shardings

CONFIG, GENERATION = "config.json", "generation_config.json"
# All that belongs to the text side of a model; copied along with it.
TEXT_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
    "chat_template.json",
)
_SHARD_BYTES = 4 * 2**30
_BUFFERS = (".rotary_emb.inv_freq",)  # computed, not learnt; old folders carry them


def locate(name: str) -> Path:
    """The folder of a model, fetched from the hub unless it is a path or lies in the hub's cache.

    Args:
        name: a folder, or a hub id "organisation/model"; the cache is used where the hub cannot be reached.

    Raises:
        ModelFolderError: neither is there.
    """
    folder = Path(name).expanduser()
    if (folder / CONFIG).exists():
        return folder
    if folder.exists():
        raise ModelFolderError(f"{folder} holds no {CONFIG}; give the folder of a model in Hugging Face format.")
    if name.count("/") != 1 or name.startswith((".", "/", "~")):
        raise ModelFolderError(f"there is no folder {name}, and it is no hub id (organisation/model) either.")
    import huggingface_hub  # late: it takes a while, and only hub ids need it

    patterns = [CONFIG, GENERATION, "*.safetensors", safetensors_files.INDEX, *TEXT_FILES]
    try:
        return Path(huggingface_hub.snapshot_download(name, allow_patterns=patterns))
    except Exception as err:  # the library raises its own, requests' and OS errors
        raise ModelFolderError(
            f"{name} is no folder here, not in the hub's cache, and cannot be fetched ({type(err).__name__}: {err}). "
            "Check the name and the connection (huggingface-cli download), or give a folder."
        ) from err


def read_json(path: Path) -> dict[str, Any]:
    """A JSON file's mapping.

    Raises:
        ModelFolderError: it is missing or holds something else.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as err:
        raise ModelFolderError(f"{path} cannot be read: {err}") from err
    if not isinstance(content, dict):
        raise ModelFolderError(f"{path} holds a {type(content).__name__}, wanted a mapping.")
    return content


def load_policy(
    folder: Path, network: Network, mesh: Mesh, keep: Callable[[tuple[str, ...], jax.Array], Any] | None = None
) -> Params:
    """The policy's parameters from a folder's safetensors, born sharded in `param_dtype`.

    Args:
        folder: of `locate`.
        network: of the sizes that the folder's config.json says, and without adapters.
        keep: what to keep of a parameter (its path, the array), called for one after the other; None keeps them.

    Returns:
        What `network.init` has under "policy".

    Raises:
        ModelFolderError: files are missing or cut short, or tensors do not fit; all that do not are listed.
    """
    files, wanted = SafetensorsFiles(folder), list(tensors(network.config))
    _check(folder, files, wanted)
    shapes = jax.eval_shape(network.init, jax.random.key(0))["policy"]
    shardings = named_shardings(mesh, network.axes()["policy"], shapes)
    policy: Params = {}
    for tensor in wanted:
        leaf, sharding = parameter_at(shapes, tensor.path), parameter_at(shardings, tensor.path)
        parts: dict[Any, np.ndarray] = {}  # devices that hold the same part share one read

        def part(index: Any, tensor: Tensor = tensor, leaf: Any = leaf, parts: dict[Any, np.ndarray] = parts) -> Any:
            key = tuple((cut.start, cut.stop) for cut in index)
            if key not in parts:
                parts[key] = tensor.read(index, files.slice, leaf.dtype)
            return parts[key]

        array = jax.make_array_from_callback(leaf.shape, sharding, part).block_until_ready()
        _put(policy, tensor.path, array if keep is None else keep(tensor.path, array))
    return policy


def _check(folder: Path, files: SafetensorsFiles, wanted: Sequence[Tensor]) -> None:
    """Raises ModelFolderError with every tensor that is missing, of another shape, or unknown."""
    shapes = {name: tensor.shape for tensor in wanted for name in tensor.names}
    problems = [f"missing: {name} {list(shape)}" for name, shape in shapes.items() if name not in files.names]
    problems += [
        f"of another shape: {name}, {list(files.shape(name))} instead of {list(shape)}"
        for name, shape in shapes.items()
        if name in files.names and files.shape(name) != shape
    ]
    spare = {name for name in files.names if name.endswith(_BUFFERS)} | {"lm_head.weight"}  # a tied head's second copy
    problems += [f"unexpected: {name} {list(files.shape(name))}" for name in sorted(files.names - set(shapes) - spare)]
    if problems:
        listed = "\n".join(f"  - {problem}" for problem in problems)
        raise ModelFolderError(
            f"the weights in {folder} are not those of its {CONFIG}; {len(problems)} tensors differ:\n{listed}"
        )


def export_policy(
    target: Path,
    network: Network,
    policy: Params,
    *,
    source: Path | None,
    dtype: str,
    stop_ids: Sequence[int],
    longest: int,
    shard_bytes: int = _SHARD_BYTES,
) -> None:
    """Writes a folder that `transformers` loads, whole or not at all.

    Args:
        target: must not exist, or be an empty folder.
        policy: what `network.init` has under "policy".
        source: a folder whose config.json, generation_config.json, tokenizer and chat template are taken over; None
            where there is none.
        dtype: of the written weights, "float32", "bfloat16" or "float16".
        stop_ids: end an answer; for a generation_config.json where `source` has none.
        longest: max_position_embeddings where `source` names none, in tokens.
        shard_bytes: size from which weights are spread over several files.

    Raises:
        ModelFolderError: `target` is taken, or no published family has the network's parts.
    """
    base = read_json(source / CONFIG) if source is not None and (source / CONFIG).exists() else {}
    config = published_config(network.config, base, dtype=dtype, longest=longest)
    with new_folder(target, source, (GENERATION, *TEXT_FILES)) as unfinished:
        if not (unfinished / GENERATION).exists():
            _write_json(unfinished / GENERATION, {"eos_token_id": sorted(stop_ids)})
        if config["eos_token_id"] is None:
            config["eos_token_id"] = sorted(stop_ids)
        _write_json(unfinished / CONFIG, config)
        safetensors_files.write(unfinished, _published(network, policy, dtype), shard_bytes=shard_bytes)


@contextlib.contextmanager
def new_folder(target: Path, source: Path | None, names: Sequence[str]) -> Iterator[Path]:
    """A folder to write into, which becomes `target` when all went well and is removed otherwise.

    Args:
        target: must not exist, or be an empty folder.
        source: a folder whose files `names`, those that are there, are copied; None where there is none.

    Raises:
        ModelFolderError: `target` is taken.
    """
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ModelFolderError(f"{target} exists and is not empty; give a new folder.")
    unfinished = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        unfinished.mkdir(parents=True)
    except OSError as err:
        raise ModelFolderError(f"{target} cannot be made ({err.strerror}); name a folder where one can be.") from err
    try:
        for name in names:
            if source is not None and (source / name).exists():
                shutil.copyfile(source / name, unfinished / name)
        yield unfinished
        if target.exists():
            target.rmdir()
        unfinished.rename(target)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _published(network: Network, policy: Params, dtype: str) -> Iterator[tuple[str, np.ndarray]]:
    """Every published tensor, one layer on the host at a time."""
    for tensor in tensors(network.config):
        leaf = parameter_at(policy, tensor.path)
        for layer, name in enumerate(tensor.names):
            array = np.asarray(jax.device_get(leaf[layer] if tensor.layers else leaf))
            yield name, tensor.write(array.astype(jnp.dtype(dtype)))


def _write_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def parameter_at(tree: Any, path: Sequence[str]) -> Any:
    """The leaf (or branch) of a nested dict at a path."""
    for name in path:
        tree = tree[name]
    return tree


def _put(tree: dict[str, Any], path: Sequence[str], leaf: Any) -> None:
    for name in path[:-1]:
        tree = tree.setdefault(name, {})
    tree[path[-1]] = leaf
