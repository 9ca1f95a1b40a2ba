"""Validate a tokenizer.json before the `tokenizers` library opens it."""

import base64
import binascii
from typing import Any

from bert_jax.errors import InputError, printable
from bert_jax.model_files import check_keys
from bert_jax.model_files.tokenizer import TOKENIZER_JSON
from bert_jax.tokenization.patterns import PARTS, parts_of
from bert_jax.tokenization.settings import MAX_ID, check_id, token_of

_MAX_GROWTH = 1000  # characters into which a normalizer may turn one character
_MAX_WORD = 1000  # characters in a word; tokenizing a word takes quadratic time
_MAX_TEXT = 1000  # characters in a string option of a normalizer, pre_tokenizer or decoder


def check_tokenizer_json(content: dict[str, Any]) -> None:
    """Raise InputError for content that would make the library crash, hang or exhaust memory.

    Other invalid content is left to the library, which rejects it.
    """
    check_keys(content, TOKENIZER_JSON, "tokenizer.json")
    if not isinstance(content.get("model"), dict):
        found = type(content.get("model")).__name__
        raise InputError(f"expected a tokenizer.json of the tokenizers library, found a model of type {found}")
    _check_model(content["model"])
    for name in ("padding", "truncation"):
        part = content.get(name)
        side = part.get("direction", "Right") if isinstance(part, dict) else None
        if part is not None and side not in ("Left", "Right"):
            raise InputError(f"{name}: expected null, or a direction of Left or Right, found {_shown(part)}")
    tokens = content.get("added_tokens")
    for i, token in enumerate(tokens if isinstance(tokens, list) else ()):
        token_of(token, f"added_tokens: number {i + 1}")
        if isinstance(token, dict) and "id" in token:
            check_id(token["id"], f"added_tokens: number {i + 1}: id")
    parts = {name: list(parts_of(content.get(name), name)) for name in PARTS}
    for name, parts_of_name in parts.items():
        for part in parts_of_name:
            _check_part(part, name)
    _check_growth(parts["normalizer"])


def _check_model(model: dict[str, Any]) -> None:
    vocabulary = model.get("vocab")
    if isinstance(vocabulary, dict):
        for piece, i in vocabulary.items():
            if type(i) is not int or not 0 <= i < MAX_ID:
                check_id(i, f"vocab: {printable(repr(piece), 60)}")
    prefix, merges = model.get("continuing_subword_prefix"), model.get("merges")
    if isinstance(prefix, str) and prefix and isinstance(merges, list):
        for merge in merges:
            pair = merge.split(" ") if isinstance(merge, str) else merge
            second = pair[-1] if isinstance(pair, list) and pair else None
            if isinstance(second, str) and not second.startswith(prefix):
                raise InputError(f"model: merges: expected a second piece that begins with {_shown(prefix)}, found "
                                 f"{_shown(merge)}")  # fmt: skip
    for name, limit in (("max_input_chars_per_word", _MAX_WORD), ("unk_id", MAX_ID)):
        value = model.get(name)
        if value is not None and (type(value) is not int or not 0 <= value <= limit):
            raise InputError(f"model: {name}: expected at most {limit}, found {_shown(value)}")
    if model.get("dropout"):
        raise InputError(
            f"model: dropout: expected null, since tokenization must be deterministic, found {_shown(model['dropout'])}"
        )


def _check_part(part: dict[str, Any], name: str) -> None:
    kind = part.get("type")
    for key, value in part.items():
        if key == "precompiled_charsmap":
            try:
                charsmap = base64.b64decode(value, validate=True)
            except (TypeError, ValueError, binascii.Error):
                raise InputError(f"{name}: precompiled_charsmap: expected base64, found other text") from None
            from bert_jax.tokenization.charsmap import check_charsmap

            check_charsmap(charsmap, f"{name}: precompiled_charsmap")
            continue
        for text in value.values() if isinstance(value, dict) else (value,):
            if isinstance(text, str) and len(text) > _MAX_TEXT:
                raise InputError(f"{name}: {kind}: {key}: expected at most {_MAX_TEXT} characters, found {len(text)}")
            if type(text) is int and not 0 <= text < 1 << 31:
                raise InputError(f"{name}: {kind}: {key}: expected at most {(1 << 31) - 1}, found {_shown(text)}")
    if kind == "FixedLength" and not part.get("length", 1):
        raise InputError(f"{name}: FixedLength: length: expected at least 1, found 0")


def _check_growth(parts: list[dict[str, Any]]) -> None:
    """Raise InputError for chains of replacements that each multiply the output of the one before.

    A replacement multiplies with an earlier one if it can match characters that the earlier one inserted.
    """
    growths: list[tuple[float, set[str]]] = []
    for part in parts:
        content = part.get("content", part.get("prepend"))
        if part.get("type") not in ("Replace", "Prepend") or not isinstance(content, str):
            continue
        pattern = part.get("pattern")
        text = pattern.get("String") if isinstance(pattern, dict) else None
        growth_of_part = max(1.0, len(content) / len(text) if text else len(content) + 1.0)
        before = [growth for growth, put in growths if not text or put.intersection(text)]
        growths.append((growth_of_part * max(before, default=1.0), set(content)))
    most = max((growth for growth, _ in growths), default=1.0)
    if most > _MAX_GROWTH:
        raise InputError(f"normalizer: expected replacements that turn a character into at most {_MAX_GROWTH} "
                         f"characters, found some that make {most:.0f}")  # fmt: skip


def _shown(value: Any) -> str:
    return (
        printable(repr(value), 60) if not isinstance(value, int) or abs(value) < 10**60 else "a number of many digits"
    )
