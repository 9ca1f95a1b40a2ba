"""Apply the settings of tokenizer_config.json to the content of a tokenizer.json, as transformers does."""

from typing import Any

from bert_jax.tokenization.classes import RJIEBA


def sequence_parts(part: Any, several: str) -> list[dict[str, Any]]:
    """Return the parts of a normalizer, pre_tokenizer or post_processor, which may be a sequence of parts.

    The result is empty for values of the wrong type, which the library rejects.
    """
    parts = part.get(several, [part]) if isinstance(part, dict) else []
    return [part for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []


def override_normalizer(normalizer: Any, settings: dict[str, Any], algorithm: str | None) -> None:
    """Override the options of a BertNormalizer with the settings of `tokenizer_config.json`, as transformers does."""
    for part in sequence_parts(normalizer, "normalizers"):
        if part.get("type") != "BertNormalizer":
            continue
        if algorithm == RJIEBA:  # RJIEBA's class accepts tokenize_chinese_chars but ignores it
            settings = settings | {"tokenize_chinese_chars": None}
        for ours, theirs in (
            ("do_lower_case", "lowercase"),
            ("strip_accents", "strip_accents"),
            ("tokenize_chinese_chars", "handle_chinese_chars"),
        ):
            if settings.get(ours) is not None:
                part[theirs] = settings[ours]
