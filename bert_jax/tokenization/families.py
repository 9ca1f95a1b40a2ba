"""Build the tokenizers of RoBERTa (BPE), XLM-R, CamemBERT, ALBERT, DeBERTa-v2 (SentencePiece) and MPNet (WordPiece).

A builder takes a vocabulary, and the contents of the files beside it: added tokens, and settings, whose names are those
of `tokenizer_config.json`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import tokenizers

from bert_jax.errors import InputError
from bert_jax.tokenization.added_tokens import plain_special, special_token
from bert_jax.tokenization.backends import part_of, sep_and_cls, word_piece_backend
from bert_jax.tokenization.building import BERT_ROWS, ROBERTA_ROWS, finish_tokenizer
from bert_jax.tokenization.byte_level import byte_level_backend
from bert_jax.tokenization.huggingface import BackendTokenizer
from bert_jax.tokenization.names import (
    ALBERT_SPECIALS,
    MPNET_SPECIALS,
    ROBERTA_SPECIALS,
    WORD_PIECE_SPECIALS,
)
from bert_jax.tokenization.sentencepiece import sentencepiece_proto
from bert_jax.tokenization.settings import NO_TOKEN_TYPES, TOKEN_TYPES, TokenizerFiles, named_specials
from bert_jax.tokenization.tokenizer_json_settings import sequence_parts

_MPNET_MAX_CHARS_PER_WORD = 100  # BERT allows 200


def byte_level_bpe(
    vocabulary: Mapping[str, int], merges: Sequence[tuple[str, str]], files: TokenizerFiles | None = None
) -> BackendTokenizer:
    """Return RoBERTa's tokenizer: byte-level BPE (Radford et al. 2019, section 2.2).

    Rows are `<s> A </s>` and `<s> A </s></s> B </s>`, with one token type. A token begins a word if it begins with a
    space or begins the text; `<mask>` in a text absorbs the space before it.

    Args:
        vocabulary: ids of tokens, with bytes written as the printable characters of the paper.
        merges: pairs of tokens to merge, in order of priority.
        files: contents of the files beside the vocabulary.

    Raises:
        InputError: a special token is missing, or a merge has a token that is not in the vocabulary.
    """
    files = files or TokenizerFiles()
    words: dict[str, Any] = {"add_prefix_space": False, "trim_offsets": True}
    words |= {name: files.settings[name] for name in words if name in files.settings}
    return finish_tokenizer(
        byte_level_backend(vocabulary, merges, words["add_prefix_space"]),
        named_specials(ROBERTA_SPECIALS, files.settings),
        files,
        {"tokenizer_class": "RobertaTokenizer", **NO_TOKEN_TYPES, **words},
        lambda backend, special: tokenizers.processors.RobertaProcessing(*sep_and_cls(special, backend), **words),
        special_token,
    )


def xlm_roberta(model: bytes, files: TokenizerFiles | None = None) -> BackendTokenizer:
    """Return XLM-R's tokenizer over its SentencePiece model (`sentencepiece.bpe.model`, which is a unigram model).

    Ids are those of fairseq: `<s>` 0, `<pad>` 1, `</s>` 2, `<unk>` 3, other tokens one more than in the model, and
    `<mask>` last. Rows are laid out as in RoBERTa.

    Args:
        model: the bytes of the model, whose first tokens must be `<unk>`, `<s>` and `</s>`.
        files: contents of the files beside the model.

    Raises:
        InputError: the bytes are not XLM-R's SentencePiece model.
    """
    files = files or TokenizerFiles()
    proto = _unigram_proto(model, "XLM-R", ("<unk>", "<s>", "</s>"))
    names = {**ROBERTA_SPECIALS, **named_specials(ROBERTA_SPECIALS, files.settings)}
    pieces = [(names[role], 0.0) for role in ("cls", "pad", "sep", "unk")]
    pieces += [(piece.piece, piece.score) for piece in proto.pieces[3:]]
    return _fairseq_tokenizer(model, proto, pieces, names, "XLMRobertaTokenizer", files)


def camembert(model: bytes, files: TokenizerFiles | None = None) -> BackendTokenizer:
    """Return CamemBERT's tokenizer over its SentencePiece model (`sentencepiece.bpe.model`, which is a unigram model).

    Ids are those of fairseq: `<pad>` 1, `<unk>` 3, other tokens four more than in the model, so `<s>` 5 and `</s>` 6,
    and `<mask>` last; ids 0, 2 and 4 are not used. Rows are laid out as in RoBERTa.

    Args: as for `xlm_roberta`.

    Raises:
        InputError: the bytes are not CamemBERT's SentencePiece model.
    """
    files = files or TokenizerFiles()
    proto = _unigram_proto(model, "CamemBERT", ("<unk>", "<s>", "</s>"))
    names = {**ROBERTA_SPECIALS, **named_specials(ROBERTA_SPECIALS, files.settings)}
    pieces = [("<s>NOTUSED", 0.0), (names["pad"], 0.0), ("</s>NOTUSED", 0.0), (names["unk"], 0.0)]
    pieces.append(("<unk>NOTUSED", -100.0))  # the lowest score; it determines that of unknown characters
    pieces += [(piece.piece, piece.score) for piece in proto.pieces[1:]]
    return _fairseq_tokenizer(model, proto, pieces, names, "CamembertTokenizer", files)


def albert(model: bytes, files: TokenizerFiles | None = None) -> BackendTokenizer:
    """Return ALBERT's tokenizer over its SentencePiece model (`spiece.model`, a unigram model).

    Ids are those of the model. Rows are laid out as in BERT, with two token types.

    Args:
        model: the bytes of the model, whose first tokens must be `<pad>` and `<unk>`.
        files: contents of the files beside the model.

    Raises:
        InputError: the bytes are not ALBERT's SentencePiece model.
    """
    files = files or TokenizerFiles()
    special = named_specials(ALBERT_SPECIALS, files.settings)
    options = {"do_lower_case": True, "keep_accents": False, "add_prefix_space": True}
    options |= {name: files.settings[name] for name in options if name in files.settings}
    proto = _unigram_proto(model, "ALBERT", (special["pad"], special["unk"]))
    pieces = [(piece.piece, piece.score) for piece in proto.pieces]
    backend = _unigram_backend(proto, pieces, 1, special, options["add_prefix_space"])
    backend.normalizer = albert_normalizer(
        options["do_lower_case"], options["keep_accents"], proto.normalizer_spec.precompiled_charsmap
    )
    defaults = {"tokenizer_class": "AlbertTokenizer", **TOKEN_TYPES, **options}
    return finish_tokenizer(backend, special, files, defaults, BERT_ROWS, special_token, model)


def albert_normalizer(lowercase: bool, keep_accents: bool, charsmap: bytes | None) -> tokenizers.normalizers.Normalizer:
    """Return ALBERT's normalizer (google-research/albert `tokenization.py`, `preprocess_text`).

    Args:
        lowercase: whether text is lower-cased.
        keep_accents: whether text keeps its accents; else it is normalized by NFKD too.
        charsmap: rules of a SentencePiece model; None or b"" = none.
    """
    steps: list[tokenizers.normalizers.Normalizer] = [
        tokenizers.normalizers.Replace("``", '"'),
        tokenizers.normalizers.Replace("''", '"'),
    ]
    if not keep_accents:
        steps += [tokenizers.normalizers.NFKD(), tokenizers.normalizers.StripAccents()]
    if lowercase:
        steps.append(tokenizers.normalizers.Lowercase())
    if charsmap:
        steps.append(tokenizers.normalizers.Precompiled(charsmap))
    return tokenizers.normalizers.Sequence(steps)


def override_albert(content: dict[str, Any], settings: dict[str, Any]) -> None:
    """Rebuild the normalizer of a tokenizer.json from the settings, as transformers does.

    Missing settings are filled in from the tokenizer.json.
    """
    for name, value in TOKEN_TYPES.items():  # transformers 5 has no token types unless the settings say so
        settings.setdefault(name, value)
    steps = sequence_parts(content.get("normalizer"), "normalizers")
    kinds = [step.get("type") for step in steps]
    lowercase = settings.setdefault("do_lower_case", "Lowercase" in kinds)
    keep_accents = settings.setdefault("keep_accents", "StripAccents" not in kinds)
    normalizer = part_of(albert_normalizer(lowercase, keep_accents, None)) or {}
    charsmap = [step for step in steps if step.get("type") == "Precompiled"]
    content["normalizer"] = normalizer | {"normalizers": [*normalizer["normalizers"], *charsmap]}


def _fairseq_tokenizer(
    model: bytes,
    proto: Any,
    pieces: list[tuple[str, float]],
    names: dict[str, str],
    tokenizer_class: str,
    files: TokenizerFiles,
) -> BackendTokenizer:
    """Return a tokenizer of `pieces` (3 is the unknown token), with the mask last; `proto` is the parsed model."""
    prefix = files.settings.get("add_prefix_space", True)
    backend = _unigram_backend(proto, [*pieces, (names["mask"], 0.0)], 3, names, prefix)
    special = named_specials(ROBERTA_SPECIALS, files.settings)
    defaults = {"tokenizer_class": tokenizer_class, **NO_TOKEN_TYPES}
    return finish_tokenizer(backend, special, files, defaults, ROBERTA_ROWS, special_token, model)


def _unigram_proto(model: bytes, name: str, first: tuple[str, ...]) -> Any:
    """Parse a SentencePiece model. Raises InputError unless it is a unigram model that begins with `first`."""
    proto = sentencepiece_proto(model)
    begin = [piece.piece for piece in proto.pieces[: len(first)]]
    if proto.trainer_spec.model_type != proto.trainer_spec.UNIGRAM or begin != list(first):
        others = max(0, len(proto.pieces) - len(first))
        raise InputError(
            f"expected {name}'s SentencePiece model, a unigram model that begins with {', '.join(first[:-1])} and "
            f"{first[-1]}, found {' '.join(begin) or 'no tokens'} followed by {others} others"
        )
    return proto


def unigram_model(model: bytes, name: str, unknown: str) -> tuple[Any, tokenizers.Tokenizer]:
    """Return a parsed SentencePiece model, and the library's tokenizer with the same pieces, scores and ids.

    Raises:
        InputError: the bytes are not a unigram model of SentencePiece.
    """
    proto = sentencepiece_proto(model)
    if proto.trainer_spec.model_type != proto.trainer_spec.UNIGRAM:
        raise InputError(f"expected {name}'s SentencePiece model, a unigram model, found a model of another type")
    pieces = [(piece.piece, piece.score) for piece in proto.pieces]
    unknown_piece = (unknown, 0.0)
    unk_id = pieces.index(unknown_piece) if unknown_piece in pieces else proto.trainer_spec.unk_id
    return proto, tokenizers.Tokenizer(tokenizers.models.Unigram(pieces, unk_id))


def _unigram_backend(
    proto: Any,
    pieces: Sequence[tuple[str, float]],
    unk_id: int,
    special: Mapping[str, str],
    add_prefix_space: bool,
) -> tokenizers.Tokenizer:
    """Return the library's tokenizer with these pieces and scores, and the normalizer of a SentencePiece model."""
    backend = tokenizers.Tokenizer(tokenizers.models.Unigram(list(pieces), unk_id))
    if charsmap := proto.normalizer_spec.precompiled_charsmap:
        backend.normalizer = tokenizers.normalizers.Precompiled(charsmap)
    scheme = "always" if add_prefix_space else "never"
    backend.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(
        [tokenizers.pre_tokenizers.WhitespaceSplit(), tokenizers.pre_tokenizers.Metaspace(prepend_scheme=scheme)]
    )
    backend.decoder = tokenizers.decoders.Metaspace(prepend_scheme=scheme)
    defined = [piece.piece for piece in proto.pieces[3:] if piece.type == piece.USER_DEFINED]
    added = [piece for piece in defined if piece not in special.values()]
    backend.add_tokens([tokenizers.AddedToken(piece, normalized=False) for piece in added])
    return backend


def deberta_v2(model: bytes, files: TokenizerFiles | None = None) -> BackendTokenizer:
    """Return the tokenizer of DeBERTa-v2 and v3 over its SentencePiece model (`spm.model`, which is a unigram model).

    Ids are those of the model, followed by `[MASK]`. Rows are laid out as in BERT. As in transformers 5, text is
    normalised to NFC only: the model's own normalisation (NFKC) is not applied.

    Args:
        model: the bytes of the model.
        files: contents of the files beside the model.

    Raises:
        InputError: the bytes are not a unigram model of SentencePiece, or a special token is missing.
    """
    files = files or TokenizerFiles()
    special = named_specials(WORD_PIECE_SPECIALS, files.settings)
    options = {name: bool(files.settings.get(name)) for name in ("do_lower_case", "split_by_punct")}
    proto, backend = unigram_model(model, "DeBERTa", special["unk"])
    backend.normalizer = tokenizers.normalizers.Sequence(
        [
            *([tokenizers.normalizers.Lowercase()] if options["do_lower_case"] else []),
            tokenizers.normalizers.Replace(tokenizers.Regex(r"\s{2,}|[\n\r\t]"), " "),
            tokenizers.normalizers.NFC(),
            tokenizers.normalizers.Strip(left=False, right=True),
        ]
    )
    scheme = "always" if files.settings.get("add_prefix_space", True) else "first"
    backend.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(
        [
            *([tokenizers.pre_tokenizers.Punctuation("isolated")] if options["split_by_punct"] else []),
            tokenizers.pre_tokenizers.Metaspace(prepend_scheme=scheme),
        ]
    )
    backend.decoder = tokenizers.decoders.Metaspace(prepend_scheme=scheme)
    for kind, is_special in ((proto.SentencePiece.CONTROL, True), (proto.SentencePiece.USER_DEFINED, False)):
        added = [piece.piece for piece in proto.pieces if piece.type == kind]
        backend.add_tokens([tokenizers.AddedToken(piece, normalized=False, special=is_special) for piece in added])
    if "mask" in special and files.rows is None and not files.added:
        backend.add_special_tokens([plain_special("mask", special["mask"])])  # the model has no mask token
    defaults = {"tokenizer_class": "DebertaV2Tokenizer", **options}
    return finish_tokenizer(backend, special, files, defaults, BERT_ROWS, sentencepiece_model=model)


def mpnet(pieces: Sequence[str], files: TokenizerFiles | None = None) -> BackendTokenizer:
    """Return MPNet's tokenizer: BERT's WordPiece with RoBERTa's row layout.

    Args:
        pieces: the vocabulary in the order of its ids; "##" marks tokens that continue a word.
        files: contents of the files beside the vocabulary.

    Raises:
        InputError: a special token is missing.
    """
    files = files or TokenizerFiles()
    special = named_specials(MPNET_SPECIALS, files.settings)
    backend = word_piece_backend(pieces, special["unk"], _MPNET_MAX_CHARS_PER_WORD)
    defaults = {
        "tokenizer_class": "MPNetTokenizer",
        **NO_TOKEN_TYPES,
        "do_lower_case": True,
        "tokenize_chinese_chars": True,
        "clean_up_tokenization_spaces": False,
    }
    settings = {**defaults, **files.settings}
    backend.normalizer = tokenizers.normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=settings["tokenize_chinese_chars"],
        strip_accents=settings.get("strip_accents"),
        lowercase=settings["do_lower_case"],
    )
    return finish_tokenizer(
        backend,
        special,
        files,
        defaults,
        lambda backend, special: tokenizers.processors.RobertaProcessing(
            *sep_and_cls(special, backend), trim_offsets=True, add_prefix_space=False
        ),
        special_token,
    )
