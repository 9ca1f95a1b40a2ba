"""Parts of a model that its config and head choose; those that are not BERT's are imported by their models only."""

from bert_jax.config import BertConfig
from bert_jax.head_names import DECODER_HEAD, GLINER_HEAD
from bert_jax.lazy import LazyRegistry, import_object
from bert_jax.modeling.attention import SelfAttention
from bert_jax.modeling.embeddings import Embeddings
from bert_jax.modeling.feed_forward import FeedForward
from bert_jax.modeling.stack import Beside
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
    others = (
        config.embeddings.rescale_embeddings
        or config.embeddings.token_dropout
        or config.embeddings.task_type_vocab_size
    )
    if config.projects_embeddings or others or config.positions.kind == "sinusoidal":
        from bert_jax.modeling.other_embeddings import OtherEmbeddings

        return OtherEmbeddings
    return Embeddings


def attention_of(config: BertConfig) -> type[SelfAttention]:
    """Return the attention block: that which the positions need, or else that of the config's attention."""
    kind: type[SelfAttention] = import_object(config.positions.attention() or config.attention.builds())
    return kind


def feed_forward_of(config: BertConfig) -> type[FeedForward]:
    """Return the feed-forward block."""
    kind: type[FeedForward] = import_object(config.feed_forward.builds())
    return kind


def beside_of(config: BertConfig) -> tuple[Beside, ...]:
    """Return what is beside the layers."""
    return tuple(import_object(name)() for name in (*config.positions.beside(), *config.attention.beside()))


def head_of(config: BertConfig, name: str) -> Head:
    """Return the head of a name."""
    if name == "question_answering" and config.heads.span_head == "feed_forward":
        from bert_jax.modeling.spans_after_question import SpanAfterQuestionHead

        return SpanAfterQuestionHead()
    if name == "sparse_embedding" and config.pooling == "lexical":
        from bert_jax.modeling.sparse_heads import LexicalWeightsHead

        return LexicalWeightsHead()
    return _HEADS[name]()
