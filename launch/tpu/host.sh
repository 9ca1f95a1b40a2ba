#!/usr/bin/env bash
# What ../tpu.sh does on one host of a slice. It sends this text along with each command, so the two always fit together.
set -euo pipefail
run=~/bert_jax_run # id, pid, status, log, lock, and `stopped` where somebody said stop
secrets=~/.bert_jax_secrets

# The run holds this lock by an open file, from its start to the end of its last process: unlike a process id, which a
# reboot may give to another program, a lock tells for certain whether a run is going.
take_lock() {
  mkdir -p "$run"
  exec 9>>"$run/lock"
  flock "$@" 9
}

# The images carry Python 3.10; uv brings a newer one without root.
install() {
  take_lock --nonblock || { echo "a run is going on $(hostname), and setup would change it; stop it first" >&2; exit 1; }
  # A run works in this folder, so results may be there; it is set aside, not removed.
  local number=1
  while [[ -e ~/bert_jax.old-$number ]]; do number=$((number + 1)); done
  [[ ! -e ~/bert_jax ]] || mv ~/bert_jax ~/bert_jax.old-"$number"
  mkdir ~/bert_jax
  tar -xzf ~/bert_jax.tar.gz -C ~/bert_jax
  python3 -m pip install --quiet --user uv
  python3 -m uv venv --quiet --allow-existing --python 3.12 ~/bert_jax_env
  python3 -m uv pip install --quiet --python ~/bert_jax_env/bin/python --reinstall-package bert-jax \
    "bert-jax[tpu,wandb] @ file://$HOME/bert_jax"
  ~/bert_jax_env/bin/python -c "import bert_jax; print('bert_jax', bert_jax.__version__, 'is installed')"
}

# start ID ARGUMENT...: detached, because a run outlives the connection that starts it.
start() {
  local id=$1
  if [[ -e $secrets ]]; then
    # shellcheck source=/dev/null
    source "$secrets"
    rm "$secrets"
  fi
  if ! take_lock --timeout 2; then
    [[ $(<"$run/id") != "$id" ]] || return 0 # the connection broke, but an earlier try of this start had come through
    echo "another run is going on $(hostname); stop it first" >&2
    exit 1
  fi
  [[ -x ~/bert_jax_env/bin/bert-jax ]] || { echo "bert-jax is not installed on $(hostname); run setup" >&2; exit 1; }
  rm -f "$run/status" "$run/stopped"
  echo "$id" >"$run/id"
  cd ~/bert_jax
  setsid bash -c "$BASH_EXECUTION_STRING" host.sh supervise "${@:2}" </dev/null >>"$run/log" 2>&1 &
  echo $! >"$run/pid"
}

# The hosts of a slice find each other through the TPU's metadata. This shell outlives the SIGTERM that ends the run,
# to leave the run's exit status behind.
supervise() {
  trap : TERM
  local status=0
  ~/bert_jax_env/bin/bert-jax "$@" --distributed || status=$?
  echo "$status" >"$run/status.new"
  mv "$run/status.new" "$run/status"
}

# One word: idle, going:ID, exited:STATUS, stopped (by hand), or lost (the host went down under the run).
report() {
  if [[ ! -e $run/id ]]; then
    echo idle
  elif ! take_lock --nonblock; then
    echo "going:$(<"$run/id")"
  elif [[ -e $run/status && $(<"$run/status") == 0 ]]; then
    echo exited:0
  elif [[ -e $run/stopped ]]; then
    echo stopped
  elif [[ -e $run/status ]]; then
    echo "exited:$(<"$run/status")"
  else
    echo lost
  fi
}

# stop SECONDS [by-hand]: a run that is told to stop saves its step first, for which it has SECONDS. A run that was
# stopped by hand is not taken up again by `watch`.
stop() {
  rm -f "$secrets"
  mkdir -p "$run"
  [[ -z ${2-} ]] || touch "$run/stopped"
  ! take_lock --nonblock || return 0
  kill -TERM -- "-$(<"$run/pid")" || true
  ! take_lock --timeout "$1" || return 0
  echo "the run on $(hostname) did not end in $1 s and was killed; it goes on from its last checkpoint" >&2
  kill -KILL -- "-$(<"$run/pid")"
  take_lock --timeout 10
}

logs() {
  tail -n "$1" "${@:2}" "$run/log"
}

"$@"
