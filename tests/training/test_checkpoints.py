"""Checkpoints: which stay, what is done about damaged ones, another model's, and a full disk."""

import contextlib
import logging
import os
import pathlib
import resource
import threading

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest

from bert_jax import parameter_sharding, sharding, storage
from bert_jax.errors import InputError
from bert_jax.training.checkpoints import Checkpoints
from bert_jax.training.optimizers import OPTIMIZERS, make_optimizer
from bert_jax.training.state import State
from bert_jax.training.workdir import COPIES


def state_at(step: int, width: int = 20_000) -> State:
    rng = np.random.default_rng(step)
    params = {"mlm": {"bias": jnp.asarray(rng.normal(size=width), jnp.float32)}}
    return State(params, make_optimizer(lambda step: 0.1).init(params), jnp.int32(step))


def like(state: State) -> State:
    shardings = parameter_sharding.param_shardings(sharding.make_mesh(), state)
    return jax.tree.map(lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s), state, shardings)


def equal(a: State, b: State) -> bool:
    return all(jax.tree.leaves(jax.tree.map(jnp.array_equal, a, b)))


def saved(directory, steps, **options) -> Checkpoints:
    checkpoints = Checkpoints(directory, **({"keep": 2} | options))
    for step in steps:
        checkpoints.save(state_at(step))
    checkpoints.wait()
    return checkpoints


def largest_file(directory: pathlib.Path) -> pathlib.Path:
    return max((path for path in directory.rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)


def test_the_newest_are_kept_and_restored_bit_for_bit(tmp_path):
    saved(tmp_path, [10, 20, 30]).close()
    again = Checkpoints(tmp_path, keep=2)
    assert again.steps() == [20, 30]
    assert equal(again.restore_latest(like(state_at(0))), state_at(30))
    again.close()


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_state_of_every_optimizer_is_restored(tmp_path, name):
    rng = np.random.default_rng(0)
    params = {"encoder": {"mlp": {"up": {"kernel": jnp.asarray(rng.normal(size=(2, 8, 4)), jnp.float32)}}}}
    params |= state_at(1).params
    optimizer = make_optimizer(lambda step: 0.1, name=name, average_decay=0.9)
    _, moved = jax.jit(optimizer.update)(params, optimizer.init(params), params)
    state = State(params, moved, jnp.int32(1))
    checkpoints = Checkpoints(tmp_path, keep=1)
    checkpoints.save(state)
    checkpoints.wait()
    assert equal(checkpoints.restore_latest(like(state)), state)
    checkpoints.close()


def test_what_a_killed_process_had_no_time_to_delete_is_deleted(tmp_path):
    """The newest and the best stay; a run that was killed after its last save saves no more."""
    checkpoints = Checkpoints(tmp_path, keep=9, best="accuracy")
    for step, accuracy in ((1, 0.1), (2, 0.9), (3, 0.2), (4, 0.3), (5, 0.4)):
        checkpoints.save(state_at(step), {"accuracy": accuracy})
    checkpoints.wait()
    checkpoints.close()
    (tmp_path / "notes.txt").write_text("not ours")
    resumed = Checkpoints(tmp_path, keep=2, best="accuracy")
    resumed.delete_surplus()
    assert resumed.steps() == [2, 4, 5]
    resumed.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["2", "4", "5", "notes.txt"]


def test_without_checkpoints_there_is_nothing_to_restore(tmp_path):
    assert saved(tmp_path, []).restore_latest(like(state_at(0))) is None


@pytest.mark.parametrize(
    ("metric", "values", "best"),
    [
        ("accuracy", [0.1, 0.9, 0.5, 0.4], 2),
        ("mlm_loss", [3.0, 1.0, 2.0, 1.5], 2),
        ("f1", [0.9, 0.9, float("nan"), 0.1], 2),
    ],
)
def test_the_best_is_kept_besides_the_newest_and_known_after_a_restart(tmp_path, metric, values, best):
    checkpoints = Checkpoints(tmp_path, keep=1, best=metric)
    for step, value in enumerate(values, start=1):
        checkpoints.save(state_at(step), {metric: value})
    checkpoints.save(state_at(5))  # not evaluated
    checkpoints.close()
    again = Checkpoints(tmp_path, keep=1, best=metric)
    assert (again.steps(), again.best()[1]) == ([best, 5], best)
    assert equal(again.restore(best, like(state_at(0))), state_at(best))
    again.close()


DAMAGES = {
    "cut": lambda data: data[: len(data) // 2],
    "empty": lambda data: b"",
    "no text": lambda data: b"\xff\xfe" + data,
    "no object": lambda data: b"[1]",
    "nothing in it": lambda data: b"{}",
    "no number": lambda data: data.replace(b"0.9", b'"x"'),
}
QUICK = "no number"


@pytest.mark.parametrize(
    "damage", [QUICK, *(pytest.param(each, marks=pytest.mark.slow) for each in DAMAGES if each != QUICK)]
)
@pytest.mark.parametrize("name", ["merit", "metrics"])  # of this version, and of earlier ones
def test_a_damaged_metric_is_said_and_the_next_best_is_taken(tmp_path, caplog, damage, name):
    checkpoints = Checkpoints(tmp_path, keep=3, best="accuracy")
    for step, value in enumerate([0.1, 0.9, 0.5], start=1):
        checkpoints.save(state_at(step), {"accuracy": value})
    checkpoints.close()
    if name == "metrics":
        for step in "123":
            (tmp_path / step / "merit" / "merit").rename(tmp_path / step / "merit" / "metrics")
            (tmp_path / step / "merit").rename(tmp_path / step / "metrics")
    file = tmp_path / "2" / name / name
    file.write_bytes(DAMAGES[damage](file.read_bytes()))
    again = Checkpoints(tmp_path, keep=3, best="accuracy")
    assert again.best() == (0.5, 3)
    assert "the metric of checkpoint 2 is damaged" in caplog.text
    assert equal(again.restore_latest(like(state_at(0))), state_at(3))
    again.save(state_at(4), {"accuracy": 0.2})
    again.close()
    assert again.best() == (0.5, 3)


def test_metrics_of_earlier_versions_are_read_and_those_of_another_metric_are_not(tmp_path):
    checkpoints = Checkpoints(tmp_path, keep=3, best="accuracy")
    checkpoints.save(state_at(1), {"accuracy": 0.4})
    checkpoints.save(state_at(2), {"accuracy": 0.3})
    checkpoints.close()
    (tmp_path / "2" / "merit").rename(tmp_path / "2" / "metrics")
    (tmp_path / "2" / "metrics" / "merit").unlink()
    (tmp_path / "2" / "metrics" / "metrics").write_text('{"merit": 0.7}')
    assert Checkpoints(tmp_path, keep=3, best="accuracy").best() == (0.7, 2)
    other = Checkpoints(tmp_path, keep=3, best="f1")
    assert other.best() == (0.7, 2)  # which does not say of which metric it is
    assert Checkpoints(tmp_path, keep=3).best() is None


@pytest.mark.parametrize("damage", ["truncated", "one bit flipped", "metadata cut", "arrays gone"])
def test_a_damaged_newest_is_skipped_aloud(tmp_path, caplog, damage):
    saved(tmp_path, [1, 2]).close()
    broken = tmp_path / "2"
    file = largest_file(broken)
    match damage:
        case "truncated":
            os.truncate(file, file.stat().st_size // 2)
        case "one bit flipped":
            data = bytearray(file.read_bytes())
            data[len(data) // 2] ^= 1
            file.write_bytes(data)
        case "metadata cut":
            os.truncate(next(broken.rglob("_METADATA")), 10)
        case "arrays gone":
            next(broken.rglob("manifest.ocdbt")).unlink()
    checkpoints = Checkpoints(tmp_path, keep=2)
    with caplog.at_level(logging.WARNING):
        restored = checkpoints.restore_latest(like(state_at(0)))
    assert equal(restored, state_at(1))
    assert f"checkpoint {broken}" in caplog.text and "resuming from the one before" in caplog.text
    checkpoints.save(state_at(2))  # its name is free again
    checkpoints.wait()
    assert checkpoints.steps() == [1, 2] and (tmp_path / "unreadable-2").exists()
    checkpoints.close()


def test_when_none_can_be_read_the_run_does_not_start_afresh(tmp_path, caplog):
    saved(tmp_path, [1]).close()
    next((tmp_path / "1").rglob("_METADATA")).unlink()
    with pytest.raises(InputError, match=rf"none of the checkpoints \[1\] can be read: checkpoint {tmp_path}/1 cannot"):
        Checkpoints(tmp_path, keep=2).restore_latest(like(state_at(0)))
    assert "resuming from the one before" not in caplog.text  # there is none


def test_a_checkpoint_of_another_size_is_refused(tmp_path):
    checkpoints = saved(tmp_path, [1])
    with pytest.raises(
        InputError,
        match=r"expected params/mlm/bias of shape \(65,\), found \(20000,\): the checkpoint is of another model",
    ):
        checkpoints.restore_latest(like(state_at(0, width=65)))
    checkpoints.close()


def test_a_full_disk_is_one_line_and_leaves_earlier_checkpoints_alone(tmp_path):
    """No file may grow beyond a limit, as a stand-in for a disk that is full."""
    checkpoints = saved(tmp_path, [1])
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, hard))
    try:
        with pytest.raises(InputError) as error:
            checkpoints.save(state_at(2, width=1_000_000))
            checkpoints.wait()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "could not be written: File too large (whole checkpoints there: 1)" in str(error.value)
    assert "\n" not in str(error.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1"]
    again = Checkpoints(tmp_path, keep=2)
    assert equal(again.restore_latest(like(state_at(0))), state_at(1))
    again.close()


def test_the_system_tells_why_a_save_failed_whatever_else_tensorstore_notes(tmp_path, monkeypatch):
    def save(*args, **kwargs):
        raise ValueError(
            """DATA_LOSS: Error writing "a": Failed [kvstore='{"create": true}'] [os_error_code='28'] [n='1']"""
        )

    checkpoints = saved(tmp_path, [1])
    monkeypatch.setattr(ocp.CheckpointManager, "save", save)
    with pytest.raises(InputError, match=r"written: No space left on device \(whole checkpoints there: 1\)"):
        checkpoints.save(state_at(2))
    checkpoints.close()


def test_what_a_failed_save_goes_on_writing_is_taken_away_too(tmp_path, monkeypatch):
    partial = tmp_path / "2.orbax-checkpoint-tmp" / "d"

    def go_on() -> None:
        for i in range(300):
            with contextlib.suppress(FileNotFoundError, FileExistsError):  # taken away between two steps of one call
                partial.mkdir(parents=True, exist_ok=True)
                (partial / str(i)).touch()

    def save(*args, **kwargs):
        writer.start()
        raise ValueError("Error writing [os_error_code='28']")

    writer = threading.Thread(target=go_on)
    checkpoints = saved(tmp_path, [1])
    monkeypatch.setattr(ocp.CheckpointManager, "save", save)
    with pytest.raises(InputError, match=r"written: No space left on device \(whole checkpoints there: 1\)"):
        checkpoints.save(state_at(2))
    writer.join()
    assert [path.name for path in tmp_path.iterdir()] == ["1"]
    checkpoints.close()


@pytest.mark.parametrize("place", ["disk", "bucket"])
def test_directories_of_others_stay_although_they_are_named_as_steps(tmp_path, bucket, place, caplog):
    directory = storage.Path(tmp_path / "checkpoints" if place == "disk" else f"gs://{bucket.name}/checkpoints")
    contents = {"1/notes.txt": b"mine", "unreadable-1/notes.txt": b"older", "99/photo.jpg": b"mine too",
                "x.orbax-checkpoint-tmp/notes.txt": b"of another program"}  # fmt: skip
    for name, content in contents.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_bytes(content)
    checkpoints = Checkpoints(directory, keep=1)
    for step in (2, 3):
        checkpoints.save(state_at(step))
        checkpoints.wait()
    checkpoints._remove_partial()
    assert checkpoints.steps() == [3]
    checkpoints.close()
    contents["unreadable-1-2/notes.txt"] = contents.pop("1/notes.txt")
    contents["unreadable-99/photo.jpg"] = contents.pop("99/photo.jpg")
    for name, content in contents.items():
        assert (directory / name).read_bytes() == content, name
    assert "99: expected a checkpoint, found other files" in caplog.text


def test_a_checkpoint_has_copies_of_the_recipe_and_the_data(tmp_path):
    copies = {"config.json": {"task": "pretraining"}, "data.json": {"num_steps": 3, "data": {}}}
    checkpoints = Checkpoints(tmp_path, keep=1, copies=copies)
    checkpoints.save(state_at(3))
    checkpoints.close()
    assert storage.read_json(tmp_path / "3" / COPIES / COPIES) == copies
