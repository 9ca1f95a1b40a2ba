"""The head of a sequence classifier that reads the embedding of a text, as sentence-transformers computes it."""

from flax import nnx

from bert_jax.config import BertConfig
from bert_jax.modeling.embedding_heads import SentenceEmbeddingHead
from bert_jax.modeling.layers import Dense
from bert_jax.modeling.task_heads import HeadInputs, Outputs


class EmbeddingClassifier(SentenceEmbeddingHead):
    """Sequence classification: logits from a dense layer over the sentence embedding."""

    def build(self, config: BertConfig, rngs: nnx.Rngs) -> dict[str, nnx.Module]:
        classifier = Dense(config, config.sentence_embedding_size, config.num_labels, rngs=rngs)
        return super().build(config, rngs) | {"classifier": classifier}

    def __call__(self, encoded: HeadInputs) -> Outputs:
        embedding = super().__call__(encoded)["sentence_embedding"]
        return {"logits": encoded.dense(encoded.module.classifier, encoded.drop(embedding))}
