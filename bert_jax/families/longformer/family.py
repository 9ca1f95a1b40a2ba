"""Longformer (Beltagy et al. 2020, arXiv:2004.05150): RoBERTa with sliding windows and global attention."""

from bert_jax.errors import InputError
from bert_jax.families import bert
from bert_jax.families.base import LARGEST, TANH_SUMMARY, Family, Json, after_padding, keys_with, shown, whole_number
from bert_jax.families.longformer.parts import GlobalTokensConfig
from bert_jax.families.names import (
    CLASSIFICATION_HEAD,
    LAYERS_PATH,
    LM_HEAD,
    Names,
    architectures,
    classifiers,
    dense,
    tied_lm_head,
)
from bert_jax.model_files.keys import FileKey, honoured, refused

_KEYS: tuple[FileKey, ...] = (
    honoured("attention_window", "width of the attention window, of all layers or of each"),
    refused("autoregressive", "decoders are not supported", False),
)

_ATTENTION = "longformer.encoder.layer.{layer}.attention.self"

_NAMES = Names(
    prefix="longformer.",
    encoder=(
        *bert.encoder("longformer."),
        *dense(f"{_ATTENTION}.query_global", f"{LAYERS_PATH}/attention/global_query"),
        *dense(f"{_ATTENTION}.key_global", f"{LAYERS_PATH}/attention/global_key"),
        *dense(f"{_ATTENTION}.value_global", f"{LAYERS_PATH}/attention/global_value"),
    ),
    heads=classifiers(masked_lm=LM_HEAD, sequence_classification=CLASSIFICATION_HEAD),
    architectures=architectures("Longformer"),
    tied=tied_lm_head("longformer."),
)


def _read_longformer(hf: Json) -> Json:
    """Return each layer's window on either side, which is half of `attention_window`."""
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
    if not windows:
        raise InputError("model config: attention_windows: expected one or more in a longformer, found none")
    return {"attention_window": [2 * windows[i % len(windows)] for i in range(fields["num_hidden_layers"])]}


LONGFORMER_FAMILY = Family(
    name="longformer",
    title="Longformer",
    file_keys=_KEYS,
    names=_NAMES,
    tokenizer_class="RobertaTokenizer",
    token_types=False,
    sign=r"(^|\.)layer\.\d+\.attention\.self\.query_global\.",
    classes="Longformer",
    fixed={"attention": GlobalTokensConfig(), **TANH_SUMMARY},
    keys=keys_with("max_global_tokens", "sep_token_id", without=("classifier_dropout",)),
    required=("num_attention_heads", "hidden_act", "layer_norm_eps"),
    assumed={"hidden_act": "gelu", "layer_norm_eps": 1e-12},
    defaults={"vocab_size": 50265, "pad_token_id": 1, "sep_token_id": 2, "max_position_embeddings": 4098,
              "layer_norm_eps": 1e-5, "type_vocab_size": 1, "num_hidden_layers": 12, "attention_window": 512,
              "max_global_tokens": 128},
    reads=_read_longformer,
    writes=_write_longformer,
    position_offset=after_padding,
)  # fmt: skip
