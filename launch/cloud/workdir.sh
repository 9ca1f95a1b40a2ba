# Part of ../tpu.sh and ../gke.sh: where a run keeps its checkpoints.
# shellcheck shell=bash

# own_disk WORD...: sets `workdir` to that of the run, and succeeds where each host would write to a disk of its own.
own_disk() {
  local word next=''
  workdir=''
  for word in "$@"; do
    case "$next:$word" in
      1:*) workdir=$word next='' ;;
      :--workdir | :--out) next=1 ;;
      :--workdir=* | :--out=*) workdir=${word#*=} ;;
    esac
  done
  [[ -n $workdir && $workdir != *://* && -z ${SHARED_WORKDIR-} ]]
}

# check_workdir HOSTS WORD...: dies where several hosts would each write to a disk of their own.
check_workdir() {
  (($1 > 1)) && own_disk "${@:2}" || return 0
  die "--workdir $workdir: expected a bucket (gs://...), since $1 hosts write to it, found a path on each host's own" \
    "disk; SHARED_WORKDIR=1 says that all of them mount it"
}

# absent WHERE WORD...: fails, as there is no slice to run on; a work directory for one host alone is told before one is rented.
absent() {
  fail "there is no slice $name in $1; \`create\` rents it$(! own_disk "${@:2}" ||
    echo ". Before you do: with --workdir $workdir, a path on each host's own disk, it must be a slice of one host")"
}
