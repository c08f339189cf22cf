#!/usr/bin/env bash
# Makes a TPU slice and sets every host of it up: this working tree, a virtual environment with jax[tpu], TextWorld.
#
#   bash tpu/create.sh NAME TYPE ZONE [--spot] [--version IMAGE] [--dry-run]
#   bash tpu/create.sh agent v5litepod-8 us-west4-a
#   bash tpu/create.sh agent v5litepod-16 us-west4-a --spot --dry-run
#
# --spot      pre-emptible and cheaper; run_all_hosts.sh makes it again when it is taken away
# --version   image of the hosts; by default the one that Google names for the type
# --dry-run   print every command and run none
# Wants gcloud, logged in, with a project set. A slice that is there already is set up again.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=tpu/common.sh
. tpu/common.sh

spot=() image="" positional=()
while (($#)); do
    case "$1" in
    --spot) spot=(--spot) ;;
    --version) image="${2:?--version wants an image}" && shift ;;
    --dry-run) dry_run=1 ;;
    --help | -h) usage "$0" && exit 0 ;;
    -*) fail "unknown option $1; see bash tpu/create.sh --help" ;;
    *) positional+=("$1") ;;
    esac
    shift
done
((${#positional[@]} == 3)) || fail "wanted NAME TYPE ZONE, got ${#positional[@]} of them; see bash tpu/create.sh --help"
name="${positional[0]}" type="${positional[1]}" zone="${positional[2]}"
[[ "$name" =~ ^[a-z][a-z0-9-]*$ ]] || fail "NAME: got $name, wanted lower-case letters, digits and -"
case "$type" in
v4-*) default=tpu-ubuntu2204-base ;;
v5litepod-*) default=v2-alpha-tpuv5-lite ;;
v5p-*) default=v2-alpha-tpuv5 ;;
v6e-*) default=v2-alpha-tpuv6e ;;
*) fail "unknown type $type; wanted v4-N, v5litepod-N, v5p-N or v6e-N" ;;
esac
needs gcloud

if [[ "$(state "$name" "$zone")" == READY ]]; then
    say "$name is there already"
else
    run gcloud compute tpus tpu-vm create "$name" --zone "$zone" --accelerator-type "$type" \
        --version "${image:-$default}" ${spot[@]+"${spot[@]}"}
fi

# The tree as it is, without what git ignores, so that what runs there is what was tried here.
archive="${TMPDIR:-/tmp}/jaxmtrl-$name.tar.gz"
run bash -c "git ls-files -z --cached --others --exclude-standard | tar --null -czf $archive -T -"
on_all_copy "$name" "$zone" "$archive" jaxmtrl.tar.gz
on_all "$name" "$zone" "mkdir -p jaxmtrl && tar -xzf jaxmtrl.tar.gz -C jaxmtrl"
on_all "$name" "$zone" "cd jaxmtrl && bash tpu/setup_host.sh"
say "ready: bash tpu/run_all_hosts.sh $name $zone configs/tpu/CONFIG.yaml"
