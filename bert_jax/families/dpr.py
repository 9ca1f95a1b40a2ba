"""The encoders of DPR (Karpukhin et al. 2020, arXiv:2004.04906): a BERT for questions, and one for passages."""

import dataclasses

from bert_jax.families import bert
from bert_jax.families.base import Family, Json, keys_with
from bert_jax.families.names import Names
from bert_jax.head_names import EMBEDDING_HEADS
from bert_jax.model_files.keys import FileKey, refused

_KEYS: tuple[FileKey, ...] = (refused("projection_dim", "a dense layer after the encoder is not supported", 0),)


def _names(prefix: str, architecture: str) -> Names:
    entries = tuple(entry for entry in bert.encoder(prefix) if not entry.ours.startswith("pooler/"))
    return Names(
        prefix="",  # the class of the bare encoder keeps it
        encoder=entries,
        heads={},
        architectures=dict.fromkeys(("encoder", *EMBEDDING_HEADS[::2]), architecture),
    )


def _is_of_passages(hf: Json) -> bool:
    return "Context" in str(hf.get("architectures"))


DPR_QUESTION_FAMILY = Family(
    name="dpr-question",
    title="DPR's encoder of questions",
    model_type="dpr",
    other_model_types=("dpr",),
    shows=lambda hf: not _is_of_passages(hf),
    file_keys=_KEYS,
    names=_names("question_encoder.bert_model.", "DPRQuestionEncoder"),
    tokenizer_class="DPRQuestionEncoderTokenizer",
    sign=r"^question_encoder\.bert_model\.",
    classes="DPRQuestionEncoder",
    fixed={"pooler": False, "pooling": "cls", "normalize_embeddings": False},
    keys=keys_with(),
)
DPR_CONTEXT_FAMILY = dataclasses.replace(
    DPR_QUESTION_FAMILY,
    name="dpr-context",
    title="DPR's encoder of passages",
    shows=_is_of_passages,
    names=_names("ctx_encoder.bert_model.", "DPRContextEncoder"),
    tokenizer_class="DPRContextEncoderTokenizer",
    sign=r"^ctx_encoder\.bert_model\.",
    classes="DPRContextEncoder",
)
