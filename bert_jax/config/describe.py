"""Generate docs/api/config.md from the declarations: `python -m bert_jax.config.describe`."""

import dataclasses
import re
from typing import Any

from bert_jax.config.bert_config import BertConfig
from bert_jax.config.fields import Setting
from bert_jax.config.part import ModelPart
from bert_jax.config.parts import PLACES, kinds_of
from bert_jax.families import FAMILIES

_HEAD = """# Configuration

`BertConfig` has the sizes of a model, and a part for each place of the encoder, such as `attention`. Each part has
settings of its own; the defaults are BERT's. `replace` and recipes address a setting by its name, such as
`config.replace(rope_theta=160_000.0)`; a setting that the parts of a model do not have is an error. The column *recipe*
marks what a recipe can set as `model.NAME`: *new models* = a model from `init_from` must keep its value.

`make docs` generates this page.

::: bert_jax.BertConfig
    options:
      merge_init_into_class: false
      members: [named, replace, from_pretrained, from_hf, to_hf, from_json_file, to_json_file, label_names,
        sentence_embedding_size]

::: bert_jax.config.encoder_config.EncoderConfig
    options: {merge_init_into_class: false}

::: bert_jax.config.values.EmbeddingLayer

"""
_CLASSES = """::: bert_jax.config.part.ModelPart

::: bert_jax.config.fields.setting

::: bert_jax.config.fields.Setting
"""
_OPTIONS = "    options: {heading_level: 3, merge_init_into_class: false}\n"


def config_page() -> str:
    """Return the text of docs/api/config.md."""
    tuple(FAMILIES)  # imports all families, and so their parts
    text = _HEAD + "## Fields\n\n" + _table(BertConfig, {name for name in BertConfig.declared if name not in PLACES})
    for place in PLACES:
        text += f"\n## Place `{place}`: {BertConfig.declared[place].meaning}\n"
        for kind in _in_order(kinds_of(place)):
            text += f"\n::: {kind.__module__}.{kind.__name__}\n{_OPTIONS}"
            if new_settings := kind.declared.keys() - {
                name for base in kind.__bases__ for name in getattr(base, "declared", ())
            }:
                text += f"\n{_table(kind, new_settings)}"
    return f"{text}\n## All parts\n\n{_CLASSES}"


def _in_order(kinds: list[type[ModelPart]]) -> list[type[ModelPart]]:
    """Return parts in the same order after any imports: BERT's, those that families share, those of families."""
    first = kinds[0].__module__

    def key(kind: type[ModelPart]) -> tuple[str, bool, str]:
        return kind.__module__.partition(".families.")[2], kind.__module__ != first, kind.__module__

    return sorted(kinds, key=key)


def _table(kind: Any, names: set[str]) -> str:
    """Return a Markdown table of the fields `names` of a class."""
    fields = [field for field in dataclasses.fields(kind) if field.name in names]
    rows = "".join(_row(field.name, field.default, kind.declared[field.name]) for field in fields)
    return f"| name | type | default | recipe | meaning |\n|---|---|---|---|---|\n{rows}"


def _row(name: str, default: Any, setting: Setting) -> str:
    recipe = ("new models" if setting.shapes else "yes") if setting.in_recipes else ""
    values = f": {', '.join(setting.choices)}" if setting.choices and setting.choices is not FAMILIES else ""
    kind = re.sub(r"\w[\w.]*\.(?=\w)", "", setting.annotation).replace("|", "\\|")
    return f"| `{name}` | {kind} | `{default!r}` | {recipe} | {setting.meaning}{values} |\n"


if __name__ == "__main__":
    print(config_page(), end="")
