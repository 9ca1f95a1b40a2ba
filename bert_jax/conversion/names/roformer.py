"""RoFormer's tensor names (Su et al. 2021, arXiv:2104.09864)."""

from typing import Any

import numpy as np

from bert_jax.conversion.names import bert, roberta
from bert_jax.conversion.names.table import Names, architectures, classifiers, dense
from bert_jax.modeling.positions import sinusoids


def _positions(config: Any) -> np.ndarray:
    """Return the sines and then the cosines of rotary positions, `[S, H]`."""
    table = sinusoids(config.max_position_embeddings, config.head_size)
    return np.concatenate((table[:, 0::2], table[:, 1::2]), axis=1)


NAMES = Names(
    prefix="roformer.",
    encoder=(
        *bert.encoder("roformer."),
        *dense("roformer.embeddings_project", "embeddings/projection"),
    ),
    heads=classifiers(masked_lm=bert.masked_lm(), sequence_classification=roberta.CLASSIFIER),
    architectures=architectures("RoFormer", without=("multiple_choice",)),
    other_architectures={"RoFormerForCausalLM": "masked_lm"},
    tied=bert.tied_predictions("roformer."),
    buffers={"roformer.encoder.embed_positions.weight": _positions},
)
