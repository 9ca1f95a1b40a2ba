"""Model FLOPs of a training step, and the peak FLOP/s of devices."""

import math
from collections.abc import Mapping
from typing import Any

import jax

from bert_jax.config import BertConfig
from bert_jax.modeling import Bert, Electra
from bert_jax.modeling.head_names import summary_of

# Dense bfloat16 peak of one JAX device in TFLOP/s, from the vendors' sheets: cloud.google.com/tpu/docs/{v2,v3,v4,v5e,
# v5p,v6e,tpu7x}; nvidia.com data sheets of A100, H100 and H200 SXM (without sparsity). Looked up in `device_kind`, in
# this order. A chip of v2 (46), v3 (123) and TPU7x (2,307) shows as two devices.
PEAK_TFLOPS: tuple[tuple[str, float], ...] = (
    ("TPU v2", 46.0 / 2),
    ("TPU v3", 123.0 / 2),
    ("TPU v4", 275.0),
    ("TPU v5 lite", 197.0),
    ("TPU v5e", 197.0),
    ("TPU v5", 459.0),
    ("TPU v6", 918.0),
    ("TPU7x", 2307.0 / 2),
    ("A100", 312.0),
    ("H100 PCIe", 756.0),
    ("H100", 989.0),
    ("H200", 989.0),
)


def peak_flops(device: jax.Device) -> float | None:
    """Return the device's dense bfloat16 peak in FLOP/s, or None when it is not in the table."""
    found = (tflops for name, tflops in PEAK_TFLOPS if name.lower() in device.device_kind.lower())
    tflops = next(found, None)
    return tflops * 1e12 if tflops else None


def step_flops(model: Bert | Electra, batch: Mapping[str, Any]) -> float:
    """Return the `train_flops` of a step of a model, summed over its parts, from the shapes of a batch."""
    *rows, length = batch["input_ids"].shape
    predictions, sentences = (
        batch[name].shape[-1] if name in batch else None for name in ("masked_positions", "cls_positions")
    )
    return sum(
        train_flops(
            part.config, part.head, math.prod(rows), length, predictions,
            part.places_computed(length, sentences or 1, predictions),
        )
        for part in model.parts
    )  # fmt: skip


def train_flops(
    config: BertConfig,
    head: str,
    sequences: int,
    length: int,
    predictions: int | None = None,
    last: int | None = None,
) -> float:
    """Return the model FLOPs of one training step: its matrix products, with 2 FLOPs per multiply-add.

    For a sequence of S tokens and P predictions, with hidden size D, embeddings E, feed-forward F, vocabulary V, L
    layers, C labels, and all heads A wide (A = D unless heads were pruned):

        layers        L * (8 S D A + 4 S D F)                projections, feed-forward (6 S D F where it is gated)
        attention     4 S K A, summed over layers            scores and sums; K = min(S, 2 window + 1) keys a query
        embeddings    2 S E D                                where E is not D
        MLM head      P * (2 D E + 2 E V)                    gathered: P = S when no positions are given
        summary       2 D^2                                  pooler, or the classifier's other hidden layer; for each
                                                             token where the head is one of tokens
        classifiers   2 D C (NSP: C = 2; for each token where the head is one of tokens)
        last layer    R in place of S, except 4 S D A for keys and values; R = S unless fewer outputs are computed

    times 3 for forward and backward (`forward_flops` has the forward pass alone). Recomputation (remat) is not counted,
    nor is padding left out.

    Args:
        config: the config of the model.
        head: the head of the model.
        sequences: sequences in the step (for multiple choice, each choice is one).
        length: S, padding included.
        predictions: P; None = S.
        last: R, positions computed in the last layer; None = S.
    """
    return 3.0 * forward_flops(config, head, sequences, length, predictions, last)


def forward_flops(
    config: BertConfig,
    head: str,
    sequences: int,
    length: int,
    predictions: int | None = None,
    last: int | None = None,
) -> float:
    """Return the model FLOPs of one forward pass, a third of `train_flops` with the same arguments."""
    hidden, width, heads = config.hidden_size, config.embedding_width, config.attention_width
    products = 6 if config.gated else 4
    last = length if last is None else last
    queries = (config.num_hidden_layers - 1) * length + last  # query positions, also fed forward, over layers
    total = queries * hidden * (4 * heads + products * config.intermediate_size)
    total += config.num_hidden_layers * length * hidden * 4 * heads
    *keys, keys_of_last = (length if window is None else min(length, 2 * window + 1) for window in config.windows)
    total += 4 * heads * (length * sum(keys) + last * keys_of_last)
    if width != hidden:
        total += 2 * length * width * hidden
    if head in ("pretraining", "masked_lm", "sparse_embedding"):
        total += (length if predictions is None else predictions) * 2 * width * (hidden + config.vocab_size)
    places = length if head in ("token_classification", "question_answering", "replaced_token_detection") else 1
    if summary_of(config, head) is not None or head == "replaced_token_detection":
        total += 2 * places * hidden**2
    outputs = {
        "pretraining": 2,
        "next_sentence": 2,
        "sequence_classification": config.num_labels,
        "multiple_choice": 1,
        "token_classification": config.num_labels,
        "question_answering": 2,
        "replaced_token_detection": 1,
    }
    total += 2 * places * hidden * outputs.get(head, 0)
    return float(sequences * total)
