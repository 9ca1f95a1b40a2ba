"""The places of the encoder, the parts that may fill each, and changes of settings by name.

`BertConfig` holds a part for each place; the defaults are BERT's. A setting is a field of a part. No two places have
settings with the same name, so a recipe, a `config.json` and `BertConfig.replace` can address a setting by its name.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from bert_jax.config.encoder_config import EncoderConfig
from bert_jax.config.fields import Declared, Setting
from bert_jax.config.part import ModelPart
from bert_jax.errors import InputError, printable

_FIELDS = {field.name: field for field in dataclasses.fields(EncoderConfig) if isinstance(field.default, ModelPart)}
PLACES = tuple(_FIELDS)
BERTS_PARTS: dict[str, ModelPart] = {place: getattr(EncoderConfig, place) for place in PLACES}
# Key that selects the part for a place by its `kind` -> the place.
SELECTORS = {"position_embedding_type": "positions"}


def kinds_of(place: str) -> list[type[ModelPart]]:
    """Return the classes of parts that may fill a place, including those of other packages that are imported."""
    kinds: list[Any] = [_FIELDS[place].type]
    for kind in kinds:
        kinds += [other for other in kind.__subclasses__() if other not in kinds]
    return kinds


def with_parts(
    changes: Mapping[str, Any], parts: Mapping[str, ModelPart], family: str, *, of_file: bool = False
) -> dict[str, Any]:
    """Convert changes to those of `BertConfig` fields: settings of parts are put into the parts.

    Args:
        changes: name -> value of fields (places among them), of settings of parts, and of selectors.
        parts: place -> the part that is changed.
        family: the family, for messages.
        of_file: whether `changes` come from a file, which may have settings of parts that it does not select.

    Raises:
        InputError: a setting belongs to a part that neither `changes` nor `parts` has.
    """
    place_of = {name: place for place in PLACES for kind in kinds_of(place) for name in kind.declared}
    chosen = dict(parts) | {place: changes[place] for place in PLACES if place in changes}
    fields: dict[str, Any] = {}
    settings: dict[str, dict[str, Any]] = {}
    for name, value in changes.items():
        if name in SELECTORS:
            place = SELECTORS[name]
            _selector(place).check(value, f"model config: {name}")
            if chosen[place].kind != value:
                chosen[place] = next(kind for kind in kinds_of(place) if kind.kind == value)()
        elif name in place_of:
            settings.setdefault(place_of[name], {})[name] = value
        elif name not in PLACES:
            fields[name] = value
    for place, values in settings.items():
        known = chosen[place].declared
        if of_file:
            values = {name: value for name, value in values.items() if name in known}
        if unknown := [name for name in values if name not in known]:
            expected = f"one of {', '.join(known)}" if known else "no setting"
            raise InputError(
                f"model config: {unknown[0]}: expected {expected}, as the {place} of this {family} has, found "
                f"{printable(repr(values[unknown[0]]), 60)}"
            )
        chosen[place] = dataclasses.replace(chosen[place], **values)
    return fields | {place: part for place, part in chosen.items() if part is not parts.get(place)}


def check_part(place: str, part: Any) -> None:
    """Raise InputError when a value is not a part that may fill a place."""
    if not isinstance(part, kinds_of(place)[0]):
        expected = ", ".join(kind.__name__ for kind in kinds_of(place))
        raise InputError(f"model config: {place}: expected one of {expected}, found {printable(repr(part), 60)}")


def declared_settings(config: type[Declared]) -> dict[str, Setting]:
    """Return the declarations of a config's fields, of selectors, and of the settings of all imported parts.

    Parts of BERT and parts that several families share come before parts of a single family.
    """
    declared = {name: field for name, field in config.declared.items() if name not in PLACES}
    declared |= {name: _selector(place) for name, place in SELECTORS.items()}
    kinds = [kind for place in PLACES for kind in kinds_of(place)]
    for kind in sorted(kinds, key=lambda kind: "" if kind.__module__.startswith(__package__) else kind.__module__):
        declared = declared | {name: field for name, field in kind.declared.items() if name not in declared}
    return declared


def _selector(place: str) -> Setting:
    first, *others = dict.fromkeys(kind.kind for kind in kinds_of(place))
    meaning = EncoderConfig.declared[place].meaning
    return Setting(meaning, choices=(*others, first), shapes=True, annotation="str")
