"""Steps that cannot be learned from."""

import jax
import numpy as np
import pytest
from synthetic import pretraining_task, random_batch

from bert_jax import storage
from bert_jax.training.optimizers import make_optimizer
from bert_jax.training.state import init_state
from bert_jax.training.step import NotFiniteError, SkippedSteps, check_finite, make_train_step
from bert_jax.training.workdir import Workdir

SKIPPED, LEARNED = {"skipped": 1.0}, {"skipped": 0.0}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("accumulation_steps", [1, 2])
def test_a_step_that_is_not_finite_changes_nothing(accumulation_steps):
    task = pretraining_task()
    optimizer = make_optimizer(lambda step: 1e-3, average_decay=0.9)
    step = jax.jit(make_train_step(task, optimizer, accumulation_steps))
    before, _ = step(init_state(task.model.init, optimizer, 0, None), random_batch(), 0)
    bad = random_batch(seed=1)
    bad["masked_weights"][-1, 0] = np.nan
    after, metrics = step(before, bad, 0)
    jax.tree.map(np.testing.assert_array_equal, (after.params, after.opt_state), (before.params, before.opt_state))
    assert int(after.step) == 2
    assert metrics.pop("skipped") == (1, 1)
    assert {tuple(map(float, pair)) for pair in metrics.values()} == {(0, 0)}
    learned, metrics = step(after, random_batch(seed=2), 0)
    assert metrics["skipped"] == (0, 1) and metrics["loss"][0] > 0
    assert not np.array_equal(learned.params["mlm"]["bias"], after.params["mlm"]["bias"])


class Batches:
    def batch(self, step, rows=slice(None)):
        return {"input_ids": np.full((4, 2), step)[rows]}


def test_too_many_in_a_row_end_the_run_and_leave_the_batch(tmp_path):
    said = []
    skipped = SkippedSteps(Workdir(storage.Path(tmp_path)), Batches(), 2, said.append)
    for step, metrics in enumerate([SKIPPED, SKIPPED, LEARNED, SKIPPED, SKIPPED], start=1):
        skipped.see(step, metrics)
    assert [line.split(":")[0] for line in said] == ["step 1", "step 2", "step 4", "step 5"]
    with pytest.raises(NotFiniteError, match=r"step 6: loss or gradient is not finite.* lower"):
        skipped.see(6, SKIPPED)
    assert np.load(tmp_path / "batch-6.npz")["input_ids"].tolist() == [[5, 5]] * 4  # steps are counted from 1 here


def test_parameters_that_are_not_finite_become_no_model():
    params = {"a": {"bias": np.zeros(3, np.float32)}, "b": {"kernel": np.array([[1, np.nan], [np.inf, 2]], np.float32)}}
    check_finite({"a": params["a"]}, 7, "checkpoints")
    with pytest.raises(NotFiniteError, match="after step 7, 2 of the 4 numbers of b/kernel are not finite"):
        check_finite(params, 7, "checkpoints")
