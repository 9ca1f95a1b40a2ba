#!/usr/bin/env bash
# Rents a TPU slice in a GKE cluster and trains on all of its hosts. `launch/gke.sh` prints its usage; gke/README.md tells
# the story.
set -euo pipefail
umask 077 # the secrets are for nobody else
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
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
# shellcheck source=gke/cluster.sh
source "$here/gke/cluster.sh"
# shellcheck source=gke/render.sh
source "$here/gke/render.sh"
# shellcheck source=gke/watch.sh
source "$here/gke/watch.sh"

usage() {
  cat <<'USAGE'
usage: launch/gke.sh create NAME --topology T [--workdir DIR] [--yes] [gcloud flags, e.g. --spot]
                                                                      rent a slice, and wait for it
       launch/gke.sh run    NAME [--] pretrain|finetune FLAGS...      start bert-jax on every host, as a JobSet
       launch/gke.sh logs   NAME [HOST]                               follow the output of a host (default: 0)
       launch/gke.sh watch  NAME [--yes] [--delete-when-finished]     tell how the run stands, until it has ended
       launch/gke.sh stop   NAME                                      end the run on every host
       launch/gke.sh delete NAME [--yes]                              end the run, and give the slice back
`launch/tpu.sh list` shows the slices of the project, those in GKE too, with age and cost.
`create` checks that all hosts of the slice can write to the --workdir of the run that you plan.
The slice is a node pool, and the run a JobSet, both named NAME. --yes agrees to the price, and to deleting.
--delete-on-failure (create, run, watch) gives the slice back when the command fails; without it the slice stays, and costs.
Environment: CLUSTER, or --cluster C (needed); ZONE of the slice (needed); LOCATION of the cluster (default: ZONE's region);
PROJECT (default: gcloud's); IMAGE (needed by run); SERVICE_ACCOUNT of Kubernetes (bert-jax); NAMESPACE (default);
CONTEXT (of kubectl; default: what gcloud gives for CLUSTER); PRICE (USD per chip-hour, default: the list price);
SHARED_WORKDIR (set where all hosts mount the work directory);
SECRETS (variables handed to the hosts when set, default: "WANDB_API_KEY HF_TOKEN").
In seconds: WAIT_SECONDS (for a slice, 14400), POLL_SECONDS (30), RETRY_SECONDS (5, doubled each time), STOP_SECONDS (for
a run to save and end, 300).
USAGE
}

create() {
  local topology='' create_flags=() workdir=()
  while (($#)); do
    case "$1" in
      --topology=*) topology=${1#*=} ;;
      --topology) topology=${2-} && shift ;;
      --workdir=*) workdir=("$1") ;;
      --workdir) workdir=("$1" "${2-}") && shift ;;
      --node-labels | --node-labels=*) die "create says with --node-labels which slice it is; found '$1'" ;;
      *) create_flags+=("$1") ;;
    esac
    shift || true
  done
  [[ -n $topology ]] || die "create needs --topology, for example --topology v5e:4x4"
  read_topology "$topology"
  check_workdir "$hosts" "${workdir[@]}"
  appraise_request
  need_pool
  if [[ $state == ABSENT ]]; then
    agree "$topology" RUNNING
    request "$topology"
  else
    [[ $rented == "$topology" ]] || die "$name exists as a ${rented:-node pool of others}, asked for is a $topology"
    say "exists already"
  fi
  await
}

# Asks for the slice. An earlier try whose answer was lost may have come through. Only of several hosts is the topology said:
# those of one host are told apart by their machine.
request() {
  local shape=()
  if needs_policy "$1"; then
    create_policy "$1"
    shape=(--placement-policy="$(policy_of "$1")")
  elif ((hosts > 1)); then
    shape=(--tpu-topology="${1#*:}")
  fi
  node_pools create "$name" --node-locations="$ZONE" --machine-type="$machine" --num-nodes="$hosts" "${shape[@]}" \
    --node-labels="bert_jax_slice=${1/:/-}" --async "${create_flags[@]}" 2>"$scratch/request" ||
    grep -qi 'already exists' "$scratch/request" || {
    cat "$scratch/request" >&2
    fail "gcloud refused to create $name"
  }
  say "is asked for"
}

await() {
  local seen='' deadline=$((SECONDS + WAIT_SECONDS))
  while need_pool; do
    [[ $state == "$seen" ]] || say "$state"
    seen=$state
    case "$state" in
      RUNNING | RECONCILING) return ;;
      ERROR | RUNNING_WITH_ERROR) fail "the slice did not come up: ${trouble:-gcloud does not say why}. Nothing waits in a" \
        "queue: delete it, and create it again" ;;
      STOPPING | ABSENT) fail "the slice was deleted while it was waited for" ;;
    esac
    ((SECONDS < deadline)) || fail "still $state after $WAIT_SECONDS s; \`create\` again waits on, \`delete\` takes it back"
    sleep "$POLL_SECONDS"
  done
}

run() {
  [[ ${1-} != -- ]] || shift
  [[ ${1-} == pretrain || ${1-} == finetune ]] || die "run needs a verb: pretrain or finetune; found '${1-}'"
  [[ -n ${IMAGE-} ]] || die "set IMAGE, for example IMAGE=us-docker.pkg.dev/my-project/bert-jax/bert-jax:0.1.0"
  printf '%s\n' "$@" "$IMAGE" | iconv -f UTF-8 -t UTF-8 >/dev/null 2>&1 || die "the words of a run must be UTF-8"
  need_pool
  case "$state" in
    ABSENT) absent "$CLUSTER" "$@" ;;
    ERROR | STOPPING) fail "the slice is $state; delete it, and create it again" ;;
  esac
  need_ours
  read_topology "$rented"
  check_workdir "$hosts" "$@"
  need_connection
  need_run
  case "$standing" in
    ABSENT) ;;
    Completed | Failed | Ending)
      say "the run before has ended (${standing,,}), and makes room"
      end_run || fail "the run before does not go"
      ;;
    *)
      [[ $going == "$(fingerprint "$IMAGE" "$@")" ]] || refuse "another run is going ($standing); \`stop\` it first"
      say "this run is going already"
      remind_of_cost
      return
      ;;
  esac
  kube get serviceaccount "$SERVICE_ACCOUNT" --output=name >/dev/null ||
    fail "the run needs a service account '$SERVICE_ACCOUNT' in the namespace $NAMESPACE; gke/README.md tells what for"
  start "$@"
  remind_of_cost
}

remind_of_cost() {
  remind "$generation" "$chips" "$terms" "${PROJECT:+PROJECT=$PROJECT }ZONE=$ZONE LOCATION=$LOCATION CLUSTER=$CLUSTER"
}

start() {
  pack_secrets
  render "$@" || fail "kubectl cannot fill in gke/jobset.yaml"
  apply "$scratch/secret.json" || fail "the secrets were not taken, and nothing was started"
  apply "$scratch/jobset.json" || fail "the run was not taken; does the cluster have JobSet? gke/README.md tells"
  say "the run is asked for on $hosts hosts; \`watch\` tells how it stands, \`logs\` shows it"
}

logs() {
  local pods
  [[ ${1-0} =~ ^[0-9]+$ ]] || die "logs takes the number of a host; found '$1'"
  need_connection
  pods=$(kube get pods --selector="$(of_run "${1-0}")" --output=name) || fail "Kubernetes does not tell the pods of $name"
  [[ -n $pods ]] || fail "host ${1-0} has nothing running; \`watch\` tells how the run stands"
  kubectl_here logs --follow --tail=100 --container=bert-jax "${pods%%$'\n'*}"
}

stop() {
  need_connection
  end_run || fail "the run has not ended in $STOP_SECONDS s, and may go on"
  say "nothing is going; the slice is still rented"
}

delete() {
  need_pool
  case "$state" in
    ABSENT) say "there is no such slice in $CLUSTER; nothing to give back" ;;
    STOPPING) say "is being deleted already" ;;
    *)
      need_ours
      ask "deleting the slice" "end what runs on $name, and delete it" "not deleted"
      ;;
  esac
  # What costs is given back even where the cluster does not answer.
  { connect && end_run; } || say "the run could not be ended first"
  case "$state" in
    ABSENT | STOPPING) ;;
    *)
      give_back || fail "$name is NOT deleted, and costs"
      say "deleted"
      ;;
  esac
}

((BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1] >= 404)) || die "needs bash 4.4 or newer, found $BASH_VERSION"
verb=${1-} name=${2-}
case "$verb" in
  create | run | logs | watch | stop | delete) ;;
  -h | --help | help | '') usage; exit ;;
  *) die "no command '$verb'; known: create, run, logs, watch, stop, delete" ;;
esac
[[ $name =~ ^[a-z]([-a-z0-9]{0,38}[a-z0-9])?$ ]] ||
  die "$verb needs the NAME of the slice, of at most 40 of a-z, 0-9 and hyphens; found '$name'"

# Our own flags are taken out; the other words are gcloud's or, from the verb on, those of bert-jax.
yes='' delete_on_failure='' delete_when_finished='' words=()
set -- "${@:3}"
while (($#)); do
  case "$1" in
    -- | pretrain | finetune) words+=("$@") && break ;;
    --yes) yes=1 ;;
    --delete-on-failure) delete_on_failure=1 ;;
    --delete-when-finished) delete_when_finished=1 ;;
    --cluster=*) CLUSTER=${1#*=} ;;
    --cluster) CLUSTER=${2-} && shift ;;
    *) words+=("$1") ;;
  esac
  shift || true
done
case "$verb:${words[*]}" in
  create:* | run:* | logs:* | *:) ;;
  *) die "$verb did not expect '${words[*]}'" ;;
esac

[[ ${CLUSTER-} =~ ^[a-z][-a-z0-9]*$ ]] || die "set CLUSTER, or give --cluster, to one that exists; found '${CLUSTER-}'"
[[ ${ZONE-} =~ ^[a-z][-a-z0-9]*$ ]] || die "set ZONE, for example ZONE=us-west4-a; found '${ZONE-}'"
for program in gcloud kubectl; do
  command -v "$program" >/dev/null || die "$program is not on PATH: https://cloud.google.com/sdk/docs/install"
done
: "${LOCATION:=${ZONE%-*}}" "${NAMESPACE:=default}" "${SERVICE_ACCOUNT:=bert-jax}"
: "${WAIT_SECONDS:=14400}" "${POLL_SECONDS:=30}" "${RETRY_SECONDS:=5}" "${STOP_SECONDS:=300}"
SECRETS=${SECRETS-WANDB_API_KEY HF_TOKEN}
check_price
[[ $SECRETS =~ ^([A-Za-z_][A-Za-z0-9_]*\ *)*$ ]] || die "SECRETS must be names of variables, not their values"

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
"$verb" "${words[@]}"
