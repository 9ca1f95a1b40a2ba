"""Packages that only an export needs."""

import importlib
from typing import Any

from bert_jax.errors import InputError


def import_extra(module: str, extra: str) -> Any:
    """Import a module of an optional package.

    Args:
        module: its dotted name.
        extra: the extra of bert-jax that installs the package.

    Raises:
        InputError: the package is not installed; the message has the pip command.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise InputError(
            f"expected the package {package}, which this format needs: pip install 'bert-jax[{extra}]'; found {error}"
        ) from None
