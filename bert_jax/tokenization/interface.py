"""`Tokenizer`, the interface of all tokenizers: text to padded arrays of ids, and ids to text."""

import abc
import dataclasses
import hashlib
import re
import threading
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_jax.errors import InputError, TextError, did_you_mean
from bert_jax.storage import PathLike
from bert_jax.tokenization.call_limits import needs_worker
from bert_jax.tokenization.layout import RowLayout

if TYPE_CHECKING:
    from bert_jax.tokenization.workers import TokenizerWorkers

Encoded = tuple[list[int], list[tuple[int, int]]]  # token ids, and the character range [start, end) of each

_MAKING_WORKERS = threading.Lock()
# Arguments of transformers' tokenizers -> their replacements here.
_ELSEWHERE = {
    "text_pair": "the name here is text_pairs",
    "return_offsets_mapping": "the name here is return_offsets",
    "return_special_tokens_mask": "special tokens are np.isin(input_ids, tokenizer.special_ids)",
    "return_length": "lengths are attention_mask.sum(-1)",
    "is_split_into_words": "join the words with spaces",
    "padding_side": "rows are padded on the right",
    "add_special_tokens": "token ids without special tokens are those of segments(texts)",
}
_ARGUMENTS = ("texts", "text_pairs", "max_length", "padding", "truncation", "pad_to_multiple_of", "return_offsets",
              "return_tensors")  # fmt: skip


@dataclasses.dataclass(frozen=True)
class SpecialIds:
    """Ids of the special tokens; unk and mask are None if the vocabulary lacks them."""

    pad: int
    cls: int
    sep: int
    unk: int | None = None
    mask: int | None = None


class Tokenizer(abc.ABC):
    """A tokenizer: a vocabulary and the rules that split text into tokens. Made by `load_tokenizer` or by training.

    Attributes:
        pieces: the tokens in the order of their ids; "" for an unused id.
        vocab_size: number of ids; a word embedding needs this many rows.
        pad_id: id of the padding token.
        cls_id: id of the token at the start of a row.
        sep_id: id of the token at the end of each text.
        special_ids: the sorted ids of all special tokens: these three, `unk_id` and `mask_id`. The properties `unk_id`
            and `mask_id` raise InputError if there is no such token.
        is_continuation: bool [V], True for tokens that continue the word of the token before.
        marks_continuations: whether the vocabulary marks tokens that continue a word (as by "##") and not those that
            begin a word (as by a space).
        max_length: maximum number of tokens in an input of the model; None if the files do not say.
        layout: positions of special tokens in a row.
        truncation_side: "right" or "left", the side on which texts that are too long are cut.
    """

    def __init__(
        self,
        pieces: Sequence[str],
        special: SpecialIds,
        is_continuation: np.ndarray,
        max_length: int | None,
        layout: RowLayout,
        truncation_side: str = "right",
    ):
        self.pieces = tuple(pieces)
        self.pad_id, self.cls_id, self.sep_id = special.pad, special.cls, special.sep
        self._special_ids = special
        self.special_ids = tuple(sorted({i for i in dataclasses.astuple(special) if i is not None}))
        self.is_continuation = is_continuation
        self.is_continuation[list(self.special_ids)] = False
        self.marks_continuations = False
        self.max_length = max_length
        self.layout = layout
        self.truncation_side = truncation_side
        self._ids = {piece: i for i, piece in enumerate(self.pieces)}
        self._started_workers: TokenizerWorkers | None = None

    @property
    def _workers(self) -> "TokenizerWorkers":
        """Return the worker processes of this tokenizer, which start with their first call."""
        if self._started_workers is None:
            from bert_jax.tokenization.workers import TokenizerWorkers

            with _MAKING_WORKERS:
                self._started_workers = self._started_workers or TokenizerWorkers()
        return self._started_workers

    @property
    def vocab_size(self) -> int:
        return len(self.pieces)

    @property
    def unk_id(self) -> int:
        if self._special_ids.unk is None:
            raise InputError("expected a tokenizer with an unknown token ([UNK] or <unk>), found none")
        return self._special_ids.unk

    @property
    def mask_id(self) -> int:
        if self._special_ids.mask is None:
            raise InputError("expected a tokenizer with a mask token ([MASK] or <mask>), found none")
        return self._special_ids.mask

    def is_unknown(self, token_ids: Any) -> Any:
        """Return whether an id, or each id of an array, is the unknown token; False if there is no such token."""
        return token_ids == self._special_ids.unk

    @property
    def fingerprint(self) -> str:
        """Return the SHA-256 of the vocabulary in hex: equal for tokenizers with the same tokens and ids."""
        return hashlib.sha256("\n".join(self.pieces).encode()).hexdigest()

    @property
    @abc.abstractmethod
    def saved_files(self) -> tuple[str, ...]:
        """Return the names of the files that `save` writes."""

    @abc.abstractmethod
    def encode_batch(self, texts: Sequence[str], parse_special: bool = True) -> list[list[int]]:
        """Return the token ids of each text, without the special tokens of a row; uses all CPU cores.

        Args:
            texts: any strings.
            parse_special: whether "[MASK]" and the like in a text become special tokens (for inference) or are
                tokenized like any other characters (for a corpus).
        """

    @abc.abstractmethod
    def encode_batch_with_offsets(self, texts: Sequence[str]) -> list[Encoded]:
        """Return for each text its token ids and the character range [start, end) of each token."""

    @abc.abstractmethod
    def decode(self, ids: Iterable[int], skip_special_tokens: bool = True) -> str:
        """Return readable text for token ids; spaces that tokenization lost are guessed."""

    @abc.abstractmethod
    def lowercased(self) -> "Tokenizer":
        """Return a copy that lower-cases texts first; accents and special tokens are treated as before."""

    @abc.abstractmethod
    def save(self, directory: PathLike) -> None:
        """Write the files that Hugging Face's AutoTokenizer and `load_tokenizer` read; creates the directory."""

    def encode(self, text: str, parse_special: bool = True) -> list[int]:
        """Return the token ids of one text, without the special tokens of a row."""
        return self.encode_batch([text], parse_special)[0]

    def tokenize(self, text: str) -> list[str]:
        """Return the tokens of one text as strings."""
        return [self.pieces[i] for i in self.encode(text)]

    def id_to_token(self, token_id: int) -> str:
        """Return the token of an id. Raises InputError when the id is outside the vocabulary."""
        if not 0 <= token_id < self.vocab_size:
            raise InputError(f"token id {token_id}: expected 0 to {self.vocab_size - 1}")
        return self.pieces[token_id]

    def token_to_id(self, token: str) -> int | None:
        """Return the id of a token, or None when the vocabulary has no such token."""
        return self._ids.get(token) if token else None

    def __call__(
        self,
        texts: str | Sequence[str],
        text_pairs: str | Sequence[str] | None = None,
        max_length: int | None = None,
        padding: bool | str = True,
        truncation: bool | str | None = None,
        pad_to_multiple_of: int | None = None,
        return_offsets: bool = False,
        return_tensors: str = "np",
        **others: Any,
    ) -> dict[str, Any]:
        """Return model inputs for a batch, padded on the right, in rows of the tokenizer's `layout`.

        For BERT, rows are `[CLS] A [SEP]` and `[CLS] A [SEP] B [SEP]`.

        Args:
            texts: B strings, or one string for B = 1.
            text_pairs: second segments, one for each text.
            max_length: maximum tokens in a row, with special tokens. None means the tokenizer's own `max_length` if
                `truncation` is on or `padding` is "max_length", and no limit otherwise.
            padding: True or "longest" pads to the longest row, "max_length" to `max_length`; False or "do_not_pad"
                requires rows of the same length.
            truncation: how rows over `max_length` are cut on the `truncation_side`: True or "longest_first" cuts the
                longer segment first, "only_first" and "only_second" cut only that segment; False or "do_not_truncate"
                makes them an error. None means True if `max_length` is given, else False.
            pad_to_multiple_of: the padded length is rounded up to a multiple of this.
            return_offsets: whether to return `offset_mapping` too.
            return_tensors: "np" for NumPy arrays, "jax" for JAX arrays.
            others: rejected; for arguments of transformers' tokenizers, the message names the replacement here.

        Returns:
            int32 [B, S] arrays `input_ids`, `token_type_ids` (1 over `B [SEP]` if the family has token types, else 0)
            and `attention_mask` (0 over padding); with `return_offsets` also `offset_mapping` int32 [B, S, 2],
            character ranges within the text or its pair, (0, 0) for special tokens.

        Raises:
            InputError: an item is not a string, the lists have different lengths, a row is too long, or an argument is
                unknown.
        """
        for name in others:
            hint = _ELSEWHERE.get(name) or f"no such argument{did_you_mean(name, _ARGUMENTS)}"
            raise InputError(f"{name}: {hint}")
        truncation, padding = _truncation(truncation, max_length), _padding(padding)
        if return_tensors not in ("np", "jax"):
            raise InputError(f"return_tensors: expected 'np' or 'jax', found {return_tensors!r}")
        if max_length is None and (truncation or padding == "max_length"):
            max_length = self.max_length
        first = self.segments(texts, return_offsets)
        second = None if text_pairs is None else self.segments(text_pairs, return_offsets)
        if second is not None and len(second) != len(first):
            raise InputError(f"expected as many text_pairs as texts, found {len(second)} and {len(first)}")
        pairs = [(a, None) for a in first] if second is None else list(zip(first, second, strict=True))
        special = self.layout.num_special(second is not None)
        if truncation and max_length is not None:
            if max_length <= special:
                raise InputError(
                    f"max_length: expected more than {special}, the number of special tokens, found {max_length}"
                )
            from_left = self.truncation_side == "left"
            pairs = [_truncate(a, b, max_length - special, from_left, truncation) for a, b in pairs]
        lengths = [special + len(a[0]) + (0 if b is None else len(b[0])) for a, b in pairs]
        length = _row_length(lengths, max_length, padding, pad_to_multiple_of)
        filled = self._fill(pairs, lengths, length, return_offsets)
        if return_tensors == "np":
            return filled
        import jax.numpy as jnp  # the import takes seconds, and tokenization does not need it

        return {name: jnp.asarray(array) for name, array in filled.items()}

    def in_worker(self) -> "Tokenizer":
        """Return this tokenizer as a worker process uses it."""
        return self

    def segments(self, texts: str | Sequence[str], offsets: bool = False) -> list[Encoded]:
        """Return the token ids of each text, and their character ranges if `offsets`.

        Within `call_limits.limited`, texts that are not short are encoded in a worker process with a budget.

        Raises:
            InputError: an item is not a string, or there are no items.
            BudgetExceeded: encoding the texts exceeds the budget.
        """
        texts = [texts] if isinstance(texts, str) else list(texts)
        for i, text in enumerate(texts):
            if not isinstance(text, str):
                raise TextError(i, f"expected a string, found {type(text).__name__}")
        if not texts:
            raise InputError("expected at least one text, found none")
        if needs_worker(texts):
            check_unicode(texts)
            encoded = self._workers.run(self, "offsets" if offsets else "ids", texts)
            return encoded if offsets else [(ids, []) for ids in encoded]
        return self.encode_batch_with_offsets(texts) if offsets else [(ids, []) for ids in self.encode_batch(texts)]

    def _fill(self, pairs: list, lengths: list[int], length: int, offsets: bool) -> dict[str, np.ndarray]:
        shape = (len(pairs), length)
        out: dict[str, Any] = {
            "input_ids": np.full(shape, self.pad_id, np.int32),
            "token_type_ids": np.zeros(shape, np.int32),
            "attention_mask": (np.arange(length) < np.asarray(lengths)[:, None]).astype(np.int32),
        }
        if offsets:
            out["offset_mapping"] = np.zeros((*shape, 2), np.int32)
        layout = self.layout
        for row, (a, b) in enumerate(pairs):
            start_a = len(layout.start)
            end_a = start_a + len(a[0])
            if offsets and a[1]:
                out["offset_mapping"][row, start_a:end_a] = a[1]
            if b is None:
                out["input_ids"][row, : lengths[row]] = [*layout.start, *a[0], *layout.end]
                continue
            start_b = end_a + len(layout.between)
            ids = [*layout.start, *a[0], *layout.between, *b[0], *layout.end]
            out["input_ids"][row, : lengths[row]] = ids
            out["token_type_ids"][row, start_b : lengths[row]] = layout.second_type
            if offsets and b[1]:
                out["offset_mapping"][row, start_b : start_b + len(b[0])] = b[1]
        return out


def _truncation(truncation: bool | str | None, max_length: int | None) -> str:
    """Return the truncation strategy: `longest_first`, `only_first` or `only_second`, or "" for none."""
    if truncation is None:
        return "longest_first" if max_length is not None else ""
    names = {True: "longest_first", False: "", "do_not_truncate": ""}
    strategy = names.get(truncation, truncation)
    if strategy not in ("", "longest_first", "only_first", "only_second"):
        raise InputError(
            "truncation: expected True, False, 'longest_first', 'only_first', 'only_second' or 'do_not_truncate', "
            f"found {truncation!r}"
        )
    return str(strategy)


def _padding(padding: bool | str) -> bool | str:
    return {"longest": True, "do_not_pad": False}.get(padding, padding) if isinstance(padding, str) else padding


def _truncate(a: Encoded, b: Encoded | None, room: int, from_left: bool, which: str) -> tuple[Encoded, Encoded | None]:
    """Truncate segments to `room` tokens by the strategy `which`; ties are resolved as in the `tokenizers` library."""
    if b is not None and which != "longest_first":
        over = max(0, len(a[0]) + len(b[0]) - room)
        if which == "only_first":
            return _cut(a, max(0, len(a[0]) - over), from_left), b
        return a, _cut(b, max(0, len(b[0]) - over), from_left)
    if b is None:
        if which == "only_second":
            return a, None
        return _cut(a, room, from_left), None
    keep_a, keep_b = len(a[0]), len(b[0])
    if keep_a + keep_b <= room:
        return a, b
    short, long = sorted((keep_a, keep_b))
    long = max(room - short, min(short, room))
    if short + long > room:
        short, long = room // 2, room - room // 2
    keep_a, keep_b = (short, long) if keep_a <= keep_b else (long, short)
    return _cut(a, keep_a, from_left), _cut(b, keep_b, from_left)


def _cut(segment: Encoded, keep: int, from_left: bool) -> Encoded:
    kept = slice(max(0, len(segment[0]) - keep), None) if from_left else slice(keep)
    return segment[0][kept], segment[1][kept]


_HALF_PAIR = re.compile("[\ud800-\udfff]")


def check_unicode(texts: Iterable[str], first: int = 0) -> None:
    """Raise InputError for the first text that is not a string or has half of a surrogate pair.

    Args:
        texts: objects of any type.
        first: number of the first text, for messages.
    """
    for i, text in enumerate(texts, first):
        if not isinstance(text, str):
            raise TextError(i, f"expected a string, found {type(text).__name__}")
        if not text.isascii() and (half := _HALF_PAIR.search(text)):
            found = f"half a surrogate pair, U+{ord(half.group()):04X}, at character {half.start() + 1}"
            raise TextError(i, f"expected Unicode text, found {found}")


def _row_length(lengths: list[int], max_length: int | None, padding: bool | str, multiple: int | None) -> int:
    longest = max(lengths)
    if max_length is not None and longest > max_length:
        raise TextError(lengths.index(longest), f"expected at most {max_length} tokens, found {longest}")
    if padding == "max_length":
        if max_length is None:
            raise InputError('padding="max_length": expected a max_length, found None')
        longest = max_length
    elif padding is False and min(lengths) != longest:
        raise InputError(f"padding=False: expected rows of one length, found {min(lengths)} to {longest} tokens")
    elif not isinstance(padding, bool):
        raise InputError(f"padding: expected True, False, 'longest', 'max_length' or 'do_not_pad', found {padding!r}")
    return -(-longest // multiple) * multiple if multiple and padding else longest
