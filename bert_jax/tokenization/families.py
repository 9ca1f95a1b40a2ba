"""Build the tokenizers of RoBERTa (BPE), XLM-R, CamemBERT, ALBERT, DeBERTa-v2 (SentencePiece) and MPNet (WordPiece)."""

from collections.abc import Mapping, Sequence
from typing import Any

import tokenizers

from bert_jax.errors import InputError
from bert_jax.tokenization.added_tokens import add_tokens, plain_special, special_token
from bert_jax.tokenization.backends import part_of, sep_and_cls, word_piece_backend
from bert_jax.tokenization.byte_level import byte_level_backend
from bert_jax.tokenization.huggingface import BackendTokenizer
from bert_jax.tokenization.names import (
    ALBERT_SPECIALS,
    MPNET_SPECIALS,
    ROBERTA_SPECIALS,
    WORD_PIECE_SPECIALS,
)
from bert_jax.tokenization.sentencepiece import sentencepiece_proto
from bert_jax.tokenization.settings import NO_TOKEN_TYPES, TOKEN_TYPES, TokenizerFiles
from bert_jax.tokenization.tokenizer_json_settings import sequence_parts

_MPNET_MAX_CHARS_PER_WORD = 100  # BERT allows 200


def byte_level_bpe(
    vocabulary: Mapping[str, int],
    merges: Sequence[tuple[str, str]],
    *,
    special: Mapping[str, str] = ROBERTA_SPECIALS,
    add_prefix_space: bool = False,
    trim_offsets: bool = True,
    max_length: int | None = None,
    files: TokenizerFiles | None = None,
) -> BackendTokenizer:
    """Return RoBERTa's tokenizer: byte-level BPE (Radford et al. 2019, section 2.2).

    Rows are `<s> A </s>` and `<s> A </s></s> B </s>`, with one token type. A token begins a word if it begins with a
    space or begins the text; `<mask>` in a text absorbs the space before it.

    Args:
        vocabulary: ids of tokens, with bytes written as the printable characters of the paper.
        merges: pairs of tokens to merge, in order of priority.
        special: names of the special tokens by role.
        add_prefix_space: whether to tokenize the first word of a text as if a space preceded it.
        trim_offsets: whether character ranges leave out the leading space of a token.
        max_length: most tokens in an input of the model; None = not known.
        files: contents of the files beside the vocabulary: added tokens and settings.

    Raises:
        InputError: a special token is missing, or a merge has a token that is not in the vocabulary.
    """
    backend = byte_level_backend(vocabulary, merges, add_prefix_space)
    files = files or TokenizerFiles()
    special = add_tokens(backend, special, files, special_token)
    backend.post_processor = _roberta_processing(backend, special, trim_offsets, add_prefix_space)
    own = {"add_prefix_space": add_prefix_space, "trim_offsets": trim_offsets}
    return BackendTokenizer(backend, special, _settings(files, "RobertaTokenizer", max_length, own))


def xlm_roberta(
    model: bytes,
    *,
    special: Mapping[str, str] = ROBERTA_SPECIALS,
    add_prefix_space: bool = True,
    max_length: int | None = None,
    files: TokenizerFiles | None = None,
) -> BackendTokenizer:
    """Return XLM-R's tokenizer over its SentencePiece model (`sentencepiece.bpe.model`, which is a unigram model).

    Ids are those of fairseq: `<s>` 0, `<pad>` 1, `</s>` 2, `<unk>` 3, other tokens one more than in the model, and
    `<mask>` last. Rows are laid out as in RoBERTa.

    Args:
        model: the bytes of the model, whose first tokens must be `<unk>`, `<s>` and `</s>`.
        special: names of the special tokens by role.
        add_prefix_space: whether to tokenize each word as if a space preceded it.
        max_length: most tokens in an input of the model; None = not known.
        files: contents of the files beside the model: added tokens and settings.

    Raises:
        InputError: the bytes are not XLM-R's SentencePiece model.
    """
    proto = _unigram_proto(model, "XLM-R", ("<unk>", "<s>", "</s>"))
    names = {**ROBERTA_SPECIALS, **special}
    pieces = [(names[role], 0.0) for role in ("cls", "pad", "sep", "unk")]
    pieces += [(piece.piece, piece.score) for piece in proto.pieces[3:]]
    return _fairseq_tokenizer(model, proto, pieces, special, "XLMRobertaTokenizer", add_prefix_space, max_length, files)


def camembert(
    model: bytes,
    *,
    special: Mapping[str, str] = ROBERTA_SPECIALS,
    add_prefix_space: bool = True,
    max_length: int | None = None,
    files: TokenizerFiles | None = None,
) -> BackendTokenizer:
    """Return CamemBERT's tokenizer over its SentencePiece model (`sentencepiece.bpe.model`, which is a unigram model).

    Ids are those of fairseq: `<pad>` 1, `<unk>` 3, other tokens four more than in the model, so `<s>` 5 and `</s>` 6,
    and `<mask>` last; ids 0, 2 and 4 are not used. Rows are laid out as in RoBERTa.

    Args: as for `xlm_roberta`.

    Raises:
        InputError: the bytes are not CamemBERT's SentencePiece model.
    """
    proto = _unigram_proto(model, "CamemBERT", ("<unk>", "<s>", "</s>"))
    names = {**ROBERTA_SPECIALS, **special}
    pieces = [("<s>NOTUSED", 0.0), (names["pad"], 0.0), ("</s>NOTUSED", 0.0), (names["unk"], 0.0)]
    pieces.append(("<unk>NOTUSED", -100.0))  # the least score, from which that of unknown characters follows
    pieces += [(piece.piece, piece.score) for piece in proto.pieces[1:]]
    return _fairseq_tokenizer(model, proto, pieces, special, "CamembertTokenizer", add_prefix_space, max_length, files)


def albert(
    model: bytes,
    *,
    special: Mapping[str, str] = ALBERT_SPECIALS,
    lowercase: bool = True,
    keep_accents: bool = False,
    add_prefix_space: bool = True,
    max_length: int | None = None,
    files: TokenizerFiles | None = None,
) -> BackendTokenizer:
    """Return ALBERT's tokenizer over its SentencePiece model (`spiece.model`, a unigram model).

    Ids are those of the model. Rows are laid out as in BERT, with two token types.

    Args:
        model: the bytes of the model, whose first tokens must be `<pad>` and `<unk>`.
        special: names of the special tokens by role.
        lowercase: whether text is lower-cased.
        keep_accents: whether text keeps its accents, and characters their compatibility forms (NFKD).
        add_prefix_space: whether to tokenize each word as if a space preceded it.
        max_length: most tokens in an input of the model; None = not known.
        files: contents of the files beside the model: added tokens and settings.

    Raises:
        InputError: the bytes are not ALBERT's SentencePiece model.
    """
    proto = _unigram_proto(model, "ALBERT", (special["pad"], special["unk"]))
    pieces = [(piece.piece, piece.score) for piece in proto.pieces]
    backend = _unigram_backend(proto, pieces, 1, special, add_prefix_space)
    backend.normalizer = albert_normalizer(lowercase, keep_accents, proto.normalizer_spec.precompiled_charsmap)
    files = files or TokenizerFiles()
    special = add_tokens(backend, special, files, special_token)
    tokens = sep_and_cls(special, backend)
    (sep, _), (cls, _) = tokens
    backend.post_processor = tokenizers.processors.TemplateProcessing(
        single=[cls, "$A", sep], pair=f"{cls} $A {sep} $B:1 {sep}:1", special_tokens=list(tokens)
    )
    limit = {} if max_length is None else {"model_max_length": max_length}
    own = {"do_lower_case": lowercase, "keep_accents": keep_accents, "add_prefix_space": add_prefix_space}
    settings = {"tokenizer_class": "AlbertTokenizer", **TOKEN_TYPES, **files.settings, **limit, **own}
    return BackendTokenizer(backend, special, settings, sentencepiece_model=model)


def albert_normalizer(lowercase: bool, keep_accents: bool, charsmap: bytes | None) -> tokenizers.normalizers.Normalizer:
    """Return ALBERT's normalizer (google-research/albert `tokenization.py`, `preprocess_text`).

    Args:
        lowercase: as for `albert`.
        keep_accents: as for `albert`.
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
    """Override the normalizer of a tokenizer.json with that of the settings, as transformers does.

    Missing settings are set from the content.
    """
    for name, value in TOKEN_TYPES.items():  # transformers 5 has no token types unless the settings say so
        settings.setdefault(name, value)
    steps = sequence_parts(content.get("normalizer"), "normalizers")
    kinds = [step.get("type") for step in steps]
    lowercase = settings.setdefault("do_lower_case", "Lowercase" in kinds)
    keep_accents = settings.setdefault("keep_accents", "StripAccents" not in kinds)
    made = part_of(albert_normalizer(lowercase, keep_accents, None)) or {}
    charsmap = [step for step in steps if step.get("type") == "Precompiled"]
    content["normalizer"] = made | {"normalizers": [*made["normalizers"], *charsmap]}


def _fairseq_tokenizer(
    model: bytes,
    proto: Any,
    pieces: list[tuple[str, float]],
    special: Mapping[str, str],
    tokenizer_class: str,
    add_prefix_space: bool,
    max_length: int | None,
    files: TokenizerFiles | None,
) -> BackendTokenizer:
    """Return a tokenizer of `pieces` and, last, the mask; piece 3 is the unknown one. `proto` is the parsed model."""
    names = {**ROBERTA_SPECIALS, **special}
    backend = _unigram_backend(proto, [*pieces, (names["mask"], 0.0)], 3, names, add_prefix_space)
    files = files or TokenizerFiles()
    special = add_tokens(backend, special, files, special_token)
    backend.post_processor = _fairseq_rows(backend, special)
    own = {} if add_prefix_space else {"add_prefix_space": False}
    settings = _settings(files, tokenizer_class, max_length, own)
    return BackendTokenizer(backend, special, settings, sentencepiece_model=model)


def _unigram_proto(model: bytes, name: str, first: tuple[str, ...]) -> Any:
    """Parse a SentencePiece model. Raises InputError when it is no unigram model or does not begin with `first`."""
    proto = sentencepiece_proto(model)
    found = [piece.piece for piece in proto.pieces[: len(first)]]
    if proto.trainer_spec.model_type != proto.trainer_spec.UNIGRAM or found != list(first):
        others = max(0, len(proto.pieces) - len(first))
        raise InputError(
            f"expected {name}'s SentencePiece model, a unigram model that begins with {', '.join(first[:-1])} and "
            f"{first[-1]}, found {' '.join(found) or 'no tokens'} before {others} others"
        )
    return proto


def unigram_model(model: bytes, name: str, unknown: str) -> tuple[Any, tokenizers.Tokenizer]:
    """Return a parsed SentencePiece model, and the library's tokenizer with its pieces and scores under its ids.

    Raises:
        InputError: the bytes are not a unigram model of SentencePiece.
    """
    proto = sentencepiece_proto(model)
    if proto.trainer_spec.model_type != proto.trainer_spec.UNIGRAM:
        raise InputError(f"expected {name}'s SentencePiece model, a unigram model, found a model of another type")
    pieces = [(piece.piece, piece.score) for piece in proto.pieces]
    own = (unknown, 0.0)
    unk_id = pieces.index(own) if own in pieces else proto.trainer_spec.unk_id
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


def _fairseq_rows(backend: tokenizers.Tokenizer, special: dict[str, str]) -> tokenizers.processors.PostProcessor:
    """Return the rows of RoBERTa for a tokenizer whose character ranges need no trimming."""
    tokens = sep_and_cls(special, backend)
    (sep, _), (cls, _) = tokens
    return tokenizers.processors.TemplateProcessing(
        single=[cls, "$A", sep], pair=[cls, "$A", sep, sep, "$B", sep], special_tokens=list(tokens)
    )


def deberta_v2(
    model: bytes,
    *,
    special: Mapping[str, str] = WORD_PIECE_SPECIALS,
    lowercase: bool = False,
    split_by_punct: bool = False,
    add_prefix_space: bool = True,
    max_length: int | None = None,
    files: TokenizerFiles | None = None,
) -> BackendTokenizer:
    """Return the tokenizer of DeBERTa-v2 and v3 over its SentencePiece model (`spm.model`, which is a unigram model).

    Ids are those of the model, followed by `[MASK]`. Rows are laid out as in BERT. As in transformers 5, text is
    normalised to NFC only: the model's own normalisation (NFKC) is not applied.

    Args:
        model: the bytes of the model.
        special: names of the special tokens by role.
        lowercase: whether text is lower-cased.
        split_by_punct: whether each punctuation mark is a word of its own.
        add_prefix_space: whether to tokenize text after a special token as if a space preceded it.
        max_length: most tokens in an input of the model; None = not known.
        files: contents of the files beside the model: added tokens and settings.

    Raises:
        InputError: the bytes are not a unigram model of SentencePiece, or a special token is missing.
    """
    proto, backend = unigram_model(model, "DeBERTa", special["unk"])
    backend.normalizer = tokenizers.normalizers.Sequence(
        [
            *([tokenizers.normalizers.Lowercase()] if lowercase else []),
            tokenizers.normalizers.Replace(tokenizers.Regex(r"\s{2,}|[\n\r\t]"), " "),
            tokenizers.normalizers.NFC(),
            tokenizers.normalizers.Strip(left=False, right=True),
        ]
    )
    scheme = "always" if add_prefix_space else "first"
    backend.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(
        [
            *([tokenizers.pre_tokenizers.Punctuation("isolated")] if split_by_punct else []),
            tokenizers.pre_tokenizers.Metaspace(prepend_scheme=scheme),
        ]
    )
    backend.decoder = tokenizers.decoders.Metaspace(prepend_scheme=scheme)
    for kind, is_special in ((proto.SentencePiece.CONTROL, True), (proto.SentencePiece.USER_DEFINED, False)):
        added = [piece.piece for piece in proto.pieces if piece.type == kind]
        backend.add_tokens([tokenizers.AddedToken(piece, normalized=False, special=is_special) for piece in added])
    files = files or TokenizerFiles()
    if "mask" in special and files.rows is None and not files.added:
        backend.add_special_tokens([plain_special("mask", special["mask"])])  # the model does not have it
    special = add_tokens(backend, special, files)
    tokens = sep_and_cls(special, backend)
    (sep, _), (cls, _) = tokens
    backend.post_processor = tokenizers.processors.TemplateProcessing(
        single=[cls, "$A", sep], pair=[cls, "$A", sep, "$B:1", f"{sep}:1"], special_tokens=list(tokens)
    )
    own = {"do_lower_case": lowercase, "split_by_punct": split_by_punct}
    own |= {} if add_prefix_space else {"add_prefix_space": False}
    limit = {} if max_length is None else {"model_max_length": max_length}
    settings = {"tokenizer_class": "DebertaV2Tokenizer", **files.settings, **limit, **own}
    return BackendTokenizer(backend, special, settings, sentencepiece_model=model)


def mpnet(
    pieces: Sequence[str],
    *,
    special: Mapping[str, str] = MPNET_SPECIALS,
    lowercase: bool = True,
    strip_accents: bool | None = None,
    chinese_chars: bool = True,
    max_length: int | None = None,
    files: TokenizerFiles | None = None,
) -> BackendTokenizer:
    """Return MPNet's tokenizer: BERT's WordPiece with RoBERTa's row layout.

    Args: as for `word_piece`; `special` has the names of the special tokens by role.

    Raises:
        InputError: a special token is missing.
    """
    backend = word_piece_backend(pieces, special["unk"], _MPNET_MAX_CHARS_PER_WORD)
    backend.normalizer = tokenizers.normalizers.BertNormalizer(
        clean_text=True, handle_chinese_chars=chinese_chars, strip_accents=strip_accents, lowercase=lowercase
    )
    files = files or TokenizerFiles()
    special = add_tokens(backend, special, files, special_token)
    backend.post_processor = _roberta_processing(backend, special)
    own = {
        "do_lower_case": lowercase,
        "tokenize_chinese_chars": chinese_chars,
        "clean_up_tokenization_spaces": files.settings.get("clean_up_tokenization_spaces", False),
        **({} if strip_accents is None else {"strip_accents": strip_accents}),
    }
    return BackendTokenizer(backend, special, _settings(files, "MPNetTokenizer", max_length, own))


def _roberta_processing(
    backend: tokenizers.Tokenizer,
    special: dict[str, str],
    trim_offsets: bool = True,
    add_prefix_space: bool = False,
) -> tokenizers.processors.PostProcessor:
    return tokenizers.processors.RobertaProcessing(
        *sep_and_cls(special, backend), trim_offsets=trim_offsets, add_prefix_space=add_prefix_space
    )


def _settings(files: TokenizerFiles, name: str, max_length: int | None, own: dict[str, Any]) -> dict[str, Any]:
    """Merge settings, later ones over earlier ones: the defaults of class `name`, the files', `max_length`, `own`."""
    limit = {} if max_length is None else {"model_max_length": max_length}
    return {"tokenizer_class": name, **NO_TOKEN_TYPES, **files.settings, **limit, **own}
