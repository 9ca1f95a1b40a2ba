"""Relation extraction on sentences from templates: from a file to a finished model, its scores and its answers."""

import json
import os
import re

import jax
import numpy as np
import pytest
from relation_rows import CITIES, FIRMS, NAMES, PEOPLE, PIECES, TEMPLATES, rows_of, write_model
from small_tasks import SmallTask

from bert_jax import evaluation, jobs, recipes
from bert_jax.cli import main
from bert_jax.compression.examples import examples_of_data
from bert_jax.conversion.huggingface import load_pretrained
from bert_jax.errors import InputError
from bert_jax.inference import from_pretrained, pipeline
from bert_jax.recipes import load_recipe
from bert_jax.tasks.relation_extraction.markers import MARKERS
from bert_jax.training.loop import train


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Rows, and an encoder with random parameters to start from."""
    root = tmp_path_factory.mktemp("relations")
    for name, count in (("train", 240), ("dev", 60)):
        (root / f"{name}.json").write_text(json.dumps(rows_of(count, seed=count)))
    write_model(root / "encoder", "encoder")
    return root


SMALL = SmallTask("relation_extraction:{place}", {
    "init_from": "{place}/encoder", "data.max_seq_length": 24, "data.length_buckets": (24,),
    "global_batch_size": 16, "num_epochs": 6.0, "optimizer.learning_rate": 4e-3,
})  # fmt: skip
recipe, job = SMALL.recipe, SMALL.job


@pytest.fixture(scope="module")
def tuned(place):
    """What training returned, and the finished model."""
    return SMALL.train(place)


def predicted(model, data, tmp_path):
    out = tmp_path / "answers.jsonl"
    assert main(["predict", "--model", str(model), "--data", str(data), "--out", str(out)]) == 0
    return list(map(json.loads, out.read_text().splitlines()))


def test_relations_are_learned(tuned):
    results, model = tuned
    assert results["eval/f1"] > 0.95 and results["eval/accuracy"] > 0.95
    config = load_pretrained(model).config
    assert config.id2label == tuple(sorted(TEMPLATES)) and config.problem_type == "single_label_classification"
    record = json.loads((model / "bert_jax.json").read_text())
    assert record["relations"] == {"markers": "typed_entity_marker_punct", "null_label": "no_relation"}
    assert sum(record["classes"].values()) == 240


@pytest.mark.slow
def test_scores_are_those_of_scikit_learn_on_the_written_answers(place, tmp_path):
    """Of a model that has learned little, so that there are mistakes of every kind."""
    metrics = pytest.importorskip("sklearn.metrics")
    train(recipe(place, num_epochs=0.0, num_steps=24), tmp_path / "run", progress=False)
    model, data = tmp_path / "run" / "model", place / "dev.json"
    scores = evaluation.evaluate(model, str(data))
    rows, answers = json.loads(data.read_text()), predicted(model, data, tmp_path)
    assert [answer["id"] for answer in answers] == [row["id"] for row in rows]
    gold, found = [row["relation"] for row in rows], [answer["label"] for answer in answers]
    relations = sorted(set(TEMPLATES) - {"no_relation"})
    options = {"labels": relations, "average": "micro", "zero_division": 0}
    assert scores["f1"] == pytest.approx(metrics.f1_score(gold, found, **options))
    assert scores["precision"] == pytest.approx(metrics.precision_score(gold, found, **options))
    assert scores["recall"] == pytest.approx(metrics.recall_score(gold, found, **options))
    assert scores["accuracy"] == pytest.approx(metrics.accuracy_score(gold, found))
    assert 0.1 < scores["f1"] < 0.99 and scores["f1"] != pytest.approx(scores["accuracy"], abs=1e-4)
    each = metrics.f1_score(gold, found, labels=relations, average=None, zero_division=0)
    assert [scores[f"f1_{name}"] for name in relations] == pytest.approx(each.tolist())
    assert "f1_no_relation" not in scores and scores["examples"] == 60


def test_answers_and_their_fields(place, tuned, tmp_path):
    (first, *_) = predicted(tuned[1], place / "dev.json", tmp_path)
    row = json.loads((place / "dev.json").read_text())[0]
    assert first["text"] == " ".join(row["token"]) and first["label"] == row["relation"]
    for name, short in (("head", "subj"), ("tail", "obj")):
        told = first[name]
        assert told["text"] == row["token"][row[f"{short}_start"]] == first["text"][told["start"] : told["end"]]
        assert told["type"] == row[f"{short}_type"]
    assert sum(first["scores"].values()) == pytest.approx(1, abs=1e-4)
    evaluation.predict(tuned[1], str(place / "dev.json"), tmp_path / "answers.tsv")
    header, line = (tmp_path / "answers.tsv").read_text().splitlines()[:2]
    assert header.split("\t")[:4] == ["id", "head", "tail", "label"]
    assert line.split("\t")[:4] == [row["id"], first["head"]["text"], first["tail"]["text"], row["relation"]]


def test_the_report_shows_each_relation(place, tuned, tmp_path, capsys):
    command = ["evaluate", "--json", "--model", str(tuned[1]), "--data", str(place / "dev.json")]
    assert main([*command, "--report", str(tmp_path / "a.html"), "--metrics", "f1,types"]) in (0, None)
    assert json.loads(capsys.readouterr().out)["f1_born_in"] > 0.9
    page = (tmp_path / "a.html").read_text()
    assert "works_for" in page and "f1_based_in" in page


@pytest.mark.oracle
def test_transformers_opens_the_model(place, tuned, tmp_path):
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    model = transformers.AutoModelForSequenceClassification.from_pretrained(tuned[1]).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tuned[1])
    inputs = tokenizer("@ * person * ada @ works at # ^ org ^ acme # .", return_tensors="pt")
    with torch.no_grad():
        scores = model(**inputs).logits.softmax(-1)[0]
    pair = {"text": "ada works at acme .", "head": (0, 3, "PERSON"), "tail": (13, 17, "ORG")}
    ours = pipeline("relation-extraction", tuned[1])(pair)
    assert ours["label"] == model.config.id2label[int(scores.argmax())] == "works_for"
    assert ours["score"] == pytest.approx(float(scores.max()), abs=1e-5)


def test_the_code_of_its_card_runs(tuned, capsys):
    code = re.findall(r"```python\n(.*?)```", (tuned[1] / "README.md").read_text(), re.DOTALL)[0]
    exec(code.replace("path/to/this/folder", str(tuned[1])), {})
    assert "relation-extraction" in code and "'label'" in capsys.readouterr().out


def test_importance_of_parts_comes_from_its_data(place, tuned):
    examples = examples_of_data(load_pretrained(tuned[1]), str(place / "train.json"), 12)
    assert sum(len(batch["input_ids"]) for batch in examples.batches) == 12
    assert examples.task.model.config.id2label == tuple(sorted(TEMPLATES))


@pytest.mark.parametrize("style", [style for style in MARKERS if not style.endswith("_punct")])
def test_markers_that_add_tokens(place, tmp_path, style):
    made = job(place, **{"data.markers": style})
    config = made.task.model.config
    added = 4 if style == "entity_marker" else 2 * 2 * len(NAMES)
    assert config.vocab_size == len(PIECES) + added == made.tokenizer.vocab_size
    table = made.pretrained["embeddings"]["word_embeddings"]["embedding"]
    old = load_pretrained(place / "encoder").params["embeddings"]["word_embeddings"]["embedding"]
    assert np.array_equal(table[: len(PIECES)], old) and len(table) == config.vocab_size
    made.save(tmp_path / "model", jax.jit(made.init_params)(jax.random.key(0)))
    again = from_pretrained(tmp_path / "model")
    assert again.settings.records["relations"].markers == style
    ids = again.tokenizer.encode("[E1] ada [/E1]" if style == "entity_marker" else "[SUBJ-ORG] ada [/SUBJ-ORG]")
    assert len(ids) == 3 and min(ids[0], ids[2]) >= len(PIECES)
    scores = evaluation.evaluate(tmp_path / "model", str(place / "dev.json"))
    assert scores["examples"] == 60
    again.save_pretrained(tmp_path / "copy")
    assert from_pretrained(tmp_path / "copy").settings.records == again.settings.records


def document(rng, number):
    """A document of DocRED, with a person, a firm and a city, and two relations of the last two."""
    names = [str(rng.choice(choices)) for choices in (PEOPLE, FIRMS, CITIES)]
    tokens = [f"{names[0]} works at {names[1]} .".split(), f"in {names[2]} sits {names[1]} .".split()]
    vertices = []
    for name, kind in zip(names, ("PERSON", "ORG", "CITY"), strict=True):
        found = [(i, words.index(name)) for i, words in enumerate(tokens) if name in words]
        vertices.append([{"name": name, "sent_id": i, "pos": [at, at + 1], "type": kind} for i, at in found])
    labels = [{"h": h, "t": t, "r": r, "evidence": []} for h, t, r in ((0, 1, "P1"), (1, 2, "P2"), (1, 2, "P3"))]
    return {"title": f"d{number}", "sents": tokens, "vertexSet": vertices, "labels": labels}


@pytest.mark.slow
def test_documents_with_several_relations(place, tmp_path):
    metrics = pytest.importorskip("sklearn.metrics")
    rng = np.random.default_rng(0)
    for name, count in (("train_annotated", 30), ("dev", 8)):
        (tmp_path / f"{name}.json").write_text(json.dumps([document(rng, i) for i in range(count)]))
    c = load_recipe(f"relation_extraction:{tmp_path},docred")
    c.init_from, c.data.max_seq_length, c.data.length_buckets = str(place / "encoder"), 40, (40,)
    c.global_batch_size, c.num_epochs, c.optimizer.learning_rate = 16, 12.0, 4e-3
    assert c.data.null_ratio == 3 and jobs.build(recipes.resolve(c)).train_source.num_examples == 30 * 6
    c.data.null_ratio = 1.0
    assert jobs.build(recipes.resolve(c)).train_source.num_examples == 30 * 4  # of 4 pairs without a relation 2
    results = train(c, tmp_path / "run", progress=False)
    assert results["eval/f1"] > 0.9
    model = tmp_path / "run" / "model"
    answers = predicted(model, tmp_path / "dev.json", tmp_path)
    assert len(answers) == 8 * 6 and (answers[0]["title"], answers[0]["h_idx"], answers[0]["t_idx"]) == ("d0", 0, 1)
    names = ["P1", "P2", "P3"]
    gold = [{(0, 1): ["P1"], (1, 2): ["P2", "P3"]}.get((a["h_idx"], a["t_idx"]), []) for a in answers]
    hot = [[[name in labels for name in names] for labels in side] for side in (gold, [a["labels"] for a in answers])]
    expected = metrics.f1_score(*map(np.array, hot), average="micro", zero_division=0)
    scores = evaluation.evaluate(model, str(tmp_path / "dev.json"))
    assert scores["f1"] == pytest.approx(expected) and scores["examples"] == 48
    assert results["eval/f1"] == pytest.approx(scores["f1"])


def test_plan_compiles_its_steps_without_data_and_with(place):
    c = recipes.relation_extraction()
    c.num_steps = 5
    (stage,) = jobs.abstract_task(recipes.resolve(c)).stages
    assert stage.batch["input_ids"].shape == (32, 128) and stage.batch["labels"].shape == (32,)
    c.data.multi_label = True
    (stage,) = jobs.abstract_task(recipes.resolve(c)).stages
    assert stage.batch["labels"].shape == (32, 42)
    (stage,) = SMALL.abstract_task(place).stages
    batch = job(place).train_source.batch(0)
    assert {n: (a.shape, a.dtype) for n, a in stage.batch.items()} == {n: (a.shape, a.dtype) for n, a in batch.items()}


def test_rows_are_held_out_by_relation_or_by_document(place, tmp_path):
    made = job(place, **{"data.dev": "", "data.validation_split": 0.25})
    assert made.train_source.num_examples == 180
    (tmp_path / "a.json").write_text(json.dumps([document(np.random.default_rng(i), i) for i in range(8)]))
    changes = {"data.train": str(tmp_path / "a.json"), "data.dev": "", "data.validation_split": 0.25,
               "data.multi_label": True, "data.max_seq_length": 40, "data.length_buckets": (40,)}  # fmt: skip
    assert job(place, **changes).train_source.num_examples == 6 * 6


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data.train": ""}, r"config\.data\.train: expected a file to learn from"),
        ({"data.null_label": "none"}, r"config\.data\.null_label: expected a relation in .*train\.json, found 'none'"),
        ({"data.metrics": ("f2",)}, r"data\.metrics: 'f2' is not a metric of relations"),
        ({"best_metric": "f3"}, r"config\.best_metric: 'f3' is not measured"),
        ({"data.max_seq_length": 64}, r"config\.data\.max_seq_length: expected at most the model's 48 positions"),
        ({"data.max_seq_length": 8}, r"row \d+: expected both entities within 8 tokens, found them .*\(and \d+ more"),
        (
            {"distillation.teacher": "x", "distillation.weights.soft_labels": 1.0},
            r"config\.distillation\.teacher: expected none for relation extraction",
        ),
    ],
)
def test_recipes_that_do_not_fit(place, changes, message):
    with pytest.raises(InputError, match=message):
        job(place, **changes)


def test_a_vocabulary_without_the_punctuation(place, tmp_path, write_small):
    model = write_small(tmp_path / "model", max_position_embeddings=48)
    with pytest.raises(InputError, match=r"markers typed_entity_marker_punct: expected a vocabulary with '.', found"):
        job(place, init_from=str(model))


def test_rows_that_do_not_fit(place, tuned, tmp_path):
    rows = rows_of(4, seed=5)
    rows[1]["subj_end"], rows[2]["relation"] = 99, "loves"
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    message = r"a\.jsonl: line 2: expected subj_start and subj_end among the tokens 0 to \d+, found \d+ and 99"
    with pytest.raises(InputError, match=message):
        evaluation.evaluate(tuned[1], str(tmp_path / "a.jsonl"))
    rows.pop(1)
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(InputError, match=r"line 2: expected one of 'based_in', .*, found 'loves'"):
        evaluation.evaluate(tuned[1], str(tmp_path / "a.jsonl"))
    scores = evaluation.evaluate(tuned[1], str(tmp_path / "a.jsonl"), invalid_rows="skip")
    assert scores["examples"] == 2
    (tmp_path / "b.jsonl").write_text('{"text": "ada", "head": {"start": 0, "end": 9}}\n' + json.dumps(rows[0]) + "\n")
    evaluation.predict(tuned[1], str(tmp_path / "b.jsonl"), tmp_path / "out.jsonl", invalid_rows="skip")
    first, second = map(json.loads, (tmp_path / "out.jsonl").read_text().splitlines())
    assert first["label"] is None and "expected a span within the 3 characters" in first["error"]
    assert second["label"] == rows[0]["relation"]
    assert not [name for name in os.listdir(tmp_path) if "partial" in name]
