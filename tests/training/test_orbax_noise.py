"""What Orbax, asyncio and the interpreter say beside an error is left out, and what others say is not."""

import asyncio
import gc
import logging
import resource
import sys

import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.errors import InputError
from bert_jax.training.checkpoints import Checkpoints
from bert_jax.training.orbax_noise import quiet_orbax
from bert_jax.training.state import State


@pytest.fixture
def full_disk():
    """No file may grow beyond a limit, as a stand-in for a disk that is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def save(directory) -> None:
    """Saves arrays each of which is too large, as a run does."""
    rng = np.random.default_rng(0)
    params = {str(i): jnp.asarray(rng.normal(size=100_000), jnp.float32) for i in range(20)}
    checkpoints = Checkpoints(directory, keep=1)
    try:
        checkpoints.save(State(params, {}, jnp.int32(1)))
        checkpoints.wait()
    finally:
        checkpoints.close()


@pytest.mark.slow
@pytest.mark.usefixtures("full_disk")
def test_nothing_is_said_of_a_failed_save_once_its_block_has_ended(tmp_path, caplog, capfd):
    for run in range(3):
        with pytest.raises(InputError, match="could not be written: File too large") as raised, quiet_orbax():
            save(tmp_path / str(run))
        del raised
        gc.collect()
    assert not caplog.records and "Traceback" not in capfd.readouterr().err


@pytest.mark.parametrize(
    ("text", "said"), [('OUT_OF_RANGE: Error writing "params.13/0" in OCDBT', 0), ("of somebody else", 1)]
)
def test_nothing_is_said_of_a_future_whose_task_was_cancelled(caplog, text, said):
    async def fail():
        asyncio.get_running_loop().create_future().set_exception(ValueError(text))

    with quiet_orbax():
        asyncio.run(fail())
    assert len(caplog.records) == said


def test_a_block_restores_what_was_before():
    def settings():
        return sys.unraisablehook, [list(logging.getLogger(name).filters) for name in ("absl", "asyncio")]

    before = settings()
    with quiet_orbax():
        within = settings()
        with quiet_orbax():
            pass
        assert settings() == within != before
    assert settings() == before
