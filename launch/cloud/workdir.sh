# Part of ../tpu.sh and ../gke.sh: where a run keeps its checkpoints.
# shellcheck shell=bash

# check_workdir HOSTS WORD...: dies where several hosts would each write to a disk of their own.
check_workdir() {
  local hosts=$1 word workdir='' next=''
  for word in "${@:2}"; do
    case "$next:$word" in
      1:*) workdir=$word next='' ;;
      :--workdir | :--out) next=1 ;;
      :--workdir=* | :--out=*) workdir=${word#*=} ;;
    esac
  done
  ((hosts > 1)) && [[ -n $workdir && $workdir != *://* && -z ${SHARED_WORKDIR-} ]] || return 0
  die "--workdir $workdir: expected a bucket (gs://...), since $hosts hosts write to it, found a path on each host's own" \
    "disk; SHARED_WORKDIR=1 says that all of them mount it"
}
