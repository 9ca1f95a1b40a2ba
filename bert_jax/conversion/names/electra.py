"""ELECTRA's tensor names for generator and discriminator (Clark et al. 2020, arXiv:2003.10555)."""

import functools

from bert_jax.conversion.names import bert
from bert_jax.conversion.names.roberta import CLASSIFIER
from bert_jax.conversion.names.table import (
    Entry,
    Names,
    architectures,
    classifiers,
    dense,
    embedding,
    norm,
    rename_tensors,
)

# TensorFlow checkpoints of BERTs with narrow embeddings have ELECTRA's architecture under BERT's names.
_FROM_BERT = (
    (r"^bert\.", "electra."),
    (r"^cls\.predictions\.transform\.", "generator_predictions."),
    (r"^cls\.predictions\.(bias|decoder)", r"generator_lm_head.\1"),
    (r"^generator_lm_head\.decoder\.", "generator_lm_head."),
)


NAMES = Names(
    prefix="electra.",
    encoder=(*bert.encoder("electra."), *dense("electra.embeddings_project", "embeddings/projection")),
    heads=classifiers(
        masked_lm=(
            *dense("generator_predictions.dense", "mlm/dense"),
            *norm("generator_predictions.LayerNorm", "mlm/layer_norm"),
            Entry("generator_lm_head.bias", "mlm/bias"),
            embedding("generator_lm_head", "mlm/decoder"),
        ),
        replaced_token_detection=(
            *dense("discriminator_predictions.dense", "discriminator/dense"),
            *dense("discriminator_predictions.dense_prediction", "discriminator/output"),
        ),
        sequence_classification=CLASSIFIER,
        multiple_choice=(*dense("sequence_summary.summary", "summary/dense"), *dense("classifier", "classifier")),
    ),
    architectures=architectures("Electra", replaced_token_detection="ForPreTraining"),
    other_architectures={"ElectraForCausalLM": "masked_lm"},
    tied=(("generator_lm_head.weight", "electra.embeddings.word_embeddings.weight"),),
    older=functools.partial(rename_tensors, rules=_FROM_BERT),
)
