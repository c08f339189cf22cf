#!/usr/bin/env bash
# On a machine with a CUDA GPU: are the numbers those of the CPU, and how fast are update and rollout? At most 5 minutes.
#
#   bash scripts/gpu_check.sh [OUT]          prints one JSON line, and writes it to OUT/gpu_check.json if OUT is given
#
# Wants jax with CUDA (pip install -U "jax[cuda13]" -c constraints.txt in the environment that PYTHON names).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python="${PYTHON:-.venv/bin/python}"
[ -x "$python" ] || python="$(command -v python3)"
PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}" timeout 290 "$python" scripts/gpu_check.py ${1:+--out "$1"}
