# Part of ../gke.sh: how a run stands. Kubernetes starts it again by itself, by the policy in jobset.yaml.
# shellcheck shell=bash

facts='{.metadata.deletionTimestamp}|{.status.terminalState}|{.spec.suspend}|{.status.replicatedJobsStatus[*].ready}'
facts+='|{.status.restarts}|{.status.restartsCountTowardsMax}|{.metadata.annotations.bert-jax-run}'
facts+='|{.status.conditions[?(@.type=="Failed")].message}'
# Of a pod that waits: why its container does, and why it has no node.
waits='{range .items[*]}{.status.containerStatuses[*].state.waiting.reason} '
waits+='{.status.conditions[?(@.type=="PodScheduled")].reason} {end}'
# Of a pod that failed: when, the host, the status, what took it away, and its name.
ended='{.status.containerStatuses[*].state.terminated'
deaths="{range .items[*]}$ended.finishedAt}|{.metadata.labels.batch\\.kubernetes\\.io/job-completion-index}"
deaths+="|$ended.exitCode}|{.status.reason}|{.metadata.name}{\"\\n\"}{end}"

# Sets `standing` to Waiting, Running, Suspended, Ending, Completed, Failed or ABSENT; `restarts`, and those of them that
# were for a failure of its own, `failures`; `going`, which tells one run from another; and `trouble`, for which it failed.
look_at_run() {
  local answer terminal suspended ready
  answer=$(kube get jobset "$name" --ignore-not-found --output="jsonpath=$facts") || return
  IFS='|' read -r _ terminal suspended ready restarts failures going trouble <<<"$answer"
  case "$answer" in
    '') standing=ABSENT ;;
    '|'*)
      standing=Waiting
      [[ $ready != 1 ]] || standing=Running
      [[ $suspended != true ]] || standing=Suspended
      standing=${terminal:-$standing}
      ;;
    *) standing=Ending ;;
  esac
}
need_run() { look_at_run || refuse "Kubernetes does not tell how $name stands; does the cluster have JobSet?"; }

# Tells how the run stands, each time that it changes, until it has ended. Kubernetes may be out of reach for a while, as
# when the cluster is upgraded.
watch() {
  local now seen='' troubles=0
  need_connection
  while true; do
    if look_at_run; then troubles=0; else standing=unknown troubles=$((troubles + 1)); fi
    ((troubles < 10)) || refuse "gave up after ten failures in a row; the run may go on, and the slice is still rented"
    now=$standing
    [[ $standing != Waiting ]] || now+=$(hindrance)
    [[ $standing == unknown || ${restarts:-0} == 0 ]] ||
      now+=", started again $restarts times, ${failures:-0} of them for a failure of its own"
    [[ $now == "$seen" || $standing == ABSENT ]] || say "$now"
    case "$standing" in
      Completed) finish ;;
      Failed) blame ;;
      ABSENT)
        [[ -n $seen ]] || die "there is no run $name in the namespace $NAMESPACE; \`run\` starts one"
        say "the run was stopped; the slice is still rented, unless it was deleted"
        return
        ;;
    esac
    seen=$now
    sleep $((POLL_SECONDS << (troubles < 6 ? troubles : 6)))
  done
}

# For what the pods wait, for example ImagePullBackOff, or Unschedulable while there are no nodes.
hindrance() {
  local reasons
  reasons=$(kube get pods --selector="$(of_run)" --output="jsonpath=$waits" | tr ' ' '\n' | grep . | sort -u) || return 0
  printf ' (%s)' "${reasons//$'\n'/, }"
}

# Fails by naming the host that failed first, with the end of its log. The others fail for want of it, or are ended.
blame() {
  local dead host status reason pod
  dead=$(kube get pods --selector="$(of_run)" --field-selector=status.phase=Failed --output="jsonpath=$deaths") || dead=
  dead=$(LC_ALL=C sort <<<"$dead" | grep -m 1 . || true) # by time, and those without one last
  [[ -n $dead ]] || fail "the run failed ($trouble), and its pods are gone"
  IFS='|' read -r _ host status reason pod <<<"$dead"
  kube logs "$pod" --container=bert-jax --tail=20 2>&1 | sed "s/^/host $host: /" >&2 || true
  fail "the run failed on host $host (${status:+status $status}${reason:+$reason}): $trouble"
}

finish() {
  say "the run has finished"
  if [[ -n $delete_when_finished ]]; then
    yes=1
    delete
  else
    say "the slice is still rented, and costs; \`delete\` gives it back"
  fi
  exit
}
