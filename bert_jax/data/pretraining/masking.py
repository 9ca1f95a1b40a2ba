"""Masked-LM targets, different in every epoch, as a pure function of (seed, epoch, example).

Which tokens are chosen and what replaces them follows google-research/bert `create_pretraining_data.py`
(`create_masked_lm_predictions`; Devlin et al. 2018, arXiv:1810.04805, section 3.1). Random numbers come from a
counter-based generator (splitmix64, Steele et al. 2014), a hash of (seed, epoch, example, position), so that they do
not depend on the order of reading, the number of hosts or the batch size.
"""

import dataclasses

import numpy as np

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_PICK, _ACTION, _REPLACEMENT, _LENGTH = 1, 2, 3, 4  # independent streams of one generator

UNITS = ("token", "word", "span")
# A span has n words, 1 <= n <= 10, with probability 0.2 * 0.8**(n-1), scaled to sum to 1: mean 3.8 (SpanBERT, 3.1).
_SPAN_LENGTHS = np.cumsum(0.8 ** np.arange(10)) / np.sum(0.8 ** np.arange(10))


@dataclasses.dataclass(frozen=True)
class Masking:
    """Settings by which tokens are chosen and replaced.

    Attributes:
        vocab_size: V, the size of the vocabulary that random replacements are drawn from.
        mask_id: the id of [MASK].
        max_predictions: P, the maximum number of tokens chosen in a sequence.
        mask_prob: the share of a sequence's tokens, [CLS] and [SEP] included, that is chosen.
        unit: the unit of masking, one of UNITS: tokens; whole words; or spans of words (the last may be cut), in each
            of which all tokens become [MASK], all become random or all are kept (Joshi et al. 2020, arXiv:1907.10529).
            The budget is the same for all units.
        mask_replace_prob: the share of the chosen tokens that becomes [MASK].
        random_replace_prob: the share of the chosen tokens that becomes a random token; the rest is kept.
        is_continuation: bool [V], whether a piece continues a word; needed for words and spans.
        static: the number of masks of an example, used in rotation; 0 draws a new mask in every epoch.
        seed: the seed of all random numbers, together with epoch and example.
    """

    vocab_size: int
    mask_id: int
    max_predictions: int
    mask_prob: float = 0.15
    unit: str = "token"
    mask_replace_prob: float = 0.8
    random_replace_prob: float = 0.1
    is_continuation: np.ndarray | None = None
    static: int = 0
    seed: int = 0

    def keys(self, epochs: np.ndarray, examples: np.ndarray) -> np.ndarray:
        """Return the uint64 keys [B] of the masks of examples [B] in epochs [B], for `apply_masks`."""
        return hash_counters(self.seed, epochs % self.static if self.static else epochs, examples)


def hash_counters(*counters: np.ndarray | int) -> np.ndarray:
    """Return uint64 hashes of counters, broadcast against one another; each value is uniform over all 64 bits."""
    with np.errstate(over="ignore"):
        state: np.ndarray = np.zeros((), np.uint64)
        for counter in counters:
            state = _mix(state + (np.asarray(counter).astype(np.uint64) + np.uint64(1)) * _GOLDEN)
        return state


def _mix(z: np.ndarray) -> np.ndarray:
    """Apply the finaliser of splitmix64."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def uniform(bits: np.ndarray) -> np.ndarray:
    """Convert random uint64 bits to floats in [0, 1)."""
    return (bits >> np.uint64(11)) * 2.0**-53


def apply_masks(
    input_ids: np.ndarray, candidates: np.ndarray, lengths: np.ndarray, keys: np.ndarray, masking: Masking
) -> dict[str, np.ndarray]:
    """Choose tokens to predict and hide them.

    Args:
        input_ids: int32 [B, S].
        candidates: bool [B, S], tokens that may be chosen: all but [CLS], [SEP] and padding.
        lengths: int [B], tokens of each row, [CLS] and [SEP] included.
        keys: uint64 [B], `masking.keys` of the rows.
        masking: the settings.

    Returns:
        `input_ids` int32 [B, S] with replacements; `masked_positions` int32 [B, P], ascending, padded with 0;
        `masked_labels` int32 [B, P], the original ids; `masked_weights` float32 [B, P], 1 for a prediction and 0 for
        padding.
    """
    rows, width = input_ids.shape
    budget = np.rint(lengths * masking.mask_prob).astype(np.int64).clip(1, masking.max_predictions)
    columns = np.arange(width)
    scores = hash_counters(keys[:, None], _PICK, columns) >> np.uint64(1)  # the top bit then marks non-candidates
    together = np.broadcast_to(columns, input_ids.shape)  # column whose random numbers decide the replacement
    if masking.unit == "token":
        chosen = _choose_tokens(candidates, scores, budget)
    elif masking.unit == "word":
        chosen = _choose_words(input_ids, candidates, scores, budget, masking)
    else:
        chosen, together = _choose_spans(input_ids, candidates, scores, budget, keys, masking)

    row, column = np.nonzero(chosen)
    slot = (np.cumsum(chosen, axis=1) - 1)[row, column]
    originals = input_ids[row, column]
    share = uniform(hash_counters(keys[row], _ACTION, together[row, column]))
    replacement = (
        (hash_counters(keys[row], _REPLACEMENT, column) >> np.uint64(32)) * np.uint64(masking.vocab_size)
    ) >> np.uint64(32)
    hidden = np.where(share < 1 - masking.random_replace_prob, originals, replacement.astype(np.int32))
    hidden = np.where(share < masking.mask_replace_prob, np.int32(masking.mask_id), hidden)

    shape = (rows, masking.max_predictions)
    masked = input_ids.copy()
    masked[row, column] = hidden
    positions, labels, weights = np.zeros(shape, np.int32), np.zeros(shape, np.int32), np.zeros(shape, np.float32)
    positions[row, slot], labels[row, slot], weights[row, slot] = column, originals, 1.0
    return {"input_ids": masked, "masked_positions": positions, "masked_labels": labels, "masked_weights": weights}


def _choose_tokens(candidates: np.ndarray, scores: np.ndarray, budget: np.ndarray) -> np.ndarray:
    """Return bool [B, S], the `budget` candidates of each row with the lowest scores."""
    scores = np.where(candidates, scores, np.uint64(1 << 63))
    order = np.argsort(scores, axis=1, kind="stable")
    within_budget = np.arange(scores.shape[1]) < budget[:, None]
    chosen = np.zeros_like(candidates)
    np.put_along_axis(chosen, order, within_budget, axis=1)
    return chosen & candidates


def _choose_words(
    input_ids: np.ndarray, candidates: np.ndarray, scores: np.ndarray, budget: np.ndarray, masking: Masking
) -> np.ndarray:
    """Return bool [B, S], all tokens of words drawn in random order; words that would exceed the budget are skipped.

    When truncation cuts a word at the beginning of a segment, the original joins its remaining pieces to the last word
    of the previous segment; here they are a word of their own.
    """
    begins, _ = _beginnings(input_ids, candidates, masking)
    # A word is identified by the column of its first token; other columns are words of size 0 that are never chosen.
    columns = np.arange(candidates.shape[1])
    first = np.maximum.accumulate(np.where(begins, columns, 0), axis=1)
    row = np.broadcast_to(np.arange(len(input_ids))[:, None], candidates.shape)
    sizes = np.zeros(candidates.shape, np.int64)
    np.add.at(sizes, (row[candidates], first[candidates]), 1)

    order = np.argsort(np.where(begins, scores, np.uint64(1 << 63)), axis=1, kind="stable")
    ordered_sizes = np.take_along_axis(sizes, order, axis=1)
    used = np.zeros_like(budget)
    fitting = np.zeros_like(candidates)
    for k in range(int(begins.sum(axis=1).max(initial=0))):
        fits = (ordered_sizes[:, k] > 0) & (used + ordered_sizes[:, k] <= budget)
        used += np.where(fits, ordered_sizes[:, k], 0)
        fitting[:, k] = fits
    words = np.zeros_like(candidates)
    np.put_along_axis(words, order, fitting, axis=1)
    return np.take_along_axis(words, first, axis=1) & candidates


def _choose_spans(
    input_ids: np.ndarray,
    candidates: np.ndarray,
    scores: np.ndarray,
    budget: np.ndarray,
    keys: np.ndarray,
    masking: Masking,
) -> tuple[np.ndarray, np.ndarray]:
    """Choose spans of words, each within one segment, until the budget is spent.

    Returns:
        bool [B, S], the chosen tokens; and int [B, S], for a chosen token the column of the first token of its span.
    """
    begins, segment_begins = _beginnings(input_ids, candidates, masking)
    word, segment = np.cumsum(begins, axis=1), np.cumsum(segment_begins, axis=1)
    order = np.argsort(np.where(begins, scores, np.uint64(1 << 63)), axis=1, kind="stable")
    columns, rows = np.arange(candidates.shape[1]), np.arange(len(candidates))
    draws = uniform(hash_counters(keys[:, None], _LENGTH, columns))
    num_words = np.searchsorted(_SPAN_LENGTHS, draws, side="right") + 1

    chosen, together = np.zeros_like(candidates), np.zeros(candidates.shape, np.int64)
    for start in order.T[: int(begins.sum(axis=1).max(initial=0))]:
        left = budget - chosen.sum(axis=1)
        may_begin = begins[rows, start] & ~chosen[rows, start] & (left > 0)
        if not (left > 0).any():
            break
        first = word[rows, start][:, None]
        inside = (word >= first) & (word < first + num_words[rows, start][:, None])
        inside &= candidates & ~chosen & (segment == segment[rows, start][:, None]) & may_begin[:, None]
        inside &= np.cumsum(inside, axis=1) <= left[:, None]
        together = np.where(inside, start[:, None], together)
        chosen |= inside
    return chosen, together


def _beginnings(input_ids: np.ndarray, candidates: np.ndarray, masking: Masking) -> tuple[np.ndarray, np.ndarray]:
    """Return two bool [B, S]: whether a word begins at each token, and whether a segment does."""
    assert masking.is_continuation is not None, "masking words needs to know which pieces continue one"
    after_candidate = np.zeros_like(candidates)
    after_candidate[:, 1:] = candidates[:, :-1]
    segment_begins = candidates & ~after_candidate
    return segment_begins | (candidates & ~masking.is_continuation[input_ids]), segment_begins
