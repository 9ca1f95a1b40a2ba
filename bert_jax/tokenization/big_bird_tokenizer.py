"""Build the tokenizer of BigBird (SentencePiece)."""

from collections.abc import Mapping

import tokenizers

from bert_jax.tokenization.added_tokens import add_tokens, special_token
from bert_jax.tokenization.backends import sep_and_cls
from bert_jax.tokenization.families import unigram_model
from bert_jax.tokenization.huggingface import BackendTokenizer
from bert_jax.tokenization.names import ALBERT_SPECIALS
from bert_jax.tokenization.settings import NO_TOKEN_TYPES, TokenizerFiles


def big_bird(
    model: bytes,
    *,
    special: Mapping[str, str] = ALBERT_SPECIALS,
    add_prefix_space: bool = True,
    max_length: int | None = None,
    files: TokenizerFiles | None = None,
) -> BackendTokenizer:
    """Return BigBird's tokenizer over its SentencePiece model (`spiece.model`, a unigram model).

    Ids are those of the model. Rows are laid out as in BERT, with one token type. As in transformers 5, the model's own
    normalisation of text is not applied.

    Args:
        model: the bytes of the model.
        special: names of the special tokens by role.
        add_prefix_space: whether to tokenize text after a special token as if a space preceded it.
        max_length: most tokens in an input of the model; None = not known.
        files: contents of the files beside the model: added tokens and settings.

    Raises:
        InputError: the bytes are not a unigram model of SentencePiece, or a special token is missing.
    """
    proto, backend = unigram_model(model, "BigBird", special["unk"])
    backend.normalizer = tokenizers.normalizers.Sequence(
        [
            tokenizers.normalizers.Strip(left=False, right=False),  # transformers has it too
            tokenizers.normalizers.Replace(tokenizers.Regex(" {2,}"), "\u2581"),
        ]
    )
    scheme = "always" if add_prefix_space else "never"
    backend.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace(prepend_scheme=scheme)
    backend.decoder = tokenizers.decoders.Metaspace(prepend_scheme=scheme)
    kinds = {proto.SentencePiece.CONTROL: True, proto.SentencePiece.USER_DEFINED: False}
    files = files or TokenizerFiles()
    roles = set(special.values())
    for piece in proto.pieces:
        if piece.type in kinds and piece.piece not in roles:
            token = tokenizers.AddedToken(piece.piece, normalized=False, special=kinds[piece.type])
            backend.add_tokens([token])
    special = add_tokens(backend, special, files, special_token)
    tokens = sep_and_cls(special, backend)
    (sep, _), (cls, _) = tokens
    backend.post_processor = tokenizers.processors.TemplateProcessing(
        single=[cls, "$A", sep], pair=[cls, "$A", sep, "$B:1", f"{sep}:1"], special_tokens=list(tokens)
    )
    own = {} if add_prefix_space else {"add_prefix_space": False}
    limit = {} if max_length is None else {"model_max_length": max_length}
    settings = {"tokenizer_class": "BigBirdTokenizer", **NO_TOKEN_TYPES, **files.settings, **limit, **own}
    return BackendTokenizer(backend, special, settings, sentencepiece_model=model)
