"""Generate docs/model_files.md from the tables: `python -m bert_jax.families.describe`."""

import importlib
import pkgutil

import bert_jax.model_files
from bert_jax.families import FAMILIES
from bert_jax.model_files.keys import FileKey

_HEAD = """# The files of a model directory, key by key

This page lists every key of the JSON files beside a model's weights, and how it is treated.

- **honoured**: the key is applied, and `convert` and `save_pretrained` write it again.
- **harmless**: the key does not affect the model's outputs, and is ignored.
- **refused**: the key affects the model's outputs and is not supported; any value that is not accepted is an error.

A key that is in no table and has a value causes a warning, once per file.

`make docs` generates this page.
"""


def tables() -> dict[str, tuple[FileKey, ...]]:
    """Return title -> table for the public tables of all modules of `bert_jax.model_files`, and those of families.

    The title of a table is in `FILES` of its module; otherwise it is made from the names of the module and the table.
    """
    found: dict[str, tuple[FileKey, ...]] = {}
    for info in pkgutil.iter_modules(bert_jax.model_files.__path__):
        if info.name == "keys":
            continue
        module = importlib.import_module(f"bert_jax.model_files.{info.name}")
        titles = getattr(module, "FILES", {})
        for name, value in vars(module).items():
            if isinstance(value, tuple) and value and not name.startswith("_") and isinstance(value[0], FileKey):
                if titles.get(name) is None and getattr(module, name) in found.values():
                    continue  # the same table under another name
                found[titles.get(name, f"`{info.name}`: {name.lower()}")] = value
        if info.name == "config":
            for family in FAMILIES.values():
                if family.file_keys not in found.values():  # several families have one table
                    found[f"`config.json` of {family.title}"] = family.file_keys
    return found


def model_files_page() -> str:
    """Return the text of docs/model_files.md."""
    parts = [_HEAD]
    for title, table in tables().items():
        rows = "".join(f"| `{key.name}` | {key.fate} | {_accepted(key)} | {_cell(key.says)} |\n" for key in table)
        parts.append(
            f"\n## {title[0].upper()}{title[1:]}\n\n| key | treatment | accepted | meaning or reason "
            f"|\n|---|---|---|---|\n{rows}"
        )
    return "".join(parts)


def _accepted(key: FileKey) -> str:
    if key.fate != "refused":
        return ""
    return _cell(", ".join(f"`{value!r}`" for value in key.defaults if value is not None)) or "nothing"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    print(model_files_page(), end="")
