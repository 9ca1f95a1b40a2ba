"""The heads."""

import dataclasses
from typing import Any

from bert_jax.config.part import ModelPart
from bert_jax.errors import InputError


@dataclasses.dataclass(frozen=True)
class HeadsConfig(ModelPart):
    """The heads.

    Attributes:
        pooler_dense: whether the pooler has a dense layer and tanh; False = its output is the first token's state.
        unread_pooler: whether masked LM, sequence and token classifiers have a pooler that they do not read.
        classifier_summary: the layer before a sequence classifier: the pooler (`pooler`), a dense layer of its own with
            an activation (`tanh`, `relu`, `gelu`, or that of the encoder, `hidden_act`), or the transform of the
            masked-LM head (`transform`), which then also comes before the heads for tokens and spans.
        choice_summary: the layer before a multiple-choice classifier, likewise.
        classifier_pooling: input of a summary other than the pooler: the first token (`cls`) or the `mean` of all
            tokens; `late` = all tokens, and the mean of their logits.
        pooler_dropout: dropout rate before a classifier's own dense layer.
        drop_before_summary: whether there is also dropout before a sequence classifier's own dense layer.
        classifier_dropout: dropout rate before a classifier; None means `hidden_dropout_prob`.
        qa_dropout: dropout rate before the span head.
        span_head: `dense`, or `feed_forward`: a feed-forward block before the dense layer, whose logits leave out the
            tokens of the question.
        head_transform: whether the masked-LM head has a dense layer, an activation and a LayerNorm before its output
            matrix.
        head_act: activation of the masked-LM head; None = `hidden_act`.
        head_bias: whether the dense layer of the masked-LM head has a bias.
        decoder_bias: whether the masked-LM head has a bias for each token.
        wide_decoder: whether the masked-LM head's transform is `hidden_size` wide, and its output matrix has columns
            of its own beside those of narrower word embeddings.
        legacy: whether the files name the tensors of the masked-LM head as BERT's.
        discriminator_norm: whether the head for replaced tokens adds the first token's state to that of each token,
            with a LayerNorm, before its dense layer.
        contact_head: whether the encoder has a logistic regression over its attention maps that predicts contacts of a
            protein's residues (Rao et al. 2021, doi:10.1101/2020.12.15.422761).
    """

    pooler_dense: bool = True
    unread_pooler: bool = False
    classifier_summary: str = "pooler"
    choice_summary: str = "pooler"
    classifier_pooling: str = "cls"
    pooler_dropout: float = 0.0
    drop_before_summary: bool = False
    classifier_dropout: float | None = None
    qa_dropout: float = 0.0
    span_head: str = "dense"
    head_transform: bool = True
    head_act: str | None = None
    head_bias: bool = True
    decoder_bias: bool = True
    wide_decoder: bool = False
    legacy: bool = True
    discriminator_norm: bool = False
    contact_head: bool = False

    def check(self, config: Any) -> None:
        if self.wide_decoder and config.embedding_width > config.hidden_size:
            raise InputError(
                f"model config: embedding_size: expected at most hidden_size {config.hidden_size}, as the masked-LM "
                f"head has columns of its own beside those of the word embedding, found {config.embedding_width}"
            )
