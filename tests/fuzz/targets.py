"""What a user does with files of each kind: the functions that the fuzzer calls with a directory.

They import what they need when they are called, so that a process for one kind starts quickly.
"""

import contextlib
import io
import pathlib
from collections.abc import Callable
from typing import Any, NamedTuple

TEXTS = [
    "The cat sat on the mat.", "", "caf\u00e9 \u4e2d\u6587 \U0001f600 [MASK] e\u0301", "x" * 300, " \t a\u200bb \u0130"
]  # fmt: skip
_PIPELINES = {
    "sequence_classification": "text-classification",
    "token_classification": "token-classification",
    "masked_lm": "fill-mask",
    "sentence_embedding": "sentence-embedding",
}


class Kind(NamedTuple):
    """Files of a kind.

    Attributes:
        share: how many of a hundred or so cases are of it.
        run: uses what is in a directory; a number chooses among ways of using it.
        fixed: files below this folder are not damaged.
        group: kinds of one group are tried by the same process.
    """

    share: int
    run: Callable[[pathlib.Path, int], None]
    fixed: str = "model/"
    group: str = "models"


class Failed(Exception):
    """A command line ended as none may."""


def command(*arguments: object, json: bool = False) -> None:
    """Runs a command line, whose status is 0, or 2 with one line. What is JSON is not looked at."""
    from bert_jax.cli import main

    with contextlib.redirect_stdout(io.StringIO()) if json else contextlib.nullcontext():
        status = main(list(map(str, arguments)))
    if status not in (0, 1, 2):
        raise Failed(f"status {status}")


def _config(folder: pathlib.Path, number: int) -> None:
    from bert_jax.config import BertConfig
    from bert_jax.errors import InputError

    config = BertConfig.from_json_file(folder / "config.json")
    with contextlib.suppress(InputError):  # not every architecture can be written in every family's words
        BertConfig.from_hf(config.to_hf())


def _tokenizer(folder: pathlib.Path, number: int) -> None:
    from bert_jax.tokenization import load_tokenizer

    tokenizer = load_tokenizer(folder)
    tokenizer(TEXTS, max_length=16, truncation=True)
    tokenizer(TEXTS, TEXTS[::-1], max_length=16, truncation=True)
    encoded = tokenizer.encode_batch_with_offsets(TEXTS)
    for ids, _ in encoded:
        tokenizer.decode(ids)
    if number % 4 == 0:
        tokenizer.save(folder / "saved")
        load_tokenizer(folder / "saved")


def _model(folder: pathlib.Path, number: int) -> None:
    import numpy as np

    from bert_jax.conversion.huggingface import load_pretrained
    from bert_jax.inference import from_pretrained, pipeline

    if number % 4:
        load_pretrained(folder)
    elif number % 8:
        command("inspect", folder)
        command("convert", folder, folder / "converted")
    else:
        model = from_pretrained(folder)
        task = _PIPELINES.get(model.head)
        if task and model.tokenizer is not None:
            pipeline(task, folder)([TEXTS[2], TEXTS[2]])
        else:
            model(np.zeros((1, 4), np.int32))


def _sentence_embedding(folder: pathlib.Path, number: int) -> None:
    from bert_jax.conversion.huggingface import load_pretrained
    from bert_jax.inference import pipeline

    if number % 2:
        load_pretrained(folder)
    elif number % 4:
        command("embed", folder, *TEXTS[2:3])
    else:
        pipeline("sentence-embedding", folder)(TEXTS[:3])


def _given(folder: pathlib.Path) -> pathlib.Path:
    """The file beside the model."""
    found = [path for path in sorted(folder.iterdir()) if path.name != "model"]
    return found[0] if found else folder / "absent.tsv"


def command_on_rows(folder: pathlib.Path, number: int) -> None:
    """`evaluate` or `predict`, of the file beside the model."""
    model, data = ("--model", folder / "model"), ("--data", _given(folder))
    skip = ("--skip",) if number % 3 == 0 else ()
    if number % 32:
        command("evaluate", *model, *data, *skip)
    else:
        command("predict", *model, *data, *skip, "--out", folder / "out.jsonl")


def _classifier(folder: pathlib.Path, number: int) -> None:
    if number % 16 == 0:
        return command_on_rows(folder, number)
    from bert_jax.data.finetuning.labelled_rows import read_labelled
    from bert_jax.data.finetuning.tables import Columns
    from bert_jax.data.invalid_rows import RULES, InvalidRows

    spec = str(_given(folder))
    bad = InvalidRows(spec, RULES[number % 2])
    read_labelled(spec, Columns("sentence", label="label"), None, number % 5 == 0, bad)


def _tagger(folder: pathlib.Path, number: int) -> None:
    if number % 16 == 0:
        return command_on_rows(folder, number)
    from bert_jax.data.finetuning.tables import Columns
    from bert_jax.data.finetuning.tagged import read_sentences
    from bert_jax.data.invalid_rows import RULES, InvalidRows

    spec = str(_given(folder))
    bad = InvalidRows(spec, RULES[number % 2], "sentence")
    for sentence in bad.fitting(read_sentences(spec, Columns(), bad=bad)):
        assert sentence.words and sentence.tags


def _squad(folder: pathlib.Path, number: int) -> None:
    if number % 16 == 0:
        return command_on_rows(folder, number)
    from bert_jax.data.invalid_rows import RULES, InvalidRows
    from bert_jax.tasks.question_answering.data import read_questions

    spec = str(_given(folder))
    bad = InvalidRows(spec, RULES[number % 2], "question")
    for question in bad.fitting(read_questions(spec, bad=bad)):
        assert question.context


def _lines(folder: pathlib.Path, number: int) -> None:
    skip, as_json = number % 3 == 0, number % 2 == 0
    flags = ["--skip"] * skip + ["--json"] * as_json
    command("classify", folder / "model", "--file", _given(folder), *flags, json=as_json)


def _corpus(folder: pathlib.Path, number: int) -> None:
    from bert_jax.data.corpora.sources import open_corpus

    spec = ("{}", "files:{}", "sentences:{}", "{}:text")[number % 4].format(_given(folder))
    if number % 5 == 0:
        kind = ("wordpiece", "sentencepiece", "bpe")[number % 3]
        command("train-tokenizer", spec, "--vocab-size", 60, "--kind", kind, "--out", folder / "out")
    else:
        for document in open_corpus(spec):
            assert document.texts


def _recipe(folder: pathlib.Path, number: int) -> None:
    from bert_jax import recipes

    recipes.to_json(recipes.resolve(recipes.load_recipe(str(folder / "config.json"))))


def _prepared(folder: pathlib.Path, number: int) -> None:
    from bert_jax.data.pretraining.prepared import PreparedInstances

    source = PreparedInstances(folder, "train", 32)
    source.batch([0, len(source) - 1], [0, 1])


def state(step: int) -> Any:
    """A small state of a run."""
    import jax.numpy as jnp

    from bert_jax.training.state import State

    params = {"a": jnp.arange(6, dtype=jnp.float32).reshape(2, 3) * step, "b": jnp.ones(2) * step}
    return State(params, (params,), jnp.int32(step))


def tiny_run(folder: str | pathlib.Path) -> Any:
    """The checkpoints of a run in a folder."""
    from bert_jax.training.checkpoints import Checkpoints

    return Checkpoints(f"{folder}/checkpoints", 2, "accuracy")


def _run(folder: pathlib.Path, number: int) -> None:
    import jax
    from jax.sharding import SingleDeviceSharding

    from bert_jax import recipes, storage
    from bert_jax.training.curves import write_report
    from bert_jax.training.metrics import read_metrics
    from bert_jax.training.workdir import Workdir

    workdir = Workdir(storage.Path(folder))
    workdir.check(recipes.classification())
    read_metrics(workdir.metrics)
    if number % 8 == 1:
        write_report(workdir, str(folder) + "$\\x$")
    sharding = SingleDeviceSharding(jax.devices()[0])
    like = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding), state(1))
    with contextlib.closing(tiny_run(folder)) as checkpoints:
        checkpoints.restore_latest(like)
        checkpoints.best()


def _index(folder: pathlib.Path, number: int) -> None:
    from bert_jax.inference import pipeline

    search = pipeline("search", folder / "model")
    search.open_index(folder / "index")
    search(TEXTS[:2], top_k=1 + number % 3)


def _gliner(folder: pathlib.Path, number: int) -> None:
    from bert_jax.conversion.huggingface import load_pretrained
    from bert_jax.inference import pipeline

    if number % 4:
        load_pretrained(folder)
    elif number % 8:
        command("tag", folder, TEXTS[0], "--labels", "person,city")
    else:
        pipeline("zero-shot-ner", folder)(TEXTS, ["person", "city"])


def _typed_spans(folder: pathlib.Path, number: int) -> None:
    if number % 16 == 0:
        return command_on_rows(folder, number)
    from bert_jax.data.finetuning.tables import Columns
    from bert_jax.data.invalid_rows import RULES, InvalidRows
    from bert_jax.tasks.zero_shot_ner.data import read_span_texts

    spec = str(_given(folder))
    for text in read_span_texts(spec, Columns(), {}, InvalidRows(spec, RULES[number % 2], "text")):
        assert all(0 <= start < stop <= len(text.words) for start, stop, _ in text.spans)


def _relations(folder: pathlib.Path, number: int) -> None:
    if number % 16 == 0:
        return command_on_rows(folder, number)
    from bert_jax.data.invalid_rows import RULES, InvalidRows
    from bert_jax.tasks.relation_extraction.data import iterate_relations
    from bert_jax.tasks.relation_extraction.markers import MARKERS, mark_entities

    spec = str(_given(folder))
    bad = InvalidRows(spec, RULES[number % 2])
    style = [*MARKERS][number % len(MARKERS)]
    for row in bad.fitting(iterate_relations(spec, number % 3 > 0, bad)):
        marked = mark_entities(*row.pair, style)
        assert 0 <= marked.start < marked.end <= len(marked.text)


KINDS = {
    "config": Kind(18, _config),
    "tokenizer": Kind(20, _tokenizer, group="tokenizers"),
    "model": Kind(5, _model, ""),
    "sentence_embedding": Kind(5, _sentence_embedding, ""),
    "classifier": Kind(14, _classifier),
    "tagger": Kind(10, _tagger),
    "squad": Kind(8, _squad),
    "lines": Kind(8, _lines),
    "corpus": Kind(12, _corpus),
    "recipe": Kind(6, _recipe),
    "prepared": Kind(5, _prepared),
    "run": Kind(1, _run, group="runs"),
    "index": Kind(6, _index),
    "gliner": Kind(5, _gliner, ""),
    "typed_spans": Kind(5, _typed_spans),
    "relations": Kind(6, _relations),
}
