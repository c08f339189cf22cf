"""Rows of container images, played in bubblewrap from the image's exported root file system."""

from __future__ import annotations

import dataclasses

import pytest
import shop
from exported import export_image
from sandboxes import needs_bubblewrap
from swe_plays import play

from jaxmtrl.envs.swe import make
from jaxmtrl.envs.swe.actions import write_command, write_submit
from jaxmtrl.envs.swe.images import how_to_export, rootfs_name
from jaxmtrl.envs.swe.loading import save_instances
from jaxmtrl.envs.swe.patches import make_patch
from jaxmtrl.envs.swe.sandbox.api import Base
from jaxmtrl.envs.swe.sources import SourceError
from jaxmtrl.envs.swe.trees import TreeCache
from jaxmtrl.errors import EnvironmentFailure

pytest_plugins = ["swe_fixtures"]
SUBMIT = write_submit("fenced")
GYM = dataclasses.replace(
    shop.INSTANCE,
    id="shop__shop-1",
    repo="shop/shop",
    image="docker.io/some/sweb.eval.x86_64.shop_s_shop-1:latest",
    bug_patch="",
    hidden_files=(),
    test_patch=make_patch(
        {"tests/test_basket.py": shop.TEST_BASKET}, {"tests/test_basket.py": shop.TEST_BASKET + "\n# as it decides\n"}
    ),
    source="swe-gym",
    extra={},
)
SMITH = dataclasses.replace(
    shop.INSTANCE,
    id="shop__shop.1fd52536.arith__0001",
    repo="shop/shop",
    image="docker.io/some/swesmith.x86_64.shop_1776_shop.1fd52536",
    hidden_files=(),
    source="swe-smith",
    extra={},
)


@pytest.fixture(scope="module")
def images(tmp_path_factory, venv):
    folder = tmp_path_factory.mktemp("images")
    for row in (GYM, SMITH):
        export_image(folder / rootfs_name(row.image), venv, faulty=row is GYM)
    folder.chmod(0o755)
    return folder


@pytest.fixture
def environment(request, tmp_path, images):
    save_instances(tmp_path / "rows.jsonl", [request.param])
    tmp_path.chmod(0o755)
    return make(
        {
            "rows": [str(tmp_path / "rows.jsonl")],
            "rootfs": str(images),
            "cache": str(tmp_path / "cache"),
            "quarantine": "",
            "hint": "place",
            "splits": {"train": {}},
        }
    )


both = pytest.mark.parametrize("environment", [GYM, SMITH], indirect=True, ids=["swe-gym", "swe-smith"])
in_a_sandbox = needs_bubblewrap()


@both
@pytest.mark.parametrize(
    ("kind", "reward"), [("gold", 1.0), ("nothing", 0.0), ("a comment", 0.0)], ids=lambda value: str(value)
)
@pytest.mark.sandbox
@in_a_sandbox[1]
def test_the_known_repair_wins_and_no_change_or_a_comment_earns_nothing(environment, kind, reward):
    (task,) = environment.split("train").tasks
    actions = {
        "gold": environment.expert_actions(task),
        "nothing": [SUBMIT],
        "a comment": [write_command("echo '# mended' >> shop/prices.py", "fenced"), SUBMIT],
    }[kind]
    environment.prepare([task], lambda done, total: None)
    env = environment.make_env()
    first, results = play(env, task, actions)
    env.close()
    assert results[-1].done and results[-1].reward == reward, results[-1].observation
    assert "of shop/prices.py" in first  # the hint is known too, as the files are


@both
@pytest.mark.sandbox
@in_a_sandbox[1]
def test_nothing_of_the_future_is_seen_and_what_was_built_is(environment, images):
    (task,) = environment.split("train").tasks
    env = environment.make_env()
    look = "cat .git/FUTURE; grep -rls 'the repair is' /testbed /opt /etc; ls shop/_fast.so; ls pipe; python -V"
    _, results = play(env, task, [write_command(look, "fenced"), write_command("rm -rf /opt; echo x > a", "fenced")])
    env.close()
    seen = results[0].observation
    assert ".git/FUTURE: No such file" in seen and "pipe': No such file" in seen
    assert "shop/_fast.so\n" in seen and "Python 3" in seen and "/testbed/" not in seen.replace(" '", "")
    for image in images.iterdir():
        assert (image / "opt/miniconda3").is_dir() and not (image / "testbed/a").exists()


def test_an_image_that_is_not_exported_is_named_with_the_commands(tmp_path):
    with pytest.raises(SourceError) as caught:
        TreeCache(tmp_path / "cache", rootfs=tmp_path).base(GYM)
    told = str(caught.value)
    assert f"no folder {tmp_path}/sweb.eval.x86_64.shop_s_shop-1 for shop__shop-1" in told
    assert how_to_export(GYM.image, tmp_path) in told and "docker export" in told


@pytest.mark.parametrize("image", ["a/..", "a/.", "a/", "..", "a/..:latest", "..@sha256:0f"])
def test_a_row_cannot_name_a_folder_beside_the_images(tmp_path, image):
    (tmp_path / "images").mkdir()
    (tmp_path / "testbed").mkdir()
    row = dataclasses.replace(GYM, image=image)
    with pytest.raises(SourceError, match="must end in a name"):
        TreeCache(tmp_path / "cache", rootfs=tmp_path / "images").base(row)


def test_an_image_without_a_workspace_is_told(tmp_path):
    place = tmp_path / rootfs_name(GYM.image)
    (place / "elsewhere").mkdir(parents=True)
    (place / "testbed").symlink_to(place / "elsewhere")
    with pytest.raises(SourceError, match="has no folder /testbed"):
        TreeCache(tmp_path / "cache", rootfs=tmp_path).base(GYM)


def test_a_fault_that_is_a_patch_is_not_played_in_a_container_that_lacks_it(tmp_path):
    """It would be mended before anyone has played, and a comment would be paid for."""
    cache = TreeCache(tmp_path / "cache")
    assert cache.base(GYM) == Base(tree=None, image=GYM.image)
    with pytest.raises(EnvironmentFailure, match=r"export it .* env\.options\.rootfs"):
        cache.base(SMITH)


@pytest.mark.parametrize(
    ("image", "name"),
    [
        ("docker.io/a/b.c:latest", "b.c"),
        ("localhost:5000/a/b", "b"),
        ("a/b@sha256:0f", "b"),
        ("b:1@sha256:0f", "b"),
    ],
)
def test_a_folder_is_called_as_the_image_is(image, name):
    assert rootfs_name(image) == name
