"""Training of GLiNERs: batches depend on seed and step, the loss is that of the equations, entities are learned."""

import dataclasses
import json

import jax
import numpy as np
import pytest
from gliners import HEAD, gliner, head_in_numpy, write_gliner, write_rows
from small_tasks import SmallTask

from bert_jax.cli import main
from bert_jax.conversion.huggingface import load_pretrained, save_pretrained
from bert_jax.data.finetuning.columns import Columns
from bert_jax.data.invalid_rows import InvalidRows
from bert_jax.errors import InputError
from bert_jax.inference import pipeline
from bert_jax.metrics.entities import span_scores
from bert_jax.modeling import Bert
from bert_jax.tasks.zero_shot_ner.batches import GlinerSource, encode_span_texts
from bert_jax.tasks.zero_shot_ner.data import SpanText, read_span_texts, type_counts
from bert_jax.tasks.zero_shot_ner.rows import RowMaker
from bert_jax.tasks.zero_shot_ner.task import ZeroShotNerTask, chosen_spans, gold_spans
from bert_jax.tokenization import load_tokenizer


def write_encoder(path, write_small):
    """An encoder whose states are mostly those of their own words, as after pretraining."""
    loaded = load_pretrained(write_small(path.with_name("random"), max_position_embeddings=64))
    loaded.params["embeddings"]["word_embeddings"]["embedding"] *= 10
    save_pretrained(path, loaded.config, "encoder", loaded.params, load_tokenizer(loaded.directory))


@pytest.fixture(scope="module")
def place(tmp_path_factory, write_small):
    root = tmp_path_factory.mktemp("gliner")
    write_rows(root / "train.jsonl", 320, 0)
    write_rows(root / "dev.jsonl", 60, 1)
    write_encoder(root / "encoder", write_small)
    return root


SMALL = SmallTask("zero_shot_ner", {
    "init_from": "{place}/encoder", "data.train": "{place}/train.jsonl", "data.dev": "{place}/dev.jsonl",
    "data.max_seq_length": 40, "data.length_buckets": (32,), "data.hidden_size": 32, "data.max_width": 2,
    "data.dropout": 0.0, "model.hidden_dropout_prob": 0.0, "model.attention_probs_dropout_prob": 0.0,
    "data.embed_ent_token": False,  # so that a small encoder need not learn to copy the name of a type
    "global_batch_size": 16, "num_epochs": 6.0, "optimizer.learning_rate": 3e-3,
})  # fmt: skip
recipe, job = SMALL.recipe, SMALL.job


def read(path, renamed=None, **options):
    return read_span_texts(str(path), Columns(), renamed or {}, InvalidRows(str(path)), **options)


@pytest.fixture(scope="module")
def tuned(place):
    return SMALL.train(place)


def test_entities_are_learned(tuned, place):
    results, model = tuned
    assert (
        results["eval/f1"] > 0.9 and {"eval/precision", "eval/recall", "train/binary_cross_entropy"} <= results.keys()
    )
    loaded = load_pretrained(model)
    assert (loaded.head, loaded.config.gliner.max_width, loaded.config.gliner.hidden_size) == ("zero_shot_ner", 2, 32)
    find = pipeline("zero-shot-ner", model)
    rows = [json.loads(line) for line in (place / "dev.jsonl").read_text().splitlines()]
    right = wrong = 0
    for row in rows:
        ends = np.cumsum([len(word) + 1 for word in row["tokenized_text"]])
        gold = {(int(ends[a]) - 1 - len(row["tokenized_text"][a]), int(ends[z]) - 1, kind) for a, z, kind in row["ner"]}
        found = {(e["start"], e["end"], e["label"]) for e in find(" ".join(row["tokenized_text"]), ["old", "tree"])}
        right, wrong = right + len(gold & found), wrong + len(gold ^ found)
    assert 2 * right / (2 * right + wrong) == pytest.approx(results["eval/f1"], abs=0.02)


def test_evaluate_and_predict_by_the_verbs(tuned, place, tmp_path, capsys):
    results, model = tuned
    command = ["--model", str(model), "--data", str(place / "dev.jsonl"), "--max-seq-length", "40"]
    assert main(["evaluate", *command, "--json"]) == 0
    scores = json.loads(capsys.readouterr().out)
    assert scores["f1"] == pytest.approx(results["eval/f1"], abs=1e-3) and scores["examples"] == 60
    assert {"f1_old", "recall_tree"} <= scores.keys()
    assert main(["predict", *command, "--out", str(tmp_path / "out.jsonl"), "--entity-types", "old,tree"]) == 0
    found, gold = read(tmp_path / "out.jsonl"), read(place / "dev.jsonl")
    assert [text.words for text in found] == [text.words for text in gold]
    right = sum(len({*a.spans} & {*b.spans}) for a, b in zip(found, gold, strict=True))
    assert right / sum(len(text.spans) for text in gold) == pytest.approx(scores["recall"], abs=1e-6)
    capsys.readouterr()
    assert main(["predict", *command, "--out", str(tmp_path / "more.jsonl")]) == 2
    assert "expected the types to find (--entity-types), found none" in capsys.readouterr().err
    assert main(["evaluate", *command, "--entity-types", "old,old"]) == 2
    assert "expected each entity type once" in capsys.readouterr().err


def test_training_goes_further_from_a_gliner(tuned, place):
    _, model = tuned
    further = job(place, init_from=str(model), **{"data.hidden_size": 32, "data.max_width": 3, "num_steps": 1})
    before = load_pretrained(model).params
    assert all(
        np.array_equal(a, b) for a, b in zip(jax.tree.leaves(before), jax.tree.leaves(further.pretrained), strict=True)
    )
    assert further.task.model.config.gliner.max_width == 3
    with pytest.raises(InputError, match=r"data\.hidden_size: expected 32, as in the model of init_from, found 64"):
        job(place, init_from=str(model), **{"data.hidden_size": 64})


def test_batches_depend_on_seed_and_step_alone(place):
    source = job(place).train_source
    again = job(place).train_source
    other = job(place, seed=1).train_source
    names = set()
    for step in (0, 3, 25):
        batch, same = source.batch(step), again.batch(step)
        assert all(np.array_equal(batch[name], same[name]) for name in batch)
        half = source.batch(step, slice(8, 16))
        assert all(np.array_equal(batch[name][8:16], half[name]) for name in batch)
        assert any((batch[name] != other.batch(step)[name]).any() for name in ("type_numbers", "input_ids"))
        names |= set(batch)
    assert {"input_ids", "word_positions", "type_positions", "spans"} <= names
    epochs = [source.batch(step)["type_numbers"] for step in (0, source.steps_per_epoch)]
    assert (epochs[0] != epochs[1]).any()


def features_of(tiny_tokenizer, texts, max_length=40, training=True, **changes):
    _, _, tokenizer = gliner(tiny_tokenizer)
    maker = RowMaker(tokenizer, dataclasses.replace(HEAD, **changes))
    return encode_span_texts(maker, texts, tuple(type_counts(texts)), max_length, training=training)


def test_sampled_types(tiny_tokenizer):
    kinds = ["person", "tree", "bird", "river", "house", "stone", "cat"]
    words = ("the", "old", "man", "sat")
    texts = [SpanText(i, words, ((0, 1, kind), (2, 4, kind))) for i, kind in enumerate(kinds)] + [
        SpanText(9, words, ())
    ]
    features = features_of(tiny_tokenizer, texts, max_types=4)
    source = GlinerSource(features, 8, (40,), 0, seed=0)
    sizes = set()
    for step in range(40):
        batch = source.batch(step)
        for row in range(8):
            numbers = batch["type_numbers"][row]
            found = numbers[numbers >= 0].tolist()
            window = texts[batch["documents"][row]]
            own = {features.names.index(kind) for _, _, kind in window.spans}
            assert len(found) == len(set(found)) == (batch["type_positions"][row] > 0).sum() and 1 <= len(found) <= 4
            assert own <= set(found) and len(found) <= max(1, len(own) + 2)  # two spans, one type for each at most
            spans = {(a, z, numbers[kind]) for a, z, kind in batch["spans"][row].tolist() if a >= 0}
            assert spans == {(a, z, features.names.index(kind)) for a, z, kind in window.spans}
            sizes.add(len(found))
    assert sizes == {1, 3}


def test_the_loss_is_that_of_the_equations(tiny_tokenizer):
    config, params, _ = gliner(tiny_tokenizer)
    words = ("the", "old", "man", "sat", "under", "a", "tree")
    texts = [
        SpanText(1, words, ((1, 3, "person"), (5, 7, "tree"), (0, 6, "tree"))),
        SpanText(2, words[:3], ((2, 3, "tree"),)),
    ]
    features = features_of(tiny_tokenizer, texts)
    batch = features.pad(np.array([0, 1, -1]), 40, 0, [[0, 1], [1], []])
    task = ZeroShotNerTask(Bert(config, "zero_shot_ner"), features.names)
    weights = task.weights(batch)
    loss, metrics = jax.jit(lambda p, b: task.loss(p, b, None, weights))(params, batch)
    output = Bert(config, "zero_shot_ner").apply(
        params, **{k: batch[k] for k in batch if k.endswith(("positions", "ids", "mask"))}
    )
    total = count = 0
    for row, text in enumerate(texts):
        numbers = [int(n) for n in batch["type_numbers"][row] if n >= 0]
        at, types = ([int(i) for i in batch[name][row] if i] for name in ("word_positions", "type_positions"))
        scored = head_in_numpy(params, np.asarray(output.last_hidden_state)[row], at, types, HEAD.max_width)
        gold = {(a, z - 1, numbers.index(features.names.index(kind))) for a, z, kind in text.spans}
        total += sum(np.logaddexp(0, -score if span in gold else score) for span, score in scored.items())
        count += len(scored) // len(numbers)
    assert float(metrics["binary_cross_entropy"][1]) == float(weights["spans"]) == count
    assert float(loss) == pytest.approx(total / count, rel=1e-5)


def test_evaluation_counts_every_entity_of_long_texts_and_many_types(tiny_tokenizer):
    """A perfect model has an F1 below 1 only for entities that are too wide."""
    words = ("the", "old", "man", "sat", "by") * 20
    spans = tuple((i, i + 1 + i % 2, ("person", "tree", "bird", "river", "a house")[i % 5]) for i in range(0, 90, 3))
    texts = [
        SpanText(1, words, (*spans, (91, 97, "tree"))),
        SpanText(2, words[:4], ()),
        SpanText(3, words[:2], spans[:1]),
    ]
    features = features_of(tiny_tokenizer, texts, training=False, max_types=2)
    assert len(features) > 8 and features.num_examples == 3
    assert (
        max(map(len, (features.pad(np.array([i]), 64, 0)["input_ids"] for i in range(len(features)))))
        and (features.lengths <= 40).all()
    )
    batches, predictions = [], []
    for i in range(len(features)):
        batch = features.pad(np.array([i, -1]), 40, 0)
        logits, kinds = np.full((2, 40, 3), -9.0), np.zeros((2, 40, 3), int)
        for start, stop, kind in batch["spans"][0]:
            if start >= 0 and stop - start <= 3 and stop <= (batch["word_positions"][0] > 0).sum():
                logits[0, start, stop - start - 1], kinds[0, start, stop - start - 1] = 9.0, kind
        batches, predictions = [*batches, batch], [*predictions, {"logits": logits, "kinds": kinds}]
    gold = gold_spans(batches)
    expected = {(d, a, z, features.names.index(kind)) for d, text in enumerate(texts) for a, z, kind in text.spans}
    assert set(map(tuple, gold.tolist())) == expected and len(gold) == len(expected)
    scores = span_scores(("f1", "precision", "recall"), features.names, gold, chosen_spans(predictions, batches))
    assert scores["precision"] == 1 and scores["recall"] == pytest.approx(1 - 1 / len(expected))


def test_scores_by_hand():
    true = np.array([[0, 0, 1, 0], [0, 3, 4, 1], [1, 0, 2, 1]])
    found = np.array([[0, 0, 1, 0], [0, 3, 4, 0], [1, 0, 2, 1], [1, 5, 6, 1]])
    scores = span_scores(("f1", "precision", "recall", "types"), ("a", "b"), true, found)
    assert (scores["precision"], scores["recall"], scores["f1"]) == pytest.approx((0.5, 2 / 3, 4 / 7))
    assert (scores["precision_a"], scores["recall_b"]) == (0.5, 0.5)
    assert span_scores(("f1",), (), true[:0], found[:0]) == {"f1": 0}


def test_tagged_sentences_are_read_too(tmp_path):
    (tmp_path / "a.conll").write_text("EU B-ORG\nrejects O\n\nJohn I-PER\nSmith I-PER\nParis B-LOC\n. O\n\n. O\n")
    texts = read(tmp_path / "a.conll", {"PER": "person", "ORG": "company"})
    assert [text.spans for text in texts] == [((0, 1, "company"),), ((0, 2, "person"), (2, 3, "LOC")), ()]
    rows = [
        {"tokenized_text": list(text.words), "ner": [[a, z - 1, kind] for a, z, kind in text.spans]} for text in texts
    ]
    (tmp_path / "a.json").write_text(json.dumps(rows))
    assert [text[1:] for text in read(tmp_path / "a.json")] == [text[1:] for text in texts]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"ner": []}, "expected a field 'tokenized_text'"),
        ({"tokenized_text": ["a"]}, "expected a field 'ner'"),
        ({"tokenized_text": [], "ner": []}, r"expected a list of words in 'tokenized_text', found \[\]"),
        ({"tokenized_text": "a b", "ner": []}, "expected a list of words in 'tokenized_text', found 'a b'"),
        ({"tokenized_text": ["a"], "ner": {}}, "expected a list of spans in 'ner', found dict"),
        ({"tokenized_text": ["a"], "ner": [[0, 1, "x"]]}, r"words 0 to 0 in 'ner', found \[0, 1, 'x'\]"),
        ({"tokenized_text": ["a", "b"], "ner": [[1, 0, "x"]]}, r"expected \[first, last, type\]"),
        ({"tokenized_text": ["a"], "ner": [[0, 0, " "]]}, r"expected \[first, last, type\]"),
        ({"tokenized_text": ["a"], "ner": [[0, 0]]}, r"expected \[first, last, type\]"),
    ],
)
def test_an_invalid_row_is_named(tmp_path, row, message):
    good = {"tokenized_text": ["a"], "ner": [[0, 0, "x"]]}
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(each) + "\n" for each in (good, row)))
    with pytest.raises(InputError, match=rf"a\.jsonl: line 2: .*{message}"):
        read(tmp_path / "a.jsonl")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data.type_names": ("PER",)}, r"data\.type_names: expected entries such as 'PER=person', found 'PER'"),
        ({"data.metrics": ("accuracy",)}, "'accuracy' is not a metric of entities"),
        ({"data.max_seq_length": 65}, r"data\.max_seq_length: expected at most the model's 64 positions"),
        ({"data.hidden_size": 33}, "hidden_size: expected an even number"),
        ({"data.train": ""}, r"config\.data\.train: expected a file"),
    ],
)
def test_settings_that_do_not_fit(place, changes, message):
    with pytest.raises(InputError, match=message):
        job(place, **changes)


def test_names_that_leave_no_room(tiny_tokenizer):
    text = SpanText(1, ("the", "man"), ((0, 1, "the old man sat under a tree by the river"),))
    with pytest.raises(InputError, match="expected room for a text behind the names of 1 types of"):
        features_of(tiny_tokenizer, [text], max_length=16)


@pytest.mark.slow
def test_from_a_gliner_by_the_verb(tmp_path, tiny_tokenizer, place):
    write_gliner(tmp_path / "model", tiny_tokenizer)
    options = ["num_steps=2", "global_batch_size=4", "data.max_seq_length=40", f"init_from={tmp_path / 'model'}"]
    command = ["finetune", "--config", f"gliner:{place / 'train.jsonl'}", "--workdir", str(tmp_path / "run")]
    assert main([*command, *(f"--config.{option}" for option in options)]) == 0
    assert load_pretrained(tmp_path / "run" / "model").config.gliner.max_width == HEAD.max_width
