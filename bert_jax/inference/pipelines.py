"""The function `pipeline`: a task and a model as a callable from texts to answers."""

import os
from typing import TYPE_CHECKING, Any

import jax

from bert_jax.conversion.model_kinds import has_modules
from bert_jax.errors import InputError, did_you_mean
from bert_jax.head_names import ENCODER_DECODER_HEAD
from bert_jax.inference.base import Pipeline
from bert_jax.inference.loading import load_model
from bert_jax.inference.model import PretrainedModel
from bert_jax.inference.registry import PIPELINES, pipeline_class
from bert_jax.lazy import LazyModule, lazy_attributes
from bert_jax.storage import Path, PathLike, hub

if TYPE_CHECKING:
    from bert_jax.inference import devices, other_heads
    from bert_jax.inference.feature_extraction import FeatureExtraction
    from bert_jax.inference.fill_mask import FillMask
    from bert_jax.inference.text2text import PretrainedEncoderDecoder
    from bert_jax.inference.text_classification import TextClassification
else:
    devices = LazyModule("bert_jax.inference.devices")
    other_heads = LazyModule("bert_jax.inference.other_heads")

__all__ = ["PIPELINES", "FeatureExtraction", "FillMask", "TextClassification", "pipeline"]

__getattr__ = lazy_attributes(
    __name__,
    {
        "bert_jax.inference.feature_extraction": ("FeatureExtraction",),
        "bert_jax.inference.fill_mask": ("FillMask",),
        "bert_jax.inference.text_classification": ("TextClassification",),
    },
)
_ALIASES = {
    "embed": "sentence-embedding",
    "classify": "text-classification",
    "sentiment-analysis": "text-classification",
    "ner": "token-classification",
    "tag": "token-classification",
    "zero-shot": "zero-shot-classification",
    "answer": "question-answering",
    "generate": "text-generation",
    "summarization": "text2text-generation",
    "translation": "text2text-generation",
}


def pipeline(
    task: str,
    model: "PathLike | PretrainedModel | PretrainedEncoderDecoder",
    dtype: str = "auto",
    batch_size: int | None = None,
    device: str | int | jax.Device | None = None,
    batch_invariant: bool = False,
    **options: Any,
) -> Any:
    """Return a pipeline: a callable from texts to answers.

    Args:
        task: one of `PIPELINES`, or an alias: `classify`, `tag` or `ner`, `answer`, `embed`, `zero-shot`,
            `summarization` or `translation`. With a model of sparse embeddings or of a vector for each token, `embed`,
            `similarity` and `search` are by these.
        model: a model directory (as for `from_pretrained`, or of an encoder-decoder), or a loaded model.
        dtype: dtype of matrix products for a model directory (as for `from_pretrained`).
        batch_size: most texts in a forward pass; None = chosen for the device.
        device: one of `jax.devices()`, its number, or a name such as `cpu`, `gpu`, `cuda:1` or `tpu:0`; -1 is the CPU;
            `all` splits each batch among the devices of this process. None means JAX's default device.
        batch_invariant: whether an answer is bitwise independent of the other texts of the call; see `Pipeline`.
        options: defaults for the options of calls, such as `aggregation_strategy` or `top_k`.

    Raises:
        InputError: the task is not known, or the model was not trained for it.
    """
    kind = _kind(task, model)
    where = None if device is None else devices.find_devices(device)
    chosen: Any = model
    if not isinstance(model, PretrainedModel) and not _is_encoder_decoder(model):
        if where is not None and dtype == "auto":
            dtype = "float32" if where[0].platform == "cpu" else "bfloat16"
        chosen = _opened(model, kind.head, dtype, task)
    elif chosen.head != kind.head:
        chosen = other_heads.with_head(model, kind.head, task)
    if where is not None:
        chosen = devices.on_devices(chosen, where)
    return kind(chosen, batch_size, batch_invariant=batch_invariant, **options)


def _is_encoder_decoder(model: Any) -> bool:
    """Return whether a model is a loaded encoder-decoder."""
    if isinstance(model, (str, os.PathLike, PretrainedModel)):
        return False
    from bert_jax.inference.text2text import PretrainedEncoderDecoder

    return isinstance(model, PretrainedEncoderDecoder)


def _opened(path: Any, head: str, dtype: str, task: str) -> Any:
    """Load a model directory. Raises InputError when the head of the task is not trained."""
    if head == ENCODER_DECODER_HEAD:
        from bert_jax.inference.text2text import load_text2text

        return load_text2text(path, dtype)
    model = load_model(path, head, dtype)
    if model.missing:
        raise InputError(f"{path}: {task} needs a trained {head} head, found none ({model.missing[0]})")
    return model


def _kind(task: str, model: Any) -> type[Pipeline]:
    """Return the class for a task and a model. Raises InputError when the task is not known."""
    name = _ALIASES.get(task, task)
    if name not in PIPELINES:
        raise InputError(f"task {task!r} is not known{did_you_mean(task, [*PIPELINES, *_ALIASES])}")
    is_encoder_decoder = _is_encoder_decoder(model)
    if is_encoder_decoder and PIPELINES[name].head != ENCODER_DECODER_HEAD:
        raise InputError(f"{task} needs a model with a {PIPELINES[name].head} head, found an encoder-decoder")
    if PIPELINES[name].head == "sentence_embedding" and not is_encoder_decoder:
        head = model.head if isinstance(model, PretrainedModel) else _embedding_head(hub.locate(model))
        return pipeline_class(name, head)
    return PIPELINES[name]


def _embedding_head(root: Path) -> str | None:
    """Return the head of a sentence-transformers directory, one of `EMBEDDING_HEADS`; None for other models."""
    if not has_modules(root):
        return None
    from bert_jax.conversion import sentence_transformers

    return sentence_transformers.embedding_head(root)
