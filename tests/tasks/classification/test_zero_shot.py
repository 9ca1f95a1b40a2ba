"""Classes that a model was never trained on, beside transformers' pipeline."""

import json

import numpy as np
import pytest

from bert_jax.cli import main
from bert_jax.errors import InputError
from bert_jax.inference import pipeline

HEAD = "sequence_classification"
TEXTS = ["the cat sat on a stone", "a good bird", "old tree"]
LABELS = ["cat", "tree", "bird", "stone"]


@pytest.fixture(scope="module")
def write(write_small):
    """Writes a classifier into the classes of these names."""
    return lambda path, names: write_small(
        path, HEAD, max_position_embeddings=40, num_labels=len(names), id2label=names, initializer_range=0.3
    )


@pytest.fixture(scope="module")
def model(tmp_path_factory, write):
    return write(tmp_path_factory.mktemp("nli") / "model", ("contradiction", "neutral", "entailment"))


@pytest.mark.oracle
@pytest.mark.parametrize("multi_label", [False, True])
def test_answers_are_those_of_transformers(model, multi_label):
    transformers = pytest.importorskip("transformers", reason="an oracle of the [torch] extra")
    theirs = transformers.pipeline("zero-shot-classification", str(model), device="cpu")
    options = {"candidate_labels": LABELS, "hypothesis_template": "the {} is old.", "multi_label": multi_label}
    for ours, other in zip(pipeline("zero-shot", model)(TEXTS, **options), theirs(TEXTS, **options), strict=True):
        assert (ours["sequence"], ours["labels"]) == (other["sequence"], other["labels"])
        np.testing.assert_allclose(ours["scores"], other["scores"], rtol=1e-4)


def test_one_text_and_classes_with_commas(model):
    ask = pipeline("zero-shot-classification", model)
    answer = ask(TEXTS[0], "cat, tree,bird")
    assert answer == ask(TEXTS[:1], ["cat", "tree", "bird"])[0]
    assert sum(answer["scores"]) == pytest.approx(1) and answer["scores"] == sorted(answer["scores"], reverse=True)
    alone = ask(TEXTS[0], "cat")["scores"][0]
    assert alone == pytest.approx(
        dict(zip(*list(ask(TEXTS[0], LABELS, multi_label=True).values())[1:], strict=True))["cat"]
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"candidate_labels": []}, "candidate_labels: expected at least one class, each once"),
        ({"candidate_labels": "cat,dog, cat"}, "candidate_labels: expected at least one class, each once"),
        ({"candidate_labels": "cat", "hypothesis_template": "this is it"}, "hypothesis_template: expected {} in"),
        ({"candidate_labels": ["cat", 3]}, "text 1: expected a string, found int"),
    ],
)
def test_what_does_not_fit(model, options, message):
    with pytest.raises(InputError, match=message):
        pipeline("zero-shot", model)(TEXTS[0], **options)


def test_a_model_that_knows_nothing_of_entailment(tmp_path, write):
    with pytest.raises(InputError, match="expected a model of natural language inference"):
        pipeline("zero-shot", write(tmp_path / "model", ("good", "bad")))


def test_the_verb(model, capsys):
    assert main(["classify", str(model), *TEXTS, "--labels", "cat,tree", "--template", "the {} is old.", "--json"]) == 0
    answers = pipeline("zero-shot", model)(TEXTS, ["cat", "tree"], "the {} is old.")
    for line, answer in zip(capsys.readouterr().out.splitlines(), answers, strict=True):
        scores = dict(zip(answer["labels"], answer["scores"], strict=True))
        assert {x["label"]: x["score"] for x in json.loads(line)["scores"]} == pytest.approx(scores, rel=1e-5)
