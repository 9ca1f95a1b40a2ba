"""launch/slurm.sh with stand-ins for sbatch, srun and scontrol."""

import pytest
from cloud import HOSTILE, LAUNCH

RUN = ("pretrain", "--config", "configs/bert_base.py", "--workdir", "/shared/base")


def test_a_task_for_each_gpu_of_each_node_gets_every_argument(cloud):
    cloud.runs_do(0)
    words = ["finetune", "--config", *HOSTILE]
    result = cloud.sbatch("--nodes=2", "--gpus-per-node=2", "--ntasks-per-node=2", *words)
    assert result.returncode == 0, result.stderr
    for task in range(4):
        assert [run["arguments"] for run in cloud.runs(task)] == [[*words, "--distributed"]]
    assert not cloud.calls("scontrol")


def test_a_run_whose_time_is_up_saves_is_queued_again_and_goes_on(cloud):
    cloud.runs_do("stay", 0)
    (cloud.root / "time_is_up").write_text("\n".join(str(cloud.home(task) / "runs.jsonl") for task in range(2)))
    result = cloud.sbatch("--gpus-per-node=2", "--ntasks-per-node=2", *RUN)
    assert result.returncode == 0, result.stderr
    assert cloud.calls("scontrol") == [["scontrol", "requeue", "7"]]
    for task in range(2):
        assert [run["arguments"] for run in cloud.runs(task)] == [[*RUN, "--distributed"]] * 2


@pytest.mark.parametrize("status", [1, 2, 134])
def test_a_run_that_fails_by_itself_is_not_queued_again(cloud, status):
    cloud.runs_do(status)
    result = cloud.sbatch("--gpus-per-node=1", "--ntasks-per-node=1", *RUN)
    assert result.returncode == status
    assert not cloud.calls("scontrol")


def test_one_task_for_a_whole_node_takes_all_its_gpus(cloud):
    script = '#!/bin/bash\necho "devices $JAX_LOCAL_DEVICE_IDS"\n'
    cloud.program("installed/bert-jax", script)
    assert "devices 0,1,2,3\n" in cloud.sbatch("--gpus-per-node=4", "--ntasks-per-node=1", *RUN).stdout
    assert "devices \n" in cloud.sbatch("--gpus-per-node=4", "--ntasks-per-node=4", *RUN).stdout


def test_slurm_is_asked_to_tell_the_tasks_in_time_and_to_keep_the_log():
    header = [line for line in (LAUNCH / "slurm.sh").read_text().splitlines() if line.startswith("#SBATCH")]
    assert "#SBATCH --signal=TERM@300" in header  # without B:, so to the tasks
    assert "#SBATCH --requeue" in header
    assert "#SBATCH --open-mode=append" in header


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["evaluate"], "pretrain or finetune"),
        (["--gpus-per-node=8", "--ntasks-per-node=2", *RUN], "--ntasks-per-node=8 (or 1); found 2"),
    ],
)
def test_what_does_not_fit_is_one_line(cloud, words, message):
    result = cloud.sbatch(*words)
    assert result.returncode == 2
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
    assert not cloud.calls("srun")
