"""The function `pipeline`, and the pipelines text-classification and feature-extraction."""

import dataclasses
import re
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from bert_jax import sharding
from bert_jax.conversion.sentence_transformers import embedding_head
from bert_jax.data.finetuning.windows import averaged, text_windows
from bert_jax.errors import InputError, did_you_mean
from bert_jax.inference.answering import QuestionAnswering
from bert_jax.inference.base import Pipeline, as_list, as_pairs, as_texts, positive
from bert_jax.inference.dense import SentenceEmbedding, Similarity
from bert_jax.inference.fill_mask import FillMask
from bert_jax.inference.generation import TextGeneration
from bert_jax.inference.infilling import FillIn
from bert_jax.inference.likelihood import PseudoLogLikelihood
from bert_jax.inference.loading import load_model
from bert_jax.inference.model import PretrainedModel
from bert_jax.inference.multi_vector import MultiVectorEmbedding, MultiVectorSimilarity
from bert_jax.inference.relations import RelationExtraction
from bert_jax.inference.reranking import Rerank
from bert_jax.inference.scoring import scores_of
from bert_jax.inference.search import MultiVectorSearch, Search, SparseSearch
from bert_jax.inference.sparse import SparseEmbedding, SparseSimilarity
from bert_jax.inference.tagging import TokenClassification
from bert_jax.inference.text2text import PretrainedEncoderDecoder, Text2TextGeneration, load_text2text
from bert_jax.inference.zero_shot import ZeroShotClassification
from bert_jax.inference.zero_shot_ner import ZeroShotNer
from bert_jax.storage import PathLike, hub

_LONG_TEXTS = 256  # texts whose windows are in memory together


class TextClassification(Pipeline):
    """Classification of texts or pairs of texts, or regression."""

    head = "sequence_classification"

    def __call__(
        self,
        texts: Any,
        top_k: int | None = 1,
        truncation: bool = False,
        windows: bool = False,
        doc_stride: int = 0,
        max_length: int = 0,
    ) -> list[Any]:
        """Return labels and scores.

        Args:
            texts: a text, a pair as `{"text": ..., "text_pair": ...}`, or a list of either.
            top_k: number of classes per text, the most likely first; None means all.
            truncation: whether to cut texts over the model's limit; otherwise they are an error.
            windows: whether to split long texts into overlapping windows, and to average their logits, weighted by
                their numbers of tokens.
            doc_stride: tokens from the start of one window to the start of the next; 0 = half a window.
            max_length: tokens in a window, with special tokens; 0 = the model's limit.

        Returns:
            For each text a dict of `label` and `score`, or a list of dicts if `top_k` is not 1. The score is a softmax
            over the classes; a sigmoid for multi-label models and for models with one output; the value itself for a
            regression; or the activation that the model's files name (`bert_jax.inference.scoring.score_activation`).

        Raises:
            InputError: an item is no text or pair, or is too long.
        """
        count = self.model.config.num_labels if top_k is None else positive("top_k", top_k)
        single = isinstance(texts, (str, dict))
        first, second = as_pairs([texts] if single else as_list(texts))
        if windows and second is not None:
            raise InputError("windows: expected single texts, found pairs; use truncation (--long cut) for them")
        limit = self.model.max_length
        if doc_stride < 0 or (max_length and not 4 <= max_length <= limit):
            raise InputError(
                f"expected a doc_stride of at least 0 and a max_length of 4 to {limit} tokens (or 0), "
                f"found {doc_stride} and {max_length}"
            )
        names: Sequence[str] = self.model.config.label_names
        answers: list[Any] = []
        parts = (
            self._long(first, max_length or limit, doc_stride) if windows else self._short(first, second, truncation)
        )
        for logits in parts:
            scores = scores_of(self.model.config, logits, self.model.settings.activation)
            best = np.argsort(-scores, axis=-1, kind="stable")[:, :count]
            answers += [
                [{"label": names[i], "score": float(row[i])} for i in at] for row, at in zip(scores, best, strict=True)
            ]
        if top_k == 1:
            return [answer[0] for answer in answers]
        return answers[0] if single else answers

    def _short(self, texts: Sequence[str], pairs: Sequence[str] | None, truncation: bool) -> Iterator[np.ndarray]:
        """Yield the logits `[n, C]` of texts or pairs, chunk by chunk."""
        for _, inputs in self._windows(texts, pairs, truncation, self.model.settings.prompt()):
            yield self._logits(inputs)

    def _long(self, texts: Sequence[str], max_length: int, doc_stride: int) -> Iterator[np.ndarray]:
        """Yield the logits `[n, C]` of texts that are split into windows, chunk by chunk."""
        for start in range(0, len(texts), _LONG_TEXTS):
            prompt = self.model.settings.prompt()
            ids = self.tokenizer.encode_batch([prompt + text for text in texts[start : start + _LONG_TEXTS]])
            rows, numbers = text_windows(ids, self.tokenizer.layout, max_length, doc_stride)
            lengths = np.array([len(row) for row in rows])
            mask = np.arange(lengths.max()) < lengths[:, None]
            inputs = np.full(mask.shape, self.tokenizer.pad_id, np.int32)
            inputs[mask] = np.concatenate(rows)
            masks = {"token_type_ids": np.zeros_like(inputs), "attention_mask": mask.astype(np.int32)}
            yield averaged(self._logits({"input_ids": inputs} | masks), numbers, lengths)

    def _logits(self, inputs: dict[str, np.ndarray]) -> np.ndarray:
        logits = np.zeros((len(inputs["input_ids"]), self.model.config.num_labels), np.float32)
        for rows, _, output in self._batches(inputs, ("logits",)):
            logits[rows] = output.logits
        return logits


class FeatureExtraction(Pipeline):
    """The last hidden state of every token."""

    head = "encoder"

    def __call__(self, texts: str | Sequence[str], truncation: bool = False) -> Any:
        """Return the last hidden states.

        Args:
            texts: one text or a list of texts.
            truncation: whether to cut texts over the model's limit; otherwise they are an error.

        Returns:
            float32 `[S, D]` for one text, with special tokens and without padding; for a list of texts, a list.

        Raises:
            InputError: an item is no text, or is too long.
        """
        listed = as_texts(texts)
        answers: list[Any] = [None] * len(listed)
        for window, inputs in self._windows(listed, truncation=truncation):
            for rows, lengths, output in self._batches(inputs, ("last_hidden_state",)):
                assert output.last_hidden_state is not None
                for row, length, states in zip(rows, lengths, output.last_hidden_state, strict=True):
                    answers[window[row]] = np.array(states[:length])
        return answers[0] if isinstance(texts, str) else answers


PIPELINES: dict[str, type[Pipeline]] = {
    "fill-mask": FillMask,
    "pseudo-log-likelihood": PseudoLogLikelihood,
    "text-classification": TextClassification,
    "token-classification": TokenClassification,
    "feature-extraction": FeatureExtraction,
    "sentence-embedding": SentenceEmbedding,
    "zero-shot-classification": ZeroShotClassification,
    "zero-shot-ner": ZeroShotNer,
    "relation-extraction": RelationExtraction,
    "question-answering": QuestionAnswering,
    "similarity": Similarity,
    "search": Search,
    "rerank": Rerank,
    "sparse-embedding": SparseEmbedding,
    "sparse-search": SparseSearch,
    "multi-vector-embedding": MultiVectorEmbedding,
    "multi-vector-search": MultiVectorSearch,
    "text-generation": TextGeneration,
    "fill-in": FillIn,
    "text2text-generation": Text2TextGeneration,
}
# Saved head -> the pipelines that stand in for those of sentence embeddings.
_OF_HEAD: dict[str, dict[str, type[Pipeline]]] = {
    "sparse_embedding": {
        "sentence-embedding": SparseEmbedding,
        "similarity": SparseSimilarity,
        "search": SparseSearch,
    },
    "multi_vector": {
        "sentence-embedding": MultiVectorEmbedding,
        "similarity": MultiVectorSimilarity,
        "search": MultiVectorSearch,
    },
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
    model: PathLike | PretrainedModel | PretrainedEncoderDecoder,
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
    if not isinstance(model, (PretrainedModel, PretrainedEncoderDecoder)):
        if where is not None and dtype == "auto":
            dtype = "float32" if where[0].platform == "cpu" else "bfloat16"
        is_writer = kind is Text2TextGeneration
        opened: Any = load_text2text(model, dtype) if is_writer else load_model(model, kind.head, dtype)
        if not is_writer and opened.missing:
            raise InputError(f"{model}: {task} needs a trained {kind.head} head, found none ({opened.missing[0]})")
        return kind(_on(opened, where), batch_size, batch_invariant=batch_invariant, **options)
    chosen = _on(_with_head(model, kind.head, task), where)
    return kind(chosen, batch_size, batch_invariant=batch_invariant, **options)


def _kind(task: str, model: PathLike | PretrainedModel | PretrainedEncoderDecoder) -> type[Pipeline]:
    """Return the class for a task and a model. Raises InputError when the task is not known."""
    name = _ALIASES.get(task, task)
    if name not in PIPELINES:
        raise InputError(f"task {task!r} is not known{did_you_mean(task, [*PIPELINES, *_ALIASES])}")
    if isinstance(model, PretrainedEncoderDecoder) and model.head != PIPELINES[name].head:
        raise InputError(f"{task} needs a model with a {PIPELINES[name].head} head, found an encoder-decoder")
    if PIPELINES[name].head == "sentence_embedding" and not isinstance(model, PretrainedEncoderDecoder):
        head = model.head if isinstance(model, PretrainedModel) else embedding_head(hub.locate(model))
        return _OF_HEAD.get(head or "", {}).get(name, PIPELINES[name])
    return PIPELINES[name]


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


def _with_head(model: PretrainedModel | PretrainedEncoderDecoder, head: str, task: str) -> Any:
    """Return the model with another head whose parameters are a part of its own.

    Raises:
        InputError: the model lacks the parameters of the head.
    """
    if isinstance(model, PretrainedEncoderDecoder) or model.head == head:
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
