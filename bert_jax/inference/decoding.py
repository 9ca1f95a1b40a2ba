"""Generate text with an encoder-decoder: greedy search, beam search and sampling, in loops that are compiled once.

Shapes are static: the number of rows, the source length and `max_length` determine the compiled program. Scores,
lengths and stopping conditions are those of transformers 5.
"""

import functools
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp

from bert_jax.conversion.generation_settings import GenerationSettings
from bert_jax.modeling import EncoderDecoder, Params

_NEVER = -1e9  # added to the scores of tokens that must not be chosen


def generate(
    model: EncoderDecoder,
    params: Params,
    input_ids: jax.Array,
    attention_mask: jax.Array,
    settings: GenerationSettings,
    keys: jax.Array | None = None,
) -> jax.Array:
    """Generate a text for each source; a pure function, to be jitted with `model` and `settings` static.

    Args:
        model: encoder and decoder.
        params: their parameters.
        input_ids: the sources, int32 `[B, S]`.
        attention_mask: `[B, S]`, 1 for tokens, 0 for padding.
        settings: the options of generation.
        keys: PRNG keys `[B]`, one per text, if tokens are sampled.

    Returns:
        int32 `[B, max_length]`: the start token, the text, the end token and padding. The end token is missing if
        the text is cut at `max_length`.
    """
    from bert_jax.modeling import decoder  # imports Flax

    states, weights = model.encode(params, input_ids, attention_mask), params["decoder"]
    cache = decoder.start_cache(model.decoder, weights, states, attention_mask, settings.max_length, settings.num_beams)
    step = functools.partial(decoder.decode_step, model.decoder, weights)
    if settings.num_beams > 1:
        return _beam_search(step, cache, len(input_ids), settings)
    return _one_by_one(step, cache, len(input_ids), settings, keys if settings.do_sample else None)


class _Row(NamedTuple):
    """The state of greedy search and sampling."""

    step: jax.Array  # position of the last token
    tokens: jax.Array  # [B, max_length]
    finished: jax.Array  # bool [B]
    cache: Any


def _one_by_one(step: Any, cache: Any, rows: int, settings: GenerationSettings, keys: jax.Array | None) -> jax.Array:
    """Choose the most likely token in each step, or sample it."""
    length, end = settings.max_length, settings.eos_token_id

    def body(state: _Row) -> _Row:
        last = jax.lax.dynamic_index_in_dim(state.tokens, state.step, axis=1, keepdims=False)
        logits, cache = step(last, state.step, state.cache)
        scores = allowed(logits, state.tokens, state.step + 1, settings)
        if keys is None:
            chosen = jnp.argmax(scores, axis=-1)
        else:
            of_step = jax.vmap(jax.random.fold_in, (0, None))(keys, state.step)
            chosen = jax.vmap(jax.random.categorical)(of_step, candidates(scores, settings))
        chosen = jnp.where(state.finished, settings.pad_token_id, chosen).astype(jnp.int32)
        tokens = jax.lax.dynamic_update_slice(state.tokens, chosen[:, None], (0, state.step + 1))
        return _Row(state.step + 1, tokens, state.finished | (chosen == end), cache)

    def unfinished(state: _Row) -> jax.Array:
        return (state.step < length - 1) & ~state.finished.all()

    start = _Row(jnp.int32(0), _empty((rows, length), settings), jnp.zeros(rows, bool), cache)
    return jax.lax.while_loop(unfinished, body, start).tokens


def _empty(shape: tuple[int, ...], settings: GenerationSettings) -> jax.Array:
    """Return sequences that have only their first token, `[..., max_length]`."""
    return jnp.full(shape, settings.pad_token_id, jnp.int32).at[..., 0].set(settings.decoder_start_token_id)


def allowed(scores: jax.Array, tokens: jax.Array, length: jax.Array, settings: GenerationSettings) -> jax.Array:
    """Return scores `[R, V]` of the next token, -inf for tokens that must not follow.

    Args:
        scores: logits or log probabilities.
        tokens: the sequences `[R, T]`.
        length: number of tokens of each sequence so far.
        settings: `min_length` and `no_repeat_ngram_size`.
    """
    if settings.no_repeat_ngram_size:
        scores = _without_repeated_ngrams(scores, tokens, length, settings.no_repeat_ngram_size)
    if settings.min_length:
        end = scores[:, settings.eos_token_id]
        scores = scores.at[:, settings.eos_token_id].set(jnp.where(length < settings.min_length, -jnp.inf, end))
    return scores


def _without_repeated_ngrams(scores: jax.Array, tokens: jax.Array, length: jax.Array, size: int) -> jax.Array:
    rows, room = tokens.shape
    if size > room:
        return scores
    starts = room - size + 1
    repeats = jnp.broadcast_to(jnp.arange(starts) + size - 1 < length, (rows, starts))
    for i in range(size - 1):  # whether each n-gram begins with the last n - 1 tokens
        last = jax.lax.dynamic_slice_in_dim(tokens, length - size + 1 + i, 1, axis=1)
        repeats &= tokens[:, i : i + starts] == last
    banned = jnp.where(repeats, -jnp.inf, jnp.inf)
    return scores.at[jnp.arange(rows)[:, None], tokens[:, size - 1 :]].min(banned)


class Sampling(Protocol):
    """Options of sampling: those of `GenerationSettings`, or of `Unmasking`."""

    @property
    def temperature(self) -> float: ...

    @property
    def top_k(self) -> int: ...

    @property
    def top_p(self) -> float: ...


def candidates(scores: jax.Array, settings: Sampling) -> jax.Array:
    """Return logits `[..., V]` divided by the temperature, -inf for tokens outside `top_k` and `top_p`."""
    scores = scores / settings.temperature
    if 0 < settings.top_k < scores.shape[-1]:
        least = jax.lax.top_k(scores, settings.top_k)[0][..., -1:]
        scores = jnp.where(scores < least, -jnp.inf, scores)
    if settings.top_p < 1:
        scores = jnp.where(_nucleus(jax.nn.softmax(scores, axis=-1), settings.top_p), scores, -jnp.inf)
    return scores


def _nucleus(probabilities: jax.Array, top_p: float) -> jax.Array:
    """Return bool `[..., V]`: the fewest most likely tokens whose total probability is at least `top_p`.

    Finds the smallest of their probabilities bit by bit, which is much faster than sorting the vocabulary.
    """
    # As integers, the bits of positive floats have the same order as the floats.
    bits = jax.lax.bitcast_convert_type(probabilities.astype(jnp.float32), jnp.int32)

    def set_bit(i: jax.Array, least: jax.Array) -> jax.Array:
        higher = least | (1 << (29 - i))
        total = jnp.where(bits >= higher, probabilities, 0).sum(axis=-1, keepdims=True)
        return jnp.where(total >= top_p, higher, least)

    least: jax.Array = jax.lax.fori_loop(0, 30, set_bit, jnp.zeros_like(bits[..., :1]))
    return bits >= least


class _Beams(NamedTuple):
    """The state of beam search: K unfinished beams, and the K best complete texts."""

    length: jax.Array  # number of tokens of each beam
    tokens: jax.Array  # [B, K, max_length]
    scores: jax.Array  # [B, K], log probabilities
    texts: jax.Array  # [B, K, max_length], the best complete texts
    text_scores: jax.Array  # [B, K], scores of complete texts with the length penalty
    is_text: jax.Array  # bool [B, K], False where there are fewer than K complete texts
    improvable: jax.Array  # bool [B, 1], whether a beam may still become one of the K best texts
    has_beams: jax.Array  # bool, whether any beam can be continued
    cache: Any


def _beam_search(step: Any, cache: Any, rows: int, settings: GenerationSettings) -> jax.Array:
    """Keep the K most likely beginnings in each step; return the best complete text."""
    beams, room, eager = settings.num_beams, settings.max_length, settings.early_stopping is True
    is_top = jnp.arange(2 * beams) < beams

    def body(state: _Beams) -> _Beams:
        last = jax.lax.dynamic_index_in_dim(state.tokens, state.length - 1, axis=2, keepdims=False)
        logits, cache = step(last.reshape(-1), state.length - 1, state.cache)
        flat = state.tokens.reshape(rows * beams, room)
        log_probs = allowed(jax.nn.log_softmax(logits, axis=-1), flat, state.length, settings)
        log_probs = log_probs.reshape(rows, beams, -1) + state.scores[..., None]
        vocabulary = log_probs.shape[-1]
        # Twice as many as there are beams, so that K remain even if K of them end here.
        best, index = jax.lax.top_k(log_probs.reshape(rows, -1), 2 * beams)
        parents, chosen = index // vocabulary, (index % vocabulary).astype(jnp.int32)
        longer = jax.lax.dynamic_update_slice(_pick(state.tokens, parents), chosen[..., None], (0, 0, state.length))
        ends = (chosen == settings.eos_token_id) | (state.length + 1 >= room)

        scores, kept = jax.lax.top_k(best + jnp.where(ends, _NEVER, 0.0), beams)
        origin = (_pick(parents, kept) + jnp.arange(rows)[:, None] * beams).reshape(-1)
        cache = cache._replace(target=tuple(array[:, origin] for array in cache.target))

        completed = ends & is_top
        new = best / state.length.astype(jnp.float32) ** settings.length_penalty
        if eager:
            new += jnp.where(state.is_text.all(1, keepdims=True), _NEVER, 0.0)
        new += jnp.where(state.improvable, 0.0, _NEVER) + jnp.where(completed, 0.0, _NEVER)
        text_scores, merged = jax.lax.top_k(jnp.concatenate([state.text_scores, new], axis=1), beams)
        texts = _pick(jnp.concatenate([state.texts, longer], axis=1), merged)
        is_text = _pick(jnp.concatenate([state.is_text, completed], axis=1), merged)

        length = state.length + 1
        farthest = settings.early_stopping == "never" and settings.length_penalty > 0
        reached = jnp.float32(room - 1) if farthest else (length - 1).astype(jnp.float32)
        possible = scores[:, :1] / reached**settings.length_penalty
        worst = jnp.where(is_text, text_scores.min(1, keepdims=True), _NEVER)
        improvable = state.improvable & (possible > worst).any(1, keepdims=True)
        return _Beams(
            length, _pick(longer, kept), scores, texts, text_scores, is_text, improvable, ~ends.all(), cache
        )  # fmt: skip

    def unfinished(state: _Beams) -> jax.Array:
        open_texts = ~state.is_text.all() if eager else True
        return state.improvable.any() & state.has_beams & open_texts

    shape = (rows, beams)
    empty = _empty((*shape, room), settings)
    start = _Beams(
        jnp.int32(1),
        empty,
        jnp.where(jnp.arange(beams) == 0, 0.0, jnp.full(shape, _NEVER)),  # beams are equal at first: use one
        empty,
        jnp.full(shape, _NEVER),
        jnp.zeros(shape, bool),
        jnp.ones((rows, 1), bool),
        jnp.bool_(True),
        cache,
    )
    return jax.lax.while_loop(unfinished, body, start).texts[:, 0]


def _pick(x: jax.Array, index: jax.Array) -> jax.Array:
    """Return the beams `index [B, k]` of `x [B, K, ...]`, as `[B, k, ...]`."""
    return jnp.take_along_axis(x, index.reshape(*index.shape, *[1] * (x.ndim - 2)), axis=1)
