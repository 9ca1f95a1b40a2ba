"""The optimizers and the schedules against formulas written out in numpy."""

import contextlib
import importlib.metadata
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from bert_jax import recipes, registry, training
from bert_jax.config import BertConfig
from bert_jax.errors import InputError
from bert_jax.modeling import Bert
from bert_jax.parameter_sharding import param_shardings
from bert_jax.training.optimizers import OptimizerSettings, check_registered, decay_mask, make_optimizer
from bert_jax.training.schedules import SCHEDULES, make_schedule
from bert_jax.training.state import State


def some_params(rng):
    return {
        "embeddings": {"word_embeddings": {"embedding": rng.normal(size=(5, 3))}},
        "encoder": {"layer_norm": {"scale": rng.normal(size=3), "bias": rng.normal(size=3)}},
        "mlm": {"bias": rng.normal(size=5), "dense": {"kernel": rng.normal(size=(3, 3)), "bias": rng.normal(size=3)}},
    }


def numpy_adamw(params, all_grads, rates, bias_correction, clip_norm=1.0, decay=0.01, b1=0.9, b2=0.999, eps=1e-6):
    """Ten lines of the paper's algorithm, one parameter at a time, in float64."""
    flat, tree = jax.tree.flatten(params)
    decays = jax.tree.leaves(decay_mask(params))
    m, v = [0.0 for _ in flat], [0.0 for _ in flat]
    for t, (grads, rate) in enumerate(zip(all_grads, rates, strict=True), start=1):
        grads = jax.tree.leaves(grads)
        norm = np.sqrt(sum(np.sum(g**2) for g in grads))
        for i, g in enumerate(grads):
            g = g * min(1.0, clip_norm / norm)
            m[i] = b1 * m[i] + (1 - b1) * g
            v[i] = b2 * v[i] + (1 - b2) * g**2
            if bias_correction:
                update = (m[i] / (1 - b1**t)) / (np.sqrt(v[i] / (1 - b2**t)) + eps)
            else:
                update = m[i] / (np.sqrt(v[i]) + eps)
            flat[i] = flat[i] - rate * (update + decay * decays[i] * flat[i])
    return jax.tree.unflatten(tree, flat)


def after_steps(optimizer, params, all_grads):
    """The parameters after a step along each of the gradients, in float32."""

    @jax.jit
    def step(params, state, grads):
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state

    params, all_grads = jax.tree.map(np.float32, (params, all_grads))
    state = optimizer.init(params)
    for grads in all_grads:
        params, state = step(params, state, grads)
    return params


@pytest.mark.parametrize("bias_correction", [False, True])
def test_ten_steps_equal_the_formula(bias_correction):
    rng = np.random.default_rng(0)
    params = some_params(rng)
    scales = [0.1, 10.0] * 5  # below and above the clipping norm
    all_grads = [jax.tree.map(lambda p, s=scale: s * rng.normal(size=p.shape), params) for scale in scales]
    schedule = make_schedule("bert_linear", 0.1, 10, 3)
    ours = after_steps(make_optimizer(schedule, bias_correction=bias_correction), params, all_grads)
    expected = numpy_adamw(params, all_grads, [float(schedule(t)) for t in range(10)], bias_correction)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6), ours, expected)


def test_the_corrected_one_equals_pytorch():
    torch = pytest.importorskip("torch", reason="an oracle of the [torch] extra")
    rng = np.random.default_rng(1)
    params = {"kernel": rng.normal(size=(4, 3)).astype(np.float32)}
    weight = torch.nn.Parameter(torch.tensor(params["kernel"]))
    theirs = torch.optim.AdamW([weight], lr=1e-2, eps=1e-6, weight_decay=0.01)
    optimizer = make_optimizer(lambda step: 1e-2, bias_correction=True)
    ours, state = jax.tree.map(jnp.asarray, params), optimizer.init(params)
    for _ in range(10):
        grad = rng.normal(size=(4, 3)).astype(np.float32)
        weight.grad = torch.tensor(grad)
        torch.nn.utils.clip_grad_norm_([weight], 1.0)
        theirs.step()
        updates, state = optimizer.update({"kernel": jnp.asarray(grad)}, state, ours)
        ours = optax.apply_updates(ours, updates)
    np.testing.assert_allclose(ours["kernel"], weight.detach().numpy(), rtol=1e-5, atol=1e-6)


def test_muon_moves_matrices_of_layers_along_all_directions_alike_and_the_rest_as_adam_does():
    rng = np.random.default_rng(2)
    up = {"kernel": (3, 16, 64), "bias": (3, 64)}
    shapes = {"encoder": {"layers": {"up": up}, "layer_norm": {"scale": (16,)}}, "pooler": {"kernel": (16, 16)}}
    params = jax.tree.map(lambda shape: rng.normal(size=shape), shapes, is_leaf=lambda x: isinstance(x, tuple))
    grads = jax.tree.map(lambda p: rng.normal(size=p.shape) * np.geomspace(1e-3, 1, p.shape[-1]), params)

    def step(name):
        optimizer = make_optimizer(lambda step: 0.1, name=name, bias_correction=True, weight_decay=0.0, clip_norm=0.0)
        updates, _ = jax.jit(optimizer.update)(grads, optimizer.init(params), params)
        return updates["encoder"]["layers"]["up"].pop("kernel"), updates

    (matrices, others), (_, expected) = step("muon"), step("adamw")
    jax.tree.map(np.testing.assert_array_equal, others, expected)
    stacked = grads["encoder"]["layers"]["up"]["kernel"]
    for update, grad in zip(matrices / (0.1 * 0.2 * 64**0.5), stacked, strict=True):
        left, sizes, right = np.linalg.svd(grad, full_matrices=False)
        moved = -np.einsum("ik,ij,kj->k", left, update, right)  # along each of the gradient's directions
        assert sizes.max() / sizes.min() > 2.5
        assert moved.min() > 0.65 and moved.max() < 1.25


def stacked_params(rng):
    """Of a model, and of one beside it, as ELECTRA's generator is."""
    mlp = {"kernel": rng.normal(size=(3, 128, 192)), "bias": rng.normal(size=(3, 192))}
    return {
        "embeddings": {"word_embeddings": {"embedding": rng.normal(size=(160, 128))}},
        "encoder": {"layers": {"mlp": mlp}, "relative_attention_bias": {"embedding": rng.normal(size=(32, 4))}},
        "generator": {"encoder": {"layers": {"up": {"kernel": rng.normal(size=(2, 16, 24))}}}},
        "pooler": {"kernel": rng.normal(size=(128, 4))},
    }


def each_layer_alone(tree):
    """{(name, layer): array}; layer 0 for what is not stacked."""
    flat = {
        jax.tree_util.keystr(path, simple=True, separator="/"): leaf
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
    }
    return {
        (name, layer): part
        for name, leaf in flat.items()
        for layer, part in enumerate(leaf if "encoder/layers" in name else [leaf])
    }


def moved_by_ours(name, params, all_grads, **options):
    optimizer = make_optimizer(lambda step: 0.1, name=name, clip_norm=0.0, **options)
    return each_layer_alone(jax.device_get(after_steps(optimizer, params, all_grads)))


def uneven_grads(rng, params):
    def grad(p):
        return (
            rng.normal(size=p.shape)
            * np.geomspace(1e-3, 1, p.shape[-1])
            * np.arange(1, len(p) + 1).reshape(-1, *[1] * (p.ndim - 1))
        )

    return [jax.tree.map(grad, params) for _ in range(3)]


def test_lamb_equals_the_formula_layer_by_layer():
    """Algorithm 2 of the paper with the norm as phi, in float64; what does not decay has no ratio."""
    rng = np.random.default_rng(3)
    params = stacked_params(rng)
    all_grads = uneven_grads(rng, params)
    found = moved_by_ours("lamb", params, all_grads, bias_correction=True)
    for key, x in each_layer_alone(params).items():
        m = v = 0.0
        for t, grads in enumerate(all_grads, start=1):
            g = each_layer_alone(grads)[key]
            m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
            r = (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-6)
            if not key[0].endswith("bias"):
                r = r + 0.01 * x
                r *= np.linalg.norm(x) / np.linalg.norm(r)
            x = x - 0.1 * r
        np.testing.assert_allclose(found[key], x, rtol=1e-4, atol=1e-5)


def test_adafactor_equals_the_formula_layer_by_layer():
    """Algorithm 4 of the paper (and, for what is not factored, algorithm 5) in float64."""
    rng = np.random.default_rng(4)
    params = stacked_params(rng)
    all_grads = uneven_grads(rng, params)
    found = moved_by_ours("adafactor", params, all_grads, weight_decay=0.0)
    for key, x in each_layer_alone(params).items():
        rows = columns = v = 0.0
        for t, grads in enumerate(all_grads, start=1):
            g = each_layer_alone(grads)[key]
            keep = 1 - t**-0.8
            squares = g**2 + 1e-30
            if g.ndim == 2 and min(g.shape) >= 128:
                rows = keep * rows + (1 - keep) * squares.mean(1)
                columns = keep * columns + (1 - keep) * squares.mean(0)
                u = g / np.sqrt(np.outer(rows, columns) / rows.mean())
            else:
                v = keep * v + (1 - keep) * squares
                u = g / np.sqrt(v)
            u /= max(1.0, np.sqrt((u**2).mean()))
            x = x - 0.1 * max(1e-3, np.sqrt((x**2).mean())) * u
        np.testing.assert_allclose(found[key], x, rtol=1e-4, atol=1e-5)


def test_lower_layers_learn_slower():
    """With one gradient everywhere Adam's first corrected step is the rate; weight decay off."""
    layers = {"kernel": (3, 2, 2), "bias": (3, 2)}
    model = {"embeddings": {"table": (5, 3)}, "encoder": {"layers": layers, "layer_norm": (2,)}, "pooler": (2,)}
    beside = {"encoder": {"layers": {"kernel": (2, 2, 2)}}, "mlm": (5,)}
    params = jax.tree.map(np.zeros, {"a": model, "b": beside}, is_leaf=lambda x: isinstance(x, tuple))
    optimizer = make_optimizer(
        lambda step: 0.1, bias_correction=True, weight_decay=0.0, clip_norm=0.0, eps=1e-12, layer_decay=0.5
    )
    ones = jax.tree.map(np.ones_like, params)
    updates, _ = jax.jit(optimizer.update)(ones, optimizer.init(params), params)

    def moved(found, *by):
        by = np.reshape(by, (-1, *[1] * (found.ndim - 1)))
        np.testing.assert_allclose(found, np.broadcast_to(by, found.shape), rtol=1e-5)

    for name in ("kernel", "bias"):
        moved(updates["a"]["encoder"]["layers"][name], -0.1 / 8, -0.1 / 4, -0.1 / 2)
    moved(updates["a"]["embeddings"]["table"], -0.1 / 16)
    moved(updates["b"]["encoder"]["layers"]["kernel"], -0.1 / 4, -0.1 / 2)
    for top in (updates["a"]["pooler"], updates["a"]["encoder"]["layer_norm"], updates["b"]["mlm"]):
        moved(top, -0.1)


def test_the_average_follows_the_parameters():
    """A parameter that falls by 1 a step, from 0: its averages by the definition, and in the end by the span."""
    optimizer = make_optimizer(
        lambda step: 1.0, bias_correction=True, weight_decay=0.0, clip_norm=0.0, eps=1e-12, average_decay=0.9
    )
    params = {"pooler": jnp.zeros(2)}
    state, expected = optimizer.init(params), 0.0
    for step in range(200):
        updates, state = jax.jit(optimizer.update)({"pooler": np.ones(2, np.float32)}, state, params)
        params = optax.apply_updates(params, updates)
        kept = min(0.9, step / (step + 3))
        expected = kept * expected + (1 - kept) * -(step + 1.0)
        found = optax.tree.get(state, "average")["pooler"]
        np.testing.assert_allclose(found, [expected] * 2, rtol=1e-4)
    np.testing.assert_allclose(params["pooler"] - found, [-9, -9], rtol=1e-2)  # the mean age is 0.9 / (1 - 0.9) steps


def test_what_no_loss_reads_does_not_decay():
    config = BertConfig.named("tiny", "esm")
    mask = decay_mask(Bert(config, "masked_lm").abstract_params())
    assert not mask["contact_head"]["dense"]["kernel"] and not mask["encoder"]["inverse_frequencies"]
    assert mask["encoder"]["layers"]["mlp"]["up"]["kernel"] and mask["mlm"]["dense"]["kernel"]


def test_embeddings_decay_and_biases_and_layer_norms_do_not():
    mask = decay_mask(some_params(np.random.default_rng(0)))
    assert mask == {
        "embeddings": {"word_embeddings": {"embedding": True}},
        "encoder": {"layer_norm": {"scale": False, "bias": False}},
        "mlm": {"bias": False, "dense": {"kernel": True, "bias": False}},
    }


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("bert_linear", [0, 0.5, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0, 0]),  # drops from 1 to 0.8 at step 2
        ("linear", [0, 0.5, 1, 0.875, 0.75, 0.625, 0.5, 0.375, 0.25, 0.125, 0, 0]),
        ("constant", [0, 0.5, *[1.0] * 10]),
        ("quadratic", [0, 0.5, *[(1 - k / 8) ** 2 for k in range(9)], 0]),
        ("cosine", [0, 0.5, *[(1 + np.cos(np.pi * k / 8)) / 2 for k in range(9)], 0]),
        ("rsqrt", [0, 0.5, *[(2 / step) ** 0.5 for step in range(2, 12)]]),
        ("wsd", [0, 0.5, *[1.0] * 8, 0, 0]),
    ],
)
def test_schedules_over_ten_steps_with_two_of_warm_up(name, expected):
    schedule = make_schedule(name, 1.0, 10, 2)
    np.testing.assert_allclose([float(schedule(step)) for step in range(12)], expected, atol=1e-6)


def test_wsd_decays_over_the_last_tenth():
    schedule = make_schedule("wsd", 2.0, 100, 5)
    rates = [float(schedule(step)) for step in range(101)]
    assert rates[5:91] == [2.0] * 86
    np.testing.assert_allclose(rates[90:], [2 * (1 - (k / 10) ** 0.5) for k in range(11)], atol=1e-6)


@pytest.mark.parametrize("name", SCHEDULES)
def test_without_warm_up_the_first_step_has_the_full_rate(name):
    assert float(make_schedule(name, 3e-5, 10, 0)(0)) == pytest.approx(3e-5)


def test_a_schedule_that_is_not_one():
    with pytest.raises(InputError, match="did you mean 'linear'"):
        make_schedule("linaer", 1.0, 10, 0)
    with pytest.raises(InputError, match="warmup_steps: expected at most num_steps 10, found 11"):
        make_schedule("linear", 1.0, 10, 11)


def test_an_optimizer_that_is_not_one():
    with pytest.raises(InputError, match="did you mean 'lamb'"):
        make_optimizer(lambda step: 0.1, name="lamp")


RECIPE = """
import optax
from bert_jax import recipes
from bert_jax.training import register_optimizer, register_schedule

def lion(settings):
    \"\"\"The sign of a momentum (Chen et al. 2023, arXiv:2302.06675).\"\"\"
    return optax.chain(optax.scale_by_lion(settings.beta1, settings.beta2), settings.decay())

register_optimizer("lion", lion)
register_schedule("one_cycle", optax.cosine_onecycle_schedule(transition_steps=8, peak_value=2e-3))

def get_config(folder):
    c = recipes.classification()
    c.update_from_flattened_dict({
        "tokenizer": folder, "data.train": folder + "/data.tsv", "data.dev": folder + "/data.tsv",
        "data.length_buckets": (12,), "data.max_seq_length": 12, "global_batch_size": 8, "num_steps": 8,
        "model.size": "tiny", "model.hidden_size": 16, "model.intermediate_size": 32, "model.num_hidden_layers": 1,
        "model.max_position_embeddings": 16, "log_every": 1, "checkpoint_every": 2,
        "optimizer.name": "lion", "optimizer.schedule": "one_cycle", "optimizer.warmup_ratio": 0.0})
    return c
"""


@pytest.fixture
def no_registered():
    """Registries as in a new process, before the test and after it."""
    before = [dict(each._registered) for each in (recipes.OPTIMIZERS, recipes.SCHEDULES)]
    yield lambda: [each._registered.clear() for each in (recipes.OPTIMIZERS, recipes.SCHEDULES)]
    for each, added in zip((recipes.OPTIMIZERS, recipes.SCHEDULES), before, strict=True):
        each._registered.clear()
        each._registered.update(added)


@pytest.mark.slow
def test_an_optimizer_and_a_schedule_of_a_recipe_file_train_and_resume_bitwise(tmp_path, tiny_tokenizer, no_registered):
    tiny_tokenizer.save(tmp_path)
    rows = "".join(f"{'cat ' if i % 3 else 'dog '} {i % 5}\t{i % 3 > 0}\n" for i in range(64))
    (tmp_path / "data.tsv").write_text("sentence\tlabel\n" + rows)
    (tmp_path / "mine.py").write_text(RECIPE)
    spec = f"{tmp_path}/mine.py:{tmp_path}"
    training.train(recipes.load_recipe(spec), tmp_path / "whole", progress=False)
    no_registered()
    with contextlib.closing(training.steps(recipes.load_recipe(spec), tmp_path / "killed", progress=False)) as run:
        for _ in itertools.islice(run, 5):
            pass
    no_registered()
    with pytest.raises(InputError, match=r"config.optimizer.name: 'lion' is not registered: expected a call of "
                                         r"bert_jax.training.register_optimizer\('lion', ...\) before"):  # fmt: skip
        recipes.load_recipe(str(tmp_path / "killed"))
    results = training.train(recipes.load_recipe(spec), tmp_path / "killed", progress=False)
    weights = [(tmp_path / name / "model" / "model.safetensors").read_bytes() for name in ("whole", "killed")]
    assert results["step"] == 8 and weights[0] == weights[1]
    recipe = recipes.load_recipe(str(tmp_path / "killed"))
    assert (recipe.optimizer.name, recipe.optimizer.schedule) == ("lion", "one_cycle")


def test_a_registered_optimizer_is_optaxs_before_the_learning_rate(no_registered):
    params = {"kernel": jnp.ones((3, 2))}
    training.register_optimizer("plain", optax.identity())
    optimizer = make_optimizer(lambda step: 0.5, name="plain", clip_norm=0.0)
    updates, _ = optimizer.update(params, optimizer.init(params), params)
    np.testing.assert_array_equal(updates["kernel"], jnp.full((3, 2), -0.5))
    training.register_optimizer("whole", optax.lion(1e-4))
    check_registered("plain", OptimizerSettings())
    with pytest.raises(InputError, match="optimizer 'whole': expected updates without a learning rate"):
        check_registered("whole", OptimizerSettings())
    training.register_optimizer("none", lambda settings: None)
    with pytest.raises(InputError, match=r"'none': expected an optax.GradientTransformation, found NoneType"):
        make_optimizer(lambda step: 0.1, name="none")
    with pytest.raises(InputError, match="expected a new name, found 'lamb', which bert_jax has"):
        training.register_optimizer("lamb", optax.identity())
    with pytest.raises(InputError, match=r"'x': expected an optax.GradientTransformation, or a function"):
        training.register_optimizer("x", 3)


def test_a_registered_schedule_is_a_function_of_the_step_or_one_that_returns_it(no_registered):
    training.register_schedule("halves", lambda peak, num_steps, warmup_steps: lambda step: peak / 2)
    training.register_schedule("given", optax.constant_schedule(0.25))
    assert [float(make_schedule(name, 3.0, 10, 0)(2)) for name in ("halves", "given")] == [1.5, 0.25]
    with pytest.raises(InputError, match=r"'two': expected a function of the step, or of \(peak, .*found one of 2"):
        training.register_schedule("two", lambda peak, steps: None)
    recipe = recipes.classification()
    recipe.optimizer.schedule = "given"
    assert recipes.resolve(recipe, "cpu").optimizer.schedule == "given"


def test_every_optimizer_and_schedule_has_a_meaning():
    assert all(len(each.meaning(name)) > 20 for each in (recipes.OPTIMIZERS, recipes.SCHEDULES) for name in each)


def test_a_plugin_that_cannot_be_imported_is_named_by_each_lookup(monkeypatch):
    point = importlib.metadata.EntryPoint("mine", "no_such_module", registry.PLUGINS)
    monkeypatch.setattr(registry, "_imported", set())
    monkeypatch.setattr(registry.metadata, "entry_points", lambda group: [point])
    assert recipes.OPTIMIZERS  # imports none
    for _ in range(2):
        with pytest.raises(InputError, match=r"bert_jax.plugins: entry point 'mine': ModuleNotFoundError: "):
            make_optimizer(lambda step: 0.1, name="mine")


def test_the_state_of_a_registered_optimizer_may_have_arrays_of_any_shape(no_registered):
    state = {"opt_state": {"history": jnp.zeros((7,))}}
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]).reshape(1, 1, 1), ("data", "fsdp", "tensor"))
    shardings = param_shardings(mesh, State({}, state, jnp.int32(0)))
    assert shardings.opt_state["opt_state"]["history"].spec == jax.sharding.PartitionSpec(None)
