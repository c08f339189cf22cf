#!/usr/bin/env bash
# Sets up, makes the games, trains and evaluates: the whole pipeline of configs/quickstart.yaml.
#
#   bash scripts/quickstart.sh
#   bash scripts/quickstart.sh run.seed=1 run.name=second    overrides go on to the training
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

bash scripts/setup.sh
python="${VENV:-.venv}/bin/python"
"$python" scripts/make_games.py --config configs/quickstart.yaml
exec "$python" -m jaxmtrl.train --config configs/quickstart.yaml "$@"
