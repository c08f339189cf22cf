"""How container images of published tasks are called. The repository stands at /testbed in all of them.

An image can be exported to a folder, its root file system, which bubblewrap opens without any container engine.
"""

from __future__ import annotations

import re
from pathlib import Path

_SMITH_MIRROR = re.compile(r"(?:swesmith/)?(?P<owner>[^/]+)__(?P<name>[^/]+)\.(?P<commit>[0-9a-f]{8,40})")


def image_name(source: str, instance_id: str, repo: str) -> str:
    """The image of one published task; "" where its source publishes none, or the name cannot be told.

    Args:
        source: "swe-gym", "swe-bench" or "swe-smith".
        repo: as the row has it; for SWE-smith its mirror, for example "swesmith/oauthlib__oauthlib.1fd52536".
    """
    if source == "swe-gym":
        return "docker.io/xingyaoww/sweb.eval.x86_64." + instance_id.lower().replace("__", "_s_")
    if source == "swe-bench":
        return "docker.io/swebench/sweb.eval.x86_64." + instance_id.lower().replace("__", "_1776_") + ":latest"
    if source == "swe-smith":
        mirror = parse_smith_mirror(repo) or parse_smith_mirror(instance_id)
        if mirror is not None:
            owner, name, commit = mirror
            return f"docker.io/jyangballin/swesmith.x86_64.{owner}_1776_{name}.{commit[:8]}".lower()
    return ""


def rootfs_name(image: str) -> str:
    """The name of the folder that an image is exported to: the image's last part, without tag and digest."""
    return image.rsplit("/", 1)[-1].partition("@")[0].partition(":")[0]


def how_to_export(image: str, folder: Path | str) -> str:
    """The commands that write an image's root file system into its folder within `folder`."""
    place = f"{folder}/{rootfs_name(image)}"
    return f"mkdir -p {place}; docker create --name x {image}; docker export x | tar -x -C {place}; docker rm x"


def parse_smith_mirror(name: str) -> tuple[str, str, str] | None:
    """Owner, repository and commit in the name of a SWE-smith mirror, or at the beginning of an id."""
    match = _SMITH_MIRROR.match(name)
    return (match["owner"], match["name"], match["commit"]) if match else None
