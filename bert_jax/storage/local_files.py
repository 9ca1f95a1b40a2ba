"""Copy remote files to the local disk, and run Python files."""

import contextlib
import os
import tempfile
import types
from collections.abc import Iterator

from bert_jax.storage.paths import Path, PathLike
from bert_jax.storage.reading import read_text


def run_python(path: PathLike) -> types.ModuleType:
    """Execute a Python file, and return the module with its names.

    Raises:
        InputError: as `read_text`. Exceptions that the file raises are passed on.
    """
    module = types.ModuleType(Path(path).name.removesuffix(".py"))
    module.__file__ = str(path)
    exec(compile(read_text(path), str(path), "exec"), vars(module))
    return module


@contextlib.contextmanager
def local_copy(path: PathLike) -> Iterator[str]:
    """Yield the name of a local file: the file itself, or a temporary copy of an object."""
    path = Path(path)
    if not path.is_remote:
        yield os.fspath(path)
        return
    with tempfile.TemporaryDirectory() as folder:
        name = os.path.join(folder, path.name)
        path.download(name)
        yield name
