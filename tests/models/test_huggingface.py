"""Model folders: out and in again, onto meshes, in several files; what does not fit is told all at once."""

from __future__ import annotations

import dataclasses
import json
import shutil

import jax
import numpy as np
import pytest
import tiny
from safetensors.numpy import load_file, save_file

from jaxmtrl.errors import ModelFolderError
from jaxmtrl.models.decoder import Network
from jaxmtrl.models.huggingface import export_policy, load_policy, locate
from jaxmtrl.parallel.mesh import make_mesh

SECTION = dataclasses.replace(tiny.MODEL, qkv_bias=True, tied_head=False)
NETWORK = Network.from_section(SECTION, 259, "float32")
POLICY = NETWORK.init(jax.random.key(5))["policy"]


def export(target, network=NETWORK, policy=POLICY, **changes):
    settings = {"source": None, "dtype": "float32", "stop_ids": [258], "longest": 512} | changes
    export_policy(target, network, policy, **settings)
    return target


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return export(tmp_path_factory.mktemp("models") / "model")


def assert_same(one, other):
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(np.asarray(a), np.asarray(b)), one, other)


def test_out_and_in_again_is_bit_equal(folder):
    assert_same(load_policy(folder, NETWORK, tiny.one_device()), POLICY)


def test_straight_onto_a_mesh(folder):
    """Weights split over fsdp and tensor axes have the shardings of a run's state, and the same numbers."""
    mesh = make_mesh(2, 2, 2)
    loaded = load_policy(folder, NETWORK, mesh)
    assert_same(loaded, POLICY)
    query = loaded["layers"]["attention"]["query"]  # [L, D, N, H]
    assert query.sharding.shard_shape(query.shape) == (2, 16, 2, 8)


def test_every_slice_is_read_once_for_all_devices_that_hold_it(folder, monkeypatch):
    from jaxmtrl.models.safetensors_files import SafetensorsFiles

    read, right = [], SafetensorsFiles.slice

    def counted(self, name, cuts):
        part = right(self, name, cuts)
        read.append((name, part.size))
        return part

    monkeypatch.setattr(SafetensorsFiles, "slice", counted)
    load_policy(folder, NETWORK, make_mesh(2, 2, 2))
    sizes = {name: sum(size for other, size in read if other == name) for name, _ in read}
    stored = {name: array.size for name, array in load_file(folder / "model.safetensors").items()}
    assert sizes == stored


def test_several_files(tmp_path):
    """At most 20 kB a file: an index names which file holds what."""
    folder = export(tmp_path / "model", shard_bytes=20_000)
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    files = sorted(path.name for path in folder.glob("*.safetensors"))
    assert len(files) > 3 and set(index["weight_map"].values()) == set(files)
    assert files[0] == f"model-00001-of-{len(files):05d}.safetensors"
    assert_same(load_policy(folder, NETWORK, tiny.one_device()), POLICY)
    (folder / files[1]).unlink()
    with pytest.raises(ModelFolderError, match=files[1]):
        load_policy(folder, NETWORK, tiny.one_device())


def test_padded_rows_stay_at_home(tmp_path):
    """320 rows here are 259 in the file; read into 320 again the rest is zero, on a mesh that splits them too."""
    padded = Network.from_section(dataclasses.replace(SECTION, vocab_multiple=64), 259, "float32")
    policy = padded.init(jax.random.key(1))["policy"]
    folder = export(tmp_path / "model", padded, policy)
    assert load_file(folder / "model.safetensors")["lm_head.weight"].shape == (259, 32)
    for mesh in (tiny.one_device(), make_mesh(1, 1, 8)):
        head = np.asarray(load_policy(folder, padded, mesh)["outside"]["head"])
        np.testing.assert_array_equal(head[:259], np.asarray(policy["outside"]["head"])[:259])
        np.testing.assert_array_equal(head[259:], 0.0)


def test_a_tied_head_has_no_second_copy_and_a_given_one_is_ignored(tmp_path):
    """Case F5."""
    tied = Network.from_section(dataclasses.replace(SECTION, tied_head=True), 259, "float32")
    policy = tied.init(jax.random.key(1))["policy"]
    folder = export(tmp_path / "model", tied, policy)
    held = load_file(folder / "model.safetensors")
    assert "lm_head.weight" not in held
    save_file(held | {"lm_head.weight": held["model.embed_tokens.weight"]}, folder / "model.safetensors")
    assert_same(load_policy(folder, tied, tiny.one_device()), policy)


def test_bfloat16(tmp_path):
    folder = export(tmp_path / "model", dtype="bfloat16")
    assert json.loads((folder / "config.json").read_text())["dtype"] == "bfloat16"
    loaded = load_policy(folder, NETWORK, tiny.one_device())
    assert_same(loaded, jax.tree.map(lambda leaf: leaf.astype("bfloat16").astype("float32"), POLICY))


def test_all_that_does_not_fit_is_listed_at_once(folder, tmp_path):
    held = load_file(folder / "model.safetensors")
    del held["model.layers.1.self_attn.q_proj.bias"], held["model.norm.weight"]
    held["model.layers.0.mlp.up_proj.weight"] = np.zeros((3, 4), np.float32)
    held["model.layers.2.mlp.up_proj.weight"] = np.zeros((1,), np.float32)
    held["model.layers.0.self_attn.rotary_emb.inv_freq"] = np.zeros((4,), np.float32)  # a buffer: not learnt
    save_file(held, tmp_path / "model.safetensors")
    with pytest.raises(ModelFolderError) as raised:
        load_policy(tmp_path, NETWORK, tiny.one_device())
    text = str(raised.value)
    assert "4 tensors differ" in text
    for line in (
        "missing: model.layers.1.self_attn.q_proj.bias [32]",
        "missing: model.norm.weight [32]",
        "of another shape: model.layers.0.mlp.up_proj.weight, [3, 4] instead of [64, 32]",
        "unexpected: model.layers.2.mlp.up_proj.weight [1]",
    ):
        assert line in text


def test_a_file_that_was_cut_short(folder, tmp_path):
    whole = (folder / "model.safetensors").read_bytes()
    for kept in (len(whole) - 5, 100, 3):
        (tmp_path / "model.safetensors").write_bytes(whole[:kept])
        with pytest.raises(ModelFolderError, match="cut short"):
            load_policy(tmp_path, NETWORK, tiny.one_device())


def test_pickles_are_not_read(tmp_path):
    with pytest.raises(ModelFolderError, match="no weights"):
        load_policy(tmp_path, NETWORK, tiny.one_device())
    (tmp_path / "pytorch_model.bin").write_bytes(b"anything")
    with pytest.raises(ModelFolderError, match=r"pickles only \(pytorch_model.bin\)"):
        load_policy(tmp_path, NETWORK, tiny.one_device())


def test_an_export_is_whole_or_not_there(tmp_path, monkeypatch):
    def full(*args, **settings):
        raise OSError("no space left on device")

    monkeypatch.setattr("jaxmtrl.models.safetensors_files.save_file", full)
    with pytest.raises(OSError, match="no space"):
        export(tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_an_export_never_overwrites(folder):
    with pytest.raises(ModelFolderError, match="not empty"):
        export(folder)


def test_tokenizer_and_generation_config_are_taken_over(folder, tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    (source / "config.json").write_text(json.dumps({"model_type": "qwen2", "max_window_layers": 5}))
    for name in ("tokenizer.json", "chat_template.jinja", "generation_config.json", "model.safetensors"):
        (source / name).write_text(name)
    target = export(tmp_path / "model", source=source)
    for name in ("tokenizer.json", "chat_template.jinja", "generation_config.json"):
        assert (target / name).read_text() == name
    assert json.loads((target / "config.json").read_text())["max_window_layers"] == 5
    assert json.loads((folder / "generation_config.json").read_text()) == {"eos_token_id": [258]}


def test_locate(folder, tmp_path, monkeypatch):
    """A folder as it is; a hub id from the cache, also where there is no hub; anything else is told."""
    assert locate(str(folder)) == folder
    with pytest.raises(ModelFolderError, match=r"holds no config\.json"):
        locate(str(tmp_path))
    with pytest.raises(ModelFolderError, match="no folder ./nowhere"):
        locate("./nowhere")
    import huggingface_hub

    asked = []

    def download(name, allow_patterns):
        asked.append(name)
        assert "*.bin" not in allow_patterns
        return str(folder)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    assert locate("somebody/model") == folder and asked == ["somebody/model"]


def test_a_hub_id_in_the_cache_without_a_network(folder, tmp_path, monkeypatch):
    """The library itself, offline, over a cache in its own layout."""
    from huggingface_hub import constants

    commit = "0" * 40
    cached = tmp_path / "models--somebody--model"
    (cached / "refs").mkdir(parents=True)
    (cached / "refs" / "main").write_text(commit)
    shutil.copytree(folder, cached / "snapshots" / commit)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert locate("somebody/model") == cached / "snapshots" / commit
    assert_same(load_policy(locate("somebody/model"), NETWORK, tiny.one_device()), POLICY)
    with pytest.raises(ModelFolderError, match="somebody/other is no folder here"):
        locate("somebody/other")


def test_a_hub_that_cannot_be_reached(monkeypatch):
    import huggingface_hub

    def unreachable(name, allow_patterns):
        raise huggingface_hub.errors.LocalEntryNotFoundError("no connection")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", unreachable)
    with pytest.raises(ModelFolderError, match="not in the hub's cache"):
        locate("somebody/model")
