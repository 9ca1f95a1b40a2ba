"""Structured removal: a config and a parameter tree with fewer heads, feed-forward columns, layers or pieces.

Every function is pure: it returns a new config and a new tree of NumPy arrays, and leaves its arguments unchanged. If
the removed parts contribute zero, the smaller model computes the same as the larger one.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bert_jax.config import BertConfig
from bert_jax.conversion.vocabulary_rows import with_rows
from bert_jax.errors import InputError
from bert_jax.modeling import Params

_BIAS_TABLE = "relative_attention_bias"


def keep_heads(config: BertConfig, params: Params, heads: np.ndarray) -> tuple[BertConfig, Params]:
    """Keep some attention heads of each layer.

    The head size stays the same, so that queries, keys and values get narrower: `num_attention_heads` becomes K, and
    `head_dim` becomes H.

    Args:
        config: the architecture, with N heads of size H.
        params: its parameters.
        heads: int `[L, K]`, the heads to keep in each layer, ascending.

    Raises:
        InputError: the heads are out of range; or they differ between layers that share a relative bias for each head
            (MPNet); or heads cannot be removed singly, as they have ALiBi slopes or share a LayerNorm or keys.
    """
    check_untied(config)
    if config.attention.num_key_value_heads:
        raise InputError(
            f"heads: expected keys for each of the {config.num_attention_heads} heads, found "
            f"{config.attention.num_key_value_heads} heads of keys, each shared by several heads"
        )
    if config.positions.kind == "alibi" or config.attention.qk_norm:
        feature = "positions of type alibi" if config.positions.kind == "alibi" else "qk_norm"
        raise InputError(f"heads: expected a model whose heads do not depend on each other, found one with {feature}")
    heads = _checked(heads, config, config.num_attention_heads, "heads")
    shared = bool(config.setting("relative_attention_buckets"))
    if shared and (heads != heads[0]).any():
        raise InputError("heads: expected the same heads in all layers, as all layers share one bias per head")
    count, size = heads.shape[1], config.head_size
    columns = (heads[:, :, None] * size + np.arange(size)).reshape(len(heads), -1)  # [L, K * H]
    attention = dict(params["encoder"]["layers"]["attention"])
    for name in attention.keys() - {"output", "layer_norm"}:
        attention[name] = {leaf: _take(array, columns, -1) for leaf, array in attention[name].items()}
    attention["output"] = attention["output"] | {"kernel": _take(attention["output"]["kernel"], columns, 1)}
    pruned = _with_layers(params, attention=attention)
    if shared:
        table = np.asarray(params["encoder"][_BIAS_TABLE]["embedding"])[:, heads[0]]
        pruned["encoder"][_BIAS_TABLE] = {"embedding": table}
    if config.setting("contact_head"):
        pruned |= _with_contacts(config, params, lambda rows: np.take_along_axis(rows, heads, 1))
    return config.replace(num_attention_heads=count, head_dim=size), pruned


def keep_columns(config: BertConfig, params: Params, columns: np.ndarray) -> tuple[BertConfig, Params]:
    """Keep some columns of each feed-forward layer: outputs of `up` and `gate`, and the rows of `down` that read them.

    Args:
        config: the architecture, with feed-forward size F.
        params: its parameters.
        columns: int `[L, K]`, the columns to keep in each layer, ascending.

    Raises:
        InputError: the columns are out of range, or layers have several feed-forward blocks.
    """
    check_untied(config)
    check_one_block(config)
    columns = _checked(columns, config, config.intermediate_size, "columns")
    mlp = dict(params["encoder"]["layers"]["mlp"])
    for name in ("up", "gate"):
        if name in mlp:
            mlp[name] = {leaf: _take(array, columns, -1) for leaf, array in mlp[name].items()}
    mlp["down"] = mlp["down"] | {"kernel": _take(mlp["down"]["kernel"], columns, 1)}
    return config.replace(intermediate_size=columns.shape[1]), _with_layers(params, mlp=mlp)


def keep_layers(config: BertConfig, params: Params, layers: Sequence[int]) -> tuple[BertConfig, Params]:
    """Keep some encoder layers.

    Args:
        config: the architecture, with L layers.
        params: its parameters.
        layers: the layers to keep, ascending, from 0.

    Raises:
        InputError: a layer is out of range or named twice; or layer 0 is removed although it alone has no LayerNorm
            before attention or the model has a convolution; or no config can describe how the remaining local and
            global layers alternate.
    """
    check_untied(config)
    kept = list(layers)
    if not kept or kept != sorted(set(kept)) or not 0 <= kept[0] <= kept[-1] < config.num_hidden_layers:
        raise InputError(f"layers: expected ascending numbers from 0 to {config.num_hidden_layers - 1}, found {kept}")
    if not config.norms.first_layer_norm and kept[0] != 0:
        raise InputError(f"layers: expected layer 0 too, the only one without a LayerNorm before it, found {kept}")
    if config.setting("conv_kernel_size") and kept[0] != 0:
        raise InputError(f"layers: expected layer 0 too, as the convolution belongs to it, found {kept}")
    smaller = config.replace(num_hidden_layers=len(kept))
    windows = tuple(config.windows[layer] for layer in kept)
    if config.setting("attention_windows"):
        smaller = smaller.replace(attention_windows=windows)
    elif config.attention.local_window:
        every = range(1, len(kept) + 1)
        fitting = [n for n in every if smaller.replace(global_every=n).windows == windows]
        if not fitting:
            kinds = ", ".join("local" if window else "global" for window in windows)
            raise InputError(f"layers: expected one global layer in every n, starting with the first, found {kinds}")
        smaller = smaller.replace(global_every=fitting[0])
    stacked = _map(lambda leaf: np.asarray(leaf)[kept], params["encoder"]["layers"])
    pruned = params | {"encoder": params["encoder"] | {"layers": stacked}}
    if config.setting("contact_head"):
        pruned |= _with_contacts(config, params, lambda rows: rows[kept])
    return smaller, pruned


def _with_contacts(config: BertConfig, params: Params, keep: Callable[[np.ndarray], np.ndarray]) -> Params:
    """Return the contact head with the weights that `keep` selects from `[L, N]`, one for each attention map."""
    dense = params["contact_head"]["dense"]
    rows = np.asarray(dense["kernel"]).reshape(config.num_hidden_layers, config.num_attention_heads)
    return {"contact_head": {"dense": dense | {"kernel": keep(rows).reshape(-1, 1)}}}


def prune_vocab(config: BertConfig, params: Params, ids: np.ndarray, pad_id: int) -> tuple[BertConfig, Params]:
    """Keep some rows of the word embedding, and of other arrays with a row for each piece (`with_rows`).

    Args:
        config: the architecture, with V rows.
        params: its parameters.
        ids: int `[K]`, the ids to keep, ascending; the row of ids[i] becomes row i.
        pad_id: the new id of padding.

    Raises:
        InputError: an id is out of range.
    """
    ids = np.asarray(ids)
    if not len(ids) or (np.diff(ids) <= 0).any() or ids[0] < 0 or ids[-1] >= config.vocab_size:
        raise InputError(f"ids: expected ascending ids from 0 to {config.vocab_size - 1}, each once")
    pruned = with_rows(params, lambda array: array[ids])
    renamed = {int(old): new for new, old in enumerate(ids)}
    carried = tuple((key, _new_id(key, value, renamed)) for key, value in config.carried)
    changes: dict[str, Any] = {"vocab_size": len(ids), "pad_token_id": pad_id, "carried": carried}
    if (separator := config.setting("sep_token_id")) is not None:
        changes["sep_token_id"] = renamed.get(separator, separator)
    if (mask := config.setting("mask_token_id")) is not None:
        changes["mask_token_id"] = renamed.get(mask, pad_id)
    return config.replace(**changes), pruned


def check_untied(config: BertConfig) -> None:
    """Raise InputError when layers share their parameters or have experts, so that no part can be removed."""
    if groups := config.setting("num_hidden_groups"):
        raise InputError(
            "expected a model whose layers have parameters of their own, found num_hidden_groups "
            f"{groups}, which ties them; only pieces of the vocabulary can be removed"
        )
    if experts := config.setting("num_experts"):
        raise InputError(
            f"expected a model without experts, found num_experts {experts}; only pieces of the "
            "vocabulary can be removed"
        )


def check_one_block(config: BertConfig) -> None:
    """Raise InputError when layers have several feed-forward blocks, as columns are ranked in one block only."""
    if (blocks := config.setting("num_feedforward_networks", 1)) > 1:
        raise InputError(
            "columns: expected layers of one feed-forward block, found num_feedforward_networks "
            f"{blocks}; heads, layers and pieces of the vocabulary can be removed"
        )


def most_important(importance: np.ndarray, count: int, *, together: bool = False) -> np.ndarray:
    """Return the `count` most important parts of each layer, int `[L, count]`, ascending; in a tie, the first.

    Args:
        importance: `[L, N]`.
        count: the number of parts to keep.
        together: whether to keep the same parts in all layers, those with the greatest sum.
    """
    if together:
        importance = np.broadcast_to(importance.sum(axis=0), importance.shape)
    best = np.argsort(-importance, axis=1, kind="stable")[:, :count]
    return np.sort(best, axis=1)


def _new_id(key: str, value: Any, renamed: dict[int, int]) -> Any:
    """Return the new id of a token that config.json names, such as `cls_token_id`; other values stay the same."""
    return renamed.get(value, value) if key.endswith("_token_id") and type(value) is int else value


def _checked(kept: np.ndarray, config: BertConfig, size: int, what: str) -> np.ndarray:
    kept = np.asarray(kept)
    ascending = kept.ndim == 2 and kept.shape[1] > 0 and (np.diff(kept, axis=1) > 0).all()
    if not ascending or len(kept) != config.num_hidden_layers or kept.min() < 0 or kept.max() >= size:
        expected = f"[{config.num_hidden_layers}, K] ascending numbers from 0 to {size - 1}"
        raise InputError(f"{what}: expected {expected}, found an array of shape {list(kept.shape)}")
    return kept


def _take(array: Any, index: np.ndarray, axis: int) -> np.ndarray:
    """Take entries `index [L, K]` along an axis of `array [L, ...]`, different ones in each layer."""
    array = np.asarray(array)
    axis %= array.ndim
    shape = [1] * array.ndim
    shape[0], shape[axis] = index.shape
    return np.take_along_axis(array, index.reshape(shape), axis)


def _with_layers(params: Params, **parts: Any) -> Params:
    """Return the parameters with some parts of the stacked layers replaced."""
    encoder = dict(params["encoder"])
    encoder["layers"] = encoder["layers"] | parts
    return params | {"encoder": encoder}


def _map(function: Any, tree: Any) -> Any:
    return {k: _map(function, v) for k, v in tree.items()} if isinstance(tree, dict) else function(tree)
