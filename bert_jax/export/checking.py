"""Check an exported model: run it in its runtime, and compare its outputs with those of bert_jax."""

from typing import NamedTuple

import jax
import numpy as np

from bert_jax.errors import InputError, one_line
from bert_jax.export.signature import Arrays, Runner, SourceModel, example_inputs, forward, signature_of
from bert_jax.modeling import Bert, Compute

# dtype -> the largest difference that passes: for float32 in `Difference.largest`, else in `Difference.relative`.
LIMITS = {"float32": 1e-5, "bfloat16": 0.1, "float16": 0.02, "int8_dynamic": 0.5, "int8_static": 0.5}
_SHORT, _LONG = 7, 33  # lengths in tokens of the two batches
_TEXTS = 8


class Difference(NamedTuple):
    """The difference between an exported model and bert_jax in float32, over all outputs and batches.

    Attributes:
        largest: largest absolute difference, divided by the output's largest absolute value if that is above 1.
        relative: root mean square of the differences of an output, divided by the root mean square of its values.
    """

    largest: float
    relative: float


def check_outputs(run: Runner, source: SourceModel, dtype: str, where: str) -> Difference:
    """Compare an exported model with bert_jax, on two batches of random tokens or on a batch of texts.

    One random batch has 1 short row, the other 3 longer rows with padding. int8 models are compared on texts if there
    are any, since random tokens cause activations that no text has. Outputs at padding are not compared: they are
    meaningless where a local attention window holds only padding.

    Args:
        run: the exported model in its runtime.
        source: the model.
        dtype: a key of `LIMITS`.
        where: the file, for the message.

    Raises:
        InputError: the runtime fails, or an output has another shape, is not finite, or differs by more than `LIMITS`
            allow.
    """
    expected_of, worst = jax.jit(forward, static_argnums=0), Difference(0.0, 0.0)
    bert = Bert(source.config, source.head, Compute(attention="xla"))
    on_texts = dtype.startswith("int8") and bool(source.texts)
    batches = [_texts(source)] if on_texts else [example_inputs(source.config, source.head, s) for s in _sizes(source)]
    outputs = signature_of(source.config, source.head).outputs
    for inputs in batches:
        expected = jax.device_get(expected_of(bert, source.params, inputs))
        results = _run(run, inputs, where)
        for name, ours in expected.items():
            is_token = inputs["attention_mask"] if "sequence_length" in outputs[name] else None
            worst = Difference(*map(max, worst, _difference(results, name, ours, where, is_token)))
    size = worst.largest if dtype == "float32" else worst.relative
    if not size <= LIMITS[dtype]:
        raise InputError(f"{where}: expected outputs within {LIMITS[dtype]:g} of bert_jax's for {dtype}, found a "
                         f"difference of {size:.2g}")  # fmt: skip
    return worst


def _texts(source: SourceModel) -> Arrays:
    """Return a batch of the first texts, padded to the longest."""
    texts = source.texts[:_TEXTS]
    longest = max(text["input_ids"].shape[-1] for text in texts)
    batch = {}
    for name in texts[0]:
        fill = source.config.pad_token_id if name == "input_ids" else 0
        rows = [
            np.pad(row, [(0, 0)] * (row.ndim - 1) + [(0, longest - row.shape[-1])], constant_values=fill)
            for row in (text[name] for text in texts)
        ]
        batch[name] = np.concatenate(rows)
    return batch


def _run(run: Runner, inputs: Arrays, where: str) -> Arrays:
    """Run a model in its runtime. Raises InputError with the runtime's message when the runtime fails."""
    try:
        return run(inputs)
    except Exception as error:
        raise InputError(f"{where}: expected outputs, found {type(error).__name__}: {one_line(str(error))}") from error


def _sizes(source: SourceModel) -> list[tuple[int, ...]]:
    """Return the shapes of the two random batches; rows of the second are longer than a local attention window."""
    longest = source.config.max_position_embeddings
    long = max(_LONG, 2 * (source.config.attention.local_window or 0) + 1)
    choices = (2,) if source.head == "multiple_choice" else ()
    return [(1, *choices, min(_SHORT, longest)), (3, *choices, min(long, longest))]


def _difference(found: Arrays, name: str, ours: np.ndarray, where: str, mask: np.ndarray | None) -> Difference:
    """Return the difference of an output; positions where a mask `[B, S]` is 0 are ignored."""
    theirs = found.get(name)
    if theirs is None or theirs.shape != ours.shape:
        shape = "none" if theirs is None else list(theirs.shape)
        raise InputError(f"{where}: {name}: expected shape {list(ours.shape)}, found {shape}")
    if mask is not None:
        theirs, ours = theirs[mask > 0], ours[mask > 0]
    apart = np.abs(theirs.astype(np.float64) - ours)
    if not np.isfinite(apart).all():
        raise InputError(f"{where}: {name}: expected finite values, found NaN or infinity")
    scale = np.sqrt(np.mean(np.square(ours, dtype=np.float64)))
    largest = apart.max() / max(1.0, float(np.abs(ours).max()))
    return Difference(float(largest), float(np.sqrt(np.mean(apart**2)) / max(scale, 1e-12)))
