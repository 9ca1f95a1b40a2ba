# Part of ../tpu.sh: seeing a run through preemptions.
# shellcheck shell=bash

# Sees the remembered run through: a slice that was taken back is rented again, a run that was told to stop goes on. A
# slice that somebody deleted, a run that was stopped by hand, and one that failed by itself are left alone.
watch() {
  local line seen='' may_request=1 troubles=0 failures=0
  recall run
  line=("${recalled[@]}")
  recall create
  read_create_words "${recalled[@]}"
  [[ -e $record/bert_jax.tar.gz ]] || die "$name was not set up from here; run setup first"
  agree "$type" ACTIVE
  while look || state=unknown; [[ -e $record/run ]]; do # which `delete` may have removed during the look
    [[ $state == "$seen" ]] || say "$state"
    seen=$state
    [[ $state == ABSENT || $state == unknown ]] || may_request=
    case "$state" in
      ACTIVE) tend "${line[@]}" ;;
      SUSPENDED | FAILED)
        may_request=1 # the renewal may get no further than the deletion
        attempt renew
        ;;
      ABSENT)
        [[ -n $may_request ]] || fail "$name was deleted from elsewhere; it is not rented again"
        attempt request
        ;;
      unknown) attempt false ;;
    esac
    sleep $((POLL_SECONDS << (troubles < 6 ? troubles : 6)))
  done
  say "the run was stopped; nothing is left to watch"
}

renew() {
  give_back || fail "$name, which is $state, cannot be deleted"
  request
}

# Tries a step of `watch`, which may fail ten times in a row, ever longer apart.
attempt() {
  if (delete_on_failure='' "$@"); then return; fi
  troubles=$((troubles + 1))
  ((troubles < 10)) || fail "gave up after ten failures in a row"
  say "will try again"
}

# What `watch` does on a slice that is there. A failed run may be the first sign of a preemption, which takes the hosts
# one after another: so it is believed when the slice is still there three looks later.
tend() {
  local worker
  # Where the run is going on one host it is on all, or else it ends there within minutes: so one is asked, as each
  # question is a start of gcloud and ssh, and a pod may have 64 hosts and more.
  if report 0 && [[ $(<"$scratch/report.0") == *going:* ]]; then
    troubles=0 failures=0
    return
  fi
  if count_hosts; then survey; else standing=unreachable; fi
  case "$standing" in
    going) troubles=0 failures=0 ;;
    finished) finish ;;
    stopped)
      say "the run was stopped by hand; the slice is still rented"
      exit
      ;;
    failed)
      failures=$((failures + 1))
      ((failures > 3)) || return 0
      for worker in "${!reports[@]}"; do [[ ${reports[worker]} == exited:0 ]] || break; done
      tail_log "$worker"
      fail "the run failed (${reports[*]}, by worker)"
      ;;
    unreachable) attempt false ;;
    *)
      say "the run is to go on (${reports[*]}, by worker)"
      attempt resume "$@"
      ;;
  esac
}

resume() {
  provision
  start "$@"
}

finish() {
  say "the run has finished"
  if [[ -n $delete_when_finished ]]; then
    delete
  else
    say "the slice is still rented, and costs; \`delete\` gives it back"
  fi
  exit
}
