"""Build tokenizers of the `tokenizers` library, and read their parts and vocabularies."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import tokenizers

from bert_jax.errors import InputError

_MOST_MISSING = 1 << 16  # a vocabulary may have this many ids without a token, and one more per token
# Characters that the original BERT drops (`tokenization.py`, `_clean_text`): NUL, U+FFFD and categories Cc and Cf. The
# library's clean_text also drops private-use and unassigned characters, which would make some unknown words known.
_DROPPED = r"[\x00\x{fffd}\p{Cc}\p{Cf}&&[^\t\n\r]]"


def backend_of(content: dict[str, Any]) -> tokenizers.Tokenizer:
    """Build the library's tokenizer from a tokenizer.json. Raises InputError when the library rejects it."""
    try:
        return tokenizers.Tokenizer.from_str(json.dumps(content))
    except RecursionError:
        reason = "values that are nested too deeply"
    except BaseException as error:  # the library raises a bare Exception, or a BaseException when it panics
        if not isinstance(error, Exception) and "Panic" not in type(error).__name__:
            raise
        reason = " ".join(str(error).split())
    raise InputError(f"expected a tokenizer.json of the tokenizers library, found {reason}")


def part_of(part: Any) -> dict[str, Any] | None:
    """Return a part of a `tokenizers.Tokenizer` as in tokenizer.json; None for a missing part."""
    return None if part is None else json.loads(part.__getstate__())


def hide_specials(content: dict[str, Any]) -> None:
    """Rename special tokens in a tokenizer.json: Unigram and WordLevel models would match their names in a text."""
    special = {token["content"] for token in content["added_tokens"] if token["special"]}
    hidden = {piece: f" {piece}" for piece in special}  # spaces never reach the model
    vocabulary = content["model"]["vocab"]
    if isinstance(vocabulary, dict):
        content["model"]["vocab"] = {hidden.get(piece, piece): i for piece, i in vocabulary.items()}
        content["model"]["unk_token"] = hidden.get(content["model"]["unk_token"], content["model"]["unk_token"])
    else:
        content["model"]["vocab"] = [[hidden.get(piece, piece), score] for piece, score in vocabulary]
    for token in content["added_tokens"]:
        token["content"] = hidden.get(token["content"], token["content"])


def words_stand_alone(backend: dict[str, Any]) -> bool:
    """Return whether a tokenizer (as in tokenizer.json) tokenizes each word between spaces independently."""
    normalizer = backend["normalizer"] or {"type": "Sequence", "normalizers": []}
    steps = normalizer["normalizers"] if normalizer["type"] == "Sequence" else [normalizer]
    return (
        backend["model"]["type"] == "WordPiece"
        and (backend["pre_tokenizer"] or {}).get("type") == "BertPreTokenizer"
        and all(step["type"] == "BertNormalizer" or step.get("pattern") == {"Regex": _DROPPED} for step in steps)
        and not any(
            " " in token["content"] or (not token["special"] and (token["lstrip"] or token["rstrip"]))
            for token in backend["added_tokens"]
        )
    )


def continuation_pieces(pieces: Sequence[str], prefix: str | None) -> np.ndarray:
    """Return bool [V]: tokens with the continuation prefix or, without a prefix, tokens that do not begin a word."""
    if prefix:
        return np.array([piece.startswith(prefix) for piece in pieces], np.bool_)
    # SentencePiece marks beginnings of words with U+2581, byte-level BPE with U+0120; take the more frequent mark.
    marks = {mark: np.array([piece.startswith(mark) for piece in pieces], np.bool_) for mark in ("\u2581", "\u0120")}
    begins = max(marks.values(), key=np.count_nonzero)
    return ~begins


def pieces_in_order(ids: dict[str, int]) -> list[str]:
    """Return the tokens in the order of their ids, with "" for unused ids; trailing blank tokens are dropped."""
    last = max((i for piece, i in ids.items() if piece), default=0)
    if last > 2 * len(ids) + _MOST_MISSING:
        raise InputError(f"vocabulary: expected ids without large gaps, found id {last} among {len(ids)} pieces")
    pieces = [""] * (last + 1)
    for piece, i in ids.items():
        if piece:
            pieces[i] = max(pieces[i], piece)  # deterministic if two tokens share an id
    return pieces


def sep_and_cls(special: dict[str, str], backend: tokenizers.Tokenizer) -> tuple[tuple[str, int], tuple[str, int]]:
    """Return (token, id) of the sep and the cls token.

    Raises:
        InputError: the vocabulary lacks the pad, cls or sep token.
    """
    ids = {role: backend.token_to_id(special[role]) for role in ("pad", "cls", "sep") if role in special}
    missing = [role for role in ("pad", "cls", "sep") if ids.get(role) is None]
    if missing:
        raise InputError(f"expected the special tokens of BERT, found none for {', '.join(missing)} among "
                         f"{backend.get_vocab_size()} tokens; tokenizer_config.json can name others, such as "
                         f'{{"cls_token": "<cls>"}}')  # fmt: skip
    return (special["sep"], ids["sep"] or 0), (special["cls"], ids["cls"] or 0)


def word_piece_backend(pieces: Sequence[str], unk_token: str, max_chars_per_word: int) -> tokenizers.Tokenizer:
    """Return a WordPiece tokenizer of the library, without normalizer and post_processor."""
    ids = {piece: i for i, piece in enumerate(pieces)}
    backend = tokenizers.Tokenizer(
        tokenizers.models.WordPiece(ids, unk_token=unk_token, max_input_chars_per_word=max_chars_per_word)
    )
    backend.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    backend.decoder = tokenizers.decoders.WordPiece()
    return backend


def bert_normalizer(
    lowercase: bool, strip_accents: bool | None, chinese_chars: bool
) -> tokenizers.normalizers.Normalizer:
    """Return the normalizer of the original `BasicTokenizer`: cleaning, CJK spacing, accents and case."""
    return tokenizers.normalizers.Sequence(
        [
            tokenizers.normalizers.Replace(tokenizers.Regex(_DROPPED), ""),
            tokenizers.normalizers.BertNormalizer(
                clean_text=False, handle_chinese_chars=chinese_chars, strip_accents=strip_accents, lowercase=lowercase
            ),
        ]
    )
