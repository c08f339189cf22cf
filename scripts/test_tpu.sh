#!/usr/bin/env bash
# Compiles kernels, update, prefill and decode for TPU slices with the real TPU compiler; no TPU is needed.
#
#   bash scripts/test_tpu.sh                 what every check runs: kernels and one small plan (tests marked tpu_compile)
#   bash scripts/test_tpu.sh --all           the configs of configs/tpu too: minutes each, up to 20 GiB of memory
#   bash scripts/test_tpu.sh --fetch         only gets the compiler
#   bash scripts/test_tpu.sh -k kernel       arguments go on to pytest
#
# The compiler, libtpu, is unpacked beside the environment and not into it: where it can be imported, jax looks for TPUs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
venv="${VENV:-.venv}"
marks='tpu_compile and not slow'
if [ "${1:-}" = --all ]; then
    marks=tpu_compile
    shift
fi

bash scripts/setup.sh
version="$("$venv/bin/python" - <<'PYTHON_CODE'
from pathlib import Path

from packaging.requirements import Requirement

for line in Path("constraints.txt").read_text().splitlines():
    if line.startswith("libtpu"):
        pin = Requirement(line)
        if pin.marker is None or pin.marker.evaluate():
            print(str(pin.specifier).removeprefix("=="))
PYTHON_CODE
)"
library="$PWD/.cache/libtpu-$version"
if [ ! -d "$library/libtpu" ]; then
    echo "test_tpu: fetching libtpu $version (200 MB)" >&2
    rm -rf "$library" "$library.part"
    "$venv/bin/python" -m pip --disable-pip-version-check --no-input install --quiet --no-compile --no-deps \
        --target "$library.part" "libtpu==$version"
    mv "$library.part" "$library"
fi
[ "${1:-}" != --fetch ] || exit 0
PYTHONPATH="$library${PYTHONPATH:+:$PYTHONPATH}" "$venv/bin/python" -m pytest -n 0 -m "$marks" "$@"
