"""The embedding layer."""

import dataclasses
from typing import Any, Self

from bert_jax.config.part import ModelPart
from bert_jax.errors import InputError


@dataclasses.dataclass(frozen=True)
class EmbeddingsConfig(ModelPart):
    """The embedding layer.

    Attributes:
        embedding_size: width of the embeddings, which a dense layer projects to `hidden_size`; None = hidden_size.
        embedding_projection: whether there is such a dense layer also if the embeddings are as wide as `hidden_size`.
        norm_after_projection: whether the LayerNorm of the embeddings follows this dense layer, which then has no bias.
        embedding_norm: whether a LayerNorm follows the sum of the embeddings.
        word_projection: whether this dense layer projects word embeddings alone, and the other embeddings, as wide as
            `hidden_size`, are added to its output.
        trigram_input: whether this dense layer reads the word embeddings of the next token, the token itself and the
            previous token (Sun et al. 2020, arXiv:2004.02984, section 3.4).
        task_type_vocab_size: number of task ids (Sun et al. 2019, arXiv:1907.12412); 0 = no task embedding.
        token_dropout: whether embeddings of the mask token are 0, and the others scaled as if they had been dropped out
            (Rives et al. 2021, doi:10.1073/pnas.2016239118).
        mask_token_id: id of the mask token, for `token_dropout`.
        rescale_embeddings: whether word embeddings are multiplied by the square root of `hidden_size`.
    """

    embedding_size: int | None = None
    embedding_projection: bool = False
    norm_after_projection: bool = False
    embedding_norm: bool = True
    word_projection: bool = False
    trigram_input: bool = False
    task_type_vocab_size: int = 0
    token_dropout: bool = False
    mask_token_id: int | None = None
    rescale_embeddings: bool = False

    def check(self, config: Any) -> None:
        if self.token_dropout and self.mask_token_id is None:
            raise InputError(
                "model config: mask_token_id: expected the id of the mask token with token_dropout, found none"
            )
        if self.trigram_input and not self.word_projection:
            raise InputError("model config: trigram_input: expected false without word_projection, found true")
        if self.word_projection and self.norm_after_projection:
            raise InputError("model config: norm_after_projection: expected false with word_projection, found true")

    def canonical(self, config: Any) -> Self:
        same = self.embedding_size == config.hidden_size
        return dataclasses.replace(self, embedding_size=None) if same else self
