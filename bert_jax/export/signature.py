"""The inputs and outputs of an exported model, and its forward pass in JAX."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from bert_jax.config import BertConfig
from bert_jax.modeling import Bert, Params

_HEAD_OUTPUTS = {
    "encoder": (),
    "pretraining": ("prediction_logits", "seq_relationship_logits"),
    "question_answering": ("start_logits", "end_logits"),
    "sentence_embedding": ("last_hidden_state", "sentence_embedding"),
    "sparse_embedding": ("sentence_embedding",),
    "multi_vector": ("token_embeddings",),
}
_BATCH, _LENGTH, _CHOICES = "batch_size", "sequence_length", "num_choices"
Arrays = dict[str, np.ndarray]
Runner = Callable[[Arrays], Arrays]  # a model in its runtime: inputs by name -> outputs by name


class SourceModel(NamedTuple):
    """A model to export.

    Attributes:
        config: the architecture, without quantization.
        head: one of `modeling.HEADS`.
        params: the canonical parameter tree of float32 arrays.
        texts: int32 inputs of one tokenized text each, without padding, for the calibration of int8_static and the
            check of int8 models; empty without a tokenizer.
    """

    config: BertConfig
    head: str
    params: Params
    texts: Sequence[Arrays] = ()


class Signature(NamedTuple):
    """The interface of an exported model, with the names that Hugging Face's optimum uses.

    Attributes:
        inputs: name -> names of the axes of each input, whose sizes may differ between calls.
        outputs: name -> axes of each output.
    """

    inputs: dict[str, tuple[str, ...]]
    outputs: dict[str, tuple[str | int, ...]]


def signature_of(config: BertConfig, head: str) -> Signature:
    """Return the inputs and outputs of a model: `token_type_ids` is an input if the model has two token types or more.

    A bare encoder has `last_hidden_state` and, with a pooler, `pooler_output`.
    """
    axes = (_BATCH, _CHOICES, _LENGTH) if head == "multiple_choice" else (_BATCH, _LENGTH)
    names = ["input_ids", "attention_mask"] + ["token_type_ids"] * (config.type_vocab_size > 1)
    outputs = _HEAD_OUTPUTS.get(head, ("logits",))
    if head == "encoder":
        outputs = ("last_hidden_state", *["pooler_output"] * config.pooler)
    return Signature(dict.fromkeys(names, axes), {name: _output_axes(name, config, head) for name in outputs})


def _output_axes(name: str, config: BertConfig, head: str) -> tuple[str | int, ...]:
    axes: dict[str, tuple[str | int, ...]] = {
        "last_hidden_state": (_BATCH, _LENGTH, config.hidden_size),
        "pooler_output": (_BATCH, config.hidden_size),
        "prediction_logits": (_BATCH, _LENGTH, config.vocab_size),
        "seq_relationship_logits": (_BATCH, 2),
        "start_logits": (_BATCH, _LENGTH),
        "end_logits": (_BATCH, _LENGTH),
        "sentence_embedding": (
            _BATCH,
            config.vocab_size if head == "sparse_embedding" else config.sentence_embedding_size,
        ),
    }
    axes["token_embeddings"] = (_BATCH, _LENGTH, config.sentence_embedding_size)
    logits: dict[str, tuple[str | int, ...]] = {
        "masked_lm": (_BATCH, _LENGTH, config.vocab_size),
        "token_classification": (_BATCH, _LENGTH, config.num_labels),
        "replaced_token_detection": (_BATCH, _LENGTH),
        "multiple_choice": (_BATCH, _CHOICES),
        "next_sentence": (_BATCH, 2),
        "sequence_classification": (_BATCH, config.num_labels),
    }
    return logits[head] if name == "logits" else axes[name]


def forward(bert: Bert, params: Params, inputs: dict[str, Any]) -> dict[str, jax.Array]:
    """Run the forward pass on the inputs of `signature_of`, and return its outputs by name; to be jitted."""
    names = signature_of(bert.config, bert.head).outputs
    output = bert.apply(params, **inputs, output_last_hidden_state="last_hidden_state" in names)
    return {name: output[name] for name in names}


def example_inputs(config: BertConfig, head: str, sizes: tuple[int, ...], seed: int = 0) -> Arrays:
    """Return random int32 inputs of a model, in which the end of every second row is padding.

    Args:
        config: the architecture.
        head: one of `modeling.HEADS`.
        sizes: (B, S), or (B, K, S) for multiple choice.
        seed: seed of the ids and segments.
    """
    generator = np.random.default_rng(seed)
    ids = generator.integers(0, config.vocab_size, sizes, np.int32)
    mask = np.ones(sizes, np.int32)
    mask[1::2, ..., max(1, sizes[-1] // 2) :] = 0
    ids[ids == config.pad_token_id] = (config.pad_token_id + 1) % config.vocab_size
    arrays = {"input_ids": np.where(mask, ids, config.pad_token_id).astype(np.int32), "attention_mask": mask}
    if "token_type_ids" in signature_of(config, head).inputs:
        arrays["token_type_ids"] = generator.integers(0, config.type_vocab_size, sizes, np.int32)
    return arrays


def as_int64(arrays: Arrays) -> Arrays:
    """Return arrays as int64, the dtype of inputs in ONNX files of transformers and optimum."""
    return {name: array.astype(np.int64) for name, array in arrays.items()}
