# Part of ../tpu.sh and ../gke.sh: asking again.
# shellcheck shell=bash

# Failures that pass by themselves: ssh could not connect (status 255), the API is overloaded or was not reached, or the
# cluster is busy with something else.
passing='exited with return code \[255\]|(HTTPError |ResponseError: code=)(429|50[0234])|UNAVAILABLE|DEADLINE_EXCEEDED'
passing+='|RATE_LIMIT_EXCEEDED|per minute|Too Many Requests|Service Unavailable|lost connection'
passing+='|[Cc]onnection (refused|reset|closed|timed out)|connection to the server .* was refused|client connection lost'
passing+='|\((TooManyRequests|ServiceUnavailable|InternalError|Timeout|ServerTimeout)\)|handshake timeout|i/o timeout'
passing+='|unexpected EOF|: EOF$|[Ii]ncompatible operation'

# Tries a command up to five times, each time after twice the delay, as long as its failure is a passing one.
retry() {
  local attempt status delay=$RETRY_SECONDS errors=$scratch/errors.$BASHPID
  for ((attempt = 1; ; attempt++)); do
    status=0
    "$@" 2>"$errors" || status=$?
    cat "$errors" >&2
    ((status)) || return 0
    ((attempt < 5)) || return "$status"
    ((status == 255)) || grep -qE "$passing" "$errors" || return "$status"
    echo "trying again in $delay s" >&2
    sleep "$delay"
    delay=$((delay * 2))
  done
}
