#!/usr/bin/env bash
# Plays environments on a local Ray cluster that the tests start and end, in an environment of its own (.venv-ray).
#
#   bash scripts/test_ray.sh                 the tests marked "ray"
#   bash scripts/test_ray.sh -k recycled     arguments go on to pytest
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export VENV="${VENV:-.venv-ray}"

bash scripts/setup.sh
if ! "$VENV/bin/python" -c 'import grpc, ray' 2>/dev/null; then
    echo "test_ray: installing ray" >&2
    "$VENV/bin/python" -m pip --disable-pip-version-check --no-input install --quiet --no-compile \
        -c constraints.txt -e '.[ray]' --no-build-isolation
fi
"$VENV/bin/python" -m pytest -m ray "$@"
