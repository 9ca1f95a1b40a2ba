"""Read questions with answer spans: SQuAD's JSON files, versions 1.1 and 2.0, and TFDS data sets.

A JSON file has the official layout (articles, their paragraphs, their questions) or, like Hugging Face's `squad` and
`squad_v2`, one row per question: `id`, `title`, `context`, `question` and `answers`, which is
`{"text": [...], "answer_start": [...]}` or a list of objects. Rows are JSON lines, an array, or an object of columns;
an empty list of answers means that the question has no answer, and that the data are of version 2.0.

Rajpurkar et al. 2016 (arXiv:1606.05250); Rajpurkar et al. 2018 (arXiv:1806.03822), where some questions have no answer.
Every error is an InputError that names the file and the question's id or, before the id is known, its position.
"""

import contextlib
import dataclasses
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from bert_jax import storage
from bert_jax.data.finetuning.records import plain_value
from bert_jax.data.invalid_rows import InvalidRow, InvalidRows, check_texts, check_utf8, place
from bert_jax.data.json_files import JsonLayout, json_layout_of, json_objects, read_json_file
from bert_jax.data.lines import numbered_lines
from bert_jax.data.parquet_files import read_parquet
from bert_jax.data.table_formats import has_registered_format, registered_rows
from bert_jax.data.tfds_sets import open_tfds
from bert_jax.errors import InputError, did_you_mean

QUESTION_FORMATS = (".json", ".jsonl", ".ndjson", ".parquet")
_EMPTY_LIST = re.compile(r"\[\s*\]")
_SHOWN = 60  # maximum number of characters of a wrong answer in a message
_OTHER_KIND = "a field of another kind"  # a reason why questions are invalid


class Answer(NamedTuple):
    """An answer: its text, and the offset in characters at which it begins in the context."""

    text: str
    start: int


@dataclasses.dataclass(frozen=True)
class Question:
    """A question about a context.

    Attributes:
        id: the unique id of the question.
        question, context: the texts.
        answers: the annotated answers; empty when the context has none, or when they are not known.
        is_impossible: whether the context has no answer; None in data where every question has one (version 1.1).
        article: the number of the context's article.
    """

    id: str
    question: str
    context: str
    answers: tuple[Answer, ...] = ()
    is_impossible: bool | None = None
    article: int = 0


def read_questions(
    spec: str, *, with_answers: bool = True, anywhere: bool = False, bad: InvalidRows | None = None
) -> Iterator[Question]:
    """Yield the questions of a data set in order.

    Args:
        spec: a file of `QUESTION_FORMATS`, maybe compressed (`storage.COMPRESSED`), or `tfds:NAME[:SPLIT]` (by default
            split `train`) with the features of TFDS's `squad`.
        with_answers: whether answers are read and required. Data are of version 2.0 when their questions have
            `is_impossible`, when the file's version says so, or when a row has no answers.
        anywhere: whether to accept answers that are not at the stated position or not in the context, as scoring
            compares only texts.
        bad: counts invalid questions; the caller passes the yielded questions through `bad.fitting`. None: invalid
            questions are an error.

    Raises:
        InputError: the file is missing, empty, cut short, not UTF-8, not JSON, or not of SQuAD's structure; or a
            question is invalid: a field is missing or empty, an id occurs twice, or an answer is not in its context.
            As reading is lazy, the error is raised during iteration.
    """
    invalid_rows = bad or InvalidRows(spec, noun="question")
    seen: set[str] = set()

    def question(item: _Item) -> Question:
        name = _name(item)
        try:
            if name in seen:
                message = f"{spec}: question {name!r}: expected an id of its own, found it twice"
                raise InvalidRow(message, "a repeated id")
            seen.add(name)
            checked = _question(f"{spec}: question {name!r}", name, item, with_answers)
            wrong = [] if anywhere else [answer for answer in checked.answers if not _stands(checked, answer)]
            if wrong:
                message = f"{spec}: question {name!r}: {_misplaced(checked, wrong[0])}"
                raise InvalidRow(message, "an answer that is not in its context")
        except InvalidRow as error:
            error.name = name
            raise
        return checked

    items = _tfds_items(spec, with_answers) if spec.startswith("tfds:") else _json_items(spec, invalid_rows)
    questions = invalid_rows.each(items, question)
    return questions if bad else invalid_rows.fitting(questions)


class _Item(NamedTuple):
    """The JSON objects of a question.

    Attributes:
        where: the name of the question in messages, before its id is known.
        row: the object with `id`, `question` and `answers`.
        context_where, context: the object with `context`, and its name in messages.
        article: the number of the context's article.
        second: whether the data set is of version 2.0.
    """

    where: str
    row: Any
    context_where: str
    context: Any
    article: int
    second: bool


def _stands(question: Question, answer: Answer) -> bool:
    return bool(answer.text) and answer.start >= 0 and question.context.startswith(answer.text, answer.start)


def _misplaced(question: Question, answer: Answer) -> str:
    actual = question.context[max(answer.start, 0) :][: len(answer.text) or _SHOWN]
    return (
        f"expected the answer {answer.text[:_SHOWN]!r} at character {answer.start} of its context, found "
        f"{actual[:_SHOWN]!r}"
    )


def _json_items(spec: str, bad: InvalidRows) -> Iterator[_Item | InvalidRow]:
    """Yield the questions of a file in any layout (see the module's docstring)."""
    name = storage.without_compression(spec).lower()
    if has_registered_format(spec):
        unanswered = any(_is_unanswered(row) for _, row in registered_rows(spec))
        return _flat_items(_named_rows(spec, bad), unanswered)
    if not name.endswith(QUESTION_FORMATS):
        raise InputError(
            f"{spec}: expected a file named {', '.join(QUESTION_FORMATS)} "
            f"(maybe with {', '.join(storage.COMPRESSED)}), or tfds:NAME:SPLIT"
        )
    if name.endswith(".parquet"):
        unanswered = any(_is_unanswered(row.values) for row in read_parquet(spec))
        return _flat_items(_named_rows(spec, bad), unanswered)
    layout = json_layout_of(spec)
    if layout is JsonLayout.LINES or (layout is JsonLayout.VALUE and not name.endswith(".json")):
        return _flat_items(_named_rows(spec, bad), _any_unanswered(spec))
    tree = read_json_file(spec)
    if tree is None:
        raise InputError(f"{spec}: expected questions, found an empty file")
    flat = _rows(spec, tree)
    if flat is None:
        return _nested_items(spec, tree)
    named = ((f"{spec}: row {number}", row) for number, row in enumerate(flat, 1))
    return _flat_items(named, any(map(_is_unanswered, flat)))


def _named_rows(spec: str, bad: InvalidRows) -> Iterator[tuple[str, Any] | InvalidRow]:
    return (row if isinstance(row, InvalidRow) else row[1:] for row in json_objects(spec, bad))


def _rows(spec: str, tree: Any) -> Sequence[Any] | None:
    """Return the rows of a JSON value with one row per question, or None if it has another layout."""
    if isinstance(tree, dict) and isinstance(tree.get("question"), list):
        return _transposed(spec, tree)
    if isinstance(tree, dict) and "question" in tree:
        return [tree]
    rows = tree.get("data") if isinstance(tree, dict) else tree
    is_flat = isinstance(rows, list) and any(isinstance(row, dict) and "question" in row for row in rows[:1])
    return rows if is_flat else None


def _transposed(spec: str, columns: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of an object of columns, which must be lists of equal length."""
    size = len(columns["question"])
    for name, values in columns.items():
        if not isinstance(values, list) or len(values) != size:
            actual = len(values) if isinstance(values, list) else type(values).__name__
            raise InputError(f"{spec}: expected a list of {size} values in {name!r}, as in 'question', found {actual}")
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _flat_items(rows: Iterable[tuple[str, Any] | InvalidRow], second: bool) -> Iterator[_Item | InvalidRow]:
    """Yield the items of rows with one question each; rows with the same title (or context) form an article.

    Args:
        rows: (name in messages, object) of each row, or its error.
        second: whether the data set is of version 2.0.
    """
    articles: dict[Any, int] = {}
    for named_row in rows:
        if isinstance(named_row, InvalidRow):
            yield named_row
            continue
        where, row = named_row
        key = row.get("title", row.get("context")) if isinstance(row, dict) else None
        article = articles.setdefault(key if isinstance(key, str) else None, len(articles))
        yield _Item(where, row, where, row, article, second)


def _any_unanswered(spec: str) -> bool:
    """Return whether a question of a JSON-lines file has an empty list of answers; ignore invalid rows."""
    for number, line in numbered_lines(spec):
        if _EMPTY_LIST.search(line):
            with contextlib.suppress(InputError):
                if _is_unanswered(storage.parse_json(line, place(spec, number))):
                    return True
    return False


def _is_unanswered(row: Any) -> bool:
    answers = row.get("answers") if isinstance(row, dict) else None
    return answers == [] or (isinstance(answers, dict) and answers.get("text") == [])


def _nested_items(spec: str, tree: Any) -> Iterator[_Item]:
    version = tree.get("version") if isinstance(tree, dict) else None
    second = str(version).lower().removeprefix("v").startswith("2")
    for i, article in enumerate(_list(spec, tree, "data")):
        for j, paragraph in enumerate(_list(f"{spec}: data[{i}]", article, "paragraphs")):
            where = f"{spec}: data[{i}].paragraphs[{j}]"
            for k, row in enumerate(_list(where, paragraph, "qas")):
                yield _Item(f"{where}.qas[{k}]", row, where, paragraph, i, second)


def _question(where: str, name: str, item: _Item, with_answers: bool) -> Question:
    """Return the question of an item. Raises InvalidRow when it is invalid."""
    text, context = _text(where, item.row, "question"), _text(item.context_where, item.context, "context")
    check_texts(where, {"question": text, "context": context})
    question = Question(name, text, context, article=item.article)
    make_question = _answered if with_answers else _unanswered
    return make_question(where, question, item.row, item.second)


def _unanswered(where: str, question: Question, row: dict[str, Any], second: bool) -> Question:
    """Return the question without answers; `is_impossible` is None if all questions of its data have answers."""
    return dataclasses.replace(question, is_impossible=False) if second or "is_impossible" in row else question


def _answered(where: str, question: Question, row: dict[str, Any], second: bool) -> Question:
    """Return the question with the answers of its JSON object."""
    answers = tuple(
        Answer(_text(f"{where}: answers[{i}]", answer, "text"), _start(f"{where}: answers[{i}]", answer))
        for i, answer in enumerate(_answers(where, row))
    )
    impossible = row.get("is_impossible")
    if impossible is None and second:
        impossible = not answers
    if impossible is not None and not isinstance(impossible, bool):
        raise InvalidRow(f"{where}: expected true or false in 'is_impossible', found {impossible!r}", _OTHER_KIND)
    if bool(answers) == bool(impossible):
        expected = "no answer, since is_impossible is true" if impossible else "at least one answer"
        raise InvalidRow(f"{where}: expected {expected}, found {len(answers)}", "a wrong number of answers")
    return dataclasses.replace(question, answers=answers, is_impossible=impossible)


def _answers(where: str, row: dict[str, Any]) -> list[Any]:
    """Return the answers of a row, one object each; Hugging Face's object of lists of texts and starts is split."""
    if not isinstance(_field(where, row, "answers"), dict):
        return _list(where, row, "answers")
    texts, starts = (_list(f"{where}: answers", row["answers"], name) for name in ("text", "answer_start"))
    if len(texts) != len(starts):
        message = f"{where}: answers: expected a start for each text, found {len(texts)} texts and {len(starts)} starts"
        raise InvalidRow(message, "different numbers of answer texts and starts")
    return [{"text": text, "answer_start": start} for text, start in zip(texts, starts, strict=True)]


def _name(item: _Item) -> str:
    """Return the id of a question; a number becomes its digits."""
    value = _field(item.where, item.row, "id")
    return str(value) if type(value) is int else _text(item.where, item.row, "id")


def _start(where: str, answer: dict[str, Any]) -> int:
    start = _field(where, answer, "answer_start")
    if not isinstance(start, int) or isinstance(start, bool):
        raise InvalidRow(f"{where}: expected a number in 'answer_start', found {start!r}", _OTHER_KIND)
    return start


def _list(where: str, row: Any, name: str) -> list[Any]:
    value = _field(where, row, name)
    if not isinstance(value, list):
        raise InvalidRow(f"{where}: expected a list in {name!r}, found {type(value).__name__}", _OTHER_KIND)
    return value


def _text(where: str, row: Any, name: str) -> str:
    value = _field(where, row, name)
    if not isinstance(value, str):
        raise InvalidRow(f"{where}: expected text in {name!r}, found {type(value).__name__}", _OTHER_KIND)
    check_utf8(where, value)
    return value


def _field(where: str, row: Any, name: str) -> Any:
    if not isinstance(row, dict):
        raise InvalidRow(f"{where}: expected a JSON object, found {type(row).__name__}", _OTHER_KIND)
    if name not in row:
        message = f"{where}: expected a field {name!r}{did_you_mean(name, row) if row else ''}"
        raise InvalidRow(message, "a missing field")
    return row[name]


def _tfds_items(spec: str, with_answers: bool) -> Iterator[_Item]:
    """Yield the items of TFDS's `squad`, or of a data set like it; an article has one title (or context)."""
    source, features = open_tfds(spec, ("id", "question", "context", *(("answers",) if with_answers else ())))
    articles: dict[Any, int] = {}
    for index in range(len(source)):
        features_row = source[index]
        row = {name: plain_value(features_row[name], None) for name in ("id", "question", "context")}
        if with_answers:
            texts, starts = plain_value(features_row["answers"]["text"], None), features_row["answers"]["answer_start"]
            row["answers"] = [{"text": t, "answer_start": int(s)} for t, s in zip(texts, starts, strict=True)]
        if "is_impossible" in features:
            row["is_impossible"] = bool(features_row["is_impossible"])
        article = articles.setdefault(features_row["title" if "title" in features else "context"], len(articles))
        where = place(spec, index)
        yield _Item(where, row, where, row, article, False)
