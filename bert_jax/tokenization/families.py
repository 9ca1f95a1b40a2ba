"""Tokenizers of BERT's cousins from their own files: RoBERTa's bytes, XLM-R's sentence pieces, MPNet's word pieces."""

from collections.abc import Mapping, Sequence
from typing import Any

import tokenizers
from google.protobuf.message import DecodeError
from sentencepiece import sentencepiece_model_pb2

from bert_jax.errors import InputError
from bert_jax.tokenization.huggingface import NO_TOKEN_TYPES, BackendTokenizer, word_piece_backend

ROBERTA_SPECIALS = {"pad": "<pad>", "unk": "<unk>", "cls": "<s>", "sep": "</s>", "mask": "<mask>"}
MPNET_SPECIALS = {**ROBERTA_SPECIALS, "unk": "[UNK]"}
# Families whose models are not told the segments of a pair apart.
WITHOUT_TOKEN_TYPES = ("roberta", "xlmroberta", "mpnet", "distilbert", "modernbert")
_MPNET_MAX_CHARS_PER_WORD = 100  # where BERT's own word pieces allow 200


def special_token(role: str, token: str) -> tokenizers.AddedToken:
    """Returns the special token of one of the families here: the mask takes the space before it with it."""
    return tokenizers.AddedToken(token, lstrip=role == "mask", normalized=False)


def byte_level_bpe(
    vocabulary: Mapping[str, int],
    merges: Sequence[tuple[str, str]],
    *,
    special: Mapping[str, str] = ROBERTA_SPECIALS,
    add_prefix_space: bool = False,
    trim_offsets: bool = True,
    max_length: int | None = None,
) -> BackendTokenizer:
    """Returns RoBERTa's tokenizer: byte pair encoding over bytes (Radford et al. 2019, section 2.2), for any text.

    Rows are `<s> A </s>` and `<s> A </s></s> B </s>`, of one token type. A piece begins a word where it begins with a
    space, or a text; `<mask>` in a text takes the space before it.

    Args:
        vocabulary: ids of pieces, bytes written as that paper's printable characters.
        merges: pairs of pieces, those to be merged first before others.
        special: names of the special tokens by role.
        add_prefix_space: whether a text's first word is cut as if a space stood before it.
        trim_offsets: whether the range of a piece leaves out the space that it begins with.
        max_length: the longest sequence the model takes, where known.

    Raises:
        InputError: a special token is missing, or a merge of pieces that the vocabulary has not.
    """
    _expect_specials(special, vocabulary)
    for first, second in merges:
        for piece in (first, second, first + second):
            if piece not in vocabulary:
                raise InputError(f"merge {first!r} {second!r}: expected pieces of the vocabulary, found {piece!r}")
    backend = tokenizers.Tokenizer(tokenizers.models.BPE(dict(vocabulary), list(merges)))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space)
    backend.decoder = tokenizers.decoders.ByteLevel()
    backend.post_processor = _roberta_processing(vocabulary, special, trim_offsets, add_prefix_space)
    backend.add_special_tokens([special_token(role, token) for role, token in special.items()])
    settings = {
        "tokenizer_class": "RobertaTokenizer",
        "add_prefix_space": add_prefix_space,
        "trim_offsets": trim_offsets,
        **NO_TOKEN_TYPES,
        **_limit(max_length),
    }
    return BackendTokenizer(backend, dict(special), settings)


def xlm_roberta(
    model: bytes, *, special: Mapping[str, str] = ROBERTA_SPECIALS, max_length: int | None = None
) -> BackendTokenizer:
    """Returns XLM-R's tokenizer over its SentencePiece model (`sentencepiece.bpe.model`, of unigrams for all its name).

    Ids are fairseq's: `<s>` 0, `<pad>` 1, `</s>` 2, `<unk>` 3, every other piece's one more than the model's, and
    `<mask>` behind the last. Rows are RoBERTa's.

    Args:
        model: the bytes of the model, whose first pieces have to be `<unk>`, `<s>` and `</s>`.
        special: names of the special tokens by role.
        max_length: the longest sequence the model takes, where known.

    Raises:
        InputError: not such a model.
    """
    proto = sentencepiece_model_pb2.ModelProto()  # type: ignore[attr-defined]
    try:
        proto.ParseFromString(model)
    except DecodeError:
        raise InputError(f"expected a SentencePiece model, found {len(model)} bytes that are not one") from None
    first = [piece.piece for piece in proto.pieces[:3]]
    if proto.trainer_spec.model_type != proto.trainer_spec.UNIGRAM or first != ["<unk>", "<s>", "</s>"]:
        raise InputError(
            "expected XLM-R's SentencePiece model, of unigrams with <unk>, <s> and </s> before all others, found "
            f"{' '.join(first) or 'no pieces'} before {max(0, len(proto.pieces) - 3)} others"
        )
    pieces = [(special[role], 0.0) for role in ("cls", "pad", "sep", "unk")]
    pieces += [(piece.piece, piece.score) for piece in proto.pieces[3:]]
    pieces.append((special["mask"], 0.0))
    backend = tokenizers.Tokenizer(tokenizers.models.Unigram(pieces, 3))
    if charsmap := proto.normalizer_spec.precompiled_charsmap:
        backend.normalizer = tokenizers.normalizers.Precompiled(charsmap)
    backend.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(
        [tokenizers.pre_tokenizers.WhitespaceSplit(), tokenizers.pre_tokenizers.Metaspace()]
    )
    backend.decoder = tokenizers.decoders.Metaspace()
    cls, sep = special["cls"], special["sep"]
    backend.post_processor = tokenizers.processors.TemplateProcessing(
        single=[cls, "$A", sep], pair=[cls, "$A", sep, sep, "$B", sep], special_tokens=[(cls, 0), (sep, 2)]
    )
    backend.add_special_tokens([special_token(role, token) for role, token in special.items()])
    added = [piece.piece for piece in proto.pieces[3:] if piece.type == piece.USER_DEFINED]
    backend.add_tokens([tokenizers.AddedToken(piece, normalized=False) for piece in added])
    settings = {"tokenizer_class": "XLMRobertaTokenizer", **NO_TOKEN_TYPES, **_limit(max_length)}
    return BackendTokenizer(backend, dict(special), settings, sentencepiece_model=model)


def mpnet(
    pieces: Sequence[str],
    *,
    special: Mapping[str, str] = MPNET_SPECIALS,
    lowercase: bool = True,
    strip_accents: bool | None = None,
    chinese_chars: bool = True,
    max_length: int | None = None,
) -> BackendTokenizer:
    """Returns MPNet's tokenizer: BERT's word pieces in RoBERTa's rows.

    Args: as of `word_piece`, and `special`, names of the special tokens by role.

    Raises:
        InputError: a special token is missing, or a piece occurs twice.
    """
    backend, ids = word_piece_backend(pieces, special["unk"], _MPNET_MAX_CHARS_PER_WORD)
    _expect_specials(special, ids)
    backend.normalizer = tokenizers.normalizers.BertNormalizer(
        clean_text=True, handle_chinese_chars=chinese_chars, strip_accents=strip_accents, lowercase=lowercase
    )
    backend.post_processor = _roberta_processing(ids, special)
    backend.add_special_tokens([special_token(role, token) for role, token in special.items()])
    settings = {
        "tokenizer_class": "MPNetTokenizer",
        "do_lower_case": lowercase,
        "tokenize_chinese_chars": chinese_chars,
        "clean_up_tokenization_spaces": False,
        **({} if strip_accents is None else {"strip_accents": strip_accents}),
        **NO_TOKEN_TYPES,
        **_limit(max_length),
    }
    return BackendTokenizer(backend, dict(special), settings)


def _roberta_processing(
    ids: Mapping[str, int], special: Mapping[str, str], trim_offsets: bool = True, add_prefix_space: bool = False
) -> tokenizers.processors.PostProcessor:
    cls, sep = special["cls"], special["sep"]
    return tokenizers.processors.RobertaProcessing(
        (sep, ids[sep]), (cls, ids[cls]), trim_offsets=trim_offsets, add_prefix_space=add_prefix_space
    )


def _expect_specials(special: Mapping[str, str], ids: Mapping[str, int]) -> None:
    missing = [token for token in special.values() if token not in ids]
    if missing:
        raise InputError(f"expected the special tokens {', '.join(special.values())}, found no {', '.join(missing)} "
                         f"among {len(ids)} pieces")  # fmt: skip


def _limit(max_length: int | None) -> dict[str, Any]:
    return {} if max_length is None else {"model_max_length": max_length}
