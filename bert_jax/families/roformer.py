"""RoFormer (Su et al. 2021, arXiv:2104.09864): BERT with rotary positions and no pooler."""

from typing import Any

from bert_jax.config.embeddings import FactoredConfig
from bert_jax.config.positions import RotaryConfig
from bert_jax.families import bert
from bert_jax.families.base import Family, keys_with
from bert_jax.families.names import CLASSIFICATION_HEAD, Names, architectures, classifiers, dense
from bert_jax.model_files.keys import ALWAYS_ROTARY


def _positions(config: Any) -> Any:
    """Return the sines and then the cosines of rotary positions, `[S, H]`."""
    import numpy as np

    from bert_jax.modeling.positions import sinusoids

    table = sinusoids(config.max_position_embeddings, config.head_size)
    return np.concatenate((table[:, 0::2], table[:, 1::2]), axis=1)


_NAMES = Names(
    prefix="roformer.",
    encoder=(
        *bert.encoder("roformer."),
        *dense("roformer.embeddings_project", "embeddings/projection"),
    ),
    heads=classifiers(masked_lm=bert.masked_lm(), sequence_classification=CLASSIFICATION_HEAD),
    architectures=architectures("RoFormer", without=("multiple_choice",)),
    other_architectures={"RoFormerForCausalLM": "masked_lm"},
    tied=bert.tied_predictions("roformer."),
    buffers={"roformer.encoder.embed_positions.weight": _positions},
)

ROFORMER_FAMILY = Family(
    name="roformer",
    title="RoFormer",
    file_keys=(ALWAYS_ROTARY,),
    names=_NAMES,
    sign=r"^roformer\.|(^|\.)encoder\.embed_positions\.",
    classes="RoFormer",
    fixed={"embeddings": FactoredConfig(),
           "positions": RotaryConfig(), "rotary_interleaved": True, "pooler": False,
           "classifier_summary": "hidden_act", "choice_summary": "hidden_act", "drop_before_summary": True},
    sizes={"small": (6, 384, 6, 1536)},
    keys=keys_with("embedding_size", "rotary_value", without=("classifier_dropout",)),
    defaults={"vocab_size": 50000, "hidden_act": "gelu", "max_position_embeddings": 1536},
)  # fmt: skip
