"""The verb `answer`: answer questions with spans of a text."""

import argparse
from typing import Any

from bert_jax.cli import shards
from bert_jax.cli.answer_tables import SCORED, SPAN
from bert_jax.cli.output import print_table
from bert_jax.cli.over_texts import add_text_flags, answers_of, run_over_texts
from bert_jax.cli.signatures import ParameterFlags
from bert_jax.cli.verbs import Verbs, add_verb
from bert_jax.errors import InputError

MOST_CONTEXT_BYTES = 16 << 20  # maximum size of the file of --context
_OPTIONS = ParameterFlags(
    "bert_jax.tasks.question_answering.pipeline.QuestionAnswering.__call__",
    "top_k",
    "doc_stride",
    impossible="handle_impossible_answer",
    max_answer_length="max_answer_len",
)
_COLUMNS = {"question": "string", "answers": [{"answer": "string"} | SCORED | SPAN]}


def add_verbs(verbs: Verbs) -> None:
    """Declare the verb of this module."""
    answer = add_verb(
        verbs,
        "answer",
        run_answer,
        "answer questions with spans of a text",
        "The context may have any length. For questions in SQuAD's JSON, see `bert-jax predict`.",
        """bert-jax answer runs/squad/model "Who wrote it?" "When?" --context article.txt
           bert-jax answer runs/squad2/model "Where was she born?" --text "Ada was born in 1815." --impossible""",
    )
    answer.add_argument("--context", metavar="FILE",
        help="a UTF-8 file with the text that contains the answers; this or --text is required")  # fmt: skip
    answer.add_argument("--text", metavar="TEXT", help="the text that contains the answers")
    _OPTIONS.declare(answer)
    shards.add_answer_files(answer)
    add_text_flags(answer, "question")


def run_answer(args: argparse.Namespace) -> int:
    """Print the spans that answer each question, the most likely first."""
    return run_over_texts(args, _answer, _COLUMNS)


def _answer(args: argparse.Namespace) -> None:
    from bert_jax import storage

    if (args.context is None) == (args.text is None):
        raise InputError("expected the text that contains the answers, as --context FILE or as --text TEXT")
    context = storage.read_text(args.context, MOST_CONTEXT_BYTES) if args.text is None else args.text

    def predict(pipe: Any, questions: list[str]) -> list[Any]:
        answers_per_question = pipe(questions, context, **_OPTIONS.values(args))
        return [answers if isinstance(answers, list) else [answers] for answers in answers_per_question]

    for question, answers in answers_of(args, "question-answering", predict):
        if args.json:
            args.emit({"question": question, "answers": answers})
            continue
        rows = [(f"{a['score']:.1%}", a["answer"] or "(none)", f"{a['start']}-{a['end']}") for a in answers]
        print_table(question, ("probability", "answer", "characters"), rows)
