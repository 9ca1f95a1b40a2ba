"""The heads of an encoder: their settings, and the classes that a family may replace."""

import dataclasses

from bert_jax.config.fields import setting
from bert_jax.config.part import ModelPart
from bert_jax.config.values import ACTIVATION_NAMES, SUMMARIES


@dataclasses.dataclass(frozen=True)
class HeadsConfig(ModelPart):
    """The heads of an encoder: their settings, and the classes that a family may replace."""

    classifier_summary: str = setting("pooler", "layer before a sequence classifier: the pooler, a dense layer of its "
                                      "own with an activation, or masked LM's transform, which then also precedes the "
                                      "heads for tokens and spans", choices=SUMMARIES)  # fmt: skip
    choice_summary: str = setting("pooler", "layer before a multiple-choice classifier", choices=SUMMARIES)
    classifier_pooling: str = setting("cls", "input of a classifier's own layer: the first token (cls) or the mean; "
                                      "late = the mean of all tokens' logits", choices=("cls", "mean", "late"),
                                      recipe=True)  # fmt: skip
    pooler_dropout: float = setting(0.0, "dropout rate before a classifier's own dense layer", least=0, below=1)
    drop_before_summary: bool = setting(False, "whether dropout precedes a sequence classifier's own dense layer too")
    classifier_dropout: float | None = setting(
        None, "dropout rate before a classifier; None = hidden_dropout_prob", least=0, below=1, recipe=True
    )
    qa_dropout: float | None = setting(
        0.0, "dropout rate before question answering's head; None = as a classifier", least=0, below=1, recipe=True
    )
    head_transform: bool = setting(True, "whether the masked-LM head has a dense layer, an activation and a LayerNorm")
    head_act: str | None = setting(None, "activation of masked LM's head; None = hidden_act", choices=ACTIVATION_NAMES)
    head_bias: bool = setting(True, "whether the dense layer of the masked-LM head has a bias", shapes=True)
    decoder_bias: bool = setting(True, "whether the masked-LM head has a bias for each token", shapes=True)

    def head(self, name: str) -> str:
        """Return the import path of a head's class; "" = BERT's."""
        return ""

    def pooler(self) -> str:
        """Return the import path of the pooler's class."""
        return "bert_jax.modeling.heads.Pooler"

    def masked_lm(self) -> str:
        """Return the import path of the masked-LM head's class."""
        return "bert_jax.modeling.heads.VocabularyProjection"

    def further_heads(self) -> tuple[str, ...]:
        """Return the import paths of the classes of additional heads that every model has."""
        return ()

    def has_unread_pooler(self, head: str) -> bool:
        """Return whether a model has a pooler although its head does not read it."""
        return False

    def transform_width(self, hidden_size: int, embedding_width: int) -> int:
        """Return the width of the masked-LM head's transform, and of its output matrix."""
        return embedding_width
