"""BERT, and the families that differ from it in a few switches."""

from bert_jax.errors import InputError
from bert_jax.families.base import PRE_NORM, Family, Json, boolean, keys_with, shown, whole_number


def _read_distilbert(hf: Json) -> Json:
    """Check that BERT's keys agree with DistilBERT's, which transformers reads as aliases; return no fields."""
    names = {"hidden_size": "dim", "num_hidden_layers": "n_layers", "num_attention_heads": "n_heads"}
    for other, own in names.items():
        if other in hf and hf[other] != hf.get(own):
            raise InputError(f"{other}: expected that of {own}, {shown(hf.get(own))}, found {shown(hf[other])}")
    return {}


def _read_ernie(hf: Json) -> Json:
    """Return the number of task ids, which counts only if `use_task_id` is set."""
    use = boolean({"use_task_id": False} | hf, "use_task_id")
    rows = whole_number({"task_type_vocab_size": 3} | hf, "task_type_vocab_size", 1)
    return {"task_type_vocab_size": rows if use else 0}


def _write_ernie(fields: Json) -> Json:
    rows = fields["task_type_vocab_size"]
    return {"use_task_id": rows > 0} | ({"task_type_vocab_size": rows} if rows else {})


def _read_albert(hf: Json) -> Json:
    """Return the number of layers: a config.json counts the uses of groups."""
    return {"num_hidden_layers": whole_number(hf, "num_hidden_layers", 1) * whole_number(hf, "inner_group_num", 1)}


BERT_FAMILY = Family(classes="Bert", keys=keys_with("position_embedding_type"))


DISTILBERT_FAMILY = Family(
    classes="DistilBert",
    fixed={"type_vocab_size": 0, "pooler": False, "classifier_summary": "relu", "choice_summary": "relu"},
    keys=keys_with(
        "qa_dropout", without=("type_vocab_size", "layer_norm_eps"),
        hidden_size="dim", num_hidden_layers="n_layers", num_attention_heads="n_heads",
        intermediate_size="hidden_dim", hidden_act="activation", hidden_dropout_prob="dropout",
        attention_probs_dropout_prob="attention_dropout", classifier_dropout="seq_classif_dropout",
    ),
    reads=_read_distilbert,
    defaults={"n_layers": 6, "seq_classif_dropout": 0.2, "qa_dropout": 0.1},
)  # fmt: skip


ERNIE_FAMILY = Family(classes="Ernie", reads=_read_ernie, writes=_write_ernie)


MEGATRON_BERT_FAMILY = Family(
    classes="MegatronBert",
    fixed=PRE_NORM,
    keys=keys_with(without=("classifier_dropout",)),
    defaults={"vocab_size": 29056},
)  # fmt: skip


ALBERT_FAMILY = Family(
    classes="Albert",
    fixed={"embedding_projection": True},
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


ELECTRA_FAMILY = Family(
    classes="Electra",
    fixed={"pooler": False, "classifier_summary": "gelu", "choice_summary": "gelu", "drop_before_summary": True,
           "head_act": "gelu"},
    sizes={"small": (12, 256, 4, 1024)},
    keys=keys_with("embedding_size"),
    defaults={"embedding_size": 128, "hidden_size": 256, "num_attention_heads": 4, "intermediate_size": 1024},
)  # fmt: skip
