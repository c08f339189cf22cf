#!/usr/bin/env bash
# Sets one host of a slice up; create.sh runs it on each. A second run ends at once.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# Images come with an older Python; uv fetches a newer one where there is none.
if ! command -v python3.12 >/dev/null && ! command -v python3.11 >/dev/null; then
    python3 -m pip install --user --quiet uv
    PYTHON="$(python3 -m uv python find 3.12 2>/dev/null || true)"
    if [[ -z "$PYTHON" ]]; then
        python3 -m uv python install 3.12
        PYTHON="$(python3 -m uv python find 3.12)"
    fi
    export PYTHON
fi
bash scripts/setup.sh
.venv/bin/pip install --quiet -e ".[tpu]" -c constraints.txt
# Only whether it is there: asking jax for devices would wait for the other hosts of the slice.
.venv/bin/python -c 'import importlib.util as u; assert u.find_spec("libtpu"), "libtpu is missing"'
