#!/usr/bin/env bash
# Trains on GPUs under Slurm, on any number of nodes, and is queued again until the run has finished:
#   sbatch --nodes=2 launch/slurm.sh pretrain --config bert_base --workdir /shared/bert_base ...
# `bert-jax` must be on PATH on all nodes; secrets such as WANDB_API_KEY come with the environment of sbatch.
#SBATCH --job-name=bert-jax
#SBATCH --nodes=1
#SBATCH --gpus-per-node=8
#SBATCH --ntasks-per-node=8
#SBATCH --time=24:00:00
#SBATCH --output=%x-%j.log
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --signal=TERM@300
set -euo pipefail

die() {
  echo "slurm.sh: $*" >&2
  exit 2
}

[[ ${1-} == pretrain || ${1-} == finetune ]] || die "expected pretrain or finetune and its flags; found '${1-}'"
[[ -n ${SLURM_JOB_ID-} ]] || die "is for sbatch: sbatch launch/slurm.sh $1 ..."

# Under Slurm, a process of JAX takes the GPU whose number is its own on the node: so a task for each GPU, all of which
# it must see (no --gpus-per-task). A single task for a whole node is told to take them all.
gpus=${SLURM_GPUS_ON_NODE:-0} tasks=${SLURM_NTASKS_PER_NODE:-1}
if ((gpus > 1 && tasks == 1)); then
  JAX_LOCAL_DEVICE_IDS=$(seq -s, 0 $((gpus - 1)))
  export JAX_LOCAL_DEVICE_IDS
elif ((gpus > 0 && tasks != gpus)); then
  die "$gpus GPUs on a node need --ntasks-per-node=$gpus (or 1); found $tasks"
fi

# Before the time is up, Slurm sends SIGTERM to the tasks (--signal, above), which then save and exit with status 143.
# The first of them to end must not have the others killed while they save; those that hang are, after 300 s.
status=0
srun --kill-on-bad-exit=0 --wait=300 bert-jax "$@" --distributed || status=$?
if ((status == 143)); then
  scontrol requeue "$SLURM_JOB_ID" || echo "slurm.sh: not queued again; the same sbatch line goes on" >&2
fi
exit "$status"
