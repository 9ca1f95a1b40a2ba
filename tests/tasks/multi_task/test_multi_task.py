"""Several tasks on one encoder: each set trains as alone, each head is a model, and what does not fit is refused."""

import jax
import numpy as np
import pytest
from small_tasks import SmallTask

from bert_jax import from_pretrained, jobs, pipeline, recipes, train
from bert_jax.data.batches import sub_batches
from bert_jax.errors import InputError
from bert_jax.jobs.several_heads import model_params
from bert_jax.recipes.data_sets import recipes_of_sets
from bert_jax.training import steps

TEXTS = ["the cat sat on the tree", "a dull and grey film", "the dog sees a red house", "two big birds sat under it"]


@pytest.fixture(scope="module")
def place(tmp_path_factory, write_small):
    """Tables of three tasks, and a small encoder to start from."""
    folder = tmp_path_factory.mktemp("heads")
    rows = [f"{text},{('bad', 'good')[i % 2]}" for i, text in enumerate(TEXTS * 6)]
    (folder / "reviews.csv").write_text("\n".join(["review,label", *rows]) + "\n")
    (folder / "names.txt").write_text("the O\ncat B-PER\nhouse I-PER\nsat O\n\nred B-LOC\nhouse O\n\n" * 6)
    pairs = [f"{a},{b},{i % 5}" for i, (a, b) in enumerate(zip(TEXTS * 6, TEXTS[1:] * 8, strict=True))]
    (folder / "pairs.csv").write_text("\n".join(["first,second,score", *pairs]) + "\n")
    write_small(folder / "encoder", num_hidden_layers=2)
    return folder


def sets(place):
    reviews, names, pairs = (str(place / name) for name in ("reviews.csv", "names.txt", "pairs.csv"))
    return {
        "reviews": {"task": "classification", "train": reviews, "dev": reviews, "text_column": "review"},
        "names": {"task": "token_classification", "train": names, "dev": names},
        "pairs": {"task": "sentence_embedding", "train": pairs, "dev": pairs, "loss": "cosine", "label_scale": 5.0,
                  "text_column": "first", "pair_column": "second", "label_column": "score"},
    }  # fmt: skip


SMALL = SmallTask("multi_task", {
    "init_from": "{place}/encoder", "num_steps": 12, "num_epochs": 0.0, "global_batch_size": 8, "eval_every": 6,
    "checkpoint_every": 5, "log_every": 4, "data.max_seq_length": 16, "optimizer.learning_rate": 1e-3,
})  # fmt: skip


def recipe(place, **changes):
    c = SMALL.recipe(place, **{name: value for name, value in changes.items() if name != "data.sets"})
    c.data.sets = changes.get("data.sets", sets(place))
    return c


@pytest.fixture(scope="module")
def trained(place):
    """The results of a run, and the directory of its models."""
    return train(recipe(place), place / "run", progress=False), place / "run" / "model"


def test_each_head_is_a_model_with_the_same_encoder(place, trained):
    results, models = trained
    heads = {"reviews": "sequence_classification", "names": "token_classification", "pairs": "sentence_embedding"}
    opened = {name: from_pretrained(models / name) for name in heads}
    assert {name: model.head for name, model in opened.items()} == heads
    encoders = [{part: model.params[part] for part in ("embeddings", "encoder")} for model in opened.values()]
    for other in encoders[1:]:
        jax.tree.map(np.testing.assert_array_equal, encoders[0], other)
    start = from_pretrained(place / "encoder").params["encoder"]["layers"]["mlp"]["up"]["kernel"]
    assert np.abs(encoders[0]["encoder"]["layers"]["mlp"]["up"]["kernel"] - start).max() > 1e-4
    answers = pipeline("classify", models / "reviews")(TEXTS)
    correct = [answer["label"] == ("bad", "good")[i % 2] for i, answer in enumerate(answers)]
    assert np.mean(correct) == results["eval/reviews/accuracy"]
    assert pipeline("embed", models / "pairs")(TEXTS).shape == (4, 32)
    card = (models / "names" / "README.md").read_text()
    assert "token-classification" in card and "eval" not in card.split("## Scores")[0]
    assert {"train/reviews/loss", "eval/names/f1", "eval/pairs/spearman"} <= results.keys()


@pytest.mark.oracle
def test_transformers_open_each_head(trained):
    transformers = pytest.importorskip("transformers", reason="compares with transformers, which is not installed")
    pytest.importorskip("torch", reason="PyTorch is the oracle; it is installed on Python 3.11 only")
    _, models = trained
    for name, kind in (("reviews", "SequenceClassification"), ("names", "TokenClassification")):
        _, info = getattr(transformers, f"BertFor{kind}").from_pretrained(models / name, output_loading_info=True)
        assert not any(info.values()), info


def test_the_loss_of_a_set_is_that_of_its_run_alone_and_changes_no_other_head(place):
    c = recipes.resolve(recipe(place))
    together = jobs.build(c)
    alone = {name: jobs.build(of_set) for name, of_set in recipes_of_sets(c).items()}
    params = together.init_params(jax.random.key(0))
    seen = set()
    for step in range(12):
        batch = together.train_source.batch(step)
        ((name, part),) = sub_batches(batch).items()
        if name in seen:
            continue
        seen.add(name)
        task, single = together.task, alone[name].task
        loss, grads = jax.value_and_grad(lambda p, b, task=task: task.loss(p, b, None, task.weights(b))[0])(
            params, batch
        )
        expected, _ = single.loss(model_params(params, name), part, None, single.weights(part))
        assert float(loss) == pytest.approx(float(expected), rel=1e-6)
        for other, head in grads["heads"].items():
            moved = any(np.abs(leaf).max() > 0 for leaf in jax.tree.leaves(head))
            assert moved == (other == name != "pairs")  # a sentence embedding has no trained head
    assert seen == {"reviews", "names", "pairs"}


@pytest.mark.parametrize("batches", ["one_set", pytest.param("mixed", marks=pytest.mark.slow)])
def test_a_resumed_run_ends_in_the_same_bits(place, tmp_path, batches):
    changes = {"data.batches": batches, "best_metric": "reviews/accuracy", "global_batch_size": 12}
    c = recipe(place, **changes)
    whole = train(c, tmp_path / "whole", progress=False)
    for state, _ in steps(c, tmp_path / "resumed", progress=False):
        if int(state.step) == 7:  # the newest checkpoint is of step 6
            break
    resumed = train(c, tmp_path / "resumed", progress=False)
    jax.tree.map(np.testing.assert_array_equal, whole.state.params, resumed.state.params)


def test_steps_compile_without_a_run(place):
    stages = jobs.abstract_task(recipes.resolve(recipe(place))).stages
    assert {next(iter(stage.batch)).partition("/")[0] for stage in stages} == {"reviews", "names", "pairs"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data.sets": {}}, "config.data.sets: expected a data set for each head"),
        ({"data.sets": {"a": {"train": "a.csv"}}}, "config.data.sets.a.task: expected one of classification, token_cl"),
        ({"data.sets": {"a": {"task": "pretraining"}}}, "task: expected one of .*, found 'pretraining'"),
        ({"data.sets": {"a": {"task": "classification", "loss": "cosine"}}},
         "config.data.sets.a: a set of classification has no key 'loss'"),
        ({"data.sets": {"a": {"task": "classification", "task_type": "numbers"}}},
         "config.data.sets.a.task_type: 'numbers' is not known"),
        ({"lora.rank": 4}, "config.lora.rank: expected none with tasks of several heads, found 4"),
        ({"keep_head": True}, "config.keep_head: expected none with tasks of several heads"),
    ],
)  # fmt: skip
def test_recipes_that_do_not_fit(place, changes, message):
    with pytest.raises(InputError, match=message):
        jobs.build(recipes.resolve(recipe(place, **changes)))
