# Part of ../tpu.sh and ../gke.sh: what is said and asked, and how a command ends.
# shellcheck shell=bash

say() { echo "$name: $*"; }

# What was asked for does not fit: one line, and nothing has been done.
die() {
  echo "${0##*/}: $*" >&2
  exit 2
}

# What was asked for would disturb a run that is going, for which the slice is needed.
refuse() {
  echo "${0##*/}: $*" >&2
  exit 1
}

# What was asked for did not succeed. The slice stays as it is, unless --delete-on-failure.
fail() {
  echo "${0##*/}: $*" >&2
  if [[ -n $delete_on_failure ]]; then
    delete_on_failure='' yes=1
    delete
  fi
  exit 1
}

# ask FOR DEED REFUSED: `yes` in full, at a terminal, unless --yes.
ask() {
  local answer
  [[ -z $yes ]] || return 0
  [[ -t 0 ]] || die "nobody is at the terminal to agree to $1; --yes agrees"
  read -r -p "Type yes to $2: " answer
  [[ $answer == yes ]] || die "$3"
}

# The same words are the same run.
fingerprint() { printf '%s\0' "$@" | cksum | tr ' ' -; }
