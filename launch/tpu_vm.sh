#!/usr/bin/env bash
# Trains on every host of a Cloud TPU VM slice. `launch/tpu_vm.sh` prints its usage; README.md tells the story.
set -euo pipefail

usage() {
  cat <<'USAGE'
usage: launch/tpu_vm.sh create NAME --type TYPE [gcloud flags, e.g. --spot]   rent a slice
       launch/tpu_vm.sh setup  NAME                                          install this checkout on every host
       launch/tpu_vm.sh run    NAME pretrain|finetune FLAGS...                start bert-jax on every host, detached
       launch/tpu_vm.sh logs   NAME                                          follow the first host's output
       launch/tpu_vm.sh stop   NAME                                          end the run on every host
       launch/tpu_vm.sh delete NAME                                          give the slice back
Environment: ZONE (needed), PROJECT (default: gcloud's), RUNTIME (default: chosen from TYPE).
USAGE
}

die() {
  echo "tpu_vm.sh: $*" >&2
  exit 2
}

# tpu SUBCOMMAND ARGUMENT...: gcloud's tpu-vm group, in our zone and project.
tpu() {
  gcloud compute tpus tpu-vm "$@" --zone="$ZONE" ${PROJECT:+--project="$PROJECT"}
}

# on WORKER SCRIPT ARGUMENT...: runs a bash script on a host, or on `all`. The script and its arguments cross two
# shells as one string, so each word is quoted for bash; the script reads the arguments as $1, $2, ...
on() {
  local worker=$1 command
  shift
  printf -v command '%q ' bash -euc "$1" bert-jax "${@:2}"
  tpu ssh "$name" --worker="$worker" --command="$command"
}

# The software version that Google lists for each generation: https://cloud.google.com/tpu/docs/runtimes
runtime_for() {
  case "$1" in
    v6e-*) echo v2-alpha-tpuv6e ;;
    v5p-*) echo v2-alpha-tpuv5 ;;
    v5litepod-*) echo v2-alpha-tpuv5-lite ;;
    v2-* | v3-* | v4-*) echo tpu-ubuntu2204-base ;;
    *) die "no runtime is known for --type '$1'; set RUNTIME" ;;
  esac
}

create() {
  local runtime
  [[ ${1-} == --type && -n ${2-} ]] || die "create needs --type, for example --type v5litepod-16"
  runtime=${RUNTIME:-$(runtime_for "$2")}
  tpu create "$name" --accelerator-type="$2" --version="$runtime" "${@:3}"
}

# The images carry Python 3.10; uv brings a newer one without root.
setup() {
  archive=$(mktemp -t bert_jax.XXXXXX.tar.gz) # global: the trap runs after this function
  trap 'rm -f "$archive"' EXIT
  git -C "$(dirname "${BASH_SOURCE[0]}")/.." archive --format=tar.gz --output="$archive" HEAD
  tpu scp "$archive" "$name:bert_jax.tar.gz" --worker=all
  # shellcheck disable=SC2016 # expanded on the hosts
  on all '
    rm -rf ~/bert_jax && mkdir ~/bert_jax && tar -xzf ~/bert_jax.tar.gz -C ~/bert_jax
    python3 -m pip install --quiet --user uv
    python3 -m uv venv --quiet --allow-existing --python 3.12 ~/bert_jax_env
    python3 -m uv pip install --quiet --python ~/bert_jax_env/bin/python "bert-jax[tpu] @ file://$HOME/bert_jax"
    ~/bert_jax_env/bin/python -c "import bert_jax; print(\"bert_jax\", bert_jax.__version__, \"is installed\")"'
}

# Detached, because a run outlives the connection that starts it. The hosts find each other through the TPU's metadata.
run() {
  [[ ${1-} == pretrain || ${1-} == finetune ]] || die "run needs a verb: pretrain or finetune"
  # shellcheck disable=SC2016 # expanded on the hosts
  on all '
    if [ -e ~/bert_jax.pid ] && kill -0 "$(cat ~/bert_jax.pid)" 2>/dev/null; then
      echo "a run is already going on $(hostname); stop it first" >&2; exit 1
    fi
    cd ~/bert_jax
    setsid nohup ~/bert_jax_env/bin/bert-jax "$@" --distributed >~/bert_jax.log 2>&1 </dev/null &
    echo $! >~/bert_jax.pid' "$@"
}

logs() {
  on 0 'tail -n 100 -F ~/bert_jax.log'
}

# A process started in the background ignores SIGINT, so SIGTERM it is; the next run resumes from the last checkpoint.
stop() {
  # shellcheck disable=SC2016 # expanded on the hosts
  on all 'if [ -e ~/bert_jax.pid ]; then kill "$(cat ~/bert_jax.pid)" 2>/dev/null || true; rm ~/bert_jax.pid; fi'
}

delete() {
  tpu delete "$name" "$@"
}

case "${1-}" in
  create | setup | run | logs | stop | delete) ;;
  -h | --help | help | '') usage; exit 0 ;;
  *) die "no command '$1'; known: create, setup, run, logs, stop, delete" ;;
esac
[[ -n ${2-} ]] || die "$1 needs the NAME of the slice"
[[ -n ${ZONE-} ]] || die "set ZONE, for example ZONE=us-west4-a"
command -v gcloud >/dev/null || die "gcloud is not on PATH: https://cloud.google.com/sdk/docs/install"
name=$2
"$1" "${@:3}"
