"""Longformer: RoBERTa with windows, and tokens with global attention that has projections of its own."""

from bert_jax.errors import InputError
from bert_jax.families.base import LARGEST, Family, Json, keys_with, shown, whole_number
from bert_jax.families.roberta import ROBERTA_FAMILY, ROBERTA_HEADS


def _read_longformer(hf: Json) -> Json:
    """Return the windows on either side; `attention_window` has the width of both."""
    layers, widths = whole_number(hf, "num_hidden_layers", 1), hf["attention_window"]
    if type(widths) is int:
        widths = [widths] * layers
    if not isinstance(widths, list) or len(widths) != layers:
        raise InputError(
            f"attention_window: expected an integer, or a list of {layers} (num_hidden_layers), found {shown(widths)}"
        )
    for width in widths:
        if type(width) is not int or not 0 < width < LARGEST or width % 2:
            raise InputError(f"attention_window: expected positive even integers, found {shown(width)}")
    return {"attention_windows": tuple(width // 2 for width in widths)}


def _write_longformer(fields: Json) -> Json:
    windows = fields["attention_windows"]
    return {"attention_window": [2 * windows[i % len(windows)] for i in range(fields["num_hidden_layers"])]}


LONGFORMER_FAMILY = Family(
    classes="Longformer",
    fixed=ROBERTA_HEADS,
    keys=keys_with("max_global_tokens", "sep_token_id", without=("classifier_dropout",)),
    required=ROBERTA_FAMILY.required,
    assumed=ROBERTA_FAMILY.assumed,
    defaults={"vocab_size": 50265, "pad_token_id": 1, "sep_token_id": 2, "max_position_embeddings": 4098,
              "layer_norm_eps": 1e-5, "type_vocab_size": 1, "num_hidden_layers": 12, "attention_window": 512,
              "max_global_tokens": 128},
    reads=_read_longformer,
    writes=_write_longformer,
    position_offset=ROBERTA_FAMILY.position_offset,
)  # fmt: skip
