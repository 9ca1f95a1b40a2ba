"""Throughput: time by activity, tokens a second, and model FLOPs utilisation."""

import contextlib
import math
import time
from collections.abc import Iterator, Mapping
from typing import Any

import jax
from jax.sharding import Mesh

from bert_jax import storage
from bert_jax.config import BertConfig
from bert_jax.modeling import Bert, Electra
from bert_jax.modeling.heads import summary_of

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
    """The device's dense bfloat16 peak in FLOP/s, or None when it is not in the table."""
    found = (tflops for name, tflops in PEAK_TFLOPS if name.lower() in device.device_kind.lower())
    tflops = next(found, None)
    return tflops * 1e12 if tflops else None


def step_flops(model: Bert | Electra, batch: Mapping[str, Any]) -> float:
    """`train_flops` of all that a model runs in a step on a batch, of which the shapes alone are looked at."""
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
    """Model FLOPs of one training step, counted from the matrix products alone (2 for a multiplication and addition).

    For a sequence of S tokens and P predictions, with hidden size D, embeddings E, feed-forward F, vocabulary V, L
    layers, C labels:

        layers        L * (8 S D^2 + 4 S D F)                projections, feed-forward (6 S D F where it is gated)
        attention     4 S K D, summed over layers            scores and sums; K = min(S, 2 window + 1) keys a query
        embeddings    2 S E D                                where E is not D
        MLM head      P * (2 D E + 2 E V)                    gathered: P = S when no positions are given
        summary       2 D^2                                  pooler, or what else a classifier sees; of each token
                                                             where the head is one of tokens
        classifiers   2 D C (NSP: C = 2; for each token where the head is one of tokens)
        last layer    R in place of S, but for its 4 S D^2 of keys and values: R = S unless less is computed

    times 3 for forward and backward. Recomputation (remat) is not counted, nor is padding left out.

    Args:
        sequences: sequences in the step (for multiple choice, choices count).
        length: S, padding included.
        predictions: P.
        last: R; None = S.
    """
    hidden, width = config.hidden_size, config.embedding_width
    products = 6 if config.gated else 4
    last = length if last is None else last
    asking = (config.num_hidden_layers - 1) * length + last  # tokens that ask and are fed forward, over layers
    total = asking * hidden * (4 * hidden + products * config.intermediate_size)
    total += config.num_hidden_layers * length * hidden * 4 * hidden
    *keys, keys_of_last = (length if window is None else min(length, 2 * window + 1) for window in config.windows)
    total += 4 * hidden * (length * sum(keys) + last * keys_of_last)
    if width != hidden:
        total += 2 * length * width * hidden
    if head in ("pretraining", "masked_lm"):
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
    return 3.0 * sequences * total


class Chrono:
    """Splits a run's seconds into training and what interrupts it: compiling, input, evaluation, checkpoints.

    Attributes:
        paused: name -> seconds of each interruption.
        at: the interruption that it is in, or "training".
    """

    def __init__(self) -> None:
        self.paused: dict[str, float] = {}
        self.at = "training"
        self._start = time.perf_counter()

    @contextlib.contextmanager
    def pause(self, name: str) -> Iterator[None]:
        """Counts the block's seconds as `name` and not as training."""
        start = time.perf_counter()
        self.at = name
        try:
            yield
        finally:
            self.at = "training"
            self.paused[name] = self.paused.get(name, 0.0) + time.perf_counter() - start

    @property
    def training(self) -> float:
        """Seconds since the start that no pause has claimed."""
        return time.perf_counter() - self._start - sum(self.paused.values())

    def totals(self) -> dict[str, float]:
        """Seconds by name, training among them."""
        return {"training": self.training} | self.paused


class Lap:
    """What the steps since the last line of metrics have done, for the rates on that line.

    Args:
        chrono: of the run.
        tokens_seen: by the steps before.
    """

    def __init__(self, chrono: Chrono, tokens_seen: int = 0):
        self._chrono = chrono
        self._tokens_seen = tokens_seen
        self._restart()

    def add(self, model: Bert | Electra, batch: Mapping[str, Any]) -> None:
        """Counts the (global) batch of a step."""
        *rows, length = batch["input_ids"].shape
        self._steps += 1
        self._sequences += rows[0]
        self._tokens += math.prod(rows) * length
        self._flops += step_flops(model, batch)

    def close(self, mesh: Mesh) -> dict[str, float]:
        """The rates since the last call, over seconds of training alone; the seconds of it and of what interrupted it;
        and `tokens_seen` in the whole run. Padding counts as tokens.

        `mfu` is there when the chip's peak is known; `storage_requests_per_step` and `storage_retries`, of this
        process, when it works with an object store.
        """
        now = self._chrono.totals()
        spent = {name: total - self._before.get(name, 0.0) for name, total in now.items()}
        seconds = max(spent["training"], 1e-9)
        self._tokens_seen += self._tokens
        rates = {
            "sequences_per_second": self._sequences / seconds,
            "tokens_per_second": self._tokens / seconds,
            "tokens_seen": float(self._tokens_seen),
            **{f"{name}_seconds": value for name, value in spent.items()},
        }
        peak = peak_flops(mesh.devices.flat[0])
        if peak is not None:
            rates["mfu"] = self._flops / seconds / (peak * mesh.size)
        counted = storage.request_counts()
        if counted.requests:
            rates["storage_requests_per_step"] = (counted.requests - self._counted.requests) / max(1, self._steps)
            rates["storage_retries"] = float(counted.retries - self._counted.retries)
        self._restart()
        return rates

    def _restart(self) -> None:
        self._before, self._counted, self._steps = self._chrono.totals(), storage.request_counts(), 0
        self._sequences, self._tokens, self._flops = 0, 0, 0.0
