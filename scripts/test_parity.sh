#!/usr/bin/env bash
# Compares models and texts with transformers and torch, in an environment of its own (.venv-parity).
#
#   bash scripts/test_parity.sh              the tests marked "parity"
#   bash scripts/test_parity.sh -k qwen3     arguments go on to pytest
#
# torch is only wanted on the CPU. Where pip would take a build with CUDA (gigabytes), name torch's own index of CPU
# builds: PIP_EXTRA_INDEX_URL=<index> bash scripts/test_parity.sh
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export VENV="${VENV:-.venv-parity}"
# By default the oldest Python, and with it the oldest jax: the other tests run with the newest that is found.
if [ -z "${PYTHON:-}" ] && python3.11 -c pass 2>/dev/null; then export PYTHON=python3.11; fi

bash scripts/setup.sh
if ! "$VENV/bin/python" -c 'import gguf, peft, torch, transformers' 2>/dev/null; then
    echo "test_parity: installing torch, transformers, peft and gguf" >&2
    "$VENV/bin/python" -m pip --disable-pip-version-check --no-input install --quiet --no-compile \
        -c constraints.txt -e '.[parity,smollm2]' --no-build-isolation
fi
"$VENV/bin/python" -m pytest -m parity "$@"
