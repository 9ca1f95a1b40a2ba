"""The parts of the encoder that a config chooses; each stands in a file of its own, which only its models import."""

from bert_jax.config import BertConfig
from bert_jax.modeling.attention import SelfAttention
from bert_jax.modeling.embeddings import Embeddings
from bert_jax.modeling.feed_forward import FeedForward
from bert_jax.modeling.stack import Beside, Stack


def embeddings_of(config: BertConfig) -> type[Embeddings]:
    """Return the embedding layer."""
    projected = config.embedding_width != config.hidden_size or config.embedding_projection or config.trigram_input
    others = config.rescale_embeddings or config.token_dropout or config.task_type_vocab_size
    if projected or others or config.position_embedding_type == "sinusoidal":
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
