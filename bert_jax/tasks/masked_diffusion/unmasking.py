"""Generation by iterative unmasking: each forward pass predicts all masked tokens of a region, and keeps some of them.

Mask-predict (Ghazvininejad et al. 2019, arXiv:1904.09324) and the samplers of masked diffusion (Nie et al. 2025,
arXiv:2502.09992, section 2.4). The number of forward passes is fixed, and independent of the number of tokens.
"""

import contextlib
import dataclasses
import functools
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding

from bert_jax import sharding
from bert_jax.errors import InputError, did_you_mean
from bert_jax.inference.decoding import candidates
from bert_jax.inference.programs import mesh_of
from bert_jax.modeling import Bert, Params

UnmaskingOrder = Literal["confidence", "entropy", "margin", "random", "left-to-right"]
UNMASKING_ORDERS = get_args(UnmaskingOrder)


@dataclasses.dataclass(frozen=True)
class Unmasking:
    """Options of iterative unmasking.

    Attributes:
        order: which predicted tokens a pass keeps: those of the highest probability (`confidence`), of the lowest
            entropy, of the largest margin between the two most likely tokens, `random` ones, or the leftmost.
        temperature: temperature of the distribution from which tokens are drawn; 0 = always the most likely token.
        top_k: draw from this number of most likely tokens; 0 = all.
        top_p: draw from the most likely tokens whose probabilities add up to this.
        block_length: tokens of a block; blocks are filled from left to right, each with its share of the passes.
            0 = the whole region is one block.
        remasking: the share of a block's kept tokens, the least probable ones, that each pass except the last masks
            again (Wang et al. 2025, arXiv:2503.00307).

    Raises:
        InputError: an option is out of its range.
    """

    order: UnmaskingOrder = "confidence"
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    block_length: int = 0
    remasking: float = 0.0

    def __post_init__(self) -> None:
        if self.order not in UNMASKING_ORDERS:
            raise InputError(f"order: {self.order!r} is not known{did_you_mean(self.order, UNMASKING_ORDERS)}")
        for name, fits, expected in (
            ("temperature", self.temperature >= 0, "at least 0"),
            ("top_k", self.top_k >= 0, "at least 0"),
            ("top_p", 0 < self.top_p <= 1, "more than 0 and at most 1"),
            ("block_length", self.block_length >= 0, "at least 0"),
            ("remasking", 0 <= self.remasking < 1, "at least 0 and less than 1"),
        ):
            if not fits:
                raise InputError(f"{name}: expected {expected}, found {getattr(self, name)}")


_NOTHING = (0, 0, 1)  # a pass over a complete row, which changes nothing


class Canvas(NamedTuple):
    """Rows whose masked tokens are to be generated.

    Attributes:
        inputs: `input_ids`, `attention_mask` and `token_type_ids`, int32 `[B, S]`.
        region: int32 `[B, R]`, the positions of the region in ascending order, S for padding.
        open: bool `[B, R]`, whether the token of each position is to be generated.
        barred: bool `[B, R]`, whether the end-of-text token is forbidden at each position.
        seeds: uint32 `[B, 3]`, three seeds of each row's random numbers.
    """

    inputs: dict[str, np.ndarray]
    region: np.ndarray
    open: np.ndarray
    barred: np.ndarray
    seeds: np.ndarray


class Filled(NamedTuple):
    """The generated region of each row.

    Attributes:
        tokens: int32 `[B, R]`, the tokens of the region; the mask token where a token is not yet generated.
        log_probabilities: float32 `[B, R]`, that of each generated token in the pass that kept it; 0 elsewhere.
    """

    tokens: np.ndarray
    log_probabilities: np.ndarray


def fill_canvas(
    bert: Bert,
    params: Params,
    canvas: Canvas,
    options: Unmasking,
    steps: int,
    mask_id: int,
    end_id: int,
    banned: np.ndarray,
    on_pass: Callable[[Filled], None] | None = None,
) -> Filled:
    """Generate the open tokens of a canvas.

    Args:
        bert: a model with head `masked_lm`.
        params: its parameters.
        canvas: the rows.
        options: how tokens are chosen.
        steps: number of forward passes; 0 = half of the tokens of each region, at least one for each block.
        mask_id: id of the mask token.
        end_id: id of the end-of-text token, which `canvas.barred` forbids at some positions.
        banned: bool `[V]`, tokens that are never generated.
        on_pass: called after each pass with the tokens generated so far.

    Raises:
        InputError: there are fewer passes than blocks.
    """
    sizes = (canvas.region < canvas.inputs["input_ids"].shape[1]).sum(axis=1).tolist()
    plans = [_plan(size, steps, options.block_length) for size in sizes]
    state = {
        "ids": canvas.inputs["input_ids"],
        "open": canvas.open,
        "log_probabilities": np.zeros(canvas.region.shape, np.float32),
    }
    constants = {name: array for name, array in canvas.inputs.items() if name != "input_ids"}
    constants |= {"region": canvas.region, "barred": canvas.barred, "seeds": canvas.seeds}
    banned_bias = np.where(banned, -np.inf, 0).astype(np.float32)
    ids = np.array([mask_id, end_id], np.int32)
    mesh = mesh_of(params)
    if mesh is not None:
        split = NamedSharding(mesh, sharding.batch_spec())
        state, constants = jax.device_put((state, constants), split)
    with contextlib.nullcontext() if mesh is None else jax.set_mesh(mesh):
        for number in range(max(map(len, plans))):
            passes = np.array([plan[number] if number < len(plan) else _NOTHING for plan in plans], np.int32)
            state = _unmask(bert, options, params, state, constants, banned_bias, passes, ids, number)
            if on_pass is not None:
                on_pass(_filled(state, canvas))
    return _filled(state, canvas)


def _plan(size: int, steps: int, block_length: int) -> list[tuple[int, int, int]]:
    """Return the passes over a region of `size` tokens: start and end of the block, and the passes left for it."""
    length = block_length or size
    starts = range(0, size, length) if size else ()
    steps = steps or max(-(-size // 2), len(starts))
    if steps < len(starts):
        raise InputError(f"steps: expected at least {len(starts)}, one forward pass for each block, found {steps}")
    plan: list[tuple[int, int, int]] = []
    for number, start in enumerate(starts):
        passes = (steps - len(plan)) // (len(starts) - number)
        plan += [(start, start + length, left) for left in range(passes, 0, -1)]
    return plan


def _filled(state: Any, canvas: Canvas) -> Filled:
    ids, log_probabilities = jax.device_get((state["ids"], state["log_probabilities"]))
    tokens = np.take_along_axis(ids, np.minimum(canvas.region, ids.shape[1] - 1), axis=1)
    return Filled(tokens, log_probabilities)


@functools.partial(jax.jit, static_argnames=("bert", "options"))
def _unmask(
    bert: Bert,
    options: Unmasking,
    params: Params,
    state: dict[str, jax.Array],
    constants: dict[str, jax.Array],
    banned: jax.Array,
    passes: jax.Array,
    special: jax.Array,
    number: jax.Array,
) -> dict[str, jax.Array]:
    """Run one forward pass, and keep some of the tokens that it predicts."""
    (start, stop, left), (mask_id, end_id) = jnp.split(passes, 3, axis=1), special
    ids, is_open, kept = state["ids"], state["open"], state["log_probabilities"]
    region, (batch, width) = constants["region"], state["open"].shape
    at = jnp.minimum(region, ids.shape[1] - 1)
    logits = bert.apply(
        params,
        ids,
        constants["attention_mask"],
        constants["token_type_ids"],
        masked_positions=at,
        output_last_hidden_state=False,
    ).logits
    assert logits is not None
    logits = logits.astype(jnp.float32) + jnp.pad(banned, (0, logits.shape[-1] - len(banned)), constant_values=-jnp.inf)
    is_end = jnp.arange(logits.shape[-1]) == end_id
    logits = jnp.where(constants["barred"][:, :, None] & is_end, -jnp.inf, logits)  # [B, R, V]
    log_probabilities = jax.nn.log_softmax(logits)
    keys = jax.vmap(functools.partial(_key, number))(constants["seeds"])
    tokens = _draw(logits, keys, options)
    chosen = jnp.take_along_axis(log_probabilities, tokens[:, :, None], axis=-1)[:, :, 0]

    in_block = (jnp.arange(width) >= start) & (jnp.arange(width) < stop)
    eligible = is_open & in_block
    count = -(-eligible.sum(1, keepdims=True) // left)
    priority = _priority(log_probabilities, chosen, keys, options.order)
    keep = eligible & (_rank(jnp.where(eligible, -priority, jnp.inf)) < count)
    is_open, kept = is_open & ~keep, jnp.where(keep, chosen, kept)
    current = jnp.take_along_axis(ids, at, axis=1)
    new = jnp.where(keep, tokens, current)
    if options.remasking:
        generated = in_block & ~is_open & (kept < 0)
        num_remasked = jnp.floor(options.remasking * generated.sum(1, keepdims=True)) * (left > 1)
        masked = generated & (_rank(jnp.where(generated, kept, jnp.inf)) < num_remasked)
        is_open, kept, new = is_open | masked, jnp.where(masked, 0.0, kept), jnp.where(masked, mask_id, new)
    rows = jnp.arange(batch)[:, None]
    return {"ids": ids.at[rows, region].set(new, mode="drop"), "open": is_open, "log_probabilities": kept}


def _key(number: jax.Array, seeds: jax.Array) -> jax.Array:
    """Return a row's random key in pass `number`."""
    key = jax.random.key(seeds[0])
    for data in (seeds[1], seeds[2], number):
        key = jax.random.fold_in(key, data)
    return key


def _draw(logits: jax.Array, keys: jax.Array, options: Unmasking) -> jax.Array:
    """Draw a token for each position, int32 `[B, R]`."""
    if not options.temperature:
        return jnp.argmax(logits, axis=-1).astype(jnp.int32)
    noise = jax.vmap(lambda key: jax.random.gumbel(key, logits.shape[1:]))(keys)
    return jnp.argmax(candidates(logits, options) + noise, axis=-1).astype(jnp.int32)


def _priority(log_probabilities: jax.Array, chosen: jax.Array, keys: jax.Array, order: str) -> jax.Array:
    """Return the priority of each predicted token, float32 `[B, R]`; the highest are kept."""
    match order:
        case "entropy":
            finite = jnp.where(jnp.isfinite(log_probabilities), log_probabilities, 0.0)
            return (jnp.exp(log_probabilities) * finite).sum(-1)
        case "margin":
            top_two = jnp.exp(jax.lax.top_k(log_probabilities, 2)[0])
            return top_two[..., 0] - top_two[..., 1]
        case "random":
            return jax.vmap(lambda key: jax.random.uniform(jax.random.fold_in(key, 1), chosen.shape[1:]))(keys)
        case "left-to-right":
            return jnp.broadcast_to(-jnp.arange(chosen.shape[1], dtype=jnp.float32), chosen.shape)
        case _:
            return chosen


def _rank(values: jax.Array) -> jax.Array:
    """Return the rank of each value in its row, `[B, R]`, from 0 for the least; equal values rank left to right."""
    return jnp.argsort(jnp.argsort(values, axis=1, stable=True), axis=1)
