"""Tagging from sentences to a finished model, through the training loop; then scoring and asking it."""

import itertools
import json

import jax
import numpy as np
import pytest
from small_tasks import SmallTask

from bert_jax import evaluation, jobs, recipes
from bert_jax.cli import main
from bert_jax.conversion.huggingface import load_pretrained
from bert_jax.data.finetuning.tables import Columns
from bert_jax.data.finetuning.tagged import read_sentences
from bert_jax.errors import InputError
from bert_jax.inference import pipeline
from bert_jax.metrics import entities
from bert_jax.tasks.token_classification import data
from bert_jax.tasks.token_classification.evaluation import TokenClassificationEvaluator
from bert_jax.tokenization import train_bpe, train_sentencepiece, word_piece

PLACES, PEOPLE = ["house", "river", "stone"], ["man", "child", "cat"]
NEITHER = ["the", "sat", "on", "a", "by", "and", "quxing", "is", "good"]


def write_conll(path, sentences, seed):
    """Sentences of 3 to 20 words: a place or a person of one or two words now and then."""
    rng = np.random.default_rng(seed)
    lines = ["-DOCSTART- O", ""]
    for _ in range(sentences):
        words = rng.integers(3, 20)
        while words > 0:
            kind = rng.choice(["LOC", "PER", ""], p=[0.15, 0.15, 0.7])
            if not kind:
                lines.append(f"{rng.choice(NEITHER)} O")
            else:
                lines.append(f"{rng.choice(PLACES if kind == 'LOC' else PEOPLE)} B-{kind}")
                if rng.random() < 0.5:
                    lines.append(f"{'big' if kind == 'LOC' else 'young'} I-{kind}")
            words -= 1
        lines.append("")
    path.write_text("\n".join(lines))


@pytest.fixture(scope="module")
def place(tmp_path_factory, write_small):
    """Sentences, and an encoder with random parameters to start from."""
    root = tmp_path_factory.mktemp("tagging")
    write_conll(root / "train.conll", 240, seed=0)
    write_conll(root / "dev.conll", 61, seed=1)
    write_small(root / "encoder")
    return root


SMALL = SmallTask("token_classification", {
    "init_from": "{place}/encoder", "data.train": "{place}/train.conll", "data.dev": "{place}/dev.conll",
    "data.max_seq_length": 20,  # so that some sentences take two windows
    "data.length_buckets": (20,), "global_batch_size": 16, "num_epochs": 4.0, "optimizer.learning_rate": 4e-3,
})  # fmt: skip
recipe, job = SMALL.recipe, SMALL.job


@pytest.fixture(scope="module")
def tuned(place):
    """What training returned, and the finished model."""
    return SMALL.train(place)


def test_entities_are_learned(tuned):
    results, model = tuned
    assert results["eval/f1"] > 0.9 and results["eval/accuracy"] > 0.95
    assert {"eval/precision", "eval/recall", "train/accuracy"} <= results.keys()
    assert load_pretrained(model).config.id2label == ("O", "B-LOC", "B-PER", "I-LOC", "I-PER")


def test_evaluate_is_what_predict_wrote_scored_by_hand(place, tuned, tmp_path, monkeypatch):
    results, model = tuned
    monkeypatch.setattr("bert_jax.evaluation.writing.CHUNK", 25)  # three parts, the last smaller
    dev, options = str(place / "dev.conll"), {"batch_size": 16, "max_seq_length": 20}
    scores = evaluation.evaluate(model, dev, Columns(), **options)
    assert evaluation.predict(model, dev, tmp_path / "out.conll", Columns(), **options) == scores["examples"] == 61
    true, found = list(read_sentences(dev, Columns())), list(read_sentences(str(tmp_path / "out.conll"), Columns()))
    assert [s.words for s in true] == [s.words for s in found]
    assert scores["words"] == sum(len(s.words) for s in true)
    names = load_pretrained(model).config.id2label
    flat = [np.array([tag for s in side for tag in (*map(names.index, s.tags), -1)][:-1]) for side in (true, found)]
    by_hand = entities.tagging_scores(entities.TAGGING_METRICS, names, *flat)
    assert {name: scores[name] for name in by_hand} == pytest.approx(by_hand)
    assert {"f1_LOC", "precision_PER"} <= scores.keys()
    same = ("f1", "precision", "recall", "accuracy")
    assert [scores[name] for name in same] == pytest.approx([results[f"eval/{name}"] for name in same])
    assert [path.name for path in tmp_path.iterdir()] == ["out.conll"]


def test_answers_in_json_have_scores_and_serve_as_data_again(place, tuned, tmp_path, capsys):
    """By the verbs, which ask the model which task is its own."""
    model, dev, out = str(tuned[1]), str(place / "dev.conll"), tmp_path / "out.jsonl"
    assert main(["predict", "--model", model, "--data", dev, "--out", str(out)]) == 0
    assert capsys.readouterr().out == f"{out}: 61 rows\n"
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [tuple(row["tokens"]) for row in rows] == [s.words for s in read_sentences(dev, Columns())]
    assert all(len(row["tokens"]) == len(row["tags"]) == len(row["scores"]) for row in rows)
    assert all(0.2 <= score <= 1 for row in rows for score in row["scores"])
    assert main(["evaluate", "--model", model, "--data", str(out), "--json", "--metrics", "f1,accuracy,types"]) == 0
    scores = json.loads(capsys.readouterr().out)
    by_type = {f"{name}_{kind}" for name in ("f1", "precision", "recall") for kind in ("LOC", "PER")}
    assert scores.keys() == {"f1", "accuracy", *by_type, "examples", "words"}
    assert scores["accuracy"] == scores["f1"] == scores["recall_PER"] == 1.0
    assert main(["evaluate", "--model", model, "--data", dev, "--pair-column", "b"]) == 2
    assert "expected single sentences" in capsys.readouterr().err


def test_the_pipeline_finds_what_predict_finds(place, tuned, tmp_path):
    evaluation.predict(tuned[1], str(place / "dev.conll"), tmp_path / "out.conll", Columns(), batch_size=16)
    sentences = [s for s in read_sentences(str(tmp_path / "out.conll"), Columns()) if len(s.words) < 14]
    names = load_pretrained(tuned[1]).config.id2label
    tagger = pipeline("ner", tuned[1])
    answers = tagger([" ".join(s.words) for s in sentences], aggregation_strategy="first")
    scheme = entities.read_scheme(names)
    for sentence, found in zip(sentences, answers, strict=True):
        spans = entities.entities(scheme, np.array([names.index(tag) for tag in sentence.tags]))
        expected = [(scheme.type_names[kind], " ".join(sentence.words[a:b])) for a, b, kind in spans]
        assert [(answer["entity_group"], answer["word"]) for answer in found] == expected


# --- Words and their pieces -------------------------------------------------------------------------------------------


def test_only_the_first_piece_of_a_word_is_asked(tiny_tokenizer):
    features = data.encode_words(tiny_tokenizer, [("quxing", "sat", "\u200b", "on")], [np.array([3, 1, 2, 0])], 32)
    pieces = [tiny_tokenizer.pieces[i] for i in features.tokens]
    assert pieces == ["[CLS]", "q", "##u", "##x", "##ing", "sat", "[UNK]", "on", "[SEP]"]
    assert features.tags.tolist() == [-1, 3, -1, -1, -1, 1, 2, 0, -1]  # what comes to nothing keeps its place
    batch = features.pad(np.array([0, -1]), 12, 0)
    assert batch["labels"].tolist() == [[-1, 3, -1, -1, -1, 1, 2, 0, -1, -1, -1, -1], [-1] * 12]
    assert batch["example_weights"].tolist() == [1, 0]


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "bpe with a space before texts", "sentencepiece"])
def test_words_are_cut_as_in_a_text(kind):
    texts = ["The old man's river-stone sat , naïve !", "a b", "Zürich 東京 quickly 3.14 ( yes )"]
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(c for t in texts for c in t.lower()), "##e", "old"]
    tokenizer = {
        "wordpiece": lambda: word_piece([*dict.fromkeys(pieces)]),
        "bpe": lambda: train_bpe(texts * 5, 340),
        "bpe with a space before texts": lambda: train_bpe(texts * 5, 340, add_prefix_space=True),
        "sentencepiece": lambda: train_sentencepiece(texts * 20, 60),
    }[kind]()
    found = data.word_pieces(tokenizer, [text.split() for text in texts])
    assert [list(itertools.chain.from_iterable(words)) for words in found] == tokenizer.encode_batch(texts)
    assert [len(words) for words in found] == [len(text.split()) for text in texts]
    assert all(words != [] for sentence in found for words in sentence)


def test_special_tokens_that_a_word_spells_are_words(tiny_tokenizer):
    ((word,),) = data.word_pieces(tiny_tokenizer, [("[MASK]",)])
    assert tiny_tokenizer.mask_id not in word and len(word) > 1


def test_no_word_of_a_long_sentence_is_lost_or_asked_twice(tiny_tokenizer):
    rng = np.random.default_rng(0)
    sentences = [tuple(rng.choice([*NEITHER, "x" * 30], n)) for n in (1, 50, 3, 200, 7)]
    classes = [rng.integers(0, 5, len(words)) for words in sentences]
    features = data.encode_words(tiny_tokenizer, sentences, classes, 12)
    assert features.lengths.max() == 12 and len(features) > 50
    batches = [features.pad(np.arange(i, min(i + 16, len(features))), 12, 0) for i in range(0, len(features), 16)]
    ordered = data.in_order([batch["labels"] for batch in batches], batches)
    expected = np.concatenate([part for answers in classes for part in (answers, [-1])])[:-1]
    assert ordered.tolist() == expected.tolist()
    assert (features.tags >= 0).sum() == sum(map(len, sentences))


# --- The loss ---------------------------------------------------------------------------------------------------------


def test_the_loss_is_the_mean_over_words_and_parts_of_a_batch_add_up(place):
    made = job(place, **{"data.length_buckets": ()})
    task, params, batch = made.task, jax.jit(made.init_params)(jax.random.key(0)), made.train_source.batch(3)
    weights, loss = task.weights(batch), jax.jit(lambda batch, weights: task.loss(params, batch, None, weights))
    whole, metrics = loss(batch, weights)
    logits = np.asarray(jax.jit(lambda batch: task._logits(params, batch, None))(batch), np.float64)
    asked = batch["labels"] >= 0
    shares = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    chosen = np.take_along_axis(shares, np.maximum(batch["labels"], 0)[..., None], -1)[..., 0][asked]
    assert float(whole) == pytest.approx(-np.log(chosen).mean(), rel=1e-5)
    assert float(metrics["accuracy"][0]) == (logits.argmax(-1) == batch["labels"])[asked].sum()
    assert float(metrics["accuracy"][1]) == asked.sum() == float(weights["labels"])
    parts = [{name: array[rows] for name, array in batch.items()} for rows in (slice(0, 8), slice(8, 16))]
    assert float(whole) == pytest.approx(sum(float(loss(part, weights)[0]) for part in parts))


def test_what_is_built(place):
    made = job(place, **{"data.length_buckets": (8, 16), "data.metrics": ("f1", "types"), "num_epochs": 0.5})
    assert made.train_source.buckets == (8, 16, 20)
    assert made.task.metrics == ("f1", "types") and made.task.names[0] == "O"
    assert made.num_steps == -(-made.train_source.steps_per_epoch // 2)
    assert job(place, **{"data.dev": ""}).eval_source is None
    abstract_task = SMALL.abstract_task(place)
    assert abstract_task.stages[0].batch["labels"].shape == (16, 20)
    c = recipe(place, **{"data.train": "", "num_steps": 5})
    (stage,) = jobs.abstract_task(recipes.resolve(c)).stages
    batch = job(place).train_source.batch(0)
    assert {n: (a.shape, a.dtype) for n, a in stage.batch.items()} == {n: (a.shape, a.dtype) for n, a in batch.items()}


def test_parts_of_speech(place, tmp_path):
    (tmp_path / "train.jsonl").write_text(
        "".join(json.dumps({"w": ["the", "cat", "sat"][:n], "p": ["DT", "NN", "VB"][:n]}) + "\n" for n in (1, 2, 3) * 5)
    )
    changes = {
        "data.train": str(tmp_path / "train.jsonl"),
        "data.dev": "",
        "data.text_column": "w",
        "data.label_column": "p",
    }
    made = job(place, **changes)
    assert (made.task.names, made.task.metrics) == (("DT", "NN", "VB"), ("accuracy",))
    made.save(tmp_path / "model", jax.jit(made.init_params)(jax.random.key(0)))
    scores = evaluation.evaluate(tmp_path / "model", changes["data.train"], Columns("w", "", "p"))
    assert scores == {"accuracy": scores["accuracy"], "examples": 15, "words": 30}
    assert evaluation.evaluate(tmp_path / "model", changes["data.train"]) == scores  # the model remembers its columns


# --- What does not fit ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data.train": ""}, r"config\.data\.train: expected a file"),
        ({"data.train": "/no/such/file.conll"}, r"/no/such/file\.conll: no such file"),
        ({"data.label_column": "4"}, r"train\.conll: line 3: expected a column 4, found 2 columns"),
        ({"data.max_seq_length": 64}, r"config\.data\.max_seq_length: expected at most the model's 32 positions"),
        ({"data.metrics": ("f2",)}, r"data\.metrics: 'f2' is not a metric of tagging; known: accuracy, f1"),
        ({"init_from": "", "tokenizer": ""}, r"config\.tokenizer: expected a tokenizer"),
    ],
)
def test_what_does_not_fit(place, changes, message):
    with pytest.raises(InputError, match=message):
        job(place, **changes)


def test_tags_that_do_not_fit(place, tuned, tmp_path):
    (tmp_path / "dev.conll").write_text("a O\n\nthe O\ncat B-CAT\n")
    message = r"dev\.conll: line 3: in the sentence .* expected one of 'O', 'B-LOC', .*, found 'B-CAT' of .* 'cat'"
    with pytest.raises(InputError, match=message):
        job(place, **{"data.dev": str(tmp_path / "dev.conll")})
    with pytest.raises(InputError, match=message):
        evaluation.evaluate(tuned[1], str(tmp_path / "dev.conll"), Columns())
    (tmp_path / "train.conll").write_text("a O\n")
    with pytest.raises(InputError, match=r"train\.conll: expected at least two tags, found only 'O'"):
        job(place, **{"data.train": str(tmp_path / "train.conll")})


def test_refused_by_evaluate_and_predict(place, tuned, tmp_path):
    dev, model = str(place / "dev.conll"), tuned[1]
    with pytest.raises(InputError, match="expected a model for token_classification, found one for encoder"):
        TokenClassificationEvaluator(place / "encoder")
    with pytest.raises(InputError, match="'f1_PER' is not a metric of tagging"):
        evaluation.evaluate(model, dev, Columns(), metric_names=("f1_PER",))
    with pytest.raises(InputError, match=r"expected a file named \.jsonl or \.conll"):
        evaluation.predict(model, dev, tmp_path / "out.csv", Columns())
    (tmp_path / "in.jsonl").write_text(json.dumps({"tokens": ["a", "b\tc"]}))
    with pytest.raises(
        InputError,
        match=r"in\.jsonl: line 1: expected words without tabs and line breaks, as CoNLL needs, found 'b\\tc'",
    ):
        evaluation.predict(model, str(tmp_path / "in.jsonl"), tmp_path / "out.conll", Columns())
    assert evaluation.predict(model, str(tmp_path / "in.jsonl"), tmp_path / "out.jsonl", Columns()) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.jsonl", "out.jsonl"]


def test_the_real_files_of_conll2003(shared_data, tiny_tokenizer):
    sentences, names = data.read_tagged(str(shared_data / "conll2003" / "valid.txt"), Columns(), None)
    features = data.encode_tagged(tiny_tokenizer, sentences, names, 128)
    assert names == ("O", *(f"{letter}-{kind}" for letter in "BI" for kind in ("LOC", "MISC", "ORG", "PER")))
    assert (features.tags >= 0).sum() == 51362 and len(features) >= 3250
