"""Prune a tokenizer's vocabulary to a part; texts that use only that part are tokenized as before.

Why the remaining pieces give the same tokens, for each algorithm:

    WordPiece       takes the longest piece that matches. Among fewer pieces, the longest one is still the longest. An
                    unknown word stays unknown if the pieces that match its beginning are kept.
    BPE             applies the merge of the highest priority. All merges that lead to a remaining piece are kept, so at
                    each step the same merge has the highest priority.
    unigram model   takes the segmentation with the highest score. Among fewer segmentations, that one still has it. The
                    score of an unknown character depends on the lowest score of all pieces, so that piece stays.
"""

import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import tokenizers

from bert_jax.errors import InputError
from bert_jax.tokenization.huggingface import BackendTokenizer
from bert_jax.tokenization.interface import Tokenizer
from bert_jax.tokenization.sentencepiece import SentencePieceTokenizer, sentencepiece_proto
from bert_jax.tokenization.settings import TokenizerFiles

_ASCII = frozenset(map(chr, range(33, 127)))
_MARKS = ("##", "\u2581", "\u0120")  # prefixes of pieces that continue or begin a word
_TEXTS_TOGETHER = 1024


def used_ids(tokenizer: Tokenizer, texts: Iterable[str]) -> set[int]:
    """Return the ids that texts use, and the ids of the pieces that WordPiece matches in unknown words.

    Args:
        tokenizer: the tokenizer.
        texts: any number of texts, read once.
    """
    used: set[int] = set()
    words_of = _unknown_words(tokenizer)
    tried: set[str] = set()
    texts = iter(texts)
    while together := list(itertools.islice(texts, _TEXTS_TOGETHER)):
        for text, ids in zip(together, tokenizer.encode_batch(together), strict=True):
            used.update(ids)
            if words_of is not None and any(map(tokenizer.is_unknown, ids)):
                tried.update(words_of(text))
    for word in tried:
        used.update(_longest_matches(tokenizer, word))
    return used


def with_fewer_pieces(tokenizer: Tokenizer, used: Iterable[int]) -> tuple[Tokenizer, np.ndarray]:
    """Return a tokenizer with only the pieces that `used` needs, and the old id of each of its pieces.

    Besides the used pieces, it keeps special and added tokens; the pieces from which BPE merges them; all bytes of
    byte-level BPE; and single-character pieces for the characters of the used pieces and of printable ASCII. The order
    of the pieces stays the same.

    Args:
        tokenizer: a WordPiece, unigram or BPE tokenizer.
        used: ids, as from `used_ids`.

    Returns:
        The tokenizer, and int64 `[K]`, the old ids, ascending.

    Raises:
        InputError: the tokenizer is of another kind, or its ids cannot be renumbered.
    """
    if isinstance(tokenizer, SentencePieceTokenizer):
        kept = _kept_of_sentencepiece(tokenizer, set(used))
        smaller: Tokenizer = _smaller_sentencepiece(tokenizer, kept)
    elif isinstance(tokenizer, BackendTokenizer):
        kept = _kept_of_backend(tokenizer, set(used))
        smaller = _smaller_backend(tokenizer, kept)
    else:
        raise InputError(f"expected a tokenizer of a known kind, found {type(tokenizer).__name__}")
    if smaller.pieces != tuple(tokenizer.pieces[i] for i in kept):
        raise InputError("expected added tokens after the vocabulary, found some inside it; this cannot be pruned")
    return smaller, np.array(kept, np.int64)


def _unknown_words(tokenizer: Tokenizer) -> Callable[[str], Iterable[str]] | None:
    """Return a function from a text to its words, for WordPiece; None for others."""
    if not isinstance(tokenizer, BackendTokenizer) or not tokenizer.is_word_piece:
        return None
    return tokenizer.words


def _longest_matches(tokenizer: Tokenizer, word: str) -> Iterator[int]:
    """Yield the pieces that WordPiece matches in a word, up to the place where none matches."""
    assert isinstance(tokenizer, BackendTokenizer)
    model = tokenizer.backend.model
    start = 0
    while start < len(word) <= model.max_input_chars_per_word:
        prefix = model.continuing_subword_prefix if start else ""
        ends = range(len(word), start, -1)
        match_end = next((end for end in ends if model.token_to_id(prefix + word[start:end]) is not None), None)
        if match_end is None:
            return
        yield model.token_to_id(prefix + word[start:match_end])
        start = match_end


def _always_kept(tokenizer: Tokenizer) -> set[int]:
    return {*tokenizer.special_ids, *tokenizer.layout.start, *tokenizer.layout.between, *tokenizer.layout.end}


def _characters(tokenizer: Tokenizer, used: Iterable[int]) -> set[int]:
    """Return the ids of single-character pieces for the characters of the used pieces and of printable ASCII."""
    bare = [_bare(piece) for piece in tokenizer.pieces]
    letters = _ASCII.union(*(bare[i] for i in used))
    return {i for i, piece in enumerate(bare) if piece in letters or (not piece and tokenizer.pieces[i])}


def _bare(piece: str) -> str:
    mark = next((mark for mark in _MARKS if piece.startswith(mark) and len(piece) > len(mark)), "")
    return piece.removeprefix(mark)


def _kept_of_backend(tokenizer: BackendTokenizer, used: set[int]) -> list[int]:
    content = json.loads(tokenizer.backend.to_str())
    model, kind = content["model"], content["model"]["type"]
    kept = used | _always_kept(tokenizer) | {token["id"] for token in content["added_tokens"]}
    if kind == "BPE":
        if model.get("continuing_subword_prefix") or model.get("end_of_word_suffix") or model.get("dropout"):
            raise InputError("expected byte-level BPE, found another BPE, which cannot be pruned")
        ids = model["vocab"]
        kept |= {ids[byte] for byte in tokenizers.pre_tokenizers.ByteLevel.alphabet() if byte in ids}
        ranks = {tuple(merge): rank for rank, merge in enumerate(_pairs(model["merges"]))}
        priority = {pair: (rank, pair[0] + pair[1]) for pair, rank in ranks.items()}
        intermediate = [_merged_from(tokenizer.pieces[i], priority.get) for i in kept if tokenizer.pieces[i] in ids]
        return sorted(kept | {ids[piece] for parts in intermediate for piece in parts})
    kept |= _characters(tokenizer, kept)
    if kind == "Unigram":
        scores = np.array([score for _, score in model["vocab"]])
        kept |= {int(scores.argmin()), model["unk_id"]}
        if model.get("byte_fallback"):
            kept |= {i for i, (piece, _) in enumerate(model["vocab"]) if piece.startswith("<0x")}
        if tokenizer.sentencepiece_model is not None:  # keep the first ids, so that `_shift` stays the same
            kept |= set(range(_shift(tokenizer, sentencepiece_proto(tokenizer.sentencepiece_model))))
    elif kind != "WordPiece":
        raise InputError(f"expected a vocabulary of WordPiece, byte-level BPE or a unigram model, found {kind}")
    return sorted(kept)


def _pairs(merges: list[Any]) -> Iterator[tuple[str, str]]:
    """Yield the two pieces of each merge, which older files join by a space."""
    for merge in merges:
        first, second = merge.split(" ") if isinstance(merge, str) else merge
        yield first, second


def _merged_from(piece: str, rule: Callable[[tuple[str, str]], tuple[Any, str] | None]) -> set[str]:
    """Return all pieces that BPE makes on the way to a piece, single characters included.

    Args:
        piece: the piece.
        rule: function from two adjacent symbols to (rank, result) of their merge, lowest rank first; None = no merge.
    """
    symbols = list(piece)
    seen = set(symbols)
    while len(symbols) > 1:
        merges = [(rule((a, b)), i) for i, (a, b) in enumerate(itertools.pairwise(symbols))]
        possible = [(merge[0], i, merge[1]) for merge, i in merges if merge is not None]
        if not possible:
            break
        _, at, result = min(possible)
        symbols[at : at + 2] = [result]
        seen.add(result)
    return seen


def _smaller_backend(tokenizer: BackendTokenizer, kept: list[int]) -> BackendTokenizer:
    content = json.loads(tokenizer.backend.to_str())
    new = {old: i for i, old in enumerate(kept)}
    model = content["model"]
    if model["type"] == "Unigram":
        model["vocab"] = [entry for i, entry in enumerate(model["vocab"]) if i in new]
        model["unk_id"] = new[model["unk_id"]]
    else:
        model["vocab"] = {piece: new[i] for piece, i in model["vocab"].items() if i in new}
    if model["type"] == "BPE":
        known = model["vocab"]
        model["merges"] = [[a, b] for a, b in _pairs(model["merges"]) if {a, b, a + b} <= known.keys()]
    for token in content["added_tokens"]:
        token["id"] = new[token["id"]]
    _renumber(content["post_processor"], new)
    backend = tokenizers.Tokenizer.from_str(json.dumps(content))
    sentencepiece = tokenizer.sentencepiece_model
    if sentencepiece is not None:
        first = range(3)  # <unk>, <s> and </s>, to whose ids the shift does not apply
        proto = sentencepiece_proto(sentencepiece)
        shift = _shift(tokenizer, proto)
        kept_pieces = [i for i in range(len(proto.pieces)) if i in first or i + shift in new]
        sentencepiece = _with_pieces(sentencepiece, kept_pieces)
    return tokenizer.replaced(backend, sentencepiece)


def _shift(tokenizer: Tokenizer, proto: Any) -> int:
    """Return the difference between a tokenizer's ids and those of its SentencePiece model, from piece 3 on."""
    for i, piece in enumerate(proto.pieces[3:], 3):
        if (token_id := tokenizer.token_to_id(piece.piece)) is not None:
            return token_id - i
    return 0


def _renumber(processor: dict[str, Any] | None, new: Mapping[int, int]) -> None:
    """Renumber the tokens of a post_processor of tokenizer.json, in place."""
    for part in (processor or {}).get("processors", [processor] if processor else []):
        for name in ("sep", "cls"):
            if name in part:
                part[name][1] = new[part[name][1]]
        for token in (part.get("special_tokens") or {}).values():
            token["ids"] = [new[i] for i in token["ids"]]


def _kept_of_sentencepiece(tokenizer: SentencePieceTokenizer, used: set[int]) -> list[int]:
    proto = sentencepiece_proto(tokenizer.model)
    kept = used | _always_kept(tokenizer) | set(range(len(proto.pieces), tokenizer.vocab_size))
    kept |= {i for i, piece in enumerate(proto.pieces) if piece.type != piece.NORMAL}
    kept |= _characters(tokenizer, kept)
    normal = [i for i, piece in enumerate(proto.pieces) if piece.type == piece.NORMAL]
    scores = np.array([piece.score for piece in proto.pieces])
    kind = proto.trainer_spec.model_type
    if kind == proto.trainer_spec.UNIGRAM:  # extreme scores determine those of unknown and user-defined pieces
        kept |= {int(scores.argmin()), *(choose(normal, key=scores.__getitem__) for choose in (min, max))}
        return sorted(kept)
    if kind != proto.trainer_spec.BPE:
        raise InputError("expected a unigram or BPE model of SentencePiece, found one of words or characters")
    ids = {proto.pieces[i].piece: i for i in normal}

    def rule(pair: tuple[str, str]) -> tuple[float, str] | None:
        merged_id = ids.get("".join(pair))
        return None if merged_id is None else (-scores[merged_id], "".join(pair))

    merged = [_merged_from(tokenizer.pieces[i], rule) for i in kept if tokenizer.pieces[i] in ids]
    return sorted(kept | {ids[piece] for pieces in merged for piece in pieces if piece in ids})


def _smaller_sentencepiece(tokenizer: SentencePieceTokenizer, kept: list[int]) -> SentencePieceTokenizer:
    num_pieces = len(sentencepiece_proto(tokenizer.model).pieces)
    model = _with_pieces(tokenizer.model, [i for i in kept if i < num_pieces])
    added = dict(enumerate(tokenizer.added_tokens))
    return SentencePieceTokenizer(model, tokenizer.settings, TokenizerFiles(added=added))


def _with_pieces(model: bytes, kept: list[int]) -> bytes:
    """Return a SentencePiece model with only the pieces `kept`, in their order."""
    proto = sentencepiece_proto(model)
    pieces = [proto.pieces[i] for i in kept]
    smaller = type(proto)()
    smaller.CopyFrom(proto)
    del smaller.pieces[:]
    smaller.pieces.extend(pieces)
    new = {old: i for i, old in enumerate(kept)}
    spec = smaller.trainer_spec
    spec.vocab_size = len(kept)
    for name in ("unk_id", "bos_id", "eos_id", "pad_id"):
        setattr(spec, name, new.get(getattr(spec, name), -1))
    return smaller.SerializeToString()
