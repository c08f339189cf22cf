#!/usr/bin/env bash
# Makes a virtual environment with the official ALFWorld engine, with which ours is compared and timed.
#
#   bash scripts/setup_alfworld_official.sh                  .venv-alfworld, by python3.12 or python3.11
#   PYTHON=/path/to/python3.11 VENV=.venv-official bash scripts/setup_alfworld_official.sh
#
# Its planner is published as source only and takes 1 to 8 minutes to compile (cmake, g++, make). The engine does not
# work on Python 3.13. Only scripts/check_alfworld.py, scripts/bench_alfworld.py and `pytest -m official` need it; the
# jericho that textworld imports stays without spacy (hundreds of MB), which nothing here uses.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
venv="${VENV:-.venv-alfworld}"
case "$venv" in /*) ;; *) venv="$PWD/$venv" ;; esac

say() { echo "setup_alfworld_official: $*" >&2; }

works() { "$venv/bin/python" -c 'import alfworld.agents.environment.alfred_tw_env, fast_downward, textworld.envs.pddl' 2>/dev/null; }

if works; then exit 0; fi

python=""
for candidate in ${PYTHON:+"$PYTHON"} python3.12 python3.11; do
    # Asking for its version is not enough: version managers leave shims that only fail.
    if "$candidate" -c 'import sys; assert (3, 11) <= sys.version_info < (3, 13)' 2>/dev/null; then
        python="$candidate"
        break
    fi
    if [ -n "${PYTHON:-}" ]; then break; fi
done
if [ -z "$python" ]; then
    say "no Python 3.11 or 3.12 was found; name one: PYTHON=/path/to/python3.11 bash scripts/setup_alfworld_official.sh"
    exit 1
fi
for tool in g++ make; do
    command -v "$tool" >/dev/null || {
        say "missing: $tool; install it (Debian: apt-get install g++ make) and start again"
        exit 1
    }
done

say "making $venv with $python"
"$python" -m venv --clear "$venv"
pip=("$venv/bin/python" -m pip --disable-pip-version-check --no-input install --quiet)
"${pip[@]}" 'setuptools>=70.1,<81' wheel 'numpy>=2,<3' tqdm 'networkx>=2' more_itertools tatsu==5.8.3 hashids mementos \
    termcolor prompt_toolkit
command -v cmake >/dev/null || "${pip[@]}" cmake
export PATH="$venv/bin:$PATH"
"${pip[@]}" --no-deps --no-build-isolation alfworld==0.4.2 textworld==1.7.0 jericho==3.3.1
say "compiling the planner, which takes minutes"
"${pip[@]}" --no-deps --no-build-isolation fast-downward-textworld==20.6.4
works || {
    say "installed, but it cannot be imported; see: $venv/bin/python -c 'import textworld.envs.pddl'"
    exit 1
}
say "$venv is ready"
