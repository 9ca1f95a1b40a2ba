"""The heads of BERT's pretraining: next sentence prediction, alone and with the masked-LM head."""

from flax import nnx

from bert_jax.config import BertConfig
from bert_jax.modeling.layers import Dense
from bert_jax.modeling.task_heads import Head, HeadInputs, MaskedLM, Outputs, Read


class NextSentence(Head):
    """Next-sentence prediction: logits from the pooler's output."""

    def build(self, config: BertConfig, rngs: nnx.Rngs) -> dict[str, nnx.Module]:
        return {"nsp": Dense(config, config.hidden_size, 2, rngs=rngs)}

    def positions_read(self, config: BertConfig) -> Read | None:
        return Read(first=True, masked=False)

    def __call__(self, encoded: HeadInputs) -> Outputs:
        assert encoded.pooled is not None
        return {"logits": encoded.dense(encoded.module.nsp, encoded.pooled)}


class Pretraining(Head):
    """BERT's pretraining: the masked-LM head and the next-sentence head."""

    def build(self, config: BertConfig, rngs: nnx.Rngs) -> dict[str, nnx.Module]:
        return MaskedLM().build(config, rngs) | NextSentence().build(config, rngs)

    def positions_read(self, config: BertConfig) -> Read | None:
        return None if config.attention.sparse else Read(first=True, masked=True)

    def __call__(self, encoded: HeadInputs) -> Outputs:
        next_sentence = {"seq_relationship_logits": NextSentence()(encoded)["logits"]}
        return MaskedLM().predict(encoded, "prediction_logits") | next_sentence
