"""Compare models by size and by the seconds of a forward pass."""

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.compression.pruning import PrunedModel
from bert_jax.inference import PretrainedModel
from bert_jax.modeling import Compute, resolved_dtype
from bert_jax.training.flops import forward_flops

_ROWS, _LENGTH, _TURNS = 8, 128, 7


class Figures(NamedTuple):
    """Size and speed of a model.

    Attributes:
        layers, heads, columns, pieces: numbers of layers, of heads and feed-forward columns per layer, and of rows of
            the word embedding.
        parameters: the number of parameters.
        megabytes: the size of the parameters in float32, in 10^6 bytes.
        flops_per_token: FLOPs of a forward pass per token, in a sequence of 128 tokens.
        seconds: the median time of a forward pass of 8 x 128 tokens on this machine.
    """

    layers: int
    heads: int
    columns: int
    pieces: int
    parameters: int
    megabytes: float
    flops_per_token: float
    seconds: float


def figures_of(models: Sequence[PrunedModel]) -> list[Figures]:
    """Measure size and speed of models; forward passes are timed in alternation, in the machine's default dtype."""
    times = _seconds(models)
    return [_figures(model, seconds) for model, seconds in zip(models, times, strict=True)]


def _figures(model: PrunedModel, seconds: float) -> Figures:
    config = model.config
    parameters = sum(int(np.size(leaf)) for leaf in jax.tree.leaves(model.params))
    length = min(_LENGTH, config.max_position_embeddings)
    flops = forward_flops(config, model.head, 1, length)
    return Figures(
        config.num_hidden_layers, config.num_attention_heads, config.intermediate_size, config.vocab_size, parameters,
        parameters * 4 / 1e6, flops / length, seconds,
    )  # fmt: skip


def _seconds(models: Sequence[PrunedModel]) -> list[float]:
    compute = Compute(dtype=resolved_dtype("auto"))
    runs = []
    for model in models:
        length = min(_LENGTH, model.config.max_position_embeddings)
        shape = (_ROWS, 1, length) if model.head == "multiple_choice" else (_ROWS, length)
        inputs: dict[str, Any] = {"input_ids": np.full(shape, min(5, model.config.vocab_size - 1))}
        params = jax.tree.map(jnp.asarray, model.params)
        opened = PretrainedModel(model.config, model.head, params, None, compute, length)
        runs.append(lambda opened=opened, inputs=inputs: opened.run(inputs, _OUTPUTS.get(opened.head, ())))
    times: list[list[float]] = [[] for _ in runs]
    for turn in range(_TURNS + 1):
        for seconds, run in zip(times, runs, strict=True):
            start = time.perf_counter()
            run()
            if turn:  # the first run compiles and is not timed
                seconds.append(time.perf_counter() - start)
    return [float(np.median(seconds)) for seconds in times]


# Head -> the outputs to compute, if not all of them.
_OUTPUTS: dict[str, tuple[str, ...]] = {
    "sequence_classification": ("logits",), "token_classification": ("logits",), "multiple_choice": ("logits",),
    "question_answering": ("start_logits", "end_logits"), "sentence_embedding": ("sentence_embedding",),
}  # fmt: skip
