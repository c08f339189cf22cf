"""`python -m jaxmtrl.envs.swe.sandbox.doctor [--backend bwrap|podman|docker]`: do sandboxes hold on this machine?

A line a probe, with the cure where it failed; exit code 1 if one did.
"""

from __future__ import annotations

import argparse
import sys
from textwrap import wrap

from jaxmtrl.envs.swe.sandbox.api import Backend
from jaxmtrl.envs.swe.sandbox.bwrap import Bubblewrap
from jaxmtrl.envs.swe.sandbox.oci import Containers


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m jaxmtrl.envs.swe.sandbox.doctor",
        description="Tries in real sandboxes what must hold before a policy may run commands on this machine.",
    )
    parser.add_argument("--backend", choices=("bwrap", "podman", "docker"), default="bwrap")
    name = parser.parse_args(arguments).backend
    backend: Backend = Bubblewrap() if name == "bwrap" else Containers(name)
    probes = backend.probe()
    for probe in probes:
        print(f"{'ok  ' if probe.passed else 'FAIL'}  {probe.name:<52} {probe.found}")
        for line in wrap(probe.cure, 100):
            print(f"      {line}")
    failed = sum(not probe.passed for probe in probes)
    print(f"{failed} of {len(probes)} probes FAILED" if failed else f"all {len(probes)} probes passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
