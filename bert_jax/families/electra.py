"""ELECTRA (Clark et al. 2020, arXiv:2003.10555), generator and discriminator: BERT with narrow embeddings."""

import functools

from bert_jax.config.embeddings import FactoredConfig
from bert_jax.families import bert
from bert_jax.families.base import Family, keys_with
from bert_jax.families.names import (
    CLASSIFICATION_HEAD,
    Entry,
    Names,
    architectures,
    classifiers,
    dense,
    embedding,
    norm,
    rename_tensors,
)
from bert_jax.model_files.keys import FileKey, refused

_KEYS: tuple[FileKey, ...] = (
    refused("summary_type", "multiple choice reads the first token", "first"),
    refused("summary_use_proj", "multiple choice has a dense layer", True),
    refused("summary_activation", "multiple choice has gelu after the dense layer", "gelu"),
    refused("summary_proj_to_labels", "the classifier follows the dense layer", False, True),
)

# TensorFlow checkpoints of BERTs with narrow embeddings have ELECTRA's architecture under BERT's names.
_FROM_BERT = (
    (r"^bert\.", "electra."),
    (r"^cls\.predictions\.transform\.", "generator_predictions."),
    (r"^cls\.predictions\.(bias|decoder)", r"generator_lm_head.\1"),
    (r"^generator_lm_head\.decoder\.", "generator_lm_head."),
)


_NAMES = Names(
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
        sequence_classification=CLASSIFICATION_HEAD,
        multiple_choice=(*dense("sequence_summary.summary", "summary/dense"), *dense("classifier", "classifier")),
    ),
    architectures=architectures("Electra", replaced_token_detection="ForPreTraining"),
    other_architectures={"ElectraForCausalLM": "masked_lm"},
    tied=(("generator_lm_head.weight", "electra.embeddings.word_embeddings.weight"),),
    older=functools.partial(rename_tensors, rules=_FROM_BERT),
)

ELECTRA_FAMILY = Family(
    name="electra",
    title="ELECTRA",
    file_keys=_KEYS,
    names=_NAMES,
    tokenizer_class="ElectraTokenizer",
    common_sign=r"^electra\.|^embeddings_project\.|^(generator|discriminator)_predictions\.",
    narrow_embeddings=True,
    classes="Electra",
    fixed={"embeddings": FactoredConfig(),
           "pooler": False, "classifier_summary": "gelu", "choice_summary": "gelu", "drop_before_summary": True,
           "head_act": "gelu"},
    sizes={"small": (12, 256, 4, 1024)},
    keys=keys_with("embedding_size"),
    defaults={"embedding_size": 128, "hidden_size": 256, "num_attention_heads": 4, "intermediate_size": 1024},
)  # fmt: skip
