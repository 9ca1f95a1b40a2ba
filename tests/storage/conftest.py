"""What the tests of storage start from."""

import asyncio
import types
from collections.abc import Iterator

import pytest

from bert_jax.storage import Path, object_store


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets gcsfs and `attempt` wait a hundredth of their time before they repeat a request."""

    async def sleep(seconds: float) -> None:
        await asyncio.sleep(seconds / 100)

    monkeypatch.setattr(object_store, "_FIRST_WAIT", 0.01)
    monkeypatch.setattr("gcsfs.retry.asyncio", types.SimpleNamespace(sleep=sleep))


@pytest.fixture(params=["local", "gs"])
def root(request: pytest.FixtureRequest) -> Iterator[Path]:
    """An empty directory, on a disk and in a bucket."""
    if request.param == "local":
        yield Path(request.getfixturevalue("tmp_path"))
    else:
        yield Path(f"gs://{request.getfixturevalue('bucket').name}/root")
