"""Optional packages: how a user installs them."""

import importlib
import importlib.metadata
import json
from typing import Any

from bert_jax.errors import InputError


def how_to_install(extra: str) -> str:
    """Return the pip command that installs an extra from the same source as the installed bert-jax.

    With a name alone, pip would search an index, where the package of that name may be somebody else's.
    """
    import urllib.parse
    import urllib.request  # imported here because it takes as long as the rest of the command line

    package = f"bert-jax[{extra}]"
    try:
        installed = importlib.metadata.distribution("bert-jax")
    except importlib.metadata.PackageNotFoundError:  # run from a source tree, without being installed
        return f"pip install '{package}'"
    origin: dict[str, Any] = json.loads(installed.read_text("direct_url.json") or "{}")
    url = str(origin.get("url", ""))
    links = dict(link.split(", ", 1) for link in installed.metadata.get_all("Project-URL") or [])
    if not url and "Repository" in links:  # written by `make release`
        package += f" @ git+{links['Repository']}"
    if url.startswith("file:"):
        package = urllib.request.url2pathname(urllib.parse.urlsplit(url).path) + f"[{extra}]"
    elif "vcs_info" in origin:
        package += f" @ {origin['vcs_info']['vcs']}+{url}@{origin['vcs_info']['commit_id']}"
    elif url:
        package += f" @ {url}"
    editable = "--editable " if origin.get("dir_info", {}).get("editable") else ""
    return f"pip install {editable}'{package}'"


def import_extra(module: str, extra: str) -> Any:
    """Import a module of an optional package.

    Args:
        module: dotted name of the module.
        extra: the extra of bert-jax that installs the package.

    Raises:
        InputError: the package is not installed; the message has the pip command.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise InputError(f"expected the package {package}: {how_to_install(extra)}; found {error}") from None
