# Part of ../tpu.sh: asking Google, and the hosts.
# shellcheck shell=bash

gcloud_tpus() {
  gcloud ${release:+"$release"} compute tpus "$@" --zone="$ZONE" --quiet ${PROJECT:+--project="$PROJECT"}
}
queue() { retry gcloud_tpus queued-resources "$@"; }
vm() { retry gcloud_tpus tpu-vm "$@"; }

# fields KEY...: the flag that has gcloud print these of each resource, as a line.
fields() {
  local IFS=,
  echo "--format=value[separator=\"|\"]($*)"
}

# Sets `state` to that of the queued resource, or ABSENT, and `rented` to its type.
look() {
  local answer
  if answer=$(queue describe "$name" --format='value(state.state,tpu.nodeSpec[0].node.acceleratorType)' 2>"$scratch/look")
  then
    read -r state rented <<<"$answer"
  elif grep -qE 'NOT_FOUND|was not found' "$scratch/look"; then
    state=ABSENT rented=''
  else
    cat "$scratch/look" >&2
    return 1
  fi
}
need_state() { look || fail "gcloud does not tell the state of $name"; }

# read_node_terms ZONE NAME [SPOT PREEMPTIBLE RESERVED]: sets `terms` to what a node says of itself, or else to what was asked
# for, where `create` was run on this machine.
read_node_terms() {
  local words=() record
  record=$(record_of "$1" "$2")
  [[ ! -e $record/create ]] || mapfile -d '' -t words <"$record/create"
  read_terms "${words[@]}"
  [[ ${3-}${4-} != *True* ]] || terms=spot
  [[ ${5-} != True ]] || terms=reserved
}

# Sets `hosts` to their number, `rented` to the type of the slice, and `terms`.
count_hosts() {
  local answer spot preemptible reserved
  answer=$(vm describe "$name" "$(fields 'networkEndpoints.len()' acceleratorType schedulingConfig.spot \
    schedulingConfig.preemptible schedulingConfig.reserved)") || return
  IFS='|' read -r hosts rented spot preemptible reserved <<<"$answer"
  read_node_terms "$ZONE" "$name" "$spot" "$preemptible" "$reserved"
  [[ $hosts == [1-9]* ]]
}
need_hosts() { count_hosts || fail "there is no slice $name in $ZONE that answers; \`create\` rents it"; }

# A verb of host.sh and its arguments, as one string that crosses two shells: so each word is quoted.
for_host() { printf '%q ' bash -c "$host_script" host.sh "$@"; }

# on WORKER VERB ARGUMENT...
on() { vm ssh "$name" --worker="$1" --command="$(for_host "${@:2}")"; }

# each COMMAND ARGUMENT...: COMMAND WORKER ARGUMENT... for all workers at once; those that failed are left in `failed`.
each() {
  local first worker running
  failed=()
  for ((first = 0; first < hosts; first += PARALLEL)); do
    running=()
    for ((worker = first; worker < hosts && worker < first + PARALLEL; worker++)); do
      ("$1" "$worker" "${@:2}" 2>&1 | sed "s/^/worker $worker: /" >&2) &
      running[worker]=$!
    done
    for worker in "${!running[@]}"; do wait "${running[worker]}" || failed+=("$worker"); done
  done
  ((${#failed[@]} == 0))
}

# blame WHAT WORKER...: fails by naming the workers; when the slice itself is gone, that is the news.
blame() {
  local what="$1 on worker ${*:2}"
  need_state
  [[ $state == ACTIVE ]] || fail "$what: the slice is $state; \`watch\` rents it again and goes on"
  fail "$what"
}

report() {
  on "$1" report >"$scratch/report.$1" && return
  : >"$scratch/report.$1"
  return 1
}

# Sets `reports` to what each worker says of the run, and `standing` to what follows for the run as a whole.
survey() {
  local worker word
  each report || true
  reports=()
  for ((worker = 0; worker < hosts; worker++)); do
    word=$(tail -n 1 "$scratch/report.$worker")
    reports+=("${word:-unreachable}")
  done
  case " ${reports[*]} " in
    *" unreachable "*) standing=unreachable ;;
    *" going:"*) standing=going ;; # on some hosts at least: where one has failed, the others follow within minutes
    *" stopped "*) standing=stopped ;;
    *" lost "* | *" idle "*) standing=lost ;; # a host that went down, or a fresh one: no fault of the run
    *)
      standing=finished
      for word in "${reports[@]}"; do
        case "$word" in
          exited:0) ;;
          exited:143) [[ $standing == failed ]] || standing=preempted ;; # was told to stop, and has saved
          *) standing=failed ;;
        esac
      done
      ;;
  esac
}
