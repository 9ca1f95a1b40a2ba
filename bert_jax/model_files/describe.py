"""Generate docs/model_files.md from the tables: `python -m bert_jax.model_files.describe`."""

import importlib
import pkgutil

import bert_jax.model_files
from bert_jax.model_files.keys import FileKey

_HEAD = """# The files of a model directory, key by key

Every key of the JSON files beside a model's weights, as the code has it.

- **honoured**: the answers follow it, and `convert` and `save_pretrained` write it again.
- **harmless**: no answer depends on it.
- **refused**: an answer depends on it and cannot be given, so that another value than the accepted ones is an error.

A key that is in no table and has a value is named in a warning, once for each file.

This page is generated: `make docs`.
"""


def tables() -> dict[str, tuple[FileKey, ...]]:
    """Title -> table: the public tuples of keys of every module of `bert_jax.model_files`.

    The title is what `FILES` of the module says for the name of the tuple, else made of the module's name and its own.
    """
    found: dict[str, tuple[FileKey, ...]] = {}
    for info in pkgutil.iter_modules(bert_jax.model_files.__path__):
        if info.name in ("keys", "describe"):
            continue
        module = importlib.import_module(f"bert_jax.model_files.{info.name}")
        titles = getattr(module, "FILES", {})
        for name, value in vars(module).items():
            if isinstance(value, tuple) and value and not name.startswith("_") and isinstance(value[0], FileKey):
                if titles.get(name) is None and getattr(module, name) in found.values():
                    continue  # the same table under another name
                found[titles.get(name, f"`{info.name}`: {name.lower()}")] = value
    return found


def model_files_page() -> str:
    """Returns docs/model_files.md."""
    parts = [_HEAD]
    for title, table in tables().items():
        rows = "".join(f"| `{key.name}` | {key.fate} | {_accepted(key)} | {_cell(key.says)} |\n" for key in table)
        parts.append(f"\n## {title[0].upper()}{title[1:]}\n\n| key | | accepted | |\n|---|---|---|---|\n{rows}")
    return "".join(parts)


def _accepted(key: FileKey) -> str:
    if key.fate != "refused":
        return ""
    return _cell(", ".join(f"`{value!r}`" for value in key.defaults if value is not None)) or "nothing"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    print(model_files_page(), end="")
