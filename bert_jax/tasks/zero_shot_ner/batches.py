"""Batches for a GLiNER: each text follows the names of its own entity types and of sampled negative ones.

Zaratiana et al. 2023 (arXiv:2311.08526), section 3.2: a text's negative types are sampled from the types of its batch.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bert_jax.data.batches import Batch
from bert_jax.data.finetuning.batching import TrainSource
from bert_jax.errors import InputError
from bert_jax.tasks.zero_shot_ner.data import SpanText
from bert_jax.tasks.zero_shot_ner.rows import RowMaker, word_windows

_SAMPLING = 1  # mixed with seed and step, so that it differs from the other random numbers of a step
_LEAST_TEXT = 8  # minimum number of tokens that every row leaves for text


class SpanWindow(NamedTuple):
    """A text, or a window of one, with the types for which it is scored in evaluation.

    Attributes:
        words: the token ids of each word.
        spans: (first word, word after the last, number of the type); in evaluation also spans that leave the window.
        document: the number of the text.
        first_word: the first word of the window.
        scored: the half-open range of the words that only this window scores.
        types: numbers of the types in the prompt; () = the types of the spans.
    """

    words: list[list[int]]
    spans: list[tuple[int, int, int]]
    document: int
    first_word: int
    scored: tuple[int, int]
    types: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True, eq=False)
class GlinerFeatures:
    """Rows of a GLiNER, as a `bert_jax.data.finetuning.features.Paddable`.

    Attributes:
        maker: makes the rows.
        names: the names of the types.
        windows: the texts, or windows of them.
        max_length: maximum number of tokens in a row.
        most_types: maximum number of types in a row.
        negatives: maximum number of sampled types per span of a row; 0 in evaluation.
        kept: for each text, the numbers of the words that have tokens; rows contain and count only these words.
    """

    maker: RowMaker
    names: tuple[str, ...]
    windows: list[SpanWindow]
    max_length: int
    most_types: int
    negatives: int = 0
    kept: tuple[list[int], ...] = ()

    def __len__(self) -> int:
        return len(self.windows)

    @property
    def num_examples(self) -> int:
        """The number of texts."""
        return self.windows[-1].document + 1

    @functools.cached_property
    def sizes(self) -> np.ndarray:
        """The number of tokens of each type in a prompt, int `[types]`."""
        empty = len(self.maker.prompt(()).ids)
        return np.array([len(self.maker.prompt((name,)).ids) - empty for name in self.names], np.int64)

    @functools.cached_property
    def lengths(self) -> np.ndarray:
        """The tokens in each row, int64 `[n]`, counting its own types and room for sampled types of mean length."""
        empty = len(self.maker.prompt(()).ids) + len(self.maker.layout.end)
        mean = int(np.ceil(self.sizes.mean()))
        row_lengths = []
        for window in self.windows:
            own_types = self._own(window)
            sampled = max(min(self.negatives * len(window.spans), self.most_types - len(own_types)), int(not own_types))
            num_tokens = empty + sum(map(len, window.words)) + int(self.sizes[own_types].sum()) + sampled * mean
            row_lengths.append(min(num_tokens, self.max_length))
        return np.array(row_lengths, np.int64)

    @functools.cached_property
    def most_spans(self) -> int:
        """The number of spans for which a batch has room in each row."""
        return max(1, max(len(window.spans) for window in self.windows))

    def _own(self, window: SpanWindow) -> list[int]:
        return list(window.types) or sorted({kind for _, _, kind in window.spans})

    def sample(self, index: np.ndarray, random: np.random.Generator) -> list[list[int]]:
        """Return the types of each row of a batch: its own and a sample of the other rows' types, in random order.

        Args:
            index: the rows of the whole batch; -1 for padding.
            random: the source of randomness.
        """
        rows = [self.windows[i] if i >= 0 else None for i in index]
        in_batch = sorted({kind for row in rows if row for _, _, kind in row.spans}) or range(len(self.names))
        order = random.permutation(np.array(in_batch))
        chosen: list[list[int]] = []
        for row in rows:
            ratio = int(random.integers(0, self.negatives + 1))
            own_types = self._own(row) if row else []
            others = [int(kind) for kind in order if kind not in own_types]
            sampled = others[: ratio * len(row.spans) if row else 0]
            kinds = random.permutation(np.array(own_types + sampled or [order[0]]))
            chosen.append([int(kind) for kind in kinds[: self.most_types]])
        return chosen

    def pad(self, index: np.ndarray, length: int, pad_id: int, types: Sequence[Sequence[int]] = ()) -> Batch:
        """Return the batch of rows `index` [B], padded to `length`; an index of -1 makes a row of weight 0.

        Types that do not fit into a row are left out: sampled types before its own, the last first.

        Args:
            index: the rows.
            length: the padded length.
            pad_id: id of the padding token.
            types: the types of each row; () = the types of its window or, without these, of its spans.
        """
        count = len(index)
        batch: Batch = {
            "input_ids": np.full((count, length), pad_id, np.int32),
            "attention_mask": np.zeros((count, length), np.int32),
            "token_type_ids": np.zeros((count, length), np.int32),
            "word_positions": np.zeros((count, length), np.int32),
            "type_positions": np.zeros((count, self.most_types), np.int32),
            "spans": np.full((count, self.most_spans, 3), -1, np.int32),
            "type_numbers": np.full((count, self.most_types), -1, np.int32),
            "windows": np.zeros((count, 3), np.int32),
            "documents": np.full(count, -1, np.int32),
            "example_weights": (index >= 0).astype(np.float32),
        }
        for at, i in enumerate(index):
            if i < 0:
                continue
            window = self.windows[i]
            kinds = self._fitting(window, list(types[at]) if len(types) else self._own(window) or [0], length)
            row = self.maker.row(self.maker.prompt([self.names[kind] for kind in kinds]), window.words, length)
            batch["input_ids"][at, : len(row.ids)] = row.ids
            batch["attention_mask"][at, : len(row.ids)] = 1
            batch["word_positions"][at, : len(row.word_positions)] = row.word_positions
            batch["type_positions"][at, : len(kinds)] = row.type_positions
            batch["type_numbers"][at, : len(kinds)] = kinds
            place = {kind: number for number, kind in enumerate(kinds)}
            spans = [(start, stop, place[kind]) for start, stop, kind in window.spans if kind in place]
            batch["spans"][at, : len(spans)] = np.array(spans, np.int32).reshape(-1, 3)
            batch["windows"][at] = (window.first_word, *window.scored)
            batch["documents"][at] = window.document
        return batch

    def _fitting(self, window: SpanWindow, kinds: list[int], length: int) -> list[int]:
        """Return the types that fit into a row of `length` tokens with its text; sampled types are dropped first."""
        own_types = set(self._own(window))
        room = length - len(self.maker.prompt(()).ids) - len(self.maker.layout.end) - sum(map(len, window.words))
        for dropped in (
            *(k for k in reversed(kinds) if k not in own_types),
            *(k for k in reversed(kinds) if k in own_types),
        ):
            if self.sizes[kinds].sum() <= room or len(kinds) == 1:
                break
            kinds = [kind for kind in kinds if kind != dropped]
        return kinds


class GlinerSource(TrainSource):
    """Batches of `GlinerFeatures` whose types are sampled: a pure function of (seed, step)."""

    features: GlinerFeatures

    def batch(self, step: int, rows: slice | np.ndarray = slice(None)) -> Batch:
        index, lengths = self._plan(step // self.steps_per_epoch)
        at = step % self.steps_per_epoch
        types = self.features.sample(index[at], np.random.default_rng([self._seed, step, _SAMPLING]))
        numbers = np.arange(len(index[at]))[rows]
        return self.features.pad(index[at][rows], lengths[at], self._pad_id, [types[i] for i in numbers])


def encode_span_texts(
    maker: RowMaker, texts: Sequence[SpanText], names: Sequence[str], max_length: int, *, training: bool
) -> GlinerFeatures:
    """Tokenize texts; cut those that are too long for a row into windows, as inference does.

    Args:
        maker: makes the rows.
        texts: the texts.
        names: the names of all types.
        max_length: maximum number of tokens in a row.
        training: whether types are sampled, and spans wider than `max_width` or cut by a window are left out;
            otherwise each window occurs once for each group of types that fits into a prompt, with all spans.

    Raises:
        InputError: a row has no room for a text behind the names of its types.
    """
    number = {name: i for i, name in enumerate(names)}
    config, windows, with_tokens = maker.config, [], []
    features = GlinerFeatures(maker, tuple(names), [], max_length, min(config.max_types, len(names)))
    for document, text in enumerate(texts):
        encoded = maker.encode_words(text.words)
        kept = [i for i, ids in enumerate(encoded) if ids]
        with_tokens.append(kept)
        words = [encoded[i] for i in kept]
        place = np.searchsorted(kept, np.arange(len(encoded) + 1))
        spans = [(int(place[a]), int(place[z]), number[kind]) for a, z, kind in text.spans if place[a] < place[z]]
        kinds = sorted({kind for *_, kind in spans}) if training else list(range(len(names)))
        for group in _groups(features, kinds, max_length // 2)[: 1 if training else None]:
            prompt = maker.prompt([names[kind] for kind in group])
            # In training, leave room for one or two sampled types.
            room = maker.room(prompt, max_length) - training * min(2 * int(features.sizes.mean()), max_length // 4)
            if room < min(_LEAST_TEXT, max_length // 4):
                raise InputError(
                    f"config.data.max_seq_length: expected room for a text behind the names of {len(group)} types of "
                    f"{len(prompt.ids)} tokens, found {max_length}"
                )
            for window in word_windows([len(ids) for ids in words], room, config):
                inside = [
                    (start - window.start, stop - window.start, kind)
                    for start, stop, kind in spans
                    if window.own_start <= start < window.own_stop
                    and kind in group
                    and (not training or (stop <= window.stop and stop - start <= config.max_width))
                ]
                scored = (window.own_start, window.own_stop)
                part = [ids[:room] for ids in words[window.start : window.stop]]
                windows.append(
                    SpanWindow(part, inside, document, window.start, scored, () if training else tuple(group))
                )
    if not windows:
        raise InputError("expected texts with words that have tokens, found none")
    negatives = config.max_neg_type_ratio if training else 0
    return dataclasses.replace(features, windows=windows, negatives=negatives, kept=tuple(with_tokens))


def _groups(features: GlinerFeatures, kinds: list[int], limit: int) -> list[list[int]]:
    """Divide types into groups of at most `most_types`; the names in a group have at most `limit` tokens together."""
    groups: list[list[int]] = [[]]
    for kind in kinds:
        full = len(groups[-1]) == features.most_types or features.sizes[[*groups[-1], kind]].sum() > limit
        if groups[-1] and full:
            groups.append([])
        groups[-1].append(kind)
    return groups
