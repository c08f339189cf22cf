# What the scripts of this folder share; sourced by them.
# shellcheck shell=bash

dry_run="${dry_run:-}"

say() { echo "tpu: $*" >&2; }

fail() {
    echo "error: $*" >&2
    exit 2
}

# The comment at the head of a script.
usage() { sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p;}' "$1"; }

needs() {
    [[ -n "$dry_run" ]] && return
    command -v "$1" >/dev/null || fail "$1 is not installed here; see https://cloud.google.com/sdk/docs/install"
}

# Runs a command, or prints it.
run() {
    if [[ -n "$dry_run" ]]; then
        printf '%q ' "$@"
        echo
    else
        "$@"
    fi
}

# State of a slice: READY, PREEMPTED, …, or NONE where there is no such slice.
state() {
    if [[ -n "$dry_run" ]]; then
        echo NONE
        return
    fi
    gcloud compute tpus tpu-vm describe "$1" --zone "$2" --format 'value(state)' 2>/dev/null || echo NONE
}

# NAME ZONE COMMAND: on every host, at once.
on_all() { run gcloud compute tpus tpu-vm ssh "$1" --zone "$2" --worker all --command "$3"; }

# NAME ZONE FROM TO: a file to every host.
on_all_copy() { run gcloud compute tpus tpu-vm scp "$3" "$1:$4" --zone "$2" --worker all; }
