"""The function `pipeline`, and the registry of its tasks."""

import dataclasses
import os
import re
from typing import TYPE_CHECKING, Any

import jax
from jax.sharding import NamedSharding, PartitionSpec

from bert_jax import sharding
from bert_jax.conversion.model_kinds import has_modules
from bert_jax.errors import InputError, did_you_mean
from bert_jax.head_names import ENCODER_DECODER_HEAD
from bert_jax.inference.base import Pipeline
from bert_jax.inference.loading import load_model
from bert_jax.inference.model import PretrainedModel
from bert_jax.lazy import LazyRegistry, lazy_attributes
from bert_jax.storage import Path, PathLike, hub

if TYPE_CHECKING:
    from bert_jax.inference.feature_extraction import FeatureExtraction
    from bert_jax.inference.fill_mask import FillMask
    from bert_jax.inference.text2text import PretrainedEncoderDecoder
    from bert_jax.inference.text_classification import TextClassification

__all__ = ["PIPELINES", "FeatureExtraction", "FillMask", "TextClassification", "pipeline"]

__getattr__ = lazy_attributes(
    __name__,
    {
        "bert_jax.inference.feature_extraction": ("FeatureExtraction",),
        "bert_jax.inference.fill_mask": ("FillMask",),
        "bert_jax.inference.text_classification": ("TextClassification",),
    },
)

# Task -> the class of its pipeline.
PIPELINES: LazyRegistry[type[Pipeline]] = LazyRegistry(
    {
        "fill-mask": "bert_jax.inference.fill_mask.FillMask",
        "pseudo-log-likelihood": "bert_jax.inference.likelihood.PseudoLogLikelihood",
        "text-classification": "bert_jax.inference.text_classification.TextClassification",
        "token-classification": "bert_jax.inference.tagging.TokenClassification",
        "feature-extraction": "bert_jax.inference.feature_extraction.FeatureExtraction",
        "sentence-embedding": "bert_jax.inference.dense.SentenceEmbedding",
        "zero-shot-classification": "bert_jax.inference.zero_shot.ZeroShotClassification",
        "zero-shot-ner": "bert_jax.inference.zero_shot_ner.ZeroShotNer",
        "relation-extraction": "bert_jax.inference.relations.RelationExtraction",
        "question-answering": "bert_jax.inference.answering.QuestionAnswering",
        "similarity": "bert_jax.inference.dense.Similarity",
        "search": "bert_jax.inference.search.Search",
        "rerank": "bert_jax.inference.reranking.Rerank",
        "sparse-embedding": "bert_jax.inference.sparse.SparseEmbedding",
        "sparse-search": "bert_jax.inference.search.SparseSearch",
        "multi-vector-embedding": "bert_jax.inference.multi_vector.MultiVectorEmbedding",
        "multi-vector-search": "bert_jax.inference.search.MultiVectorSearch",
        "text-generation": "bert_jax.inference.generation.TextGeneration",
        "fill-in": "bert_jax.inference.infilling.FillIn",
        "text2text-generation": "bert_jax.inference.text2text.Text2TextGeneration",
    }
)
# Saved head -> the pipelines that replace those of sentence embeddings.
_OF_HEAD: dict[str, LazyRegistry[type[Pipeline]]] = {
    "sparse_embedding": LazyRegistry(
        {
            "sentence-embedding": "bert_jax.inference.sparse.SparseEmbedding",
            "similarity": "bert_jax.inference.sparse.SparseSimilarity",
            "search": "bert_jax.inference.search.SparseSearch",
        }
    ),
    "multi_vector": LazyRegistry(
        {
            "sentence-embedding": "bert_jax.inference.multi_vector.MultiVectorEmbedding",
            "similarity": "bert_jax.inference.multi_vector.MultiVectorSimilarity",
            "search": "bert_jax.inference.search.MultiVectorSearch",
        }
    ),
}

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
# For heads that can be made from another head's parameters: the parts of the tree that they need.
_KEPT = {
    "encoder": ("embeddings", "encoder", "pooler", "contact_head"),
    "sentence_embedding": ("embeddings", "encoder", "pooler", "contact_head"),
    "masked_lm": ("embeddings", "encoder", "contact_head", "mlm"),
    "sparse_embedding": ("embeddings", "encoder", "contact_head", "mlm"),
}
_WITH_MASKED_LM = ("pretraining", "masked_lm", "sparse_embedding")


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
    where = _devices(device)
    if not isinstance(model, PretrainedModel) and not _is_encoder_decoder(model):
        if where is not None and dtype == "auto":
            dtype = "float32" if where[0].platform == "cpu" else "bfloat16"
        opened = _opened(model, kind.head, dtype, task)
        return kind(_on(opened, where), batch_size, batch_invariant=batch_invariant, **options)
    chosen = _on(_with_head(model, kind.head, task), where)
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
        if head in _OF_HEAD and name in _OF_HEAD[head]:
            return _OF_HEAD[head][name]
    return PIPELINES[name]


def _embedding_head(root: Path) -> str | None:
    """Return the head of a sentence-transformers directory, one of `EMBEDDING_HEADS`; None for other models."""
    if not has_modules(root):
        return None
    from bert_jax.conversion import sentence_transformers

    return sentence_transformers.embedding_head(root)


def _devices(device: str | int | jax.Device | None) -> list[jax.Device] | None:
    """Return the devices that a pipeline's argument means; None for JAX's default device."""
    if device == "all":
        here = jax.local_devices()
        return here if len(here) > 1 else None
    return None if device is None else [_device(device)]


def _device(device: str | int | jax.Device) -> jax.Device:
    """Return the device that a name or number means. Raises InputError if there is no such device."""
    if isinstance(device, jax.Device):
        return device
    found = re.fullmatch(r"(cpu|gpu|cuda|rocm|tpu)(?::(\d+))?", "cpu" if device == -1 else str(device))
    try:
        if found:
            return jax.devices(found[1])[int(found[2] or 0)]
        return jax.devices()[int(device)]
    except (RuntimeError, ValueError, IndexError):
        here = ", ".join(f"{one.platform}:{one.id}" for one in jax.devices())
        raise InputError(f"device: expected one of {here}, cpu or all, found {device!r}") from None


def _on(model: Any, devices: list[jax.Device] | None) -> Any:
    """Copy the parameters of a model to each device; the devices then split the rows of a batch."""
    if devices is None:
        return model
    place: Any = devices[0]
    if len(devices) > 1:
        place = NamedSharding(sharding.make_mesh(devices=devices), PartitionSpec())
    compute = dataclasses.replace(model.compute, platform=devices[0].platform)
    return dataclasses.replace(model, params=jax.device_put(model.params, place), compute=compute)


def _with_head(model: Any, head: str, task: str) -> Any:
    """Return the model with another head whose parameters are a part of its own.

    Raises:
        InputError: the model lacks the parameters of the head.
    """
    if not isinstance(model, PretrainedModel) or model.head == head:
        return model
    needs_masked_lm = head in ("masked_lm", "sparse_embedding")
    if head not in _KEPT or (needs_masked_lm and model.head not in _WITH_MASKED_LM):
        raise InputError(f"{task} needs a model with a {head} head, found a {model.head} head")
    params = {name: part for name, part in model.params.items() if name in _KEPT[head]}
    config = (
        model.config
        if needs_masked_lm
        else model.config.replace(pooler="pooler" in params or not model.config.heads.pooler_dense)
    )
    settings = model.settings.of_another_head()
    if head == "sparse_embedding":
        config, settings = config.replace(pooling="splade_max"), dataclasses.replace(settings, similarity="dot")
    return dataclasses.replace(model, config=config, head=head, params=params, settings=settings)
