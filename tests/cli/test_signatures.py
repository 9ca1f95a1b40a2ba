"""Flags from the source of functions, compared with the functions themselves."""

import argparse
import dataclasses
import inspect
import sys
from typing import Literal, get_args, get_origin

import pytest

from bert_jax.cli import build_parser
from bert_jax.cli.signatures import ParameterFlags, parameters
from bert_jax.cli.verbs import UnusedParser, Verbs
from bert_jax.errors import InputError
from bert_jax.lazy import import_object
from bert_jax.tasks import TASKS
from bert_jax.tasks.embedding.hard_negatives import MiningOptions
from bert_jax.tasks.embedding.search.corpus_search import CorpusSearch
from bert_jax.tasks.embedding.search.evaluation import evaluate_search
from bert_jax.tasks.entry import full_name
from bert_jax.tasks.masked_diffusion.generation import TextGeneration
from bert_jax.tasks.masked_diffusion.unmasking import Unmasking
from bert_jax.tasks.question_answering.pipeline import QuestionAnswering
from bert_jax.tasks.sequence_to_sequence.pipeline import Text2TextGeneration

FUNCTIONS = (
    CorpusSearch.__call__,
    CorpusSearch.write_index,
    MiningOptions,
    evaluate_search,
    TextGeneration.__call__,
    Unmasking,
    QuestionAnswering.__call__,
    Text2TextGeneration.__call__,
)
MODULE = '''
"""A module that cannot be imported."""
import no_such_module
Size = Literal["small", "large"]
LIMIT = 7
def run(text: str, limit: int = LIMIT, *, size: Size = "small", share: float | None = None, path: storage.PathLike = "",
        quick: bool = False, names: Sequence[str] = (), bound: int = limit_of(3)) -> None:
    """Run.

    Args:
        text: a text.
        limit: most
            rows, 100% of them.
        size: `small` or
            `large`.

        share: the share of rows; None = all rows. It is a fraction.
        quick: whether to skip checks.

    Returns:
        limit: not this.
    """
'''


@pytest.fixture
def outside(tmp_path, monkeypatch):
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "__init__.py").write_text("raise ImportError\n")
    (tmp_path / "outside" / "module.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__qualname__)
def test_the_source_says_what_the_function_says(function):
    read = parameters(f"{function.__module__}.{function.__qualname__}")
    signature = inspect.signature(function).parameters
    assert read
    for name, parameter in read.items():
        assert parameter.default == signature[name].default and parameter.meaning, name
        annotation = signature[name].annotation
        if get_origin(annotation) is Literal:
            assert parameter.choices == get_args(annotation), name
    plain = {name for name, other in signature.items() if other.annotation in (int, float, str, bool)}
    assert {name for name in plain if signature[name].default is not inspect.Parameter.empty} <= read.keys()


def test_a_module_is_read_and_not_imported(outside):
    read = parameters("outside.module.run")
    assert [*read] == ["limit", "size", "share", "path", "quick", "names"]
    assert read["limit"][:4] == (int, "N", None, 7) and read["limit"].meaning == "most rows, 100% of them."
    assert read["size"][:4] == (str, None, ("small", "large"), "small")
    assert read["share"][:4] == (float, "X", None, None)
    assert read["names"].type("a,b") == ("a", "b") and read["names"].default == ()
    assert read["path"][:4] == (str, "PATH", None, "") and read["path"].meaning == ""
    assert "outside" not in sys.modules


def test_flags_and_their_values(outside):
    flags = ParameterFlags("outside.module.run", "limit", "share", "size", fast="quick")
    parser = argparse.ArgumentParser(prog="run")
    flags.declare(parser)
    text = " ".join(parser.format_help().split())
    assert "--limit N most rows, 100% of them (default: 7)" in text
    assert "--share X the share of rows. It is a fraction (default: all rows)" in text
    assert "--size {small,large} `small` or `large` (default: small)" in text
    assert "--fast skip checks" in text
    assert flags.values(parser.parse_args([])) == {"limit": 7, "size": "small", "quick": False}
    given = parser.parse_args(["--fast", "--share", "0.5"])
    assert flags.values(given) == {"limit": 7, "size": "small", "quick": True, "share": 0.5}
    unset = ParameterFlags("outside.module.run", "limit", unset=True, fast="quick")
    parser = argparse.ArgumentParser()
    unset.declare(parser)
    assert unset.values(parser.parse_args([])) == {} and unset.flags_set(parser.parse_args(["--fast"])) == ["--fast"]


@pytest.mark.parametrize(
    ("function", "error", "message"),
    [
        ("outside.module.run", TypeError, "expected a parameter 'bound' with a default, found none"),
        ("outside.module.walk", TypeError, "expected a function that its module defines"),
        ("no_such_package.run", ModuleNotFoundError, "expected a module with source"),
    ],
)
def test_what_the_source_does_not_have_is_refused(outside, function, error, message):
    with pytest.raises(error, match=message):
        ParameterFlags(function, "bound").declare(argparse.ArgumentParser())
    ParameterFlags(function, "bound").declare(UnusedParser())


def test_only_the_flags_of_the_verb_are_declared():
    _, every = build_parser()
    _, one = build_parser("generate")
    assert [*one] == [*every]
    assert set(one["generate"]._option_string_actions) == set(every["generate"]._option_string_actions)
    assert set(one["tag"]._option_string_actions) == {"-h", "--help"}


def test_a_verb_has_one_module():
    verbs = Verbs(argparse.ArgumentParser().add_subparsers())
    verbs.add("tag", "find entities")
    with pytest.raises(InputError, match="verb 'tag': expected a new name"):
        verbs.add("tag", "find entities")


EVALUATORS = sorted({full_name(each) for entry in TASKS.values() for each in entry.evaluators.values()})


@pytest.mark.parametrize("name", EVALUATORS)
def test_a_class_has_the_parameters_of_its_constructor_and_of_its_bases(name):
    read, evaluator, expected = parameters(name), import_object(name), {}
    for base in evaluator.__mro__:
        if "__init__" in vars(base):
            signature = inspect.signature(base.__init__).parameters.values()
            keywords = [each for each in signature if each.kind is inspect.Parameter.KEYWORD_ONLY]
            expected = {each.name: each.default for each in keywords} | expected
            if all(each.kind is not inspect.Parameter.VAR_KEYWORD for each in signature):
                break
    assert {name: parameter.default for name, parameter in read.items()} == expected
    assert all(parameter.meaning for parameter in read.values())


def test_options_are_those_of_a_dataclass():
    read = parameters("bert_jax.tasks.embedding.hard_negatives.MiningOptions")
    assert [*read] == [field.name for field in dataclasses.fields(MiningOptions)]
