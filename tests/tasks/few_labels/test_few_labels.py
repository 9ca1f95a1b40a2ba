"""Classification from few labels: the pairs, the classifier over embeddings, and the finished model."""

import csv
import functools

import jax
import numpy as np
import pytest
from small_tasks import SmallTask

import bert_jax
from bert_jax import evaluation
from bert_jax.data.finetuning.features import ragged_features
from bert_jax.errors import InputError
from bert_jax.tasks.few_labels.data import draw_pairs
from bert_jax.tasks.few_labels.logistic_regression import fit_classifier
from bert_jax.training.loop import train

TOPICS = {"animals": "cat dog bird fish", "nature": "house tree river stone", "colours": "red green blue old"}
SMALL = SmallTask(
    "few_labels:{place}/train.csv",
    {
        "init_from": "{place}/encoder", "data.dev": "{place}/dev.csv", "data.max_seq_length": 16,
        "data.length_buckets": (16,), "data.pairs_per_text": 4, "optimizer.learning_rate": 2e-3,
    },
)  # fmt: skip


@pytest.fixture(scope="module")
def place(tmp_path_factory, write_small):
    root = tmp_path_factory.mktemp("few")
    rng = np.random.default_rng(0)
    for name, rows in (("train", 24), ("dev", 40)):
        with open(root / f"{name}.csv", "w", newline="") as file:
            table = csv.writer(file)
            table.writerow(["text", "label"])
            for i in range(rows):
                topic = list(TOPICS)[i % 3]
                table.writerow([" ".join(rng.choice(TOPICS[topic].split(), 3)), topic])
    write_small(root / "encoder")
    return root


@pytest.mark.parametrize("counts", [(8, 8), (5, 1, 3), (1, 1), (64, 2, 30, 9)])
def test_pairs_of_classes(counts):
    classes = np.random.default_rng(1).permutation(np.repeat(np.arange(len(counts)), counts))
    texts = ragged_features([[1] * (3 + i % 5) for i in range(len(classes))])
    pairs = draw_pairs(texts, classes, 20, seed=0)
    alike = pairs.labels == 1
    of_pairs = classes[pairs.pairs]
    assert ((of_pairs[:, 0] == of_pairs[:, 1]) == alike).all() and (pairs.pairs[:, 0] != pairs.pairs[:, 1]).all()
    with_others = np.array([counts[number] > 1 for number in classes])
    assert (np.bincount(pairs.pairs[alike, 0], minlength=len(classes)) == 20 * with_others).all()
    assert (np.bincount(pairs.pairs[~alike, 0], minlength=len(classes)) == 20).all()
    if max(counts) <= 8:  # each text that may be drawn is drawn
        many = draw_pairs(texts, classes, 200, seed=0)
        assert {*map(tuple, many.pairs[many.labels == 1].tolist())} == {
            (i, j) for i in range(len(classes)) for j in range(len(classes)) if i != j and classes[i] == classes[j]
        }
    again = draw_pairs(texts, classes, 20, seed=0)
    assert (again.pairs == pairs.pairs).all()
    if len(classes) > 2:
        assert (draw_pairs(texts, classes, 20, seed=1).pairs != pairs.pairs).any()
    batch = pairs.pad(np.array([0, len(pairs) - 1, -1]), 8, 0)
    assert batch["input_ids"].shape == (3, 2, 8) and batch["example_weights"].tolist() == [1, 1, 0]
    assert batch["attention_mask"].sum(-1)[:2].tolist() == texts.lengths[pairs.pairs[[0, -1]]].tolist()


@pytest.mark.parametrize("count", [2, 3])
def test_the_classifier_has_the_probabilities_of_scikit_learn(count):
    linear_model = pytest.importorskip("sklearn.linear_model")
    rng = np.random.default_rng(0)
    classes = np.arange(30) % count
    vectors = rng.normal(size=(30, 6)) + np.eye(6)[classes]
    layer = fit_classifier(vectors, classes, 0.5)
    logits = vectors @ layer["kernel"] + layer["bias"]
    expected = linear_model.LogisticRegression(C=0.5, max_iter=1000).fit(vectors, classes).predict_proba(vectors)
    np.testing.assert_allclose(jax.nn.softmax(logits), expected, atol=1e-6)


def test_the_finished_model_is_a_classifier(place, tmp_path):
    """Of a job whose parameters are those of the start, as the training loop would write it."""
    pytest.importorskip("sklearn")
    job = SMALL.job(place)
    assert job.classes == {"animals": 8, "colours": 8, "nature": 8} and job.num_steps == 24 * 8 // 16
    params = jax.tree.map(np.asarray, job.init_params(jax.random.key(0))) | job.pretrained
    job.save(tmp_path / "model", params)
    batches = [job.eval_source.batch(i) for i in range(job.eval_source.num_batches)]
    predictions = [jax.device_get(job.task.predict(params, batch)) for batch in batches]
    scores = job.task.score(predictions, batches)
    found = evaluation.evaluate(tmp_path / "model", str(place / "dev.csv"))
    assert found["examples"] == 40 and found["accuracy"] == pytest.approx(scores["accuracy"])
    (answer,) = bert_jax.pipeline("text-classification", tmp_path / "model")("a red house")
    assert answer["label"] in TOPICS


@pytest.mark.oracle
def test_the_loss_is_the_cosine_loss(place):
    losses = pytest.importorskip("sentence_transformers.sentence_transformer.losses")
    import torch

    job = SMALL.job(place, **{"data.dev": ""})
    batch = job.train_source.batch(0)
    params = jax.tree.map(np.asarray, job.init_params(jax.random.key(0))) | job.pretrained
    vectors = np.asarray(jax.jit(job.task._embed, static_argnums=2)(params, batch, None))
    of_params = jax.jit(lambda params, batch: job.task.loss(params, batch, None, job.task.weights(batch))[0])
    run = functools.partial(of_params, params)

    class Model(torch.nn.Module):
        def forward(self, features):
            return features

    columns = [{"sentence_embedding": torch.tensor(vectors[:, i])} for i in range(2)]
    expected = float(losses.CosineSimilarityLoss(Model())(columns, torch.tensor(batch["labels"])))
    assert float(run(batch)) == pytest.approx(expected, rel=1e-5)
    batch["example_weights"][4:] = 0
    columns = [{"sentence_embedding": torch.tensor(vectors[:4, i])} for i in range(2)]
    expected = float(losses.CosineSimilarityLoss(Model())(columns, torch.tensor(batch["labels"][:4])))
    assert float(run(batch)) == pytest.approx(expected, rel=1e-5)


@pytest.mark.slow
def test_classes_are_learned_and_a_resumed_run_is_the_same(place, tmp_path):
    recipe = functools.partial(SMALL.recipe, place, **{"optimizer.schedule": "constant", "optimizer.warmup_ratio": 0.0})
    results = train(recipe(num_steps=24), tmp_path / "whole", progress=False)
    assert results["eval/accuracy"] > 0.9
    train(recipe(num_steps=9), tmp_path / "resumed", progress=False)
    train(recipe(num_steps=24), tmp_path / "resumed", progress=False)
    for name in ("model.safetensors", "3_Dense/model.safetensors", "bert_jax.json"):
        files = [(tmp_path / run / "model" / name).read_bytes() for run in ("whole", "resumed")]
        assert files[0] == files[1], name
    card = (tmp_path / "whole" / "model" / "README.md").read_text()
    assert 'CrossEncoder(folder).predict("A text to classify.")' in card and "24 rows" in card


@pytest.mark.slow
def test_training_goes_on_from_a_finished_model(place, tmp_path):
    train(SMALL.recipe(place, num_steps=4), tmp_path / "first", progress=False)
    model = tmp_path / "first" / "model"
    again = SMALL.job(place, init_from=str(model))
    assert again.task.model.config.pooling == "mean"
    small = SmallTask("classification", SMALL.settings | {"data.train": str(place / "train.csv")})
    settings = {"init_from": str(model), "data.text_column": "text", "num_steps": 3, "num_epochs": 0.0}
    c = bert_jax.recipes.RECIPES["classification"]()
    kept = {name: value for name, value in small.settings.items() if name != "data.pairs_per_text"}
    kept = {name: value.format(place=place) if isinstance(value, str) else value for name, value in kept.items()}
    c.update_from_flattened_dict(kept | settings | {"keep_head": True, "global_batch_size": 8})
    train(c, tmp_path / "second", progress=False)
    before, after = (bert_jax.from_pretrained(tmp_path / run / "model") for run in ("first", "second"))
    assert before.config == after.config and after.config.classifies_embedding
    kernels = [model.params["classifier"]["kernel"] for model in (before, after)]
    assert 0 < np.abs(kernels[0] - kernels[1]).max() < 0.1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"keep_head": True}, r"config\.keep_head: expected none for few_labels"),
        ({"quantization.mode": "int8"}, r"config\.quantization\.mode: expected none"),
        ({"distillation.teacher": "teacher"}, r"config\.distillation\.teacher: expected none"),
        ({"data.pairs_per_text": 0}, r"config\.data\.pairs_per_text: expected at least 1"),
        ({"data.label_column": "nothing"}, "nothing"),
    ],
)
def test_recipes_that_do_not_fit(place, changes, message):
    with pytest.raises(InputError, match=message):
        SMALL.job(place, **changes)
