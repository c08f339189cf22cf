"""The scripts parse, versions are pinned by name and version only, and what the package asks for is pinned."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PIN = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)==(?P<version>[A-Za-z0-9.]+)( ; (?P<marker>python_version .+))?$")
PYTHONS = ("3.11", "3.12", "3.13")


def pins(python: str) -> dict[str, str]:
    found = {}
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        if line.startswith("#"):
            continue
        match = PIN.match(line)
        assert match, f"constraints.txt: {line!r} is not name==version with an optional Python marker"
        marker = match["marker"]
        if marker is None or Marker(marker).evaluate({"python_version": python}):
            assert canonicalize_name(match["name"]) not in found, f"{match['name']} is pinned twice for {python}"
            found[canonicalize_name(match["name"])] = match["version"]
    return found


def asked() -> list[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    used = [
        text for extra in ("textworld", "test", "plot", "smollm2", "parity", "ray", "tpu") for text in extras[extra]
    ]
    return [Requirement(text) for text in project["dependencies"] + used]


@pytest.mark.parametrize(
    "script",
    [*sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "scripts").glob("*.sh")), ".ci/run"],
)
def test_scripts_parse(script):
    subprocess.run(["bash", "-n", str(ROOT / script)], check=True)


def test_ci_runs_the_same_check_as_people_do():
    assert "bash scripts/test.sh\n" in (ROOT / ".ci/run").read_text()


@pytest.mark.parametrize("python", PYTHONS)
def test_everything_asked_for_is_pinned_within_its_range(python):
    pinned = pins(python)
    for requirement in asked():
        version = pinned[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(version), f"{requirement} does not allow the pinned {version}"
    assert {"textworld", "jericho"} <= set(pinned)


@pytest.mark.parametrize("file", ["constraints.txt", "pyproject.toml", "scripts/setup.sh"])
def test_packages_are_named_not_addressed(file):
    assert not re.search(r"https?://|git\+|--(extra-)?index-url|--find-links", (ROOT / file).read_text())
