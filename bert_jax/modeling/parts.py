"""Parts of a model that its config and head choose; those that are not BERT's are imported by their models only."""

import importlib
from typing import Any

from bert_jax.config import BertConfig
from bert_jax.config.parts import Part
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
    others = config.rescale_embeddings or config.token_dropout or config.task_type_vocab_size
    if config.projects_embeddings or others or config.position_embedding_type == "sinusoidal":
        from bert_jax.modeling.other_embeddings import OtherEmbeddings

        return OtherEmbeddings
    return Embeddings


def attention_of(config: BertConfig) -> type[SelfAttention]:
    """Return the attention block."""
    if config.pos_att_type:
        from bert_jax.modeling.disentangled import DisentangledAttention

        return DisentangledAttention
    if config.max_global_tokens:
        from bert_jax.modeling.global_attention import GlobalAttention

        return GlobalAttention
    if config.longest_full is not None:
        from bert_jax.modeling.block_sparse import BlockSparseAttention

        return BlockSparseAttention
    if config.position_embedding_type == "alibi":
        from bert_jax.modeling.alibi import AlibiAttention

        return AlibiAttention
    return SelfAttention


def feed_forward_of(config: BertConfig) -> type[FeedForward]:
    """Return the feed-forward block."""
    if config.gated:
        from bert_jax.modeling.gated import GatedFeedForward

        return GatedFeedForward
    return FeedForward


def built_by(part: Part) -> Any:
    """Return the class that a part makes a model of."""
    module, _, name = part.builds.rpartition(".")
    return getattr(importlib.import_module(module), name)


def beside_of(config: BertConfig) -> tuple[Beside, ...]:
    """Return what is beside the layers."""
    parts: list[Beside] = []
    if config.relative_attention_buckets:
        from bert_jax.modeling.relative_bias import RelativeBias

        parts.append(RelativeBias())
    if config.pos_att_type:
        from bert_jax.modeling.disentangled import Disentangled

        parts.append(Disentangled())
    if config.conv_kernel_size:
        from bert_jax.modeling.disentangled import Convolving

        parts.append(Convolving())
    if config.longest_full is not None and config.num_random_blocks:
        from bert_jax.modeling.block_sparse import RandomBlocks

        parts.append(RandomBlocks())
    return tuple(parts)


def head_of(config: BertConfig, name: str) -> Head:
    """Return the head of a name."""
    match name:
        case "question_answering" if config.span_head == "feed_forward":
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
