"""Questions about a text whose answers are passages of it: SQuAD's JSON files, versions 1.1 and 2.0, and TFDS.

Rajpurkar et al. 2016 (arXiv:1606.05250); Rajpurkar et al. 2018 (arXiv:1806.03822), where some questions have no answer.
Every complaint is an InputError that names the file and the question's id or, before that is known, its place.
"""

import dataclasses
import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from bert_jax import storage
from bert_jax.data.bad_rows import BadRow, BadRows, check_texts, check_utf8, place
from bert_jax.data.examples import open_tfds, plain
from bert_jax.errors import InputError, did_you_mean

_SHOWN = 60  # characters of a wrong answer in a message
_OTHER_KIND = "a field of another kind"  # why a question does not fit


class Answer(NamedTuple):
    """A passage: its text, and the character of the context that it begins at."""

    text: str
    start: int


@dataclasses.dataclass(frozen=True)
class Question:
    """A question about a context.

    Attributes:
        id: its name, unlike that of any other.
        question, context: texts.
        answers: those that people gave; none when there is none in the context, or when they are not known.
        is_impossible: whether the context has no answer; None in data where every question has one (version 1.1).
        article: the number of the article that its context is from.
    """

    id: str
    question: str
    context: str
    answers: tuple[Answer, ...] = ()
    is_impossible: bool | None = None
    article: int = 0


def read_questions(
    spec: str, *, with_answers: bool = True, anywhere: bool = False, bad: BadRows | None = None
) -> Iterator[Question]:
    """Yields the questions of a data set in order.

    Args:
        spec: a `.json` file, maybe compressed (`storage.COMPRESSED`), or `tfds:NAME[:SPLIT]` (split `train`) with the
            features of TFDS's `squad`.
        with_answers: whether the answers are read, and must be there. Whether the data are of version 2.0 is told by
            `is_impossible` of their questions, or by the version that the file gives.
        anywhere: whether an answer may stand elsewhere in its context than it says, or not at all: scoring looks at
            texts alone.
        bad: counts questions that do not fit, of a caller that lets what is left through `bad.fitting`; None: they are
            an error.

    Raises:
        InputError: the file is missing, empty, cut short, not UTF-8, not JSON, or not of SQuAD's structure; or
            questions do not fit: a field is missing or empty, an id occurs twice, or an answer does not stand in its
            context. Reading is lazy: so is the complaint.
    """
    own = bad or BadRows(spec, noun="question")
    seen: set[str] = set()

    def question(item: _Item) -> Question:
        name = _text(item.where, item.row, "id")
        try:
            if name in seen:
                message = f"{spec}: question {name!r}: expected an id of its own, found it twice"
                raise BadRow(message, "the id of another")
            seen.add(name)
            found = _question(f"{spec}: question {name!r}", name, item, with_answers)
            wrong = [] if anywhere else [answer for answer in found.answers if not _stands(found, answer)]
            if wrong:
                message = f"{spec}: question {name!r}: {_misplaced(found, wrong[0])}"
                raise BadRow(message, "an answer that is not in its context")
        except BadRow as error:
            error.name = name
            raise
        return found

    questions = own.each(_tfds_items(spec, with_answers) if spec.startswith("tfds:") else _json_items(spec), question)
    return questions if bad else own.fitting(questions)


class _Item(NamedTuple):
    """What is read of a question.

    Attributes:
        where: what to call it in messages before its id is known.
        row: its object, with `id`, `question` and `answers`.
        context_where, context: what to call the object that its `context` stands in, and that object.
        article: the number of its article.
        second: whether the data are of version 2.0 by themselves.
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
    there = question.context[max(answer.start, 0) :][: len(answer.text) or _SHOWN]
    return (
        f"expected the answer {answer.text[:_SHOWN]!r} at character {answer.start} of its context, found "
        f"{there[:_SHOWN]!r}"
    )


def _json_items(spec: str) -> Iterator[_Item]:
    tree = _parsed(spec)
    version = tree.get("version") if isinstance(tree, dict) else None
    second = str(version).lower().removeprefix("v").startswith("2")
    for i, article in enumerate(_list(spec, tree, "data")):
        for j, paragraph in enumerate(_list(f"{spec}: data[{i}]", article, "paragraphs")):
            where = f"{spec}: data[{i}].paragraphs[{j}]"
            for k, row in enumerate(_list(where, paragraph, "qas")):
                yield _Item(f"{where}.qas[{k}]", row, where, paragraph, i, second)


def _question(where: str, name: str, item: _Item, with_answers: bool) -> Question:
    """The question of an item. Raises BadRow when it does not fit."""
    text, context = _text(where, item.row, "question"), _text(item.context_where, item.context, "context")
    check_texts(where, {"question": text, "context": context})
    question = Question(name, text, context, article=item.article)
    found = _answered if with_answers else _unanswered
    return found(where, question, item.row, item.second)


def _unanswered(where: str, question: Question, row: dict[str, Any], second: bool) -> Question:
    """The question, with no more than whether such as it may have no answer."""
    return dataclasses.replace(question, is_impossible=False) if second or "is_impossible" in row else question


def _answered(where: str, question: Question, row: dict[str, Any], second: bool) -> Question:
    """The question with the answers of its JSON object."""
    answers = tuple(
        Answer(_text(f"{where}: answers[{i}]", answer, "text"), _start(f"{where}: answers[{i}]", answer))
        for i, answer in enumerate(_list(where, row, "answers"))
    )
    impossible = row.get("is_impossible", not answers if second else None)
    if impossible is not None and not isinstance(impossible, bool):
        raise BadRow(f"{where}: expected true or false in 'is_impossible', found {impossible!r}", _OTHER_KIND)
    if bool(answers) == bool(impossible):
        expected = "no answer, since is_impossible is true" if impossible else "at least one answer"
        raise BadRow(f"{where}: expected {expected}, found {len(answers)}", "another number of answers")
    return dataclasses.replace(question, answers=answers, is_impossible=impossible)


def _start(where: str, answer: dict[str, Any]) -> int:
    start = _field(where, answer, "answer_start")
    if not isinstance(start, int) or isinstance(start, bool):
        raise BadRow(f"{where}: expected a number in 'answer_start', found {start!r}", _OTHER_KIND)
    return start


def _list(where: str, row: Any, name: str) -> list[Any]:
    value = _field(where, row, name)
    if not isinstance(value, list):
        raise BadRow(f"{where}: expected a list in {name!r}, found {type(value).__name__}", _OTHER_KIND)
    return value


def _text(where: str, row: Any, name: str) -> str:
    value = _field(where, row, name)
    if not isinstance(value, str):
        raise BadRow(f"{where}: expected text in {name!r}, found {type(value).__name__}", _OTHER_KIND)
    check_utf8(where, value)
    return value


def _field(where: str, row: Any, name: str) -> Any:
    if not isinstance(row, dict):
        raise BadRow(f"{where}: expected a JSON object, found {type(row).__name__}", _OTHER_KIND)
    if name not in row:
        message = f"{where}: expected a field {name!r}{did_you_mean(name, row) if row else ''}"
        raise BadRow(message, "a missing field")
    return row[name]


def _parsed(spec: str) -> Any:
    """The JSON of a file."""
    if not storage.without_compression(spec).lower().endswith(".json"):
        raise InputError(
            f"{spec}: expected a file named .json (maybe with {', '.join(storage.COMPRESSED)}), or tfds:NAME:SPLIT"
        )
    path = storage.existing(spec)
    try:
        with storage.open_decompressed(path) as (file, _):
            text = file.read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{spec}: expected UTF-8 text, found byte 0x{error.object[error.start]:02x} at offset {error.start}"
        ) from None
    except storage.DamagedError as error:
        raise InputError(f"{spec}: {error}") from None
    if not text.strip():
        raise InputError(f"{spec}: expected questions, found an empty file")
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(
            f"{spec}: expected JSON, found {error.msg} at line {error.lineno}, column {error.colno}"
        ) from None
    except RecursionError:
        raise InputError(f"{spec}: expected SQuAD's JSON, found one that is nested too deeply") from None


def _tfds_items(spec: str, with_answers: bool) -> Iterator[_Item]:
    """The rows of TFDS's `squad` or of a data set with its features; where they have no titles, a context is an
    article."""
    source, features = open_tfds(spec, ("id", "question", "context", *(("answers",) if with_answers else ())))
    articles: dict[Any, int] = {}
    for index in range(len(source)):
        found = source[index]
        row = {name: plain(found[name], None) for name in ("id", "question", "context")}
        if with_answers:
            texts, starts = plain(found["answers"]["text"], None), found["answers"]["answer_start"]
            row["answers"] = [{"text": t, "answer_start": int(s)} for t, s in zip(texts, starts, strict=True)]
        if "is_impossible" in features:
            row["is_impossible"] = bool(found["is_impossible"])
        article = articles.setdefault(found["title" if "title" in features else "context"], len(articles))
        where = place(spec, index)
        yield _Item(where, row, where, row, article, False)
