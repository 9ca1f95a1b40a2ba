"""A loop of one's own around ours: `steps` and hooks give the run of `train`, and resume as it does."""

import contextlib

import numpy as np
import pytest

from bert_jax import recipes, training


@pytest.fixture(scope="module")
def recipe(tmp_path_factory, tiny_tokenizer):
    root = tmp_path_factory.mktemp("steps")
    tiny_tokenizer.save(root)
    texts = [("cat " if i % 3 else "dog ") * (1 + i % 5) for i in range(64)]
    (root / "data.tsv").write_text("sentence\tlabel\n" + "".join(f"{text}\t{text[:3]}\n" for text in texts))
    c = recipes.classification()
    c.update_from_flattened_dict(
        {"tokenizer": str(root), "data.train": str(root / "data.tsv"), "data.dev": str(root / "data.tsv"),
         "data.length_buckets": (12,), "data.max_seq_length": 12, "global_batch_size": 8, "num_steps": 6,
         "model.size": "tiny", "model.hidden_size": 16, "model.intermediate_size": 32, "model.num_hidden_layers": 1,
         "model.max_position_embeddings": 16, "log_every": 1, "checkpoint_every": 2}
    )  # fmt: skip
    return c


@pytest.fixture(scope="module")
def trained(recipe, tmp_path_factory):
    """The run without a loop around it: its work directory, its results, and what a hook saw."""
    workdir, seen = tmp_path_factory.mktemp("trained") / "run", []

    def hook(state, metrics):
        seen.append((int(state.step), float(metrics["loss"])))

    return workdir, training.train(recipe, workdir, progress=False, hooks=[hook]), seen


def weights(workdir):
    return (workdir / "model" / "model.safetensors").read_bytes()


def test_hooks_see_every_step_and_train_gives_the_final_state(trained):
    _, results, seen = trained
    assert [step for step, _ in seen] == [1, 2, 3, 4, 5, 6]
    assert int(results.state.step) == results["step"] == 6
    assert seen[-1][1] == pytest.approx(results["train/loss"])
    assert np.isfinite(np.asarray(results.state.params["classifier"]["kernel"])).all()


def test_steps_left_early_resume_and_end_as_train_does(recipe, trained, tmp_path):
    with contextlib.closing(training.steps(recipe, tmp_path / "run", progress=False)) as run:
        for state, metrics in run:
            assert float(metrics["loss"]) > 0
            if int(state.step) == 3:
                break
    assert not (tmp_path / "run" / "model").exists()
    rest = [int(state.step) for state, _ in training.steps(recipe, tmp_path / "run", progress=False)]
    assert rest == [3, 4, 5, 6]  # from the checkpoint of step 2
    assert weights(tmp_path / "run") == weights(trained[0])
    assert list(training.steps(recipe, tmp_path / "run", progress=False)) == []


def test_an_error_in_the_loop_frees_the_work_directory(recipe, trained, tmp_path):
    with (
        pytest.raises(ZeroDivisionError),
        contextlib.closing(training.steps(recipe, tmp_path / "run", progress=False)) as run,
    ):
        for _ in run:
            1 / 0  # noqa: B018
    training.train(recipe, tmp_path / "run", progress=False)
    assert weights(tmp_path / "run") == weights(trained[0])
