"""Multiple choice: which of several texts continues a context or answers a question about it.

Devlin et al. 2018 (arXiv:1810.04805), section 4.4.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.data.batches import INPUTS, Batch
from bert_jax.data.finetuning.columns import Columns, recipe_key
from bert_jax.data.finetuning.groups import Groups, encode_groups
from bert_jax.data.finetuning.records import table_name
from bert_jax.data.finetuning.tables import read_rows
from bert_jax.data.invalid_rows import InvalidRow, InvalidRows, check_texts, place
from bert_jax.errors import InputError
from bert_jax.jobs import fine_tuning, setup
from bert_jax.jobs.base import Job, Metrics
from bert_jax.jobs.synthetic_rows import WORD, table_rows
from bert_jax.jobs.training_metadata import TrainingMetadata
from bert_jax.metrics import scores as metrics
from bert_jax.modeling import Bert
from bert_jax.modeling.losses import cross_entropy
from bert_jax.recipes import Recipe
from bert_jax.tokenization import Tokenizer

HEAD = "multiple_choice"
_CHOICES = 4  # number of choices of synthetic rows


@dataclasses.dataclass(frozen=True)
class MultipleChoiceTask:
    """Multiple choice; the loss is the cross entropy over the choices of each row.

    Attributes:
        model: a Bert with head `multiple_choice`.
    """

    model: Bert

    def weights(self, batch: Batch) -> dict[str, jax.Array]:
        """Return the number of rows that are not padding."""
        return {"labels": jnp.maximum(batch["example_weights"].sum(), 1.0)}

    def loss(
        self, params: Any, batch: Batch, dropout_key: jax.Array | None, weights: dict[str, jax.Array]
    ) -> tuple[jax.Array, Metrics]:
        """Return the loss and the metrics of a batch or micro-batch (see `bert_jax.jobs.base.Task`)."""
        real = batch["example_weights"]
        losses, right = cross_entropy(self._logits(params, batch, dropout_key), batch["labels"])
        total, count = (losses * real).sum(), real.sum()
        return total / weights["labels"], {"cross_entropy": (total, count), "accuracy": ((right * real).sum(), count)}

    def predict(self, params: Any, batch: Batch) -> dict[str, jax.Array]:
        """Return `logits` [B, C] of the C choices, float32, without dropout."""
        return {"logits": self._logits(params, batch, None)}

    def score(self, predictions: list[dict[str, np.ndarray]], batches: list[Batch]) -> dict[str, float]:
        """Return the accuracy over all rows that are not padding."""
        logits = np.concatenate([prediction["logits"] for prediction in predictions])
        labels, real = (np.concatenate([batch[name] for batch in batches]) for name in ("labels", "example_weights"))
        return {"accuracy": metrics.accuracy(labels[real > 0], logits.argmax(-1)[real > 0])}

    def _logits(self, params: Any, batch: Batch, dropout_key: jax.Array | None) -> jax.Array:
        inputs = (batch[name] for name in INPUTS)  # [B, C, S]
        logits = self.model.apply(params, *inputs, dropout_key=dropout_key, output_last_hidden_state=False).logits
        assert logits is not None
        return logits


class ChoiceQuestion(NamedTuple):
    """A row: line number, context, question ("" = none), choices, label as text, and kept columns."""

    line: int
    context: str
    question: str
    choices: list[str]
    label: str | None
    kept: Mapping[str, Any] = MappingProxyType({})

    @property
    def pairs(self) -> list[tuple[str, str | None]]:
        """Return the pair of texts that the model reads for each choice, for `encode_groups`."""
        return [(self.context, f"{self.question} {choice}" if self.question else choice) for choice in self.choices]


def columns_of(
    context: str, question: str, choices: tuple[str, ...], label: str, has_header: bool = True, **options: Any
) -> Columns:
    """Return the columns of a multiple-choice table.

    Args:
        context, question, label: names of columns.
        choices: one column with lists of texts, or several columns with one text each.
        has_header: as in Columns.
        options: other fields of Columns.
    """
    named: dict[str, Any] = {"texts": choices[0]} if len(choices) == 1 else {"more": choices}
    return Columns(context, question, label, has_header, **named, **options)


def read_choice_questions(spec: str, columns: Columns, bad: InvalidRows | None = None) -> Iterator[ChoiceQuestion]:
    """Yield the rows of a table lazily.

    Args:
        spec: the table, as for `read_rows`.
        columns: the result of `columns_of`.
        bad: treatment of invalid rows, as for `read_rows`.

    Raises:
        InputError: as for `read_rows`, or a row has fewer than two choices, another number of choices than the first
            row, or an empty text.
    """
    invalid_rows, expected = bad or InvalidRows(table_name(spec)), 0

    def question(row: tuple[int, dict[str, Any]]) -> ChoiceQuestion:
        nonlocal expected
        line, values = row
        where = place(table_name(spec), line)
        choices = values[columns.texts] if columns.texts else [values[name] for name in columns.more]
        count = len(choices)
        if count < 2:
            raise InvalidRow(f"{where}: expected at least 2 choices, found {count}", "a wrong number of choices")
        expected = expected or count
        if count != expected:
            message = f"{where}: expected {expected} choices as in the first row, found {count}"
            raise InvalidRow(message, "a wrong number of choices")
        names = [f"{columns.texts}[{i}]" for i in range(count)] if columns.texts else columns.more
        check_texts(where, {columns.text: values[columns.text]} | dict(zip(names, choices, strict=True)))
        kept, question = columns.carried(values), values.get(columns.pair, "")
        return ChoiceQuestion(line, values[columns.text], question, choices, values.get(columns.label), kept)

    rows = invalid_rows.each(read_rows(spec, columns, invalid_rows), question)
    return rows if bad else invalid_rows.fitting(rows)


def read_answered(spec: str, columns: Columns, bad: InvalidRows | None = None) -> list[ChoiceQuestion]:
    """Read the rows of a table with labels.

    Args:
        spec, columns: as for `read_choice_questions`.
        bad: treatment of invalid rows; None means that they are an error.

    Raises:
        InputError: as for `read_choice_questions`, or the label of a row is no choice.
    """
    bad = bad or InvalidRows(table_name(spec))

    def answered(row: ChoiceQuestion) -> ChoiceQuestion:
        _label(place(table_name(spec), row.line), row)
        return row

    return list(bad.fitting(bad.each(read_choice_questions(spec, columns, bad), answered)))


def encode_questions(tokenizer: Tokenizer, rows: Sequence[ChoiceQuestion], max_length: int) -> Groups:
    """Tokenize rows of `read_answered`; in a sequence over `max_length` tokens the longer text is cut."""
    labels = np.array([_label("", row) for row in rows], np.int32)
    return encode_groups(tokenizer, [row.pairs for row in rows], labels, max_length)


def _label(where: str, row: ChoiceQuestion) -> int:
    """Convert the label of a row, a number from 0 or a letter from A, to a number. Raises InvalidRow."""
    label, count = (row.label or "").strip(), len(row.choices)
    is_letter = len(label) == 1 and "A" <= label <= "Z"
    is_number = label.isascii() and label.isdigit() and len(label) < 10
    value = ord(label) - ord("A") if is_letter else int(label) if is_number else count
    if value >= count:
        last = chr(ord("A") + min(count, 26) - 1)
        message = f"{where}: expected a label from 0 to {count - 1} or from A to {last}, found {row.label!r}"
        raise InvalidRow(message, "a label that is no choice")
    return value


def build(recipe: Recipe) -> Job:
    """Read the data and the model that a resolved recipe of multiple choice names. See `bert_jax.jobs.build`."""
    data = recipe.data
    loaded, tokenizer, config = fine_tuning.starting_model(recipe, HEAD)
    for name in ("context_column", "choice_columns", "label_column"):
        if not data[name]:
            raise InputError(f"config.data.{name}: expected a column, found none")
    columns = columns_of(
        data.context_column, data.question_column, data.choice_columns, data.label_column, data.has_header,
        delimiter=data.delimiter, encoding=data.encoding, option=recipe_key,
        roles={"text": "context", "pair": "question"},
    )  # fmt: skip
    rows, held = fine_tuning.train_and_dev(recipe, lambda spec, invalid: read_answered(spec, columns, invalid))
    train = encode_questions(tokenizer, rows, data.max_seq_length)
    dev = encode_questions(tokenizer, held, data.max_seq_length) if held else None
    for groups in filter(None, (train, dev)):
        rows = groups.sequences
        separators = np.flatnonzero(rows.tokens == tokenizer.sep_id)
        first = separators[np.searchsorted(separators, rows.starts[:-1])]  # before the choice; another ends the row
        setup.check_room(config, int((rows.starts[1:] - first - 2).max()), "the longest choice")
    model = Bert(config.replace(pooler=True), HEAD, setup.compute(recipe))
    return fine_tuning.build_job(
        recipe, MultipleChoiceTask(model), tokenizer, loaded, train, dev, TrainingMetadata(columns)
    )


def synthetic_rows(recipe: Recipe) -> list[dict[str, Any]]:
    """Return a row with one choice per column, or with a list of four choices."""
    data = recipe.data
    columns = columns_of(data.context_column, data.question_column, data.choice_columns, data.label_column)
    lists = {columns.texts: [WORD] * _CHOICES} if columns.texts else {}
    return [row | lists for row in table_rows(columns)]
