"""Look up the classes that a config and a head name; classes other than BERT's are imported on first use."""

from collections.abc import Callable

from flax import nnx

from bert_jax.config import BertConfig
from bert_jax.head_names import DECODER_HEAD, GLINER_HEAD
from bert_jax.lazy import LazyRegistry, import_object
from bert_jax.modeling.attention import SelfAttention
from bert_jax.modeling.attention_plan import kind_of_attention
from bert_jax.modeling.embeddings import Embeddings
from bert_jax.modeling.feed_forward import FeedForward
from bert_jax.modeling.stack import Beside, Stack
from bert_jax.modeling.task_heads import Head

# Head -> its class; `lexical` is a sparse embedding with pooling `lexical`.
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
        "lexical": "bert_jax.modeling.sparse_heads.LexicalWeightsHead",
        "embedding_classifier": "bert_jax.modeling.embedding_classifier.EmbeddingClassifier",
        "multi_vector": "bert_jax.modeling.embedding_heads.MultiVectorHead",
        GLINER_HEAD: "bert_jax.modeling.gliner.ZeroShotNerHead",
        DECODER_HEAD: "bert_jax.modeling.cross_attention.DecoderHead",
    }
)


def embeddings_of(config: BertConfig) -> type[Embeddings]:
    """Return the class of the embedding layer."""
    kind: type[Embeddings] = import_object(config.embeddings.builds())
    return kind


def attention_of(config: BertConfig) -> type[SelfAttention]:
    """Return the class of the attention block."""
    kind = kind_of_attention(config)
    assert issubclass(kind, SelfAttention)
    return kind


def layer_of(config: BertConfig) -> Callable[..., nnx.Module]:
    """Return the class of a layer, whose arguments are those of `EncoderLayer`."""
    kind: Callable[..., nnx.Module] = import_object(config.layer.builds())
    return kind


def stack_of(config: BertConfig) -> Stack:
    """Return the stack, which says which layers share parameters."""
    kind: type[Stack] = import_object(config.stack.builds())
    return kind()


def pooler_of(config: BertConfig) -> Callable[..., nnx.Module]:
    """Return the class of the pooler, whose arguments are those of `bert_jax.modeling.heads.Pooler`."""
    kind: Callable[..., nnx.Module] = import_object(config.heads.pooler())
    return kind


def feed_forward_of(config: BertConfig) -> type[FeedForward]:
    """Return the class of the feed-forward block."""
    kind: type[FeedForward] = import_object(config.feed_forward.builds())
    return kind


def beside_of(config: BertConfig) -> tuple[Beside, ...]:
    """Return the encoder's modules beside its layers."""
    return tuple(import_object(name)() for name in (*config.positions.beside(), *config.attention.beside()))


def head_of(config: BertConfig, name: str) -> Head:
    """Return the head called `name`."""
    if name == "sequence_classification" and config.classifies_embedding:
        return _HEADS["embedding_classifier"]()
    if family_head := config.heads.head(name):
        kind: type[Head] = import_object(family_head)
        return kind()
    if name == "sparse_embedding" and config.pooling == "lexical":
        return _HEADS["lexical"]()
    return _HEADS[name]()


def further_heads(config: BertConfig) -> tuple[Head, ...]:
    """Return the heads that a config adds to every model."""
    return tuple(import_object(name)() for name in config.heads.further_heads())
