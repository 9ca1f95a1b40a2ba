"""Load a tokenizer from a vocabulary without a `tokenizer.json`: `vocab.txt`, `vocab.json` or a SentencePiece model."""

import dataclasses
from typing import TYPE_CHECKING

from bert_jax import storage
from bert_jax.errors import InputError, logger, printable
from bert_jax.lazy import LazyModule
from bert_jax.tokenization.classes import (
    ALBERT,
    BIG_BIRD,
    CAMEMBERT,
    DEBERTA,
    DEBERTA_BPE,
    FAST_BPE,
    MPNET,
    RESIDUES,
    RJIEBA,
    XLM_ROBERTA,
)
from bert_jax.tokenization.interface import Tokenizer
from bert_jax.tokenization.names import (
    CODES_FILE,
    ESM_SPECIALS,
    MPNET_SPECIALS,
    ROBERTA_SPECIALS,
    WORD_PIECE_SPECIALS,
)
from bert_jax.tokenization.settings import TokenizerFiles, check_id, named_specials
from bert_jax.tokenization.word_piece_tokenizer import word_piece

if TYPE_CHECKING:
    from bert_jax.tokenization import (
        big_bird_tokenizer,
        byte_level,
        families,
        fast_bpe,
        residues,
        roformer,
        sentencepiece,
    )
else:  # imported on first use: a vocabulary needs at most one of them
    big_bird_tokenizer = LazyModule("bert_jax.tokenization.big_bird_tokenizer")
    byte_level = LazyModule("bert_jax.tokenization.byte_level")
    families = LazyModule("bert_jax.tokenization.families")
    fast_bpe = LazyModule("bert_jax.tokenization.fast_bpe")
    residues = LazyModule("bert_jax.tokenization.residues")
    roformer = LazyModule("bert_jax.tokenization.roformer")
    sentencepiece = LazyModule("bert_jax.tokenization.sentencepiece")

_log = logger(__name__)

_MAX_BYTES = 256 << 20  # limit of a vocabulary file
_CASED = 0.05  # share of capitalized words in a cased vocabulary; BERT's has 0.26
# Characters that are stripped from the end of a line of vocab.txt, as in the tokenizers library: Unicode White_Space.
_SPACES = "\t\n\x0b\x0c\r \x85\xa0\u1680" + "".join(map(chr, range(0x2000, 0x200B))) + "\u2028\u2029\u202f\u205f\u3000"


def open_vocabulary(path: storage.Path, kind: str, algorithm: str | None, files: TokenizerFiles) -> Tokenizer:
    """Load the tokenizer of a vocabulary file.

    Args:
        path: the file.
        kind: vocab.txt, vocab.json, or the pattern of any other name, such as `*.model`.
        algorithm: one of `bert_jax.tokenization.classes`; None if the file determines it.
        files: contents of the files beside it.

    Raises:
        InputError: the file is invalid, or none of these kinds.
    """
    if kind == "vocab.json":
        return _from_merges(path, files)
    if kind == "*.model" and algorithm is not None:
        builders = {
            XLM_ROBERTA: families.xlm_roberta,
            CAMEMBERT: families.camembert,
            ALBERT: families.albert,
            DEBERTA: families.deberta_v2,
        }
        build = big_bird_tokenizer.big_bird if algorithm == BIG_BIRD else builders[algorithm]
        return build(_bytes(path), files)
    if kind == "*.model":
        return sentencepiece.SentencePieceTokenizer(_bytes(path), files=files)
    has_codes = kind == "vocab.txt" and (path.parent / CODES_FILE).exists()
    if algorithm == FAST_BPE and not has_codes:
        name = files.settings.get("tokenizer_class") or files.family
        raise InputError(f"expected {CODES_FILE} beside it, which {name} needs, found none")
    if has_codes:
        codes = storage.read_text(path.parent / CODES_FILE, _MAX_BYTES)
        return fast_bpe.FastBpeTokenizer(storage.read_text(path, _MAX_BYTES), codes, files)
    if kind == "vocab.txt":
        return _from_vocabulary(storage.read_text(path, _MAX_BYTES), files)
    raise InputError("expected a vocab.txt, a vocab.json, a tokenizer.json, a *.model or a directory with one of them")


def _bytes(path: storage.Path) -> bytes:
    size = storage.existing(path).size()
    if size > _MAX_BYTES:
        raise InputError(f"expected at most {_MAX_BYTES:,} bytes, found {size:,}")
    return path.read_bytes()


def _from_vocabulary(text: str, files: TokenizerFiles) -> Tokenizer:
    """Return the tokenizer of a vocab.txt.

    As in transformers, every line is a token, even a blank one, and a repeated token has the id of its last line.
    """
    pieces = [line.rstrip(_SPACES) for line in text.removesuffix("\n").split("\n")]
    if not any(pieces):
        raise InputError("expected one token per line, found an empty file")
    settings = files.settings
    if files.algorithm == RESIDUES or (files.algorithm is None and set(ESM_SPECIALS.values()) <= set(pieces)):
        return residues.residue_tokenizer(pieces, files)
    if files.algorithm == RJIEBA:
        return roformer.roformer(pieces, files)
    lowercase = settings.get("do_lower_case")
    if lowercase is None:
        lowercase = not looks_cased(pieces)
        if not lowercase:
            _log.warn_once(
                "vocab.txt: its words have capitals, so texts are not lower-cased; transformers lower-cases them if "
                "do_lower_case is not given"
            )
    is_mpnet = set(MPNET_SPECIALS.values()) <= set(pieces) if files.algorithm is None else files.algorithm == MPNET
    if is_mpnet:
        return families.mpnet(pieces, dataclasses.replace(files, settings=settings | {"do_lower_case": lowercase}))
    return word_piece(
        pieces,
        special=named_specials(WORD_PIECE_SPECIALS, settings),
        lowercase=lowercase,
        strip_accents=settings.get("strip_accents"),
        chinese_chars=settings.get("tokenize_chinese_chars", True),
        files=files,
    )


def _from_merges(path: storage.Path, files: TokenizerFiles) -> Tokenizer:
    """Return RoBERTa's or DeBERTa's tokenizer of `vocab.json` (token -> id) and `merges.txt` (pairs to merge)."""
    vocabulary = storage.read_json(path)
    seen: dict[int, str] = {}
    for piece, i in vocabulary.items():
        other = seen.setdefault(check_id(i, printable(repr(piece), 60)), piece)
        if other != piece:
            pair = f"{printable(repr(other), 60)} and {printable(repr(piece), 60)}"
            raise InputError(f"expected each id once, found {i} for {pair}")
    if not files.explicit and any(piece.endswith("</w>") for piece in vocabulary):
        raise InputError("expected tokens of byte-level BPE, found tokens of another BPE, which end in </w>")
    merges_file = path.parent / (path.name.removesuffix("vocab.json") + "merges.txt")
    merges = byte_level.read_merges(storage.read_text(merges_file, _MAX_BYTES), merges_file)
    is_deberta = files.algorithm == DEBERTA_BPE
    if files.algorithm is None:
        is_deberta = WORD_PIECE_SPECIALS["cls"] in vocabulary and ROBERTA_SPECIALS["cls"] not in vocabulary
    build = byte_level.deberta if is_deberta else families.byte_level_bpe
    return build(vocabulary, merges, files)


def looks_cased(pieces: list[str]) -> bool:
    """Return whether a vocabulary distinguishes case, so that texts must not be lower-cased.

    It does if more than a few words are capitalized (words, residues, atoms), or if none is in lower case (k-mers).
    A few tokens in capitals, such as `<URL>` or `HTTPURL`, do not count.
    """
    words = [piece for piece in pieces if piece[:1] not in ("", "[", "<")]
    capitalized = sum(word[0].isupper() and word[1:] == word[1:].lower() for word in words)
    return capitalized > _CASED * len(words) or (any(map(str.isupper, words)) and not any(map(str.islower, words)))
