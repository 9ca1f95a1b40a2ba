"""Layer-wise decay, frozen and fresh layers, and low-rank adaptation: which parameters move, and by how much."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_tasks import SmallTask

from bert_jax import jobs, recipes, sharding
from bert_jax.conversion.huggingface import load_pretrained
from bert_jax.errors import InputError
from bert_jax.inference import pipeline
from bert_jax.jobs import lora
from bert_jax.training import program
from bert_jax.training.loop import train
from bert_jax.training.state import initial_state

LAYERS, RATE = 3, 1e-3


@pytest.fixture(scope="module")
def place(tmp_path_factory, write_small):
    """A table, and a model with random parameters to start from."""
    root = tmp_path_factory.mktemp("learns")
    rng = np.random.default_rng(0)
    rows = [(rng.integers(2), " ".join(rng.choice(["the", "cat", "sat", "bird"], 6))) for _ in range(64)]
    lines = [f"{'good' if label else 'bad'} {text}\t{label}" for label, text in rows]
    (root / "train.tsv").write_text("\n".join(["sentence\tlabel", *lines]) + "\n")
    write_small(
        root / "encoder",
        seed=7,
        hidden_size=16,
        num_hidden_layers=LAYERS,
        intermediate_size=32,
        max_position_embeddings=16,
    )
    return root


SMALL = SmallTask("classification", {
    "init_from": "{place}/encoder", "data.train": "{place}/train.tsv", "data.dev": "{place}/train.tsv",
    "data.max_seq_length": 16, "data.length_buckets": (16,), "global_batch_size": 32, "num_steps": 1, "num_epochs": 0.0,
    "optimizer.learning_rate": RATE, "optimizer.schedule": "constant", "optimizer.warmup_ratio": 0.0,
    "optimizer.bias_correction": True,  # the first step of Adam is then as long as the rate
    "optimizer.eps": 1e-12,
})  # fmt: skip
recipe = SMALL.recipe


def stepped(place, steps=1, **changes):
    """The parameters before and after some steps, and the optimizer's state, by path."""
    c = recipes.resolve(recipe(place, **changes))
    mesh = sharding.make_mesh(devices=jax.devices()[:1])
    job = jobs.build(c)
    program.check_fits(c, job, mesh)
    made = program.make_program(c, job.task, job.init_params, job.num_steps, mesh)
    state = initial_state(job, made.optimizer, c.seed, made.like, c.reinit_layers)
    before, moments = flat(state.params), flat(state.opt_state)
    for step in range(steps):
        state, _ = made.train_step(state, job.train_source.batch(step), c.seed)
    return before, flat(state.params), moments


def flat(tree):
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="/"): np.array(leaf) for path, leaf in leaves}


def moved(before, after):
    return {name: np.abs(after[name] - before[name]) for name in before}


@pytest.mark.slow
def test_each_layer_learns_at_half_the_rate_of_the_one_above(place):
    before, after, _ = stepped(place, **{"optimizer.layer_decay": 0.5, "optimizer.weight_decay": 0.0})
    change = moved(before, after)
    for name in ("attention/value/kernel", "mlp/up/kernel", "mlp/layer_norm/bias"):
        by_layer = [np.median(layer) for layer in change[f"encoder/layers/{name}"]]
        np.testing.assert_allclose(by_layer, RATE * np.array([0.125, 0.25, 0.5]), rtol=1e-2)
    np.testing.assert_allclose(np.median(change["classifier/kernel"]), RATE, rtol=1e-2)
    np.testing.assert_allclose(change["embeddings/layer_norm/bias"], RATE * 0.0625, rtol=1e-2)


@pytest.mark.parametrize("name", ["adamw", pytest.param("adafactor", marks=pytest.mark.slow)])
def test_frozen_layers_stay_to_the_bit_and_the_others_learn(place, name):
    before, after, moments = stepped(place, 2, **{"optimizer.frozen_layers": 2, "optimizer.name": name})
    for path, change in moved(before, after).items():
        if path.startswith("embeddings"):
            assert not change.any(), path
        elif path.startswith("encoder/layers"):
            assert not change[:2].any(), path
            assert change[2].any() or "key/bias" in path, path  # which no loss depends on
        else:
            assert change.any(), path
    assert not any("embeddings" in path for path in moments)


@pytest.mark.slow
def test_frozen_embeddings(place):
    before, after, _ = stepped(place, **{"optimizer.frozen_embeddings": True})
    still = {path for path, change in moved(before, after).items() if not change.any()}
    assert still - {"encoder/layers/attention/key/bias"} == {path for path in before if path.startswith("embeddings")}


def test_what_is_frozen_has_no_part_in_the_norm_that_is_clipped(place):
    """With only the classifier learning, clipping at a tenth of its gradient's norm is felt to the full."""
    changes = {"optimizer.frozen_layers": LAYERS, "optimizer.name": "adamw", "optimizer.weight_decay": 0.0}
    c = recipes.resolve(recipe(place, **changes))
    _, optimizer = program.schedule_and_optimizer(c, 1)
    layers = {"attention": {"kernel": jnp.ones((LAYERS, 4, 4))}}
    params = {"embeddings": {"x": jnp.ones(3)}, "encoder": {"layers": layers}, "classifier": {"kernel": jnp.ones(4)}}
    grads = jax.tree.map(lambda p: 1e9 * jnp.ones_like(p), params) | {"classifier": {"kernel": jnp.full(4, 0.25)}}
    _, state = optimizer.update(grads, optimizer.init(params), params)
    first = [leaf for path, leaf in flat(state).items() if "mu/classifier" in path]
    np.testing.assert_allclose(first, [0.1 * 0.25 * np.ones(4)], rtol=1e-6)  # the norm is 0.5: not clipped


@pytest.mark.slow
def test_fresh_layers_begin_anew_and_the_others_as_pretrained(place):
    given = flat(load_pretrained(place / "encoder", "encoder").params)
    before, _, _ = stepped(place, reinit_layers=1)
    plain, _, _ = stepped(place)
    for path in given:
        np.testing.assert_array_equal(plain[path], given[path], err_msg=path)
        if path.startswith("encoder/layers"):
            np.testing.assert_array_equal(before[path][:-1], given[path][:-1])
        elif not path.startswith("pooler"):
            np.testing.assert_array_equal(before[path], given[path])
    for path in ("encoder/layers/mlp/up/kernel", "pooler/dense/kernel"):
        assert (before[path][-1] != given[path][-1]).any()


@pytest.mark.slow
def test_of_an_adapted_model_the_products_and_the_heads_learn(place):
    targets = ("query", "value", "down")
    before, after, moments = stepped(place, 2, **{"lora.rank": 4, "lora.targets": targets})
    learning = set()
    for path, change in moved(before, after).items():
        if path.startswith(("base/embeddings", "base/encoder")):
            assert not change.any(), path
        else:
            assert change.any(), path
            learning.add(path)
    expected = {f"lora/encoder/layers/{part}/{name}/{leaf}" for part, name in
                (("attention", "query"), ("attention", "value"), ("mlp", "down")) for leaf in "ab"}  # fmt: skip
    assert {path for path in learning if path.startswith("lora")} == expected
    assert {path.split("/")[1] for path in learning - expected} == {"pooler", "classifier"}
    assert before["lora/encoder/layers/mlp/down/a"].shape == (LAYERS, 32, 4)
    kept = sum(leaf.size for path, leaf in moments.items() if "/mu/" in path)
    assert kept == sum(before[path].size for path in learning)  # moments of nothing else


def test_the_first_step_moves_an_adapted_matrix_by_the_scaled_product(place):
    """b is 0 at first, so a gets no gradient and b moves by the rate: W by alpha / rank * a @ b, by hand."""
    before, after, _ = stepped(place, **{"lora.rank": 2, "lora.alpha": 6.0, "optimizer.weight_decay": 0.0})
    name = "lora/encoder/layers/attention/value"
    np.testing.assert_array_equal(before[f"{name}/b"], 0)
    np.testing.assert_array_equal(after[f"{name}/a"], before[f"{name}/a"])
    np.testing.assert_allclose(np.abs(after[f"{name}/b"]), RATE, rtol=1e-3)
    merged = lora.Lora(2, 6.0, ("query", "value")).merge(nested(after))
    expected = 3.0 * np.stack([a @ b for a, b in zip(after[f"{name}/a"], after[f"{name}/b"], strict=True)])
    found = merged["encoder"]["layers"]["attention"]["value"]["kernel"]
    np.testing.assert_allclose(found - before["base/encoder/layers/attention/value/kernel"], expected, atol=1e-7)
    np.testing.assert_array_equal(
        merged["encoder"]["layers"]["mlp"]["up"]["kernel"], before["base/encoder/layers/mlp/up/kernel"]
    )


def nested(leaves):
    tree = {}
    for path, leaf in leaves.items():
        *parents, last = path.split("/")
        node = tree
        for parent in parents:
            node = node.setdefault(parent, {})
        node[last] = leaf
    return tree


def test_an_adapted_model_is_trained_scored_and_written_as_any_other(place, tmp_path):
    c = recipe(place, **{"lora.rank": 4, "num_steps": 60, "optimizer.learning_rate": 2e-2, "eval_every": 20,
                         "best_metric": "accuracy", "lora.targets": ("query", "key", "value", "up")})  # fmt: skip
    results = train(c, tmp_path / "run", progress=False)
    assert results["eval/accuracy"] > 0.95
    classify = pipeline("text-classification", tmp_path / "run" / "model")
    lines = (place / "train.tsv").read_text().splitlines()[1:]
    texts, labels = zip(*(line.split("\t") for line in lines), strict=True)
    answers = [answer["label"] for answer in classify(list(texts))]
    assert np.mean([a == b for a, b in zip(answers, labels, strict=True)]) == results["eval/accuracy"]
    written, given = flat(load_pretrained(tmp_path / "run" / "model").params), flat(load_pretrained(c.init_from).params)
    same = {path for path in given if np.array_equal(written[path], given[path])}
    changed = {path.split("/")[-2] for path in given.keys() - same if path.startswith("encoder")}
    assert changed == {"query", "key", "value", "up"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"optimizer.frozen_layers": 4}, "optimizer.frozen_layers: expected at most the model's 3 layers, found 4"),
        ({"reinit_layers": 9}, "config.reinit_layers: expected at most the model's 3 layers, found 9"),
        ({"lora.rank": 2, "lora.targets": ("query", "vlaue")}, "'vlaue' is not known; did you mean 'value'"),
        ({"lora.rank": 2, "lora.targets": ("gate",)}, "expected matrices of this model.s layers, found .gate."),
        ({"lora.rank": 2, "lora.targets": ()}, "config.lora.targets: expected at least one of query, .*, found none"),
        ({"lora.alpha": 0.0}, "config.lora.alpha: expected more than 0"),
    ],
)  # fmt: skip
def test_what_does_not_fit(place, changes, message):
    with pytest.raises(InputError, match=message):
        stepped(place, **changes)
