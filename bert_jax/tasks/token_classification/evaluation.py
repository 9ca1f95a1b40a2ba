"""Evaluate taggers on sentences, and write their tags beside the words."""

import contextlib
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from bert_jax import storage
from bert_jax.data.encodings import has_utf8_mark
from bert_jax.data.finetuning.conll import CONLL_U_COLUMNS, CONLL_U_FORMAT, Sentence, fill_column
from bert_jax.data.finetuning.tables import Columns
from bert_jax.data.finetuning.tagged import read_sentences
from bert_jax.data.finetuning.tags import UNTAGGED, read_scheme
from bert_jax.data.invalid_rows import InvalidRows
from bert_jax.errors import InputError
from bert_jax.evaluation.answer_files import Write, answer_file
from bert_jax.evaluation.driver import Evaluated, Evaluator
from bert_jax.evaluation.table_cells import TableCells
from bert_jax.evaluation.writing import write_answers
from bert_jax.inference.scoring import short
from bert_jax.jobs.training_metadata import read_training_metadata
from bert_jax.metrics import entities
from bert_jax.modeling import Bert
from bert_jax.reports import page
from bert_jax.reports.attention import Attention
from bert_jax.tasks.token_classification.data import encode_tagged, encode_words, in_order, read_tagged
from bert_jax.tasks.token_classification.report import tagger
from bert_jax.tasks.token_classification.task import HEAD, TokenClassificationTask


class TokenClassificationEvaluator(Evaluator):
    """Evaluate a tagger.

    `predict` writes one object per sentence to a `.jsonl` file: `tokens`, `tags` and `scores` (the probability of each
    tag). A `.conllu` file has the lines of the data, which must be CoNLL-U, with the tags in the column that the model
    was trained on (UPOS, if its training did not name one). The other formats are CoNLL: one word per line with its
    tag, separated by a tab, and a blank line after a sentence. Only a `.tsv` is made safe for spreadsheets.

    Args:
        model_dir: a directory in the Hugging Face layout.
        tag_names: names of the tags 0, 1, ... if the evaluation data has numbers for tags; () = the model's names.
        options: arguments of `bert_jax.evaluation.model_runner.open_runner`.
    """

    head = HEAD
    formats = (".jsonl", ".conll", CONLL_U_FORMAT, ".txt", ".tsv")
    noun = "sentence"
    task: TokenClassificationTask

    def __init__(self, model_dir: storage.PathLike, *, tag_names: Sequence[str] = (), **options: Any):
        super().__init__(model_dir, **options)
        self._tag_names = tuple(tag_names) or self.runner.config.label_names
        self._column = read_training_metadata(model_dir).columns.label or "UPOS"

    def build_task(self, model: Bert) -> TokenClassificationTask:
        """Return the task of the model."""
        return TokenClassificationTask(model, model.config.label_names, ())

    @classmethod
    def check_predict(
        cls, out: storage.PathLike, invalid_rows: str, *, tag_names: Sequence[str] = (), **options: Any
    ) -> None:
        """Check the arguments as `Evaluator.check_predict` does; CoNLL cannot represent a missing prediction."""
        super().check_predict(out, invalid_rows)
        if tag_names:
            raise InputError("tag_names: expected only with evaluate, which reads tags, found with predict")
        if not _is_json(out) and invalid_rows == "skip":
            raise InputError(
                f"{out}: expected a file named .jsonl with --skip, as CoNLL cannot say that an answer is missing"
            )

    def evaluate(self, data: Any, columns: Columns, metric_names: Sequence[str], invalid: InvalidRows) -> Evaluated:
        """Score the model with `bert_jax.metrics.entities.TAGGING_METRICS`; a tag must be one that the model knows.

        The scores include `words`, the number of words.
        """
        names = self.task.names
        chosen = entities.choose_tagging_metrics(metric_names, names)
        if not metric_names and chosen != ("accuracy",):
            chosen = entities.TAGGING_METRICS
        sentences, _ = read_tagged(data, columns, names, invalid, self._tag_names)
        features = encode_tagged(self.runner.tokenizer, sentences, names, self.runner.max_length)
        batches, predictions = self.predictor.batches(features)
        labels = in_order([batch["labels"] for batch in batches], batches)
        words = labels != UNTAGGED  # false between two sentences
        figures = TokenClassificationTask(self.task.model, names, chosen).score(predictions, batches)
        figures |= {"examples": int((~words).sum()) + 1, "words": int(words.sum())}

        def attend(word: int) -> Attention | None:
            first_words = features.labels  # first word of each row; a long sentence has several rows
            return self.runner.attention(HEAD, features, int(np.searchsorted(first_words, word)))

        def sections() -> list[page.Section]:
            answers, scores = (in_order([p[name] for p in predictions], batches) for name in ("tags", "scores"))
            scheme = read_scheme(names)
            marked = None if scheme is None else (scheme, *entities.both(scheme, labels, answers))
            return tagger(names, labels, answers, scores, marked, sentences, attend)

        return Evaluated(figures, sections)

    def predict(self, data: Any, out: storage.PathLike, columns: Columns, invalid: InvalidRows) -> int:
        """Write the tags of every sentence, as `Evaluator.predict` does.

        With `skip`, an invalid sentence becomes an object whose fields are null, with `error`.
        """

        def answers(chunk: list[Sentence]) -> Iterator[tuple[dict[str, Any], list[Any]]]:
            for sentence, tags, scores in self._tagged(chunk):
                if fills:
                    yield {}, [sentence.source, tags]
                    continue
                if not _is_json(out):
                    _check_words(data, sentence)
                yield {"tokens": sentence.words, "tags": tags, "scores": scores}, [sentence.words, tags]

        fills = str(out).lower().endswith(CONLL_U_FORMAT)
        if fills and self._column.upper() not in CONLL_U_COLUMNS:
            raise InputError(
                f"{out}: expected a model that was trained on a column of CoNLL-U by its name "
                f"(data.label_column=upos), found the column {self._column!r}; .conll accepts any"
            )
        rows = invalid.fitting(read_sentences(data, columns, tagged=False, bad=invalid, keep_lines=fills))
        file = answer_file if _is_json(out) else functools.partial(self._conll_u_file, data) if fills else _conll_file
        return write_answers(out, ["tokens", "tags"], rows, answers, ("tokens", "tags", "scores"), open_file=file)

    @contextlib.contextmanager
    def _conll_u_file(self, data: str, out: storage.PathLike, header: Sequence[str]) -> Iterator[Write]:
        """Open a CoNLL-U file, and yield a function like `answer_file`'s that writes sentences.

        A row is the lines of a sentence in `data`, and its tags.
        """
        cells = TableCells(for_spreadsheets=False)
        with storage.open_atomically(out) as file:
            if has_utf8_mark(data):
                file.write("\ufeff")

            def write(_: Sequence[Mapping[str, Any]], rows: Sequence[Sequence[Any]]) -> None:
                for source, tags in rows:
                    file.write(fill_column(source, self._column.upper(), list(map(cells.one_line, tags))))

            yield write
            cells.log_changes(out)

    def _tagged(self, sentences: Sequence[Sentence]) -> Iterator[tuple[Sentence, list[str], list[float]]]:
        """Yield each sentence with the tag and the score of each of its words."""
        words = [sentence.words for sentence in sentences]
        no_labels = [np.zeros(len(each), np.int32) for each in words]
        joined = [sentence.joined for sentence in sentences]
        features = encode_words(self.runner.tokenizer, words, no_labels, self.runner.max_length, joined)
        batches, predictions = self.predictor.batches(features)
        tags, scores = (in_order([p[name] for p in predictions], batches) for name in ("tags", "scores"))
        start = 0
        for sentence in sentences:
            end = start + len(sentence.words)
            yield sentence, [self.task.names[tag] for tag in tags[start:end]], [short(x) for x in scores[start:end]]
            start = end + 1  # the answers have a gap between two sentences


def _is_json(out: storage.PathLike) -> bool:
    return str(out).lower().endswith(".jsonl")


def _check_words(data: Any, sentence: Sentence) -> None:
    for word in sentence.words:
        if any(mark in word for mark in "\t\r\n"):
            where = f"{data}: line {sentence.line}"
            raise InputError(
                f"{where}: expected words without tabs and line breaks, as CoNLL needs, found {word!r}; "
                ".jsonl accepts any"
            )


@contextlib.contextmanager
def _conll_file(out: storage.PathLike, header: Sequence[str]) -> Iterator[Write]:
    """Open a CoNLL file, and yield a function like `answer_file`'s, whose rows are a sentence's words and tags."""
    cells = TableCells(for_spreadsheets=str(out).lower().endswith(".tsv"))
    with storage.open_atomically(out) as file:

        def write(_: Sequence[Mapping[str, Any]], rows: Sequence[Sequence[Any]]) -> None:
            for words, tags in rows:
                pairs = zip(map(cells.one_line, words), map(cells.one_line, tags), strict=True)
                file.write("".join(f"{word}\t{tag}\n" for word, tag in pairs) + "\n")

        yield write
        cells.log_changes(out)
