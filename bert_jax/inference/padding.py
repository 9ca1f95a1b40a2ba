"""Pad the inputs of a model to static sizes, and cut the padding off its outputs."""

import functools
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from bert_jax.config import BertConfig
from bert_jax.modeling import BertOutput

_SHORTEST = 16  # the smallest padded length
# The padded axes of each output: B rows, S tokens, s tokens without the first and the last, P masked positions,
# W words, T entity types; a dot is an axis without padding.
_PADDED_AXES = {
    "last_hidden_state": "BS.",
    "hidden_states": "BS.",
    "attentions": "B.SS",
    "contacts": "Bss",
    "pooler_output": "B.",
    "sentence_embedding": "B.",
    "token_embeddings": "BS.",
    "token_weights": "BS",
    "seq_relationship_logits": "B.",
    "start_logits": "BS",
    "end_logits": "BS",
}
_LOGITS_AXES = {
    "masked_lm": "BS.",
    "pretraining": "BS.",
    "token_classification": "BS.",
    "replaced_token_detection": "BS",
    "zero_shot_ner": "BW.T",
}
# Inputs whose last axis is not the axis of tokens -> the letter of that axis.
POSITIONS = {"masked_positions": "P", "word_positions": "W", "type_positions": "T"}


def padded_axes(head: str, at_positions: bool) -> dict[str, str]:
    """Return the padded axes of each output of a head; `at_positions`: whether logits are only at masked positions."""
    logits = "BP." if at_positions else _LOGITS_AXES.get(head, "B.")
    return _PADDED_AXES | dict.fromkeys(("logits", "prediction_logits"), logits)


def bucket(size: int, smallest: int = 1) -> int:
    """Round `size` up to one of 1, 2, 4, 8, 16, 24, 32, 48, 64, 96, ..., so that few shapes are compiled."""
    power = max(smallest, 1 << (size - 1).bit_length())
    return power // 4 * 3 if power > 16 and size <= power // 4 * 3 else power


def _padded_length(size: int, config: BertConfig) -> int:
    """Return the static length for `size` tokens; for block-sparse attention, it is a multiple of the block size."""
    if config.attention.longest_full is None:
        return bucket(size, _SHORTEST)
    if size <= config.attention.longest_full:
        return min(bucket(size, _SHORTEST), config.attention.longest_full)
    block: int = config.setting("block_size")
    return -(-size // block) * block


def pad_inputs(
    arrays: dict[str, np.ndarray], config: BertConfig, rows: int | None, length: int | None, parts: int
) -> tuple[dict[str, np.ndarray], dict[str, int]]:
    """Pad inputs to static sizes, rows to a multiple of `parts`; return them and their sizes before padding."""
    ids = arrays["input_ids"]
    sizes = {"B": ids.shape[0], "S": ids.shape[-1], "s": max(ids.shape[-1] - 2, 0)}
    rows = -(-(rows or bucket(sizes["B"])) // parts) * parts
    longest: int = length or min(_padded_length(sizes["S"], config), config.max_position_embeddings)
    arrays = {"attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids), **arrays}
    padded = {}
    for name, array in arrays.items():
        last = longest
        if name in POSITIONS:
            axis = POSITIONS[name]
            sizes[axis] = array.shape[-1]
            last = max(longest, sizes[axis]) if axis == "W" else bucket(sizes[axis])
        widths = [(0, rows - array.shape[0]), *[(0, 0)] * (array.ndim - 2), (0, last - array.shape[-1])]
        padded[name] = np.pad(array, widths, constant_values=config.pad_token_id if name == "input_ids" else 0)
    return padded, sizes


def fetched(values: Mapping[str, Any], axes: Mapping[str, str], sizes: Mapping[str, int], choices: int) -> BertOutput:
    """Copy the fields of an output to the host and cut off their padding."""
    cut: dict[str, Any] = {"last_hidden_state": None}
    for name, value in values.items():
        # In multiple choice, outputs of the encoder have a row per choice, logits a row per question.
        rows = sizes["B"] * (1 if name == "logits" else choices)
        cut[name] = jax.tree.map(functools.partial(_cut, axes=axes[name], sizes={**sizes, "B": rows}), value)
    return BertOutput(**cut)


def _cut(value: jax.Array, axes: str, sizes: dict[str, int]) -> np.ndarray:
    """Copy an output to the host and cut off the padding."""
    return np.asarray(value)[tuple(slice(sizes.get(axis)) for axis in axes)]
