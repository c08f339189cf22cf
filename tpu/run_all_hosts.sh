#!/usr/bin/env bash
# Trains a config on every host of a slice, starts again after a pre-emption or a lost host, and gathers the logs.
#
#   bash tpu/run_all_hosts.sh NAME ZONE CONFIG [options] [section.field=value …]
#   bash tpu/run_all_hosts.sh agent us-west4-a configs/tpu/qwen2.5_1.5b_v5e-8.yaml checkpoint.folder=gs://BUCKET/agent
#
# --type TYPE    make the slice again (as a spot one) when it was taken away
# --tries N      starts in all before it gives up; 20
# --logs FOLDER  where the hosts' logs go; tpu-logs
# --pause S      seconds before a new start; 20
# --dry-run      print every command and run none
# A slice of several hosts wants checkpoints where all of them can write: checkpoint.folder=gs://BUCKET/NAME.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=tpu/common.sh
. tpu/common.sh

type="" tries=20 logs=tpu-logs pause=20 positional=()
while (($#)); do
    case "$1" in
    --type) type="${2:?--type wants one}" && shift ;;
    --tries) tries="${2:?--tries wants a number}" && shift ;;
    --pause) pause="${2:?--pause wants a number}" && shift ;;
    --logs) logs="${2:?--logs wants a folder}" && shift ;;
    --dry-run) dry_run=1 ;;
    --help | -h) usage "$0" && exit 0 ;;
    -*) fail "unknown option $1; see bash tpu/run_all_hosts.sh --help" ;;
    *) positional+=("$1") ;;
    esac
    shift
done
((${#positional[@]} >= 3)) || fail "wanted NAME ZONE CONFIG, got ${#positional[@]} of them; see --help"
name="${positional[0]}" zone="${positional[1]}" config="${positional[2]}"
overrides=("${positional[@]:3}")
[[ -f "$config" ]] || fail "there is no $config here; it must be one of this working tree, which the hosts have a copy of"
[[ "$tries" =~ ^[1-9][0-9]*$ ]] || fail "--tries: got $tries, wanted a whole number of at least 1"
[[ "$pause" =~ ^[0-9]+$ ]] || fail "--pause: got $pause, wanted seconds"
[[ -z "$type" || "$type" =~ ^(v4|v5litepod|v5p|v6e)-[0-9]+$ ]] || fail "--type: got $type, wanted v4-N, v5litepod-N, …"
[[ "$config" != /* ]] || fail "CONFIG: got $config, wanted a path within this working tree, such as configs/tpu/…"
needs gcloud

quoted="$(printf '%q ' "$config" ${overrides[@]+"${overrides[@]}"})"
train="cd jaxmtrl && . tpu/flags.env && mkdir -p logs && "
train+=".venv/bin/python -m jaxmtrl.train --hosts --config $quoted 2>&1 | tee -a logs/train.log; exit \${PIPESTATUS[0]}"

gather() {
    run mkdir -p "$logs"
    run gcloud compute tpus tpu-vm ssh "$name" --zone "$zone" --worker all --output-directory "$logs" \
        --command "cat jaxmtrl/logs/train.log" || say "the logs could not be fetched"
}

for ((try = 1; try <= tries; try++)); do
    case "$(state "$name" "$zone")" in
    PREEMPTED | TERMINATED | SUSPENDED | NONE)
        if [[ -z "$dry_run" ]]; then
            [[ -n "$type" ]] || fail "$name is not there; give --type to have it made, or make it by tpu/create.sh"
            say "$name is not there; making it"
            gcloud compute tpus tpu-vm delete "$name" --zone "$zone" --quiet 2>/dev/null || true
            if ! bash tpu/create.sh "$name" "$type" "$zone" --spot; then # no room in the zone just now, perhaps
                say "it could not be made"
                sleep "$pause"
                continue
            fi
        fi
        ;;
    esac
    say "start $try of $tries"
    if on_all "$name" "$zone" "$train"; then
        gather
        say "the run ended; logs in $logs"
        exit 0
    else
        code=$?
    fi
    gather
    # 2 is a mistake in the command or config: starting again would not mend it. Anything else goes on from the last
    # checkpoint.
    ((code != 2)) || fail "the run refused its config or command; see $logs"
    [[ -n "$dry_run" ]] || sleep "$pause"
done
fail "gave up after $tries starts; see $logs"
