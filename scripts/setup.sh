#!/usr/bin/env bash
# Makes the virtual environment that scripts/test.sh and scripts/quickstart.sh use, with the versions of constraints.txt.
#
#   bash scripts/setup.sh                      .venv, by the first of python3.12, python3.11, python3 that is 3.11 or newer
#   PYTHON=/path/to/python bash scripts/setup.sh
#   VENV=.venv312 bash scripts/setup.sh        another folder
#
# A second run finds the stamp of the first and ends at once. Needs no network but the package registry, and gcc and
# make for the one package (jericho, under TextWorld) that is published as source only. Debian's bubblewrap is installed
# where that can be done without asking.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root="$PWD"
venv="${VENV:-.venv}"
log="$root/.cache/setup.log"

say() { echo "setup: $*" >&2; }

# Runs one step quietly; when it fails, shows what it said and what to do.
step() {
    local what="$1"
    shift
    say "$what"
    if ! "$@" >"$log" 2>&1; then
        cat "$log" >&2
        say "$what: failed, see above (also in $log)"
        exit 1
    fi
}

# Prints a line that names the interpreter exactly, if it runs, is new enough, and is CPython.
identify() {
    "$1" -c '
import sys
assert sys.version_info >= (3, 11)
print(sys.implementation.name, sys.version.split()[0], sys.base_prefix)' 2>/dev/null
}

# First usable interpreter. Asking for its version is not enough: version managers leave shims that only fail.
find_python() {
    local candidate
    for candidate in ${PYTHON:+"$PYTHON"} python3.12 python3.11 python3; do
        if identify "$candidate" >/dev/null; then
            echo "$candidate"
            return 0
        fi
        if [ -n "${PYTHON:-}" ]; then
            say "PYTHON=$PYTHON does not run or is older than 3.11; unset it or name another interpreter"
            return 1
        fi
    done
    return 1
}

# Whether Debian packages can be installed, as root or by sudo, without asking anybody.
may_install() {
    command -v apt-get >/dev/null && { [ "$(id -u)" = 0 ] || sudo -n true 2>/dev/null; }
}

# Installs Debian packages; where that cannot be, says which are wanted.
debian_install() {
    local as_root=()
    [ "$(id -u)" = 0 ] || as_root=(sudo -n)
    if ! may_install; then
        say "missing: $*. Install them (these are Debian's names) and start again."
        exit 1
    fi
    step "updating Debian's package list" "${as_root[@]}" apt-get update -q
    step "installing Debian's $*" "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -qy "$@"
}

# Dependencies of the project and of the extras that the scripts use, one a line.
requirements() {
    "$venv/bin/python" - <<'PYTHON_CODE'
import tomllib

with open("pyproject.toml", "rb") as file:
    project = tomllib.load(file)["project"]
extras = project["optional-dependencies"]
print("\n".join(project["dependencies"] + extras["textworld"] + extras["test"] + extras["plot"] + extras["server"]))
PYTHON_CODE
}

mkdir -p .cache
if command -v flock >/dev/null; then # two scripts started at once take turns
    exec 9>.cache/setup.lock
    flock 9
fi

wanted="$root | $(cat pyproject.toml constraints.txt scripts/setup.sh | sha256sum)"
stamp="$venv/setup.stamp"
origin="$venv/setup.origin" # which interpreter made it, and where
if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ] && "$venv/bin/python" -c pass 2>/dev/null &&
    { [ -z "${PYTHON:-}" ] || [ "$(identify "$PYTHON") | $root" = "$(cat "$origin")" ]; }; then
    exit 0
fi

python="$(find_python)" || {
    [ -z "${PYTHON:-}" ] || exit 1
    debian_install python3 python3-venv
    python="$(find_python)" || {
        say "no Python 3.11 or newer was found; install one, or name it: PYTHON=/path/to/python bash scripts/setup.sh"
        exit 1
    }
}
interpreter="$(identify "$python")"

started=$SECONDS
missing=()
"$python" -c 'import venv, ensurepip' 2>/dev/null ||
    missing+=("python$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')-venv")
command -v gcc >/dev/null || missing+=(gcc libc6-dev)
command -v make >/dev/null || missing+=(make)
if ! command -v bwrap >/dev/null; then # the sandbox of software-engineering tasks; all else works without it
    if may_install; then
        missing+=(bubblewrap)
    else
        say "no bubblewrap (apt-get install bubblewrap): no sandboxes, and their tests are skipped"
    fi
fi
[ "${#missing[@]}" = 0 ] || debian_install "${missing[@]}"

# An environment of another interpreter, or one that was moved here, is made anew; otherwise it is brought up to date.
if ! { [ -f "$origin" ] && [ "$(cat "$origin")" = "$interpreter | $root" ]; }; then
    step "making $venv with $python ($interpreter)" "$python" -m venv --clear "$venv"
    echo "$interpreter | $root" >"$origin"
fi
rm -f "$stamp"
requirements >.cache/requirements.txt
pip=("$venv/bin/python" -m pip --disable-pip-version-check --no-input install --quiet --no-compile -c constraints.txt)
step "installing pinned packages (about a minute)" "${pip[@]}" -r .cache/requirements.txt
step "installing TextWorld and jaxmtrl" "${pip[@]}" --no-deps --no-build-isolation textworld jericho -e .
echo "$wanted" >"$stamp"
say "$venv is ready after $((SECONDS - started)) s"
