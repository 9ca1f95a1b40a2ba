"""Evaluate a tagger over sentences (`evaluate`), and write its tags beside the words (`predict`)."""

import json
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from bert_jax import storage
from bert_jax.data.finetuning.conll import Sentence
from bert_jax.data.finetuning.tables import Columns
from bert_jax.data.finetuning.tag_features import UNTAGGED, encode_tagged, encode_words, in_order, read_tagged
from bert_jax.data.finetuning.tagged import read_sentences
from bert_jax.data.finetuning.tags import read_scheme
from bert_jax.data.invalid_rows import InvalidRow, InvalidRows
from bert_jax.errors import InputError
from bert_jax.evaluation.model_runner import ModelRunner, open_runner
from bert_jax.evaluation.predictions import RowPredictor, check_out, to_answer
from bert_jax.inference.scoring import short
from bert_jax.metrics import entities
from bert_jax.modeling import Bert
from bert_jax.reports import page
from bert_jax.reports.attention import Attention
from bert_jax.reports.tags import tagger
from bert_jax.tasks.token_classification import HEAD, TokenClassificationTask

# What `bert-jax evaluate` may be told beyond what all tasks take.
OPTIONS = ("tag_names",)
OUT_FORMATS = (".jsonl", ".conll", ".txt", ".tsv")
_CHUNK = 4096  # sentences that `predict` holds at a time: enough to find rows of one length, few enough for memory


class Tagger(NamedTuple):
    """A tagger, ready to be run on all devices of this machine.

    Attributes:
        task: the model and what it does.
        runner: its tokenizer, and the limits within which it runs.
        predictor: runs the model over rows.
    """

    task: TokenClassificationTask
    runner: ModelRunner
    predictor: RowPredictor


def open_tagger(model_dir: storage.PathLike, **options: Any) -> Tagger:
    """Opens a model directory whose head tags tokens.

    Args:
        model_dir: a directory in the Hugging Face layout.
        options: of `bert_jax.evaluation.model_runner.open_runner`.

    Raises:
        InputError: the directory holds no tagger, or an option does not fit it.
    """
    runner = open_runner(model_dir, HEAD, **options)
    config = runner.config
    task = TokenClassificationTask(Bert(config, HEAD, runner.compute), config.label_names, ())
    return Tagger(task, runner, RowPredictor(runner, task.predict))


def evaluate(
    model_dir: storage.PathLike,
    data: str,
    columns: Columns,
    *,
    metric_names: Sequence[str] = (),
    invalid_rows: str = "strict",
    report: storage.PathLike | None = None,
    tag_names: Sequence[str] = (),
    **options: Any,
) -> dict[str, float]:
    """Scores a tagger on tagged sentences.

    Args:
        model_dir: a directory in the Hugging Face layout.
        data: what `bert_jax.data.finetuning.tagged.read_sentences` takes.
        columns: its columns, where they are not the usual ones there.
        metric_names: of `bert_jax.metrics.entities.TAGGING_METRICS`; empty for all that fit.
        invalid_rows: of `bert_jax.data.invalid_rows.RULES`, for sentences that do not fit.
        report: a file to write, `.html`: the page of `bert_jax.reports.tags`.
        tag_names: of the classes that tags in the data are numbers of, in their order; () takes the model's.
        options: of `bert_jax.evaluation.model_runner.open_runner`.

    Returns:
        The metrics, and the numbers of sentences (`examples`) and `words`.

    Raises:
        InputError: the model, the data or the report's name do not fit; among others, a tag that the model does not
            know.
    """
    page.check_path(report)
    model = open_tagger(model_dir, **options)
    runner, names = model.runner, model.task.names
    chosen = entities.choose_tagging_metrics(metric_names, names)
    if not metric_names and chosen != ("accuracy",):
        chosen = entities.TAGGING_METRICS
    bad = InvalidRows(data, invalid_rows, "sentence", "--skip")
    sentences, _ = read_tagged(data, columns, names, bad, tag_names or names)
    features = encode_tagged(runner.tokenizer, sentences, names, runner.max_length)
    batches, predictions = model.predictor.batches(features)
    task = TokenClassificationTask(model.task.model, names, chosen)
    labels = in_order([batch["labels"] for batch in batches], batches)
    words = labels != UNTAGGED  # false between two sentences
    figures = task.score(predictions, batches) | {"examples": int((~words).sum()) + 1, "words": int(words.sum())}
    if report is not None:
        answers, scores = (in_order([p[name] for p in predictions], batches) for name in ("tags", "scores"))
        scheme = read_scheme(names)
        marked = None if scheme is None else (scheme, *entities.both(scheme, labels, answers))
        first_words = features.labels  # of rows; a long sentence has several

        def attend(word: int) -> Attention | None:
            return runner.attention(HEAD, features, int(np.searchsorted(first_words, word)))

        sections = tagger(names, labels, answers, scores, marked, sentences, attend)
        page.write_page(report, page.Heading(str(model_dir), data, figures), sections)
    return figures


def predict(
    model_dir: storage.PathLike,
    data: str,
    out: storage.PathLike,
    columns: Columns,
    *,
    invalid_rows: str = "strict",
    **options: Any,
) -> int:
    """Writes a tagger's answers for every sentence, in the order of the sentences, in constant memory.

    A `.jsonl` file gets an object a sentence: `tokens`, `tags` and `scores` (of each tag, its probability). The others
    are CoNLL: a word and its tag in a line, a tab between them, and a blank line after a sentence.

    Args:
        model_dir: a directory in the Hugging Face layout.
        data: what `bert_jax.data.finetuning.tagged.read_sentences` takes.
        out: the file to write, one of `OUT_FORMATS`; there when all is done, or not at all.
        columns: of `data`, as in `evaluate`; tags are not needed and not looked at.
        invalid_rows: as in `evaluate`; with `skip`, an invalid sentence keeps its place in a `.jsonl` file, as an
            object whose `tokens`, `tags` and `scores` are null, with what is wrong as `error`.
        options: of `bert_jax.evaluation.model_runner.open_runner`.

    Returns:
        The number of sentences.

    Raises:
        InputError: the model or the data do not fit.
    """
    lines = _json_lines if check_out(out, OUT_FORMATS) else _conll_lines
    if lines is _conll_lines and invalid_rows == "skip":
        raise InputError(
            f"{out}: expected a file named .jsonl with --skip, as CoNLL cannot say that an answer is missing"
        )
    model = open_tagger(model_dir, **options)
    bad = to_answer(data, invalid_rows, "sentence")
    rows = bad.fitting(read_sentences(data, columns, tagged=False, bad=bad))
    count = 0
    with storage.open_atomically(out) as file:
        while chunk := list(islice(rows, _CHUNK)):
            answers = lines(data, *_answers(model, [row for row in chunk if not isinstance(row, InvalidRow)]))
            for row in chunk:
                file.write(_missing(row) if isinstance(row, InvalidRow) else next(answers))
            count += len(chunk)
    return count


def _answers(model: Tagger, chunk: Sequence[Sentence]) -> tuple[Sequence[Sentence], list[str], np.ndarray]:
    """Sentences, and the tags and scores of their words, by the number of the word: one is left out between two."""
    if not chunk:
        return chunk, [], np.empty(0)
    sentences = [row.words for row in chunk]
    nothing = [np.zeros(len(words), np.int32) for words in sentences]
    features = encode_words(model.runner.tokenizer, sentences, nothing, model.runner.max_length)
    batches, predictions = model.predictor.batches(features)
    tags, scores = (in_order([p[name] for p in predictions], batches) for name in ("tags", "scores"))
    return chunk, [model.task.names[tag] for tag in tags], scores


def _missing(row: InvalidRow) -> str:
    return json.dumps(dict.fromkeys(("tokens", "tags", "scores")) | {"error": str(row)}, ensure_ascii=False) + "\n"


def _json_lines(data: str, chunk: Sequence[Sentence], tags: list[str], scores: np.ndarray) -> Iterator[str]:
    """An object a sentence; the rest as `_answers` gives it."""
    place = 0
    for _, words, _ in chunk:
        mine = slice(place, place + len(words))
        shares = [short(score) for score in scores[mine]]
        yield json.dumps({"tokens": words, "tags": tags[mine], "scores": shares}, ensure_ascii=False) + "\n"
        place += len(words) + 1


def _conll_lines(data: str, chunk: Sequence[Sentence], tags: list[str], scores: np.ndarray) -> Iterator[str]:
    """As `_json_lines`, a word a line and a blank line behind the last."""
    place = 0
    for line, words, _ in chunk:
        for word in words:
            if any(mark in word for mark in "\t\r\n"):
                raise InputError(f"{data}: line {line}: expected words that fit a line of CoNLL, found {word!r}")
        mine = zip(words, tags[place : place + len(words)], strict=True)
        yield "".join(f"{word}\t{tag}\n" for word, tag in mine) + "\n"
        place += len(words) + 1
