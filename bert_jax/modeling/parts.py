"""Parts of a model that its config and head choose; those that are not BERT's are imported by their models only."""

from bert_jax.config import BertConfig
from bert_jax.lazy import LazyRegistry
from bert_jax.modeling.attention import SelfAttention
from bert_jax.modeling.embeddings import Embeddings
from bert_jax.modeling.feed_forward import FeedForward
from bert_jax.modeling.head_names import DECODER_HEAD, GLINER_HEAD
from bert_jax.modeling.stack import Beside, Stack
from bert_jax.modeling.task_heads import Head

# Head -> its class; two heads have another one in some models (`head_of`).
_HEADS: LazyRegistry[type[Head]] = LazyRegistry(
    {
        "encoder": "bert_jax.modeling.task_heads.Head",
        "pretraining": "bert_jax.modeling.pretraining_heads.Pretraining",
        "masked_lm": "bert_jax.modeling.task_heads.MaskedLM",
        "next_sentence": "bert_jax.modeling.pretraining_heads.NextSentence",
        "sequence_classification": "bert_jax.modeling.classifier_heads.SequenceClassifier",
        "token_classification": "bert_jax.modeling.classifier_heads.TokenClassifier",
        "question_answering": "bert_jax.modeling.classifier_heads.SpanHead",
        "multiple_choice": "bert_jax.modeling.classifier_heads.MultipleChoice",
        "replaced_token_detection": "bert_jax.modeling.replaced_tokens.ReplacedTokens",
        "sentence_embedding": "bert_jax.modeling.embedding_heads.SentenceEmbeddingHead",
        "sparse_embedding": "bert_jax.modeling.sparse_heads.SpladeHead",
        "multi_vector": "bert_jax.modeling.embedding_heads.MultiVectorHead",
        GLINER_HEAD: "bert_jax.modeling.gliner.ZeroShotNerHead",
        DECODER_HEAD: "bert_jax.modeling.cross_attention.DecoderHead",
    }
)


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


def stack_of(config: BertConfig) -> Stack:
    """Return whose parameters the layers have."""
    if config.num_hidden_groups:
        from bert_jax.modeling.tied import Tied

        return Tied()
    if any(config.has_experts):
        from bert_jax.modeling.experts import ExpertsInTurn

        return ExpertsInTurn()
    return Stack()


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
    if name == "question_answering" and config.span_head == "feed_forward":
        from bert_jax.modeling.big_bird_spans import SpanAfterQuestionHead

        return SpanAfterQuestionHead()
    if name == "sparse_embedding" and config.pooling == "lexical":
        from bert_jax.modeling.sparse_heads import LexicalWeightsHead

        return LexicalWeightsHead()
    return _HEADS[name]()
