"""Parts of a model that its config and head choose; those that are not BERT's are imported by their models only."""

import importlib
from typing import Any

from bert_jax.config import BertConfig
from bert_jax.head_names import DECODER_HEAD, GLINER_HEAD
from bert_jax.modeling.attention import SelfAttention
from bert_jax.modeling.embeddings import Embeddings
from bert_jax.modeling.feed_forward import FeedForward
from bert_jax.modeling.stack import Beside
from bert_jax.modeling.task_heads import (
    Head,
    MaskedLM,
    MultipleChoice,
    NextSentence,
    Pretraining,
    SequenceClassifier,
    SpanHead,
    TokenClassifier,
)

_HEADS = {
    "encoder": Head,
    "pretraining": Pretraining,
    "masked_lm": MaskedLM,
    "next_sentence": NextSentence,
    "sequence_classification": SequenceClassifier,
    "token_classification": TokenClassifier,
    "question_answering": SpanHead,
    "multiple_choice": MultipleChoice,
}


def embeddings_of(config: BertConfig) -> type[Embeddings]:
    """Return the embedding layer."""
    others = (
        config.embeddings.rescale_embeddings
        or config.embeddings.token_dropout
        or config.embeddings.task_type_vocab_size
    )
    if config.projects_embeddings or others or config.positions.kind == "sinusoidal":
        from bert_jax.modeling.other_embeddings import OtherEmbeddings

        return OtherEmbeddings
    return Embeddings


def built_by(name: str) -> Any:
    """Return the class of a name, such as `bert_jax.modeling.attention.SelfAttention`, as parts give them."""
    module, _, attribute = name.rpartition(".")
    return getattr(importlib.import_module(module), attribute)


def attention_of(config: BertConfig) -> type[SelfAttention]:
    """Return the attention block: that which the positions need, or else that of the config's attention."""
    kind: type[SelfAttention] = built_by(config.positions.attention() or config.attention.builds())
    return kind


def feed_forward_of(config: BertConfig) -> type[FeedForward]:
    """Return the feed-forward block."""
    kind: type[FeedForward] = built_by(config.feed_forward.builds())
    return kind


def beside_of(config: BertConfig) -> tuple[Beside, ...]:
    """Return what is beside the layers."""
    return tuple(built_by(name)() for name in (*config.positions.beside(), *config.attention.beside()))


def head_of(config: BertConfig, name: str) -> Head:
    """Return the head of a name."""
    match name:
        case "question_answering" if config.heads.span_head == "feed_forward":
            from bert_jax.modeling.big_bird_spans import SpanAfterQuestionHead

            return SpanAfterQuestionHead()
        case "replaced_token_detection":
            from bert_jax.modeling.replaced_tokens import ReplacedTokens

            return ReplacedTokens()
        case "sentence_embedding" | "multi_vector" | "sparse_embedding":
            from bert_jax.modeling import embedding_heads

            sparse = embedding_heads.LexicalWeightsHead if config.pooling == "lexical" else embedding_heads.SpladeHead
            kinds: dict[str, type[Head]] = {
                "sentence_embedding": embedding_heads.SentenceEmbeddingHead,
                "multi_vector": embedding_heads.MultiVectorHead,
                "sparse_embedding": sparse,
            }
            return kinds[name]()
        case name if name == GLINER_HEAD:
            from bert_jax.modeling.gliner import ZeroShotNerHead

            return ZeroShotNerHead()
        case name if name == DECODER_HEAD:
            from bert_jax.modeling.cross_attention import DecoderHead

            return DecoderHead()
    return _HEADS[name]()
