"""Build the tokenizer of BigBird (SentencePiece)."""

import tokenizers

from bert_jax.tokenization.added_tokens import special_token
from bert_jax.tokenization.building import BERT_ROWS, finish_tokenizer
from bert_jax.tokenization.families import unigram_model
from bert_jax.tokenization.huggingface import BackendTokenizer
from bert_jax.tokenization.names import ALBERT_SPECIALS
from bert_jax.tokenization.settings import NO_TOKEN_TYPES, TokenizerFiles, named_specials


def big_bird(model: bytes, files: TokenizerFiles | None = None) -> BackendTokenizer:
    """Return BigBird's tokenizer over its SentencePiece model (`spiece.model`, a unigram model).

    Ids are those of the model. Rows are laid out as in BERT, with one token type. As in transformers 5, the model's own
    normalisation of text is not applied.

    Args:
        model: the bytes of the model.
        files: contents of the files beside the model.

    Raises:
        InputError: the bytes are not a unigram model of SentencePiece, or a special token is missing.
    """
    files = files or TokenizerFiles()
    special = named_specials(ALBERT_SPECIALS, files.settings)
    proto, backend = unigram_model(model, "BigBird", special["unk"])
    backend.normalizer = tokenizers.normalizers.Sequence(
        [
            tokenizers.normalizers.Strip(left=False, right=False),  # strips nothing, as in transformers
            tokenizers.normalizers.Replace(tokenizers.Regex(" {2,}"), "\u2581"),
        ]
    )
    scheme = "always" if files.settings.get("add_prefix_space", True) else "never"
    backend.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace(prepend_scheme=scheme)
    backend.decoder = tokenizers.decoders.Metaspace(prepend_scheme=scheme)
    kinds = {proto.SentencePiece.CONTROL: True, proto.SentencePiece.USER_DEFINED: False}
    roles = set(special.values())
    for piece in proto.pieces:
        if piece.type in kinds and piece.piece not in roles:
            token = tokenizers.AddedToken(piece.piece, normalized=False, special=kinds[piece.type])
            backend.add_tokens([token])
    defaults = {"tokenizer_class": "BigBirdTokenizer", **NO_TOKEN_TYPES}
    return finish_tokenizer(backend, special, files, defaults, BERT_ROWS, special_token, model)
