# Part of ../gke.sh: asking Google for the slice, and Kubernetes for the run.
# shellcheck shell=bash

# Sets `generation`, `chips`, `hosts`, `per_host`, `machine` and `accelerator` for a topology such as v5e:4x4. Slices of v5e
# and v6e up to 2x4 are one host of all their chips; every other host has four.
# https://cloud.google.com/kubernetes-engine/docs/concepts/plan-tpus and .../tpu-ironwood
read_topology() {
  local family sides=${1#*:}
  check_shape "$1"
  generation=${1%%:*} chips=$((${sides//x/ * })) per_host=4
  case "$1" in
    *:1x1) per_host=1 ;;
    *:2x4) per_host=8 ;;
  esac
  hosts=$((chips / per_host))
  case "$generation" in
    v4) family=ct4p-hightpu accelerator=tpu-v4-podslice ;;
    v5p) family=ct5p-hightpu accelerator=tpu-v5p-slice ;;
    v5e) family=ct5lp-hightpu accelerator=tpu-v5-lite-podslice ;;
    v6e) family=ct6e-standard accelerator=tpu-v6e-slice ;;
    tpu7x) family=tpu7x-standard accelerator=tpu7x ;;
  esac
  machine=$family-${per_host}t
}

gcloud_container() {
  retry gcloud container "$@" --location="$LOCATION" --quiet ${PROJECT:+--project="$PROJECT"}
}
node_pools() { gcloud_container node-pools "$@" --cluster="$CLUSTER"; }

# Sets `state` to that of the node pool, or ABSENT; `rented` to its topology, where it is of our making; `terms`; and `trouble`
# to what Google says of its state.
look() {
  local answer spot flex reservation
  # Listed, since a cluster that is not there is an error then, and a node pool that is not there is none.
  answer=$(node_pools list --filter="name=$name" --format='value[separator="|"](status,config.labels.bert_jax_slice,'`
    `'config.spot,config.flexStart,config.reservationAffinity.consumeReservationType,statusMessage)') || return
  IFS='|' read -r state rented spot flex reservation trouble <<<"${answer:-ABSENT|||||}"
  terms='on demand'
  [[ $spot != True ]] || terms=spot
  [[ $flex != True ]] || terms='flex-start'
  [[ $reservation != SPECIFIC_RESERVATION ]] || terms=reserved
  rented=${rented/-/:}
}
need_pool() {
  look || refuse "gcloud does not tell the state of $name in the cluster $CLUSTER of $LOCATION; is that its LOCATION?"
}

# A node pool of others is neither run on nor deleted.
need_ours() { [[ -n $rented ]] || die "the node pool $name was not created by gke.sh, and is left alone"; }

# Hosts of tpu7x are put next to each other by a workload policy of their topology, those of other generations by
# --tpu-topology. A policy costs nothing.
needs_policy() { [[ $1 == tpu7x:* ]] && ((hosts > 1)); }
policy_of() { echo "bert-jax-$name-${1#*:}"; }
policies() {
  retry gcloud compute resource-policies "$@" --region="${ZONE%-*}" --quiet ${PROJECT:+--project="$PROJECT"}
}
create_policy() {
  policies create workload-policy "$(policy_of "$1")" --type=HIGH_THROUGHPUT --accelerator-topology="${1#*:}" \
    2>"$scratch/policy" || grep -qi 'already exists' "$scratch/policy" || {
    cat "$scratch/policy" >&2
    fail "gcloud refused the workload policy without which tpu7x has no slices of $hosts hosts"
  }
}

# An earlier try whose answer was lost may have come through here, too.
give_back() {
  node_pools delete "$name" || { look && [[ $state == ABSENT ]]; } || return
  [[ $rented != tpu7x:* ]] || give_back_policy
}
give_back_policy() {
  read_topology "$rented"
  ! needs_policy "$rented" || policies delete "$(policy_of "$rented")" ||
    say "the workload policy $(policy_of "$rented") is left; it costs nothing"
}

# The cluster's address and the way to log in, in a file of our own: the context of the user's kubectl stays as it is.
connect() {
  [[ -z ${CONTEXT-} ]] || return 0
  export KUBECONFIG=$scratch/kubeconfig
  gcloud_container clusters get-credentials "$CLUSTER" 2>"$scratch/connect" || {
    cat "$scratch/connect" >&2
    return 1
  }
}
need_connection() { connect || fail "gcloud does not tell how to reach the cluster $CLUSTER"; }

kubectl_here() { kubectl "$@" --namespace="$NAMESPACE" ${CONTEXT:+--context="$CONTEXT"}; }
kube() { retry kubectl_here "$@"; }

# By the server, which keeps no second copy of the secrets, and takes out what it was given before and is not now.
apply() { kube apply --server-side --filename="$1" >/dev/null; }

# of_run [HOST]: what the labels of the pods say.
of_run() { echo "jobset.sigs.k8s.io/jobset-name=$name${1:+,batch.kubernetes.io/job-completion-index=$1}"; }

# Told to stop, the pods save first; this returns when they have ended.
end_run() {
  kube delete jobset "$name" --ignore-not-found --cascade=foreground --timeout="${STOP_SECONDS}s" >/dev/null &&
    kube delete secret "$name-secrets" --ignore-not-found >/dev/null
}
