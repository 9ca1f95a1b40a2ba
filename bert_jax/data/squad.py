"""Questions about a text whose answers are passages of it: SQuAD's JSON files, versions 1.1 and 2.0, and TFDS.

Rajpurkar et al. 2016 (arXiv:1606.05250); Rajpurkar et al. 2018 (arXiv:1806.03822), where some questions have no answer.
Every complaint is an InputError that names the file and the question's id or, before that is known, its place.
"""

import dataclasses
import json
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

from bert_jax import files
from bert_jax.data.examples import open_tfds
from bert_jax.errors import InputError, did_you_mean

# What becomes of an answer that does not stand in its context where it should: an error; it is left out, and its
# question with it when it has no other; or it is kept, since scoring looks at texts alone.
BAD_ANSWERS = ("error", "skip", "keep")
_SHOWN = 60  # characters of a wrong answer in a message


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
    """

    id: str
    question: str
    context: str
    answers: tuple[Answer, ...] = ()
    is_impossible: bool | None = None


def read_questions(spec: str, *, with_answers: bool = True, bad_answers: str = "error") -> Iterator[Question]:
    """Yields the questions of a data set in order.

    Args:
        spec: a `.json` file, maybe compressed (`files.COMPRESSED`), or `tfds:NAME[:SPLIT]` (split `train`) with the
            features of TFDS's `squad`.
        with_answers: whether the answers are read, and must be there. Whether the data are of version 2.0 is told by
            `is_impossible` of their questions, or by the version that the file gives.
        bad_answers: one of `BAD_ANSWERS`. How many were left out is said in a warning after the last question.

    Raises:
        InputError: the file is missing, empty, cut short, not UTF-8, not JSON, or not of SQuAD's structure; an id
            occurs twice; an answer does not stand in its context. Reading is lazy: so is the complaint.
    """
    seen: set[str] = set()
    wrong: list[str] = []
    left_out = 0
    for question in _tfds_questions(spec, with_answers) if spec.startswith("tfds:") else _json(spec, with_answers):
        if question.id in seen:
            raise InputError(f"{spec}: question {question.id!r}: expected an id of its own, found it twice")
        seen.add(question.id)
        if bad_answers != "keep" and (bad := [answer for answer in question.answers if not _stands(question, answer)]):
            if bad_answers == "error":
                raise InputError(f"{spec}: question {question.id!r}: {_misplaced(question, bad[0])}")
            wrong += [question.id] * len(bad)
            question = dataclasses.replace(question, answers=tuple(a for a in question.answers if a not in bad))
            if not question.answers:
                left_out += 1
                continue
        yield question
    if not seen:
        raise InputError(f"{spec}: expected at least one question, found none")
    if wrong:
        warnings.warn(
            f"{spec}: left out {len(wrong):,} answers that do not stand in their contexts, and {left_out:,} questions "
            f"that had no other; the first is of question {wrong[0]!r}",
            stacklevel=2,
        )


def _stands(question: Question, answer: Answer) -> bool:
    return bool(answer.text) and answer.start >= 0 and question.context.startswith(answer.text, answer.start)


def _misplaced(question: Question, answer: Answer) -> str:
    there = question.context[max(answer.start, 0) :][: len(answer.text) or _SHOWN]
    return (
        f"expected the answer {answer.text[:_SHOWN]!r} at character {answer.start} of its context, found "
        f"{there[:_SHOWN]!r}"
    )


def _json(spec: str, with_answers: bool) -> Iterator[Question]:
    tree = _parsed(spec)
    version = tree.get("version") if isinstance(tree, dict) else None
    second = str(version).lower().removeprefix("v").startswith("2")
    for i, article in enumerate(_list(spec, tree, "data")):
        for j, paragraph in enumerate(_list(f"{spec}: data[{i}]", article, "paragraphs")):
            place = f"{spec}: data[{i}].paragraphs[{j}]"
            context = _text(place, paragraph, "context")
            for k, row in enumerate(_list(place, paragraph, "qas")):
                where = f"{place}.qas[{k}]"
                name = _text(where, row, "id")
                where = f"{spec}: question {name!r}"
                question = Question(name, _text(where, row, "question"), context)
                yield _answered(where, question, row, second) if with_answers else _unanswered(question, row, second)


def _unanswered(question: Question, row: dict[str, Any], second: bool) -> Question:
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
        raise InputError(f"{where}: expected true or false in 'is_impossible', found {impossible!r}")
    if bool(answers) == bool(impossible):
        expected = "no answer, since is_impossible is true" if impossible else "at least one answer"
        raise InputError(f"{where}: expected {expected}, found {len(answers)}")
    return dataclasses.replace(question, answers=answers, is_impossible=impossible)


def _start(where: str, answer: dict[str, Any]) -> int:
    start = _field(where, answer, "answer_start")
    if not isinstance(start, int) or isinstance(start, bool):
        raise InputError(f"{where}: expected a number in 'answer_start', found {start!r}")
    return start


def _list(where: str, row: Any, name: str) -> list[Any]:
    value = _field(where, row, name)
    if not isinstance(value, list):
        raise InputError(f"{where}: expected a list in {name!r}, found {type(value).__name__}")
    return value


def _text(where: str, row: Any, name: str) -> str:
    value = _field(where, row, name)
    if not isinstance(value, str):
        raise InputError(f"{where}: expected text in {name!r}, found {type(value).__name__}")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:  # "\ud83d" alone, which JSON can spell and no tokenizer takes
            raise InputError(
                f"{where}: expected text in {name!r}, found half a surrogate pair at character {error.start}"
            ) from None
    return value


def _field(where: str, row: Any, name: str) -> Any:
    if not isinstance(row, dict):
        raise InputError(f"{where}: expected a JSON object, found {type(row).__name__}")
    if name not in row:
        raise InputError(f"{where}: expected a field {name!r}{did_you_mean(name, row) if row else ''}")
    return row[name]


def _parsed(spec: str) -> Any:
    """The JSON of a file."""
    if not files.without_compression(spec).lower().endswith(".json"):
        raise InputError(
            f"{spec}: expected a file named .json (maybe with {', '.join(files.COMPRESSED)}), or tfds:NAME:SPLIT"
        )
    path = files.existing(spec)
    try:
        with files.open_decompressed(path) as (file, _):
            text = file.read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{spec}: expected UTF-8 text, found byte 0x{error.object[error.start]:02x} at offset {error.start}"
        ) from None
    except files.DamagedError as error:
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


def _tfds_questions(spec: str, with_answers: bool) -> Iterator[Question]:
    """The rows of TFDS's `squad` or of a data set with its features."""
    source, features = open_tfds(spec, ("id", "question", "context", *(("answers",) if with_answers else ())))
    for index in range(len(source)):
        found = source[index]
        where = f"{spec}: example {index}"
        row: dict[str, Any] = {name: _plain(where, found[name]) for name in ("id", "question", "context")}
        if with_answers:
            answers = found["answers"]
            texts = [_plain(where, text) for text in answers["text"]]
            starts = [int(start) for start in answers["answer_start"]]
            row["answers"] = [{"text": t, "answer_start": s} for t, s in zip(texts, starts, strict=True)]
        if "is_impossible" in features:
            row["is_impossible"] = bool(found["is_impossible"])
        question = Question(_text(where, row, "id"), _text(where, row, "question"), _text(where, row, "context"))
        yield _answered(where, question, row, False) if with_answers else _unanswered(question, row, False)


def _plain(where: str, value: Any) -> Any:
    try:
        return value.decode() if isinstance(value, bytes) else value
    except UnicodeDecodeError:
        raise InputError(f"{where}: expected UTF-8 text, found other bytes") from None
