"""Apply the settings of tokenizer_config.json to the content of a tokenizer.json, as transformers does."""

from typing import Any

from bert_jax.tokenization.backends import part_of
from bert_jax.tokenization.classes import RJIEBA
from bert_jax.tokenization.settings import TOKEN_TYPES


def _parts_of(part: Any, several: str) -> list[dict[str, Any]]:
    """Return the parts of a normalizer, pre_tokenizer or post_processor, which may be a sequence of parts.

    The result is empty for values of the wrong type, which the library rejects.
    """
    parts = part.get(several, [part]) if isinstance(part, dict) else []
    return [part for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []


def override_byte_level(content: dict[str, Any], settings: dict[str, Any]) -> None:
    """Override add_prefix_space and trim_offsets with the settings; missing settings are set from the content."""
    parts = [*_parts_of(content.get("pre_tokenizer"), "pretokenizers"),
             *_parts_of(content.get("post_processor"), "processors")]  # fmt: skip
    for part in parts:
        for name in ("add_prefix_space", "trim_offsets"):
            if name in part:
                part[name] = settings.setdefault(name, part[name])


def override_albert(content: dict[str, Any], settings: dict[str, Any]) -> None:
    """Override the normalizer with that of the settings, as transformers does; missing settings are the content's."""
    for name, value in TOKEN_TYPES.items():  # transformers 5 has no token types unless the settings say so
        settings.setdefault(name, value)
    steps = _parts_of(content.get("normalizer"), "normalizers")
    kinds = [step.get("type") for step in steps]
    lowercase = settings.setdefault("do_lower_case", "Lowercase" in kinds)
    keep_accents = settings.setdefault("keep_accents", "StripAccents" not in kinds)
    from bert_jax.tokenization.families import albert_normalizer

    made = part_of(albert_normalizer(lowercase, keep_accents, None)) or {}
    charsmap = [step for step in steps if step.get("type") == "Precompiled"]
    content["normalizer"] = made | {"normalizers": [*made["normalizers"], *charsmap]}


def override_normalizer(normalizer: Any, settings: dict[str, Any], algorithm: str | None) -> None:
    """Override the options of a BertNormalizer with the settings of `tokenizer_config.json`, as transformers does."""
    for part in _parts_of(normalizer, "normalizers"):
        if part.get("type") != "BertNormalizer":
            continue
        if algorithm == RJIEBA:  # whose class takes tokenize_chinese_chars and ignores it
            settings = settings | {"tokenize_chinese_chars": None}
        for ours, theirs in (
            ("do_lower_case", "lowercase"),
            ("strip_accents", "strip_accents"),
            ("tokenize_chinese_chars", "handle_chinese_chars"),
        ):
            if settings.get(ours) is not None:
                part[theirs] = settings[ours]
