"""MobileBERT (Sun et al. 2020, arXiv:2004.02984): bottlenecks, trigrams, norms without statistics."""

from bert_jax.errors import InputError
from bert_jax.families import bert
from bert_jax.families.base import Family, Json, boolean, keys_with, shown, whole_number
from bert_jax.families.mobilebert.parts import BottleneckConfig, MobileBertHeadsConfig, ProjectedWordsConfig
from bert_jax.families.names import LAYERS_PATH, Entry, dense, norm
from bert_jax.model_files.keys import FileKey, honoured

_KEYS: tuple[FileKey, ...] = (
    honoured("use_bottleneck", "whether layers have a bottleneck"),
    honoured("true_hidden_size", "must equal the width of the bottleneck, or hidden_size without one"),
)

_PREFIX = "mobilebert."
_LAYER = "mobilebert.encoder.layer.{layer}"
_BLOCK, _BLOCK_PATH = f"{_LAYER}.ffn.{{block}}", f"{LAYERS_PATH}/ffn_{{block}}"
_BOTTLENECK = f"{LAYERS_PATH}/bottleneck"
_MASKED_LM = (
    *bert.masked_lm(),
    Entry("cls.predictions.dense.weight", "mlm/further_decoder/embedding", transpose=True),
)

_NAMES = bert.with_bert_heads(
    "MobileBert",
    _PREFIX,
    (
        *bert.encoder(_PREFIX),
        *dense(f"{_PREFIX}embeddings.embedding_transformation", "embeddings/projection"),
        *dense(f"{_BLOCK}.intermediate.dense", f"{_BLOCK_PATH}/up"),
        *dense(f"{_BLOCK}.output.dense", f"{_BLOCK_PATH}/down"),
        *norm(f"{_BLOCK}.output.LayerNorm", f"{_BLOCK_PATH}/layer_norm"),
        *dense(f"{_LAYER}.bottleneck.input.dense", f"{_BOTTLENECK}/input"),
        *norm(f"{_LAYER}.bottleneck.input.LayerNorm", f"{_BOTTLENECK}/input_norm"),
        *dense(f"{_LAYER}.bottleneck.attention.dense", f"{_BOTTLENECK}/query_key"),
        *norm(f"{_LAYER}.bottleneck.attention.LayerNorm", f"{_BOTTLENECK}/query_key_norm"),
        *dense(f"{_LAYER}.output.bottleneck.dense", f"{_BOTTLENECK}/output"),
        *norm(f"{_LAYER}.output.bottleneck.LayerNorm", f"{_BOTTLENECK}/output_norm"),
    ),
    "",
    _MASKED_LM,
)

_NORMS = ("no_norm", "layer_norm")
_SIZE = 128  # the usual width of a bottleneck


def _read_mobilebert(hf: Json) -> Json:
    """Return the width of the bottleneck, 0 without one."""
    hidden, has_bottleneck = whole_number(hf, "hidden_size", 1), boolean(hf, "use_bottleneck")
    inner = whole_number(hf, "intra_bottleneck_size", 1) if has_bottleneck else hidden
    if hf.get("true_hidden_size", inner) != inner:
        of = "intra_bottleneck_size" if has_bottleneck else "hidden_size"
        raise InputError(f"true_hidden_size: expected {of}, {inner}, found {shown(hf['true_hidden_size'])}")
    if hf["normalization_type"] not in _NORMS:
        raise InputError(f"normalization_type: expected {' or '.join(_NORMS)}, found {shown(hf['normalization_type'])}")
    if hf["embedding_size"] == hidden and not boolean(hf, "trigram_input"):
        raise InputError(f"embedding_size: expected less than hidden_size {hidden} with trigram_input false, as "
                         f"transformers then has an unused projection, found {shown(hidden)}")  # fmt: skip
    return {"intra_bottleneck_size": inner if has_bottleneck else 0}


def _write_mobilebert(fields: Json) -> Json:
    size, read = fields["intra_bottleneck_size"], dict(fields["carried"]).get("intra_bottleneck_size")
    return {
        "use_bottleneck": size > 0,
        "intra_bottleneck_size": size or read or _SIZE,  # unused without a bottleneck
        "true_hidden_size": size or fields["hidden_size"],
    }


MOBILEBERT_FAMILY = Family(
    name="mobilebert",
    title="MobileBERT",
    file_keys=_KEYS,
    names=_NAMES,
    tokenizer_class="MobileBertTokenizer",
    sign=r"^mobilebert\.|(^|\.)embeddings\.embedding_transformation\.",
    classes="MobileBert",
    # Where transformers does not set the epsilon of a LayerNorm, it is PyTorch's default.
    fixed={"layer": BottleneckConfig(), "embeddings": ProjectedWordsConfig(), "heads": MobileBertHeadsConfig(),
           "embedding_mlp_norm_eps": 1e-5},
    sizes={"base": (24, 512, 4, 512)},
    keys=keys_with(
        "embedding_size", "trigram_input", "key_query_shared_bottleneck", "use_bottleneck_attention",
        "intra_bottleneck_size", "num_feedforward_networks", "norm", "pooler_dense",
        norm="normalization_type", pooler_dense="classifier_activation",
    ),
    assumed={"hidden_act": "relu"},
    defaults={"embedding_size": 128, "hidden_size": 512, "num_hidden_layers": 24, "num_attention_heads": 4,
              "intermediate_size": 512, "hidden_act": "relu", "hidden_dropout_prob": 0.0, "trigram_input": True,
              "use_bottleneck": True, "intra_bottleneck_size": _SIZE, "key_query_shared_bottleneck": True,
              "use_bottleneck_attention": False, "num_feedforward_networks": 4, "normalization_type": "no_norm",
              "classifier_activation": True},
    reads=_read_mobilebert,
    writes=_write_mobilebert,
)  # fmt: skip
