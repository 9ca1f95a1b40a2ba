"""The keys of recipes that describe a model, derived from the declarations of `BertConfig` and of its parts."""

from collections.abc import Mapping

from bert_jax.config import BertConfig
from bert_jax.config.fields import Setting
from bert_jax.config.parts import declared_settings
from bert_jax.config.values import SIZES
from bert_jax.families import import_parts
from bert_jax.recipes.base import Key

# Keys that are not fields of `BertConfig`, or mean more than the field.
_OWN = {
    "model.size": Key("base", f"named size: {', '.join(SIZES)}, or a size of model.family; other keys override it"),
    "model.vocab_size": Key(0, "number of rows in the word embedding; 0 = the tokenizer's number of tokens", least=0),
}


def model_fields() -> dict[str, Key]:
    """Return the keys of fields and settings by name, including families that were registered later."""
    import_parts()
    declared = declared_settings(BertConfig)
    return {name: _key(setting) for name, setting in declared.items() if setting.in_recipes}


def model_keys() -> dict[str, Key]:
    """Return the keys of recipes that describe a model."""
    fields = {f"model.{name}": key for name, key in model_fields().items()}
    return _OWN | {name: key for name, key in fields.items() if name not in _OWN}


def _key(setting: Setting) -> Key:
    recipe_options = setting.recipe if isinstance(setting.recipe, Mapping) else {}
    declared = {name: getattr(setting, name) for name in ("least", "above", "below", "synonyms")}
    meaning = setting.meaning.replace("None = ", "not set = ")
    return Key(setting.type or object, meaning, setting.choices, **(declared | dict(recipe_options)))
