"""Random access to the examples of a prepared directory, as masked model inputs."""

import contextlib
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from bert_jax import storage
from bert_jax.config import BertConfig
from bert_jax.data.batches import Batch
from bert_jax.data.packing import count_within, pack
from bert_jax.data.pretraining.instances import InstanceBatch, decode_records, num_special, smallest_seq_length
from bert_jax.data.pretraining.manifest import SPLITS, TOKENIZER_DIR, InstanceSet, Manifest
from bert_jax.data.pretraining.masking import Masking, apply_masks, hash_counters
from bert_jax.data.pretraining.row_reader import open_rows
from bert_jax.errors import InputError, did_you_mean
from bert_jax.storage import PathLike
from bert_jax.tokenization import RowLayout, Tokenizer, load_tokenizer

if TYPE_CHECKING:
    from bert_jax.data.diffusion import Noise


class PreparedInstances:
    """Random access to one set of a prepared directory, with masks.

    Args:
        directory: a directory of `prepare`, on a disk or in an object store.
        split: "train" or "validation".
        seq_length: S, tokens per row. A set prepared for this length is preferred; in a set prepared for a longer
            length, the longer segment of a pair, or the only segment, is truncated at its end until the row fits.
            Packed rows are never truncated.
        max_predictions: P, the maximum number of tokens predicted in an example; None: mask_prob * S, rounded up. A
            packed row has room for the predictions of all its examples.
        mask_prob: the share of a row's tokens to predict.
        mask_unit, mask_replace_prob, random_replace_prob, static_masks, seed: settings of the masks (`Masking`).
        noise: schedule and weighting of the noise of masked diffusion (`bert_jax.data.diffusion.Noise`), in place of
            the masks of masked LM; each token then has room for a prediction.
        config: the config of the model to be trained, which must have the positions and the vocabulary for these
            examples.

    Attributes:
        most_per_row: the number of examples for which a packed row has room; in a mixture, that of its fullest row.

    Raises:
        InputError: the directory is not a prepared one or has no set of this length, or the model does not fit.
    """

    def __init__(
        self,
        directory: PathLike,
        split: str,
        seq_length: int,
        *,
        max_predictions: int | None = None,
        mask_prob: float = 0.15,
        mask_unit: str = "token",
        mask_replace_prob: float = 0.8,
        random_replace_prob: float = 0.1,
        static_masks: int = 0,
        seed: int = 0,
        noise: tuple[str, str] | None = None,
        config: BertConfig | None = None,
    ):
        directory = storage.Path(directory)
        self.manifest = Manifest.read(directory)
        self.tokenizer: Tokenizer = load_tokenizer(directory / TOKENIZER_DIR)
        self.instances = _find_set(directory, self.manifest, split, seq_length, self.tokenizer.layout)
        self.most_per_row = self.instances.most_per_row
        self.seq_length = seq_length
        _check_numbers(mask_prob, max_predictions)
        _check_fit(directory, self.manifest, seq_length, config)
        if self.tokenizer.fingerprint != self.manifest.tokenizer_fingerprint:
            raise InputError(f"{directory / TOKENIZER_DIR}: expected the tokenizer of the shards, found another")
        begins_words = np.delete(~self.tokenizer.is_continuation, self.tokenizer.special_ids)
        if mask_unit != "token" and not begins_words.any():
            raise InputError(
                f"data.mask_unit: expected token, as the tokens of the tokenizer in {directory} do not say where words "
                f"begin, found {mask_unit}"
            )
        self.masking = Masking(
            vocab_size=self.tokenizer.vocab_size,
            mask_id=self.tokenizer.mask_id,
            max_predictions=math.ceil(mask_prob * seq_length) if max_predictions is None else max_predictions,
            mask_prob=mask_prob,
            unit=mask_unit,
            mask_replace_prob=mask_replace_prob,
            random_replace_prob=random_replace_prob,
            is_continuation=self.tokenizer.is_continuation,
            static=static_masks,
            seed=seed,
        )
        self._noise: Noise | None = None
        if noise:
            from bert_jax.data import diffusion

            self._noise = diffusion.Noise(self.tokenizer.mask_id, *noise)
        self._directory = directory
        dtype = np.dtype(self.manifest.token_dtype).newbyteorder("<")
        with self._naming_what_is_read():
            self.reader = open_rows(directory, self.instances, dtype)

    def __len__(self) -> int:
        return self.instances.rows

    def batch(self, rows: Sequence[int] | np.ndarray, epochs: Sequence[int] | np.ndarray) -> Batch:
        """Return rows by number (any order, repeats allowed), each masked as in its own epoch, from `epochs`.

        Returns:
            The arrays of `packing.pack` when rows are packed. Otherwise int32 [B, S] `input_ids`, `attention_mask`,
            `token_type_ids`; int32 [B, P] `masked_positions`, `masked_labels`; float32 [B, P] `masked_weights`;
            float32 [B] `example_weights` (all 1); where examples are pairs, int32 [B] `next_sentence_labels`
            (`Instance.label`); and with noise float32 [B] `target_counts`.
        """
        with self._naming_what_is_read():
            records = self.reader.rows(np.asarray(rows))
        instances = decode_records(records)
        batch, candidates, lengths = self._assemble(instances)
        keys = self.masking.keys(np.asarray(epochs), np.asarray(rows))[instances.rows]
        if self.manifest.packed:
            keys = hash_counters(keys, count_within(instances.rows))
        if self._noise:
            from bert_jax.data.diffusion import add_noise

            batch |= add_noise(self._noise, batch["input_ids"], candidates.astype(np.int32), keys, self.seq_length)
        else:
            batch |= apply_masks(batch["input_ids"], candidates, lengths, keys, self.masking)
        batch["example_weights"] = np.ones(len(keys), np.float32)
        if self.manifest.objective != "mlm":
            batch["next_sentence_labels"] = instances.labels
        if self.manifest.packed:
            pad_id = self.tokenizer.pad_id
            return pack(batch, instances.rows, self.seq_length, self._slots, self.most_per_row, pad_id)
        return batch

    @contextlib.contextmanager
    def _naming_what_is_read(self) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError) as error:
            what = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) and error.filename else error
            raise InputError(f"{self._directory}: cannot read {self.instances.split} examples: {what}") from None

    @property
    def _slots(self) -> int:
        """The largest number of predictions in a packed row: each example has a rounded budget of at least one."""
        if self._noise:
            return self.seq_length
        most, prob = self.most_per_row, self.masking.mask_prob
        shortest = 3  # tokens of the shortest example
        rounded_up = most * max(0.5, 1 - shortest * prob)
        return min(math.ceil(self.seq_length * prob + rounded_up), most * self.masking.max_predictions)

    def _assemble(self, instances: InstanceBatch) -> tuple[Batch, np.ndarray, np.ndarray]:
        """Return the unmasked rows, bool [B, S] of the tokens that may be masked, and the lengths of the rows.

        A row is `[CLS] A [SEP] B [SEP]` or `[CLS] A [SEP]`, with the special tokens of the tokenizer's layout.
        """
        rows, layout = len(instances.lengths_a), self.tokenizer.layout
        specials = num_special(self.manifest.objective, layout)
        separators, second_type = (layout.between, layout.second_type) if self.manifest.objective != "mlm" else ((), 0)
        keep_a, keep_b = _fit_pair(instances.lengths_a, instances.lengths_b, self.seq_length - specials)
        sizes = instances.lengths_a + instances.lengths_b
        row = np.repeat(np.arange(rows), sizes)
        place = np.arange(len(row)) - np.repeat(np.cumsum(sizes) - sizes, sizes)  # position within A + B
        in_b = place >= instances.lengths_a[row]
        place = place - np.where(in_b, instances.lengths_a[row], 0)  # position within its segment
        kept = place < np.where(in_b, keep_b[row], keep_a[row])
        start_a = len(layout.start)
        start_b = start_a + keep_a + len(separators)
        row, column = row[kept], (place + np.where(in_b, start_b[row], start_a))[kept]

        shape = (rows, self.seq_length)
        lengths = keep_a + keep_b + specials
        columns = np.arange(self.seq_length)
        input_ids = np.full(shape, self.tokenizer.pad_id, np.int32)
        input_ids[row, column] = instances.tokens[kept]
        starts = (0 * lengths, start_b - len(separators), lengths - len(layout.end))
        for part, start in zip((layout.start, separators, layout.end), starts, strict=True):
            input_ids[np.arange(rows)[:, None], start[:, None] + np.arange(len(part))] = part
        candidates = np.zeros(shape, np.bool_)
        candidates[row, column] = instances.tokens[kept] != self.tokenizer.sep_id
        inside = columns < lengths[:, None]
        batch = {
            "input_ids": input_ids,
            "attention_mask": inside.astype(np.int32),
            "token_type_ids": (inside & (columns >= start_b[:, None])).astype(np.int32) * np.int32(second_type),
        }
        return batch, candidates, lengths


def give_equal_room(parts: Sequence[PreparedInstances]) -> None:
    """Give packed rows of several sets room for the examples of the fullest row, so that all have the same shape."""
    most = max(part.most_per_row for part in parts)
    for part in parts:
        part.most_per_row = most


def _fit_pair(lengths_a: np.ndarray, lengths_b: np.ndarray, room: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the tokens to keep of A and of B: the longer one (B if equal) is truncated until the pair fits."""
    short = np.minimum(np.minimum(lengths_a, lengths_b), room // 2)
    long = np.minimum(np.maximum(lengths_a, lengths_b), room - short)
    a_is_long = lengths_a >= lengths_b
    return np.where(a_is_long, long, short), np.where(a_is_long, short, long)


def _find_set(
    directory: storage.Path, manifest: Manifest, split: str, seq_length: int, layout: RowLayout
) -> InstanceSet:
    if split not in SPLITS:
        raise InputError(f"split: expected one of {', '.join(SPLITS)}, found {split!r}{did_you_mean(split, SPLITS)}")
    lengths = manifest.lengths(split)
    if not lengths:
        raise InputError(
            f"{directory}: expected {split} examples, found none; was it prepared with validation_fraction 0?"
        )
    if seq_length > lengths[-1]:
        raise InputError(f"sequence length {seq_length}: {directory} was prepared for at most {lengths[-1]} tokens")
    if seq_length < (smallest := smallest_seq_length(layout)):
        raise InputError(f"sequence length: expected at least {smallest}, found {seq_length}")
    padded_length = min(length for length in lengths if length >= seq_length)
    if manifest.packed and padded_length != seq_length:
        raise InputError(f"sequence length {seq_length}: {directory} has packed rows of {padded_length} tokens")
    return next(s for s in manifest.sets if (s.split, s.max_seq_length) == (split, padded_length))


def _check_numbers(mask_prob: float, max_predictions: int | None) -> None:
    if not 0 < mask_prob < 1:
        raise InputError(f"mask_prob: expected more than 0 and less than 1, found {mask_prob}")
    if max_predictions is not None and max_predictions < 1:
        raise InputError(f"max_predictions: expected at least 1, found {max_predictions}")


def _check_fit(directory: storage.Path, manifest: Manifest, seq_length: int, config: BertConfig | None) -> None:
    if config is None:
        return
    if seq_length > config.max_position_embeddings:
        raise InputError(f"sequence length {seq_length}: the model has {config.max_position_embeddings} positions")
    if manifest.vocab_size > config.vocab_size:
        raise InputError(
            f"{directory}: expected at most the model's {config.vocab_size} word pieces, found {manifest.vocab_size}"
        )
