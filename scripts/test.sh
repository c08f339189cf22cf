#!/usr/bin/env bash
# Sets up, then checks everything: lint, format, import floors, types, tests, and what the TPU compiler makes of it.
#
#   bash scripts/test.sh                     the whole check
#   bash scripts/test.sh -k gae tests/rl     arguments go on to pytest
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
started=$SECONDS
trap 'echo "test.sh: $((SECONDS - started)) s in all" >&2' EXIT

bash scripts/setup.sh
venv="${VENV:-.venv}"
bin="$PWD/$venv/bin"
case "$venv" in /*) bin="$venv/bin" ;; esac
export PYRIGHT_PYTHON_IGNORE_WARNINGS=1 # do not ask the network for a newer version

if [ "$#" = 0 ]; then # 200 MB, which arrive while the tests run
    bash scripts/test_tpu.sh --fetch &
    compiler=$!
fi
"$bin/ruff" check .
"$bin/ruff" format --check .
"$bin/lint-imports"
"$bin/pyright" --pythonpath "$bin/python"
# Whole files go to one of two processes, so that what a file compiles or builds once stays once; -n 0 turns that off.
"$bin/python" -m pytest -n 2 --dist loadfile "$@"
if [ "$#" = 0 ]; then
    wait "$compiler"
    bash scripts/test_tpu.sh
fi
