"""The base class of all pipelines: batches texts of similar length, and returns answers in the order of the texts."""

import abc
import contextlib
import copy
import functools
import inspect
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from bert_jax.errors import InputError, TextError, did_you_mean
from bert_jax.forks import check_fork
from bert_jax.inference.loading import load_model
from bert_jax.inference.model import PretrainedModel
from bert_jax.inference.padded_lengths import PaddedLengths, rounded_length
from bert_jax.modeling import BertOutput
from bert_jax.storage import PathLike
from bert_jax.tokenization import Tokenizer
from bert_jax.tokenization.interface import check_unicode

# Number of texts that are tokenized and sorted by length together: enough to fill batches, few enough for memory.
TEXT_WINDOW = 4096
# Tokens in a forward pass; on a CPU, more would not fit into its caches.
_TOKENS = {"cpu": 1024}
_TOKENS_ELSEWHERE = 16_384
# The same with `batch_invariant`, where even a single text takes a forward pass of this size.
_INVARIANT_TOKENS = {"cpu": 256}
# Number of batches that are dispatched ahead before the outputs of a batch are fetched.
_AHEAD = 2


class Pipeline(abc.ABC):
    """A model with its tokenizer as a function of texts.

    Texts are batched by length; answers are in the order of the texts. Keyword arguments of the constructor are
    defaults for the options of a call. Calls may run in several threads, and may be nested: they share only the padded
    lengths in use, which change an answer by no more than rounding.

    Attributes:
        model: the model that computes the answers.
        batch_size: maximum number of texts per forward pass; a call can override it; None = chosen for the device.
        batch_invariant: whether the answer for a text is bitwise independent of the other texts of the call. The number
            of tokens of a text then determines the shape of its forward pass, `batch_size` is ignored, and a single
            text takes as long as a full batch. Other processors, versions and XLA flags may still round differently.
    """

    head: ClassVar[str]  # the head whose outputs the pipeline reads

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "__call__" in vars(cls):
            cls.__call__ = _with_options(cls.__call__)  # type: ignore[method-assign]

    def __init__(
        self,
        model: PretrainedModel,
        batch_size: int | None = None,
        batch_invariant: bool = False,
        **options: Any,
    ):
        if batch_size is not None:
            positive("batch_size", batch_size)
        known = list(inspect.signature(type(self).__call__).parameters)[2:]
        for name in options:
            if name not in known:
                known += ["batch_size", "batch_invariant"]
                raise InputError(f"option {name!r} is not known{did_you_mean(name, known)}")
        self._options = options
        if model.tokenizer is None:
            raise InputError("expected a model with a tokenizer, found none in its directory")
        self.model = model
        self.batch_size = batch_size
        self.batch_invariant = batch_invariant
        self.tokenizer: Tokenizer = model.tokenizer
        self._lengths = PaddedLengths(model.config.max_position_embeddings, model.compute.target)

    @classmethod
    def load_model(cls, path: PathLike, dtype: str, task: str) -> Any:
        """Return the model of a directory, for `task`. Raises InputError when its head is not trained."""
        model = load_model(path, cls.head, dtype)
        if model.missing:
            raise InputError(f"{path}: {task} needs a trained {cls.head} head, found none ({model.missing[0]})")
        return model

    @abc.abstractmethod
    def __call__(self, *texts: Any, **options: Any) -> Any:
        """Return the answer for one text, or a list of answers for a list of texts."""

    def _windows(
        self, texts: Sequence[str], pairs: Sequence[str] | None = None, truncation: bool = False, prompt: str = ""
    ) -> Iterator[tuple[range, dict[str, np.ndarray]]]:
        """Tokenize the prompt with each text, a window of texts at a time; yield its range and its padded arrays."""
        check_option("prompt", prompt)
        for start in range(0, len(texts), TEXT_WINDOW):
            window = range(start, min(start + TEXT_WINDOW, len(texts)))
            inputs = self.tokenizer(
                [prompt + text for text in texts[start : window.stop]],
                None if pairs is None else pairs[start : window.stop],
                max_length=self.model.max_length if truncation else None,
                truncation=truncation,
            )
            lengths = inputs["attention_mask"].sum(axis=1)
            if (longest := int(lengths.max())) > (positions := self.model.config.max_position_embeddings):
                raise TextError(
                    start + int(lengths.argmax()),
                    f"expected at most the model's {positions} positions, found {longest} tokens",
                )
            yield window, inputs

    def _batches(
        self,
        inputs: dict[str, np.ndarray],
        fields: tuple[str, ...],
        model: PretrainedModel | None = None,
        lengths: np.ndarray | None = None,
    ) -> Iterator[tuple[np.ndarray, np.ndarray, BertOutput]]:
        """Run the model batch by batch; yield each batch's row numbers, lengths in tokens, and outputs.

        Args:
            inputs: padded arrays by name, `[N, S]`.
            fields: fields of `BertOutput` to fetch.
            model: None means the pipeline's model.
            lengths: number of tokens of each row; None = its number of attended tokens.
        """
        model = model or self.model
        lengths = inputs["attention_mask"].sum(axis=1) if lengths is None else lengths
        shapes = self._invariant_shapes(inputs, lengths) if self.batch_invariant else self._shapes(lengths)
        pending: deque[tuple[np.ndarray, np.ndarray, Callable[[], BertOutput]]] = deque()
        for rows, full, padded, masks in shapes:
            longest = max(int(lengths[rows].max()), 1)
            batch = {
                name: array[rows, :masks] if name == "masked_positions" else array[rows, :longest]
                for name, array in inputs.items()
            }
            pending.append((rows, lengths[rows], model.begin(batch, fields, rows=full, length=padded)))
            while len(pending) > _AHEAD:
                yield _fetched(*pending.popleft())
        while pending:
            yield _fetched(*pending.popleft())

    def outputs(self, texts: str | Sequence[str], field: str = "logits", truncation: bool = False) -> np.ndarray:
        """Return an output of the model for each text, after the model's prompt, in the order of the texts.

        Args:
            texts: a text or a list of texts.
            field: a field of `BertOutput` that has a row of the same shape for each text, such as `logits` [n, C] of a
                classifier.
            truncation: whether to cut texts over the model's limit; otherwise they are an error.

        Raises:
            InputError: a text is not a string, or is too long.
        """
        windows = self._windows(as_texts(texts), None, truncation, self.model.settings.prompt())
        parts = [self._rows_of(inputs, field) for _, inputs in windows]
        return np.concatenate(parts) if parts else np.zeros((0, 0), np.float32)

    def _rows_of(self, inputs: dict[str, np.ndarray], field: str) -> np.ndarray:
        """Return an output of the model for each row of padded arrays, in the order of the rows."""
        batches = [(rows, getattr(output, field)) for rows, _, output in self._batches(inputs, (field,))]
        outputs = np.empty((len(inputs["input_ids"]), *batches[0][1].shape[1:]), batches[0][1].dtype)
        for rows, values in batches:
            outputs[rows] = values
        return outputs

    def _shapes(self, lengths: np.ndarray) -> Iterator[tuple[np.ndarray, int | None, int, None]]:
        """Yield for each batch its row numbers, padded rows (None = any), padded length and masks (None = all)."""
        order = np.argsort(-lengths, kind="stable")  # the longest first, so that a lack of memory shows at once
        chosen = self._lengths.choose(lengths)
        start = 0
        while start < len(order):
            padded = min(length for length in chosen if length >= lengths[order[start]])
            most = self.batch_size or self._rows(padded)
            # The last batch is padded to the shape of the others.
            yield order[start : start + most], most if len(order) > most else None, padded, None
            start += most

    def _invariant_shapes(
        self, inputs: dict[str, np.ndarray], lengths: np.ndarray
    ) -> Iterator[tuple[np.ndarray, int, int, int | None]]:
        """Yield as `_shapes` does, with shapes that depend only on a row's own length and number of masks."""
        padded = np.minimum(
            [rounded_length(size) for size in lengths.tolist()], self.model.config.max_position_embeddings
        )
        masks = np.zeros_like(lengths)
        if "masked_positions" in inputs:
            masks = (inputs["input_ids"] == self.tokenizer.mask_id).sum(axis=1)
        for length, count in sorted({*zip(padded.tolist(), masks.tolist(), strict=True)}, reverse=True):
            same = np.flatnonzero((padded == length) & (masks == count))
            most = self._invariant_rows(length)
            for start in range(0, len(same), most):
                yield same[start : start + most], most, length, count

    def _rows(self, length: int) -> int:
        """Return the number of texts in a forward pass when they are padded to `length` tokens."""
        tokens = _TOKENS.get(self.model.compute.target, _TOKENS_ELSEWHERE)
        return rows_within(tokens, length) * self.model.parts

    def _invariant_rows(self, length: int) -> int:
        """Return the number of texts in a forward pass with `batch_invariant`."""
        return rows_within(_INVARIANT_TOKENS.get(self.model.compute.target, _TOKENS_ELSEWHERE), length)

    def use_every_length(self) -> None:
        """Pad each batch to its own rounded length, so that its shape does not depend on the texts of earlier calls.

        Each length is compiled when it first occurs: at most four per power of two.
        """
        self._lengths.use_all()


def _with_options(call: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a pipeline's `__call__`: add the option `batch_size`, and take defaults from the constructor's options."""
    signature = inspect.signature(call)

    @functools.wraps(call)
    def called(self: Pipeline, *args: Any, batch_size: int | None = None, **options: Any) -> Any:
        check_fork()
        fixed = signature.bind_partial(self, *args).arguments
        options = {name: value for name, value in self._options.items() if name not in fixed} | options
        pipe = self
        if batch_size is not None:
            pipe = copy.copy(self)  # so that calls of other threads keep their batch size
            pipe.batch_size = positive("batch_size", batch_size)
        return call(pipe, *args, **options)

    return called


@contextlib.contextmanager
def progress_bar(total: int, shown: bool) -> Iterator[Callable[[int], None]]:
    """Yield a function that advances a progress bar on stderr by a number of texts; it does nothing unless `shown`."""
    if not shown:
        yield lambda count: None
        return
    from rich import console, progress  # slow to import

    with progress.Progress(console=console.Console(stderr=True)) as bar:
        task = bar.add_task("texts", total=total)
        yield lambda count: bar.advance(task, count)


def _fetched(
    rows: np.ndarray, lengths: np.ndarray, output: Callable[[], BertOutput]
) -> tuple[np.ndarray, np.ndarray, BertOutput]:
    return rows, lengths, output()


def rows_within(tokens: int, length: int) -> int:
    """Return how many rows of `length` fit into `tokens` tokens, rounded down to a power of two; at least 1."""
    return 1 << max(0, (tokens // length).bit_length() - 1)


def as_list(items: Any) -> list[Any]:
    """Return inputs as a list. Raises InputError for a table, which would iterate over its column names."""
    if hasattr(items, "columns"):
        names = ", ".join(map(repr, list(items.columns)[:5]))
        raise InputError(f"expected texts, found a table; pass one of its columns, such as {names}")
    return list(items)


def as_texts(texts: str | Sequence[str]) -> list[str]:
    """Return one text or several texts as a list. Raises TextError when one is not a Unicode string."""
    text_list = [texts] if isinstance(texts, str) else as_list(texts)
    check_unicode(text_list)
    return text_list


def check_option(name: str, *values: str) -> None:
    """Raise InputError that names the option when one of its values is not a Unicode string."""
    try:
        check_unicode(values)
    except TextError as error:
        raise InputError(f"{name}: {error.problem}") from None


def positive(name: str, value: Any) -> int:
    """Return the value of option `name`. Raises InputError when it is not a positive integer."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InputError(f"{name}: expected a positive integer, found {value!r}")
    return value
