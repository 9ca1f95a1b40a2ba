"""Choose the tokens with global attention (Beltagy et al. 2020, arXiv:2004.05150, section 3.1)."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from bert_jax.config import BertConfig
from bert_jax.errors import InputError
from bert_jax.modeling.attention_mask import AttentionMask
from bert_jax.modeling.inputs import Inputs


def usual_global_tokens(config: BertConfig, head: str, input_ids: Any) -> Any:
    """Return which tokens have global attention by default, bool `[B, S]`, or None.

    As in transformers: the question in question answering, the second text in multiple choice.

    Args:
        config: the architecture.
        head: one of `modeling.HEADS`.
        input_ids: `[B, S]`, an array of NumPy or JAX.
    """
    separators = (input_ids == config.setting("sep_token_id")).cumsum(-1)
    if head == "question_answering":
        return separators == 0
    if head == "multiple_choice":  # a row is <s> A </s></s> B </s>, and the texts are two separators apart
        return (separators > 0).cumsum(-1) > 2
    return None


def check_global_tokens(config: BertConfig, head: str, arrays: Mapping[str, np.ndarray]) -> None:
    """Raise InputError when a row has more tokens with global attention than `max_global_tokens`.

    Args:
        config: the architecture.
        head: one of `modeling.HEADS`.
        arrays: the arguments of `Bert.apply` by name.
    """
    chosen = arrays.get("global_attention_mask")
    if chosen is None:
        chosen = usual_global_tokens(config, head, arrays["input_ids"])
    if chosen is None:
        return
    most = int((chosen * arrays.get("attention_mask", 1)).sum(-1).max())
    if most > config.setting("max_global_tokens"):
        origin = "" if "global_attention_mask" in arrays else ", the head's default"
        raise InputError(
            f"global_attention_mask: expected at most {config.setting('max_global_tokens')} tokens with global "
            f"attention in a row (max_global_tokens), found {most}{origin}"
        )


def with_global_tokens(mask: AttentionMask, config: BertConfig, head: str, inputs: Inputs) -> AttentionMask:
    """Return the mask with global tokens: those of the inputs, or the head's default.

    Only the first `max_global_tokens` of a row count.
    """
    batch, length = inputs.input_ids.shape
    most = config.setting("max_global_tokens")
    chosen, first = inputs.global_attention_mask, inputs.cls_positions
    if chosen is None and head == "sequence_classification":
        first = jnp.zeros((batch, 1), jnp.int32) if first is None else first
        most = first.shape[1]
        chosen = (first[..., None] == jnp.arange(length)).any(axis=1)
    elif chosen is None:
        if mask.query_ids is not None and head in ("question_answering", "multiple_choice"):
            raise InputError("global_attention_mask: expected an array for packed rows of questions, found none")
        chosen = usual_global_tokens(config, head, inputs.input_ids)
    if chosen is None:
        return mask
    chosen = chosen > 0
    if mask.key_ids is not None and mask.query_ids is None:  # padding has no global attention
        chosen &= mask.key_ids > 0
    chosen &= jnp.cumsum(chosen, axis=1) <= most
    places = jnp.where(chosen, jnp.arange(length), length)
    places = jnp.concatenate((places, jnp.full((batch, most), length, places.dtype)), axis=1)
    return dataclasses.replace(mask, global_tokens=jnp.sort(places, axis=1)[:, :most], is_global=chosen)
