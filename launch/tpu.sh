#!/usr/bin/env bash
# Rents a Cloud TPU slice and trains on all of its hosts. `launch/tpu.sh` prints its usage; README.md tells the story.
set -euo pipefail
umask 077 # the secrets, and what is remembered of a run, are for nobody else
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
host_script=$(<"$here/tpu/host.sh") # what happens on a host
# shellcheck source=cloud/say.sh
source "$here/cloud/say.sh"
# shellcheck source=cloud/retry.sh
source "$here/cloud/retry.sh"
# shellcheck source=cloud/sizes.sh
source "$here/cloud/sizes.sh"
# shellcheck source=cloud/price.sh
source "$here/cloud/price.sh"
# shellcheck source=cloud/workdir.sh
source "$here/cloud/workdir.sh"
# shellcheck source=tpu/gcloud.sh
source "$here/tpu/gcloud.sh"
# shellcheck source=tpu/list.sh
source "$here/tpu/list.sh"
# shellcheck source=tpu/watch.sh
source "$here/tpu/watch.sh"

usage() {
  cat <<'USAGE'
usage: launch/tpu.sh create NAME --type TYPE [--workdir DIR] [--yes] [gcloud flags, e.g. --spot]
                                                                     rent a slice, and wait for it
       launch/tpu.sh setup  NAME                                     install this checkout on every host
       launch/tpu.sh run    NAME pretrain|finetune FLAGS...          start bert-jax on every host, detached
       launch/tpu.sh logs   NAME [WORKER]                            follow the output of a host (default: 0)
       launch/tpu.sh watch  NAME [--yes] [--delete-when-finished]    rent again and resume until the run has finished
       launch/tpu.sh stop   NAME                                     end the run on every host
       launch/tpu.sh delete NAME                                     give the slice back
       launch/tpu.sh list                                            the slices of the project in all zones: age and cost
`create` checks that all hosts of the slice can write to the --workdir of the run that you plan. --yes agrees to the price, which is otherwise asked for. --delete-on-failure (create, setup, run, watch) gives the slice
back when the command fails; without it the slice stays, and costs.
Environment: ZONE (needed, but for list); PROJECT (default: gcloud's); RUNTIME (default: chosen from TYPE); PRICE (USD per chip-hour,
default: the list price); SHARED_WORKDIR (set where all hosts mount the work directory); SECRETS (variables handed to the hosts when set, default: "WANDB_API_KEY HF_TOKEN").
In seconds: WAIT_SECONDS (for a slice, 14400), POLL_SECONDS (30), RETRY_SECONDS (5, doubled each time), SETTLE_SECONDS
(a run must outlive them, 20), STOP_SECONDS (to save, 120). Hosts worked on at once: PARALLEL (32).
USAGE
}

# record_of ZONE NAME: the folder for what is remembered of a slice.
record_of() { echo "${XDG_STATE_HOME:-$HOME/.local/state}/bert_jax/${PROJECT:-default}/$1/$2"; }

# What `watch` needs to know of `create` and `run`: their words, each in a file.
remember() {
  mkdir -p "$record"
  printf '%s\0' "${@:2}" >"$record/$1"
}

# Reads into the array `recalled`.
recall() {
  [[ -e $record/$1 ]] || die "no \`$1\` of $name is remembered in $record; watch goes on with what was begun from here"
  mapfile -d '' -t recalled <"$record/$1"
}

# Sets `type`, `create_flags` and what follows from them.
read_create_words() {
  local workdir=()
  type='' create_flags=()
  while (($#)); do
    case "$1" in
      --type=*) type=${1#*=} ;;
      --type) type=${2-} && shift ;;
      --workdir=*) workdir=("$1") ;;
      --workdir) workdir=("$1" "${2-}") && shift ;;
      *) create_flags+=("$1") ;;
    esac
    shift || true
  done
  [[ -n $type ]] || die "create needs --type, for example --type v5litepod-16"
  read_type "$type"
  check_workdir "$hosts" "${workdir[@]}"
}

# Sets what `measure` and `appraise` set, and `runtime`: https://cloud.google.com/tpu/docs/runtimes
read_type() {
  measure "$1" || die "--type $1: $trouble"
  [[ $1 != v5e-* ]] || die "--type $1: Google's name of this slice is v5litepod-${1#*-}"
  case "$generation" in
    v4) runtime=tpu-ubuntu2204-base ;;
    v5p) runtime=v2-alpha-tpuv5 ;;
    v5e) runtime=v2-alpha-tpuv5-lite ;;
    v6e) runtime=v2-alpha-tpuv6e ;;
    tpu7x) die "--type $1: Ironwood is rented in GKE, not as a Cloud TPU: launch/gke.sh create NAME --topology tpu7x:2x2x1" ;;
  esac
  runtime=${RUNTIME:-$runtime}
  appraise_request
}

# Asks for the slice. An earlier try whose answer was lost may have come through.
request() {
  local release=''
  read_terms "${create_flags[@]}"
  [[ $terms != flex-start ]] || release=alpha # which alone knows --provisioning-model and --max-run-duration
  queue create "$name" --node-id="$name" --accelerator-type="$type" --runtime-version="$runtime" \
    "${create_flags[@]}" 2>"$scratch/request" || grep -q ALREADY_EXISTS "$scratch/request" || {
    cat "$scratch/request" >&2
    fail "gcloud refused to queue $name"
  }
  say "is asked for"
}

create() {
  read_create_words "$@"
  need_state
  if [[ $state == ABSENT ]]; then
    agree "$type" ACTIVE
    remember create --type="$type" "${create_flags[@]}"
    request
  else
    [[ -z $rented || $rented == "$type" ]] || die "$name exists as a $rented, asked for is a $type; delete it first"
    remember create --type="$type" "${create_flags[@]}"
    say "exists already"
  fi
  await
}

await() {
  local seen='' deadline=$((SECONDS + WAIT_SECONDS))
  while need_state; do
    [[ $state == "$seen" ]] || say "$state"
    seen=$state
    case "$state" in
      ACTIVE) return ;;
      FAILED) fail "the request failed, perhaps for quota or a --valid-until; \`gcloud compute tpus queued-resources" \
        "describe $name --zone=$ZONE\` tells why. Then: delete it, and create it again" ;;
      SUSPENDING | SUSPENDED) fail "the slice was taken back; delete it and create it again, or let \`watch\` do so" ;;
      DELETING | ABSENT) fail "the slice was deleted while it was waited for" ;;
    esac
    ((SECONDS < deadline)) || fail "still $state after $WAIT_SECONDS s. The request stays in the queue: \`create\` again" \
      "waits on, \`delete\` takes it back"
    sleep "$POLL_SECONDS"
  done
}

# The commit is kept, so that `watch` installs the one with which the run began, whatever is committed since.
setup() {
  need_hosts
  report 0 || blame "no connection" 0 # alone, because gcloud's first one makes the ssh key that the others share
  survey
  [[ $standing != going ]] || refuse "a run is going (${reports[*]}), and setup would change it; \`stop\` it first"
  mkdir -p "$record"
  git -C "$here/.." archive --format=tar.gz --output="$record/bert_jax.tar.gz" HEAD ||
    fail "setup sends the last commit of this checkout, and git does not give it"
  provision
}

provision() {
  each install || blame "setup failed" "${failed[@]}"
  say "bert_jax is installed on $hosts hosts"
}

install() { vm scp "$record/bert_jax.tar.gz" "$name:bert_jax.tar.gz" --worker="$1" && on "$1" install; }

run() {
  [[ ${1-} == pretrain || ${1-} == finetune ]] || die "run needs a verb: pretrain or finetune; found '${1-}'"
  count_hosts || absent "$ZONE that answers" "$@"
  check_workdir "$hosts" "$@"
  survey
  case "$standing" in
    unreachable) blame "no answer (${reports[*]})" "${failed[@]}" ;;
    going)
      ! printf '%s\n' "${reports[@]}" | grep -qvx "going:$(fingerprint "$@")" ||
        refuse "another run is going (${reports[*]}); \`stop\` it first"
      say "this run is going already"
      remind_of_cost
      return
      ;;
  esac
  remember run "$@"
  start "$@"
  remind_of_cost
}

remind_of_cost() {
  measure "$rented" || true # of an unknown type no price is known
  remind "$generation" "$chips" "$terms" "${PROJECT:+PROJECT=$PROJECT }ZONE=$ZONE"
}

# Starts a run on all hosts, or on none: a run that lacks a host would wait for it, and cost.
start() {
  local worker blamed=()
  pack_secrets
  if ! each begin "$(fingerprint "$@")" "$@"; then
    blamed=("${failed[@]}")
  else
    sleep "$SETTLE_SECONDS" # after which a recipe that does not fit has said so
    survey
    for worker in "${!reports[@]}"; do
      [[ ${reports[worker]} == going:* || ${reports[worker]} == exited:0 ]] || blamed+=("$worker")
    done
  fi
  if ((${#blamed[@]})); then
    tail_log "${blamed[0]}"
    each halt "$STOP_SECONDS" || true
    blame "the run did not start (and was stopped on the others)" "${blamed[@]}"
  fi
  say "the run is going on $hosts hosts; \`logs\` shows it, \`watch\` sees it through preemptions"
}

begin() {
  [[ ! -e $scratch/secrets ]] || vm scp "$scratch/secrets" "$name:.bert_jax_secrets" --worker="$1" || return
  on "$1" start "${@:2}"
}

# Secrets travel in a file of mode 600, since any user of a host can read the words of a command. The hosts remove it.
pack_secrets() {
  local variable
  rm -f "$scratch/secrets"
  for variable in $SECRETS; do
    [[ -z ${!variable-} ]] || printf 'export %s=%q\n' "$variable" "${!variable}" >>"$scratch/secrets"
  done
}

tail_log() { on "$1" logs 20 | sed "s/^/worker $1: /" >&2 || true; }

logs() {
  [[ ${1-0} =~ ^[0-9]+$ ]] || die "logs takes the number of a worker; found '$1'"
  gcloud_tpus tpu-vm ssh "$name" --worker="${1-0}" --command="$(for_host logs 100 -F)"
}

halt() { on "$1" stop "${@:2}"; }

stop() {
  need_hosts
  rm -f "$record/run" # a `watch` that is going ends, too
  each halt "$STOP_SECONDS" by-hand || blame "stop failed" "${failed[@]}"
  say "nothing is going"
  remind_of_cost
}

# An earlier try whose answer was lost may have come through here, too.
give_back() { queue delete "$name" --force || { look && [[ $state == ABSENT ]]; }; }

delete() {
  need_state
  rm -f "$record"/{create,run,bert_jax.tar.gz}
  rmdir "$record" 2>/dev/null || true # somebody keeps other files there
  case "$state" in
    ABSENT) say "there is no such slice in $ZONE; nothing to delete" ;;
    DELETING) say "is being deleted already" ;;
    *)
      give_back || fail "$name is NOT deleted, and costs"
      say "deleted"
      ;;
  esac
}

((BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1] >= 404)) || die "needs bash 4.4 or newer, found $BASH_VERSION"
verb=${1-} name=${2-}
case "$verb" in
  create | setup | run | logs | watch | stop | delete | list) ;;
  -h | --help | help | '') usage; exit ;;
  *) die "no command '$verb'; known: create, setup, run, logs, watch, stop, delete, list" ;;
esac
if [[ $verb == list ]]; then
  (($# == 1)) || die "list did not expect '${*:2}'"
else
  [[ $name =~ ^[a-z][-a-z0-9]*$ ]] || die "$verb needs the NAME of the slice, of a-z, 0-9 and hyphens; found '$name'"
  [[ ${ZONE-} =~ ^[a-z][-a-z0-9]*$ ]] || die "set ZONE, for example ZONE=us-west4-a; found '${ZONE-}'"
fi
[[ ${PROJECT-x} =~ ^([a-z][-a-z0-9.:]*)?$ ]] || die "PROJECT must be the id of a project; found '$PROJECT'"
command -v gcloud >/dev/null || die "gcloud is not on PATH: https://cloud.google.com/sdk/docs/install"
: "${WAIT_SECONDS:=14400}" "${POLL_SECONDS:=30}" "${RETRY_SECONDS:=5}" "${SETTLE_SECONDS:=20}" "${STOP_SECONDS:=120}"
: "${PARALLEL:=32}"
SECRETS=${SECRETS-WANDB_API_KEY HF_TOKEN}
check_price
[[ $SECRETS =~ ^([A-Za-z_][A-Za-z0-9_]*\ *)*$ ]] || die "SECRETS must be names of variables, not their values"

# Our own flags are taken out; the other words are gcloud's or, from the verb on, those of bert-jax.
yes='' delete_on_failure='' delete_when_finished='' words=()
for word in "${@:3}"; do
  case "${words[0]-}" in
    pretrain | finetune) words+=("$word") && continue ;;
  esac
  case "$word" in
    --yes) yes=1 ;;
    --delete-on-failure) delete_on_failure=1 ;;
    --delete-when-finished) delete_when_finished=1 ;;
    *) words+=("$word") ;;
  esac
done
case "$verb:${words[*]}" in
  create:* | run:* | logs:* | *:) ;;
  *) die "$verb did not expect '${words[*]}'" ;;
esac

record=$(record_of "${ZONE-}" "$name")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
"$verb" "${words[@]}"
