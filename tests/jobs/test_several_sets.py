"""Several data sets in one run: each set's loss is that of its own run, and shares, resuming and checks hold."""

import dataclasses
import json
import pathlib
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from set_tables import recipe, sets, write_tables

from bert_jax import jobs, recipes, sharding
from bert_jax.data.batches import sub_batches
from bert_jax.errors import InputError
from bert_jax.jobs.several_sets import SetTask, TaskOfSets
from bert_jax.recipes.data_sets import recipes_of_sets
from bert_jax.training import steps, train
from bert_jax.training.feed import device_batch
from bert_jax.training.metrics import read_metrics
from bert_jax.training.monitoring import Throughput, Timer
from bert_jax.training.step import _gradients


@pytest.fixture(scope="module")
def place(tmp_path_factory, write_small):
    """The tables, and a small encoder to start from."""
    folder = tmp_path_factory.mktemp("sets")
    write_tables(folder)
    write_small(folder / "encoder")
    return folder


def job(place, **changes):
    return jobs.build(recipes.resolve(recipe(place, **changes)))


def single_jobs(place, **changes):
    """The jobs of runs on each set alone."""
    return {name: jobs.build(c) for name, c in recipes_of_sets(recipes.resolve(recipe(place, **changes))).items()}


def assert_same(a, b):
    jax.tree.map(np.testing.assert_array_equal, a, b)


def test_a_batch_is_one_of_the_run_on_its_set_alone(place):
    both, singles, turns = job(place), single_jobs(place), {"nli": 0, "sts": 0}
    assert both.num_steps == 8 + 3
    for step in range(both.num_steps):
        ((name, part),) = sub_batches(both.train_source.batch(step)).items()
        assert_same(part, singles[name].train_source.batch(turns[name]))
        assert_same(both.train_source.batch(step, slice(2, 5)),
                    {key: array[2:5] for key, array in both.train_source.batch(step).items()})  # fmt: skip
        turns[name] += 1
    assert turns == {"nli": 8, "sts": 3}
    assert both.notes[-2:] == ("set nli: 60 rows, 8 of 11 steps, 1 epochs", "set sts: 20 rows, 3 of 11 steps, 1 epochs")


@dataclasses.dataclass(frozen=True)
class Squares:
    """A task with the loss (params * x - factor)**2 and no model."""

    factor: float
    model = None

    def weights(self, batch):
        return {"rows": batch["example_weights"].sum()}

    def loss(self, params, batch, dropout_key, weights):
        losses = (params * batch["x"] - self.factor) ** 2 * batch["example_weights"]
        return losses.sum() / weights["rows"], {"square": (losses.sum(), batch["example_weights"].sum())}


def squares(rows, real):
    return {"x": np.random.default_rng(rows).normal(size=rows).astype(np.float32),
            "example_weights": (np.arange(rows) < real).astype(np.float32)}  # fmt: skip


@pytest.mark.parametrize(("parts", "accumulation_steps"), [(1, 1), (2, 1), (1, 2)])
def test_the_loss_of_a_batch_is_the_mean_of_its_sets_by_rows(parts, accumulation_steps):
    of_sets = {"a": squares(8, 8), "b": squares(4, 3)}
    task = TaskOfSets((SetTask("a", Squares(1.0)), SetTask("b", Squares(2.0), 0.5, parts), SetTask("c", Squares(3.0))))
    batch = {f"{name}/{array}": value for name, part in of_sets.items() for array, value in part.items()}

    def expected(params):
        of_a, of_b = ((params * part["x"] - factor) ** 2 * part["example_weights"] for part, factor in
                      ((of_sets["a"], 1.0), (of_sets["b"], 2.0)))  # fmt: skip
        return (of_a.sum() + 0.5 * of_b.sum()) / 11

    gradient, metrics = _gradients(task, jnp.float32(0.3), batch, jax.random.key(0), accumulation_steps)
    loss, expected_gradient = jax.value_and_grad(expected)(jnp.float32(0.3))
    np.testing.assert_allclose((metrics["loss"][0], gradient), (loss, expected_gradient), rtol=1e-5)
    square = float(metrics["b/square"][0])
    values = {name: tuple(map(float, metrics[name])) for name in metrics if "/" in name and name != "a/square"}
    assert values == {
        "b/square": (square, 3), "a/rows": (8, 1), "b/rows": (3, 1), "c/rows": (0, 1), "a/share": (8, 11),
        "b/share": (3, 11), "c/share": (0, 11), "a/loss": pytest.approx((float(metrics["a/square"][0]) / 8, 1)),
        "b/loss": pytest.approx((square / 3, 1)),
    }  # fmt: skip


@pytest.mark.slow
def test_the_loss_is_that_of_the_run_on_the_set_alone(place):
    both, singles = job(place), single_jobs(place)
    params, key = both.pretrained, jax.random.key(3)
    for name, weight in (("nli", 1.0), ("sts", 0.5)):
        single, own = singles[name].task, singles[name].train_source.batch(0)
        expected, of_single = single.loss(params, own, key, single.weights(own))
        batch = {f"{name}/{array}": value for array, value in own.items()}
        loss, metrics = both.task.loss(params, batch, key, both.task.weights(batch))
        assert loss == pytest.approx(weight * float(expected), rel=1e-6)
        np.testing.assert_allclose(metrics[f"{name}/loss"], (expected, 1), rtol=1e-6)
        for metric, pair in of_single.items():
            np.testing.assert_allclose(metrics[f"{name}/{metric}"], pair, rtol=1e-6)
        rows = own["example_weights"].sum()
        other = {"nli": "sts", "sts": "nli"}[name]
        np.testing.assert_array_equal((metrics[f"{name}/share"], metrics[f"{other}/share"]), ((rows, rows), (0, rows)))


@pytest.mark.slow
@pytest.mark.parametrize("accumulation_steps", [1, 2])
def test_a_mixed_batch_has_the_mean_of_the_losses_by_rows(place, accumulation_steps):
    options = {"data.batches": "mixed", "accumulation_steps": accumulation_steps, "num_epochs": 2.0}
    both = job(place, **options)
    assert both.num_steps == 2 * 10  # each row of both at least once in an epoch
    batch, params = both.train_source.batch(4), both.pretrained
    parts = sub_batches(batch)
    assert {name: len(part["labels"]) for name, part in parts.items()} == {"nli": 6, "sts": 2}
    expected = 0.0
    for each in both.task.sets:
        task = jobs.build(recipes_of_sets(recipes.resolve(recipe(place)))[each.name]).task
        loss, _ = task.loss(params, parts[each.name], None, task.weights(parts[each.name]))
        expected += {"nli": 6 / 8, "sts": 0.5 * 2 / 8}[each.name] * loss
    loss, metrics = jax.jit(both.task.loss)(params, batch, None, both.task.weights(batch))
    assert loss == pytest.approx(float(expected), rel=1e-5)
    np.testing.assert_allclose((metrics["nli/share"], metrics["sts/rows"]), ((6, 8), (2, 1)))


@pytest.mark.slow  # test_killed_runs.py kills one
@pytest.mark.parametrize("batches", ["one_set", "mixed"])
def test_a_resumed_run_ends_in_the_same_bits_and_logs_every_set(place, tmp_path, batches):
    c = recipe(place, **{"data.batches": batches, "data.sampling": "temperature", "data.sampling_temperature": 2.0})
    whole = train(c, tmp_path / "whole", progress=False)
    for state, _ in steps(c, tmp_path / "resumed", progress=False):
        if int(state.step) == 7:  # the newest checkpoint is of step 5
            break
    resumed = train(c, tmp_path / "resumed", progress=False)
    assert_same(whole.state.params, resumed.state.params)
    lines, others = (read_metrics(tmp_path / name / "metrics.jsonl") for name in ("whole", "resumed"))
    timeless = [{k: v for k, v in line.items() if "second" not in k and k != "train/compilations"} for line in lines]
    assert timeless == [
        {k: v for k, v in line.items() if k in known} for line, known in zip(others, timeless, strict=True)
    ]
    assert not [name for line in lines for name, value in line.items() if value is None and not name.startswith("eval")]
    trained = [line for line in lines if "train/nli/share" in line]
    assert all(line["train/nli/share"] + line["train/sts/share"] == pytest.approx(1) for line in trained)
    assert whole["eval/sts/spearman"] == max(line["eval/sts/spearman"] for line in lines if "eval/sts/spearman" in line)
    assert "eval/nli/mrr" in whole
    if batches == "one_set":
        check_resuming(place, tmp_path / "whole", c)


def check_resuming(place, workdir, c):
    """Files may move; their content, and the keys of a set, may not change."""
    moved = place / "moved.jsonl"
    moved.write_bytes((place / "sts.jsonl").read_bytes())
    c.data.sets = sets(place) | {"sts": sets(place)["sts"] | {"train": str(moved)}}
    train(c, workdir, progress=False)
    moved.write_text(moved.read_text().replace("cat", "fish"))
    with pytest.raises(InputError, match=r"sts/train: the run began with other texts in the 20 rows of \S+moved.jsonl"):
        train(c, workdir, progress=False)
    c.data.sets = sets(place) | {"sts": sets(place)["sts"] | {"loss": "cosent"}}
    with pytest.raises(InputError, match=r"data.sets.sts.loss was 'cosine', is now 'cosent'"):
        train(c, workdir, progress=False)
    c.data.sets = {"nli": sets(place)["nli"]}
    with pytest.raises(InputError, match=r"data.sets.sts.label_scale was 5.0, is now None"):
        train(c, workdir, progress=False)


def test_a_mixed_batch_reaches_the_devices_in_parts(place):
    source, parts = job(place, **{"data.batches": "mixed"}).train_source, []

    def rows(of):
        parts.append(of)
        return source.batch(0, of)

    mesh = sharding.make_mesh()
    batch = device_batch(rows, 8, jax.sharding.NamedSharding(mesh, sharding.batch_spec()))
    assert_same(batch, source.batch(0))
    throughput = Throughput(Timer(), mesh)
    throughput.add(None, batch)
    assert parts == [slice(0, 8)] and throughput.close()["tokens_seen"] == (6 * 3 + 2 * 2) * 16
    halves = [source.batch(0, slice(start, start + 4)) for start in (0, 4)]
    assert_same({name: np.concatenate([half[name] for half in halves]) for name in batch}, source.batch(0))


@pytest.mark.parametrize(("changes", "message"), [
    ({"data.sets": {"nli": {"train": "none.jsonl"}}}, r"none.jsonl"),
    ({"data.sets": {"a": {"dev": ""}}}, r"config.data.sets.a.train: expected a file"),
    ({"data.sets": {"a": {"los": "cosine"}}}, r"config.data.sets.a: a set has no key 'los'; did you mean 'loss'\?"),
    ({"data.sets": {"a": {"loss": "cosin"}}}, r"config.data.sets.a.loss: 'cosin' is not known"),
    ({"data.sets": {"a": {"scale": "x"}}}, r"config.data.sets.a.scale: expected float, found 'x'"),
    ({"data.sets": {"a": {"scale": 0}}}, r"config.data.sets.a.scale: expected more than 0, found 0.0"),
    ({"data.sets": {"a": {"batches": "mixed"}}}, r"as all sets share config.data.batches"),
    ({"data.sets": {"a b": {}}}, r"config.data.sets: expected names of letters"),
    ({"data.sets": {"a": 3}}, r"config.data.sets.a: expected keys of data"),
    ({"data.sets": {"a": {"weight": 2}}}, r"a.weight: expected none with sampling 'proportional', found 2.0"),
    ({"data.sampling": "weights"}, r"nli.weight: expected a number with sampling 'weights', found none"),
    ({"data.sampling_temperature": 2.0}, r"sampling_temperature: expected 1.0 with sampling 'proportional'"),
    ({"data.sets": {}, "data.sampling": "round_robin"}, r"config.data.sampling: expected 'proportional' without"),
    ({"data.train": "x.tsv"}, r"config.data.train: expected none, as each of data.sets has its own"),
    ({"data.batches": "mixed", "global_batch_size": 4}, r"expected a batch in which set 'sts' has at least 2 rows"),
])  # fmt: skip
def test_what_does_not_fit_is_named(place, changes, message):
    if changes.get("global_batch_size") == 4:
        changes |= {"data.sets": sets(place) | {"sts": sets(place)["sts"] | {"loss": "cosent"}}}
    with pytest.raises(InputError, match=message):
        job(place, **changes)


def test_a_set_must_train_the_parameters_of_the_others(place):
    changes = {"data.sets": sets(place) | {"texts": {"train": f"{place}/nli.jsonl", "loss": "tsdae", "dev": ""}}}
    with pytest.raises(InputError, match=r"config.data.sets.texts: expected the parameters of set 'nli'"):
        job(place, **changes)


def test_the_model_is_opened_once(place, monkeypatch):
    opened, of_model = [], jobs.fine_tuning.setup.pretrained
    monkeypatch.setattr(jobs.fine_tuning.setup, "pretrained", lambda *a: opened.append(a) or of_model(*a))
    job(place)
    assert len(opened) == 1


def test_the_command_line_and_config_json_set_keys_of_sets(place, tmp_path):
    words = ["data.sets.nli.train=a.tsv", "data.sets.nli.scale=3", "data.sets.sts.negative_columns=('x','y')"]
    c = recipes.load_recipe("sentence_embedding", [f"--config.{word}" for word in words])
    expected = {"nli": {"train": "a.tsv", "scale": 3.0}, "sts": {"negative_columns": ("x", "y")}}
    assert c.data.sets.to_dict() == expected
    (tmp_path / "config.json").write_text(recipes.to_json(c))
    assert recipes.load_recipe(str(tmp_path / "config.json")).data.sets.to_dict() == expected
    assert json.loads(recipes.to_json(c))["data"]["sets"]["sts"] == {"negative_columns": ["x", "y"]}
    for word, message in (
        ("data.sets.nli.scale=x", "expected float"),
        ("data.sets.nli=3", "expected config.data.sets.NAME"),
    ):
        with pytest.raises(InputError, match=message):
            recipes.load_recipe("sentence_embedding", [word])
    with pytest.raises(InputError, match=re.escape("expected one data set for task 'classification'")):
        recipes.load_recipe("classification", ["data.sets.nli.train=x"])


@pytest.mark.sampled(4)
@pytest.mark.parametrize("batches", ["one_set", "mixed"])
@pytest.mark.parametrize(("task", "of_a", "of_b"), [
    ("sentence_embedding", {}, {"loss": "cosent", "label_column": "score"}),
    ("sparse_embedding", {"flops_warmup": 0.5}, {"loss": "margin_mse", "label_column": "m", "negative_column": "n"}),
    ("multi_vector", {}, {"loss": "kl_divergence", "label_column": "m", "passages_column": "p", "pair_column": ""}),
    ("reranking", {}, {"loss": "list_net", "label_column": "m", "passages_column": "p", "pair_column": ""}),
])  # fmt: skip
def test_every_task_with_sets_has_shapes_without_data(task, of_a, of_b, batches):
    c = recipes.RECIPES[task]()
    c.update_from_flattened_dict({
        "model.size": "tiny", "model.num_hidden_layers": 1, "model.vocab_size": 50, "num_steps": 30,
        "data.sets": {"a": of_a, "b": {**of_b, "max_seq_length": 24}}, "data.batches": batches, "global_batch_size": 8,
    })  # fmt: skip
    abstract = jobs.abstract_task(recipes.resolve(c))
    assert [stage.num_steps for stage in abstract.stages] == ([15, 15] if batches == "one_set" else [30])
    key = jax.eval_shape(lambda: jax.random.key(0))
    params = jax.eval_shape(abstract.init_params, key)
    for stage in abstract.stages:
        weights = jax.eval_shape(abstract.task.weights, stage.batch)
        loss, metrics = jax.eval_shape(abstract.task.loss, params, stage.batch, key, weights)
        assert loss.shape == () and {"a/share", "b/share"} <= metrics.keys()


@pytest.mark.slow
def test_any_mesh_gives_the_same_loss(on_eight_devices, place):
    script = pathlib.Path(__file__).with_name("several_sets_meshes.py")
    for losses in on_eight_devices(script, str(place)).values():
        np.testing.assert_allclose(losses[0], losses[1], rtol=2e-5)
