"""Find recipes by name: the recipe files in configs/, and the defaults of each task."""

import ast

from bert_jax import storage
from bert_jax.errors import InputError, did_you_mean
from bert_jax.recipes.keys import RECIPES

_PACKAGE = storage.Path(__file__).parent.parent
# In a wheel configs/ is inside the package, in a checkout beside it.
_FOLDER = next(folder for folder in (_PACKAGE / "configs", _PACKAGE.parent / "configs") if folder.is_dir())


def recipe_files() -> dict[str, str]:
    """Return the path of each recipe file that comes with bert_jax, by name."""
    return {path.stem: str(path) for path in sorted(_FOLDER.glob("*.py"), key=str)}


def recipe_names() -> list[str]:
    """Return all names that `--config` accepts: those of recipe files, and those of tasks for their defaults."""
    return sorted({*recipe_files(), *RECIPES})


def summary(name: str) -> str:
    """Return a description of a recipe in one line."""
    if name in (files := recipe_files()):
        docstring = ast.get_docstring(ast.parse(storage.read_text(files[name]))) or ""
    else:
        docstring = f"The defaults of the task {name}."
    return docstring.partition("\n")[0].rstrip(".")


def find_recipe(spec: str) -> tuple[str, str]:
    """Find the recipe that `spec` names, and split off the argument after its colon.

    Args:
        spec: `NAME`, `FILE.py`, `FILE.json` or a work directory, local or in an object store, optionally followed by
            `:ARGUMENT`.

    Returns:
        The path of a file or the name of a task, and the argument ("" without one).

    Raises:
        InputError: there is no such recipe; the message lists the known recipes.
    """
    scheme = spec.find("://") + 3 if storage.is_remote(spec) else 0
    name, _, argument = spec[scheme:].partition(":")
    name = spec[:scheme] + name
    if "/" not in name and not name.endswith((".py", ".json")):
        if name in (files := recipe_files()):
            return files[name], argument
        if name in RECIPES:
            return name, argument
    if not scheme and storage.Path(spec).exists():
        name, argument = spec, ""
    path = storage.Path(name)
    if not name.endswith((".py", ".json")) and (path / "config.json").is_file():
        return f"{name.rstrip('/')}/config.json", argument
    if path.is_file() and name.endswith((".py", ".json")):
        return name, argument
    raise InputError(_no_recipe(name, path))


def _no_recipe(name: str, path: storage.Path) -> str:
    """Return the error message for a name that is no recipe."""
    if path.is_file():
        return f"{name}: expected a recipe file ending in .py or .json"
    stem = name.rstrip("/").rpartition("/")[2].removesuffix(".py")
    names = recipe_names()
    if stem in names:
        return f"{name}: no such recipe file; the recipe of that name comes with bert_jax: --config {stem}"
    if name.endswith((".py", ".json")) or "/" in name:
        return f"{name}: no such recipe file; recipes that come with bert_jax: {', '.join(names)}"
    hint = did_you_mean(stem, names)
    known = f"; known: {', '.join(names)}" if not hint.startswith("; known") else ""
    return f"no recipe {name!r}{hint}{known}"
