"""ALBERT (Lan et al. 2020, arXiv:1909.11942): BERT with tied layers and narrow embeddings."""

from bert_jax.config.embeddings import FactoredConfig
from bert_jax.families.albert.parts import TiedConfig
from bert_jax.families.base import Family, Json, keys_with, whole_number
from bert_jax.families.names import (
    LAYERS_PATH,
    Entry,
    Names,
    architectures,
    classifiers,
    dense,
    embedding,
    embeddings,
    norm,
)
from bert_jax.model_files.keys import FileKey, refused

_KEYS: tuple[FileKey, ...] = (refused("net_structure_type", "other structures are not supported", 0),)

_LAYER = "albert.encoder.albert_layer_groups.{group}.albert_layers.{inner}"
_MASKED_LM = (
    *dense("predictions.dense", "mlm/dense"),
    *norm("predictions.LayerNorm", "mlm/layer_norm"),
    Entry("predictions.bias", "mlm/bias"),
    embedding("predictions.decoder", "mlm/decoder"),
)

_NAMES = Names(
    prefix="albert.",
    encoder=(
        *embeddings("albert."),
        *dense("albert.encoder.embedding_hidden_mapping_in", "embeddings/projection"),
        *dense(f"{_LAYER}.attention.query", f"{LAYERS_PATH}/attention/query"),
        *dense(f"{_LAYER}.attention.key", f"{LAYERS_PATH}/attention/key"),
        *dense(f"{_LAYER}.attention.value", f"{LAYERS_PATH}/attention/value"),
        *dense(f"{_LAYER}.attention.dense", f"{LAYERS_PATH}/attention/output"),
        *norm(f"{_LAYER}.attention.LayerNorm", f"{LAYERS_PATH}/attention/layer_norm"),
        *dense(f"{_LAYER}.ffn", f"{LAYERS_PATH}/mlp/up"),
        *dense(f"{_LAYER}.ffn_output", f"{LAYERS_PATH}/mlp/down"),
        *norm(f"{_LAYER}.full_layer_layer_norm", f"{LAYERS_PATH}/mlp/layer_norm"),
        *dense("albert.pooler", "pooler/dense"),
    ),
    heads=classifiers(
        masked_lm=_MASKED_LM,
        pretraining=(*_MASKED_LM, *dense("sop_classifier.classifier", "nsp")),
    ),
    architectures=architectures("Albert", pretraining="ForPreTraining"),
    tied=(
        ("predictions.decoder.weight", "albert.embeddings.word_embeddings.weight"),
        ("predictions.decoder.bias", "predictions.bias"),
    ),
)


def _read_albert(hf: Json) -> Json:
    """Return the number of layers: num_hidden_layers times inner_group_num of a `config.json`."""
    return {"num_hidden_layers": whole_number(hf, "num_hidden_layers", 1) * whole_number(hf, "inner_group_num", 1)}


ALBERT_FAMILY = Family(
    name="albert",
    title="ALBERT",
    file_keys=_KEYS,
    names=_NAMES,
    tokenizer_class="AlbertTokenizer",
    sign=r"(^|\.)albert_layer_groups\.\d+\.",
    classes="Albert",
    fixed={"embeddings": FactoredConfig(embedding_projection=True), "stack": TiedConfig()},
    sizes={"base": (12, 768, 12, 3072), "large": (24, 1024, 16, 4096), "xlarge": (24, 2048, 16, 8192),
           "xxlarge": (12, 4096, 64, 16384)},
    keys=keys_with("embedding_size", "num_hidden_groups", "inner_group_num",
                   classifier_dropout="classifier_dropout_prob"),
    required=("num_attention_heads", "hidden_act", "num_hidden_layers"),
    assumed={"hidden_act": "gelu_new"},
    defaults={"vocab_size": 30000, "embedding_size": 128, "num_hidden_layers": 12, "num_hidden_groups": 1,
              "inner_group_num": 1, "hidden_act": "gelu_new", "hidden_dropout_prob": 0.0,
              "attention_probs_dropout_prob": 0.0, "classifier_dropout_prob": 0.1},
    reads=_read_albert,
    writes=lambda fields: {"num_hidden_layers": fields["num_hidden_layers"] // fields["inner_group_num"]},
)  # fmt: skip
