"""Generate docs/model_files.md from the tables: `python -m bert_jax.config.model_files_page`."""

import importlib
import pkgutil
from collections.abc import Mapping

import bert_jax.model_files
from bert_jax.config.bert_config import BertConfig
from bert_jax.config.fields import Setting
from bert_jax.config.parts import PLACES, kinds_of
from bert_jax.families import FAMILIES, import_parts, own_keys
from bert_jax.model_files.keys import FileKey

_HEAD = """# The files of a model directory, key by key

This page lists the keys that are applied or refused in the JSON files beside a model's weights.

- **honoured**: the key is applied, and `convert` and `save_pretrained` write it again. A name in brackets is that of
  the setting in [`BertConfig`](api/config.md).
- **refused**: the key affects the model's outputs and is not supported; any value that is not accepted is an error.
- **harmless**: the key has no effect in this file, though its name has one elsewhere.

Keys that are in no table are not read. They are reported once per file, in one line at level INFO:
`config.json: 3 keys are not read: a, b, c`. Those that may have been meant to change the outputs cause a warning:

- a key with a name like that of a key in the table,
- a key of `config.json` that another family honours or refuses,
- any key of an adapter, of an added token, or of the files of sentence-transformers.

Versions, paths, dtypes and the like, which most files have, are not reported, nor are empty values.

`make docs` generates this page.
"""


def tables() -> dict[str, tuple[FileKey, ...]]:
    """Return title -> table for the public tables of all modules of `bert_jax.model_files`, and those of families.

    The title of a table is in `FILES` of its module; otherwise it is made from the names of the module and the table.
    """
    by_title: dict[str, tuple[FileKey, ...]] = {}
    for info in pkgutil.iter_modules(bert_jax.model_files.__path__):
        if info.name == "keys":
            continue
        module = importlib.import_module(f"bert_jax.model_files.{info.name}")
        titles = getattr(module, "FILES", {})
        for name, value in vars(module).items():
            if isinstance(value, tuple) and value and not name.startswith("_") and isinstance(value[0], FileKey):
                if titles.get(name) is None and getattr(module, name) in by_title.values():
                    continue  # skip the same table under another name
                by_title[titles.get(name, f"`{info.name}`: {name.lower()}")] = value
        if info.name == "config":
            for family in FAMILIES.values():
                if (table := own_keys(family)) not in by_title.values():  # several families have one table
                    by_title[f"`config.json` of {family.title}"] = table
    return by_title


def model_files_page() -> str:
    """Return the text of docs/model_files.md."""
    parts = [_HEAD]
    import_parts()
    declared = dict(BertConfig.declared)
    for kind in (kind for place in PLACES for kind in kinds_of(place)):
        declared |= kind.declared
    for title, table in tables().items():
        rows = "".join(
            f"| `{key.name}` | {key.fate} | {_accepted(key)} | {_cell(_meaning(key, declared))} |\n" for key in table
        )
        parts.append(
            f"\n## {title[0].upper()}{title[1:]}\n\n| key | treatment | accepted | meaning or reason "
            f"|\n|---|---|---|---|\n{rows}"
        )
    return "".join(parts)


def _meaning(key: FileKey, declared: Mapping[str, Setting]) -> str:
    """Return the meaning of a key: that of the setting which it names, if any."""
    if key.says not in declared:
        return key.says
    return declared[key.says].meaning + (f" (`{key.says}`)" if key.says != key.name else "")


def _accepted(key: FileKey) -> str:
    if key.fate != "refused":
        return ""
    return _cell(", ".join(f"`{value!r}`" for value in key.defaults if value is not None)) or "nothing"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    print(model_files_page(), end="")
