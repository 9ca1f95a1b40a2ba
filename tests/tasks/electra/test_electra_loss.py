"""Replaced-token detection: the loss beside the one spelled out, and what learns from what."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from packed_examples import LENGTH, SLOTS, examples

from bert_jax import parameter_sharding
from bert_jax.config import BertConfig
from bert_jax.data.packing import pack
from bert_jax.errors import InputError
from bert_jax.modeling import Bert, Electra, losses
from bert_jax.modeling.electra import generator_config
from bert_jax.tasks.electra.task import ElectraTask

CONFIG = BertConfig.named(
    "tiny", "electra", vocab_size=90, hidden_size=32, num_attention_heads=4, intermediate_size=64, embedding_size=12,
    max_position_embeddings=LENGTH, initializer_range=0.2,
)  # fmt: skip
MODEL = Electra(CONFIG, generator_config(CONFIG, 0.5))
TASK = ElectraTask(MODEL, majority_id=5, discriminator_weight=7.0)
DISENTANGLED = dataclasses.replace(MODEL, embedding_sharing="gdes")
DEBERTA = BertConfig.named(
    "tiny", "deberta-v2", vocab_size=90, hidden_size=32, num_attention_heads=4, intermediate_size=64,
    max_position_embeddings=LENGTH, position_buckets=8, initializer_range=0.2,
)  # fmt: skip


def quick(function):
    """Jitted, in less time than the result is worth."""
    options = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
    return jax.jit(function, compiler_options=options)


@pytest.fixture(scope="module")
def params():
    """With a discriminator that now claims something and now nothing."""
    fresh = quick(MODEL.init)(jax.random.key(0))
    head = fresh["discriminator"]["discriminator"]["output"]
    head["kernel"] = jax.random.normal(jax.random.key(1), head["kernel"].shape)
    ids = np.arange(LENGTH)[None] + 5
    head["bias"] = -np.median(quick(MODEL.discriminator.apply)(fresh["discriminator"], ids).logits)[None]
    return fresh


@pytest.fixture(scope="module")
def batch():
    """Rows whose masks are hidden behind token 4, no token twice among the masked ones."""
    made, _ = examples(12)
    for row in range(len(made["input_ids"])):
        real = made["masked_weights"][row] > 0
        made["masked_labels"][row, real] = made["input_ids"][row, made["masked_positions"][row, real]]
        made["input_ids"][row, made["masked_positions"][row, real]] = 4
    return made


def drawn(params, batch, key):
    """The tokens that the generator fills in."""
    names = ("input_ids", "attention_mask", "token_type_ids", "masked_positions", "masked_labels")
    given = {name: batch[name] for name in names}
    return MODEL.generator.apply(MODEL.generator_params(params), **given, sample_key=key).masked_lm_samples


def test_the_generator_is_scaled_in_heads_and_shares_embeddings(params):
    assert (MODEL.generator_config.hidden_size, MODEL.generator_config.num_attention_heads) == (16, 2)
    assert MODEL.generator_config.intermediate_size == 32 and MODEL.generator_config.num_hidden_layers == 2
    assert params["generator"].keys() == {"embeddings", "encoder", "mlm"}
    assert params["generator"]["embeddings"].keys() == {"projection"}
    assert params["generator"]["embeddings"]["projection"]["kernel"].shape == (12, 16)
    third = generator_config(BertConfig.named("base", "electra", embedding_size=768), 1 / 3)
    assert (third.hidden_size, third.num_attention_heads, third.intermediate_size) == (256, 4, 1024)  # table 6
    assert third.embedding_width == 768


def test_a_generator_as_wide_as_its_embeddings_has_nothing_to_bring_there():
    config = CONFIG.replace(embedding_size=16)
    model = Electra(config, generator_config(config, 0.5))
    params = jax.eval_shape(model.init, jax.random.key(0))
    assert params["generator"].keys() == {"encoder", "mlm"}
    jax.eval_shape(model.generator.apply, model.generator_params(params), np.ones((2, 8), np.int32))


def test_models_of_different_vocabularies_are_refused():
    with pytest.raises(InputError, match="the generator's vocab_size: expected the discriminator's, 90, found 80"):
        Electra(CONFIG, MODEL.generator_config.replace(vocab_size=80))


def test_every_parameter_is_split_as_in_a_model_of_its_own(params):
    specs = parameter_sharding.param_specs(params)
    assert specs["discriminator"] == parameter_sharding.param_specs(MODEL.discriminator.abstract_params())
    alone = parameter_sharding.param_specs(MODEL.generator.abstract_params())
    assert specs["generator"]["encoder"] == alone["encoder"] and specs["generator"]["mlm"] == alone["mlm"]


@pytest.mark.oracle
def test_the_loss_is_the_one_spelled_out(params, batch):
    run = quick(lambda p: (TASK.loss(p, batch, None, TASK.weights(batch)), TASK.predict(p, batch)))
    (loss, metrics), predictions = run(params)
    samples = np.asarray(quick(drawn)(params, batch, jax.random.key(0)))
    given = {name: batch[name] for name in ("attention_mask", "token_type_ids")}
    scores = quick(MODEL.generator.apply)(MODEL.generator_params(params), batch["input_ids"], **given).logits
    scores = np.asarray(scores, np.float64)

    text, replaced, mlm, right, masks = batch["input_ids"].copy(), np.zeros((12, LENGTH), bool), 0.0, 0, 0
    for row, slot in np.argwhere(batch["masked_weights"] > 0):
        place, label = batch["masked_positions"][row, slot], batch["masked_labels"][row, slot]
        at = scores[row, place]
        mlm += np.log(np.exp(at - at.max()).sum()) + at.max() - at[label]
        right, masks = right + (at.argmax() == label), masks + 1
        text[row, place], replaced[row, place] = samples[row, slot], samples[row, slot] != label
    logits = quick(MODEL.discriminator.apply)(params["discriminator"], text, **given).logits
    chance = 1 / (1 + np.exp(-np.asarray(logits, np.float64)))
    real = batch["attention_mask"] > 0
    disc = -np.log(np.where(replaced, chance, 1 - chance))[real].mean()
    claimed = chance > 0.5
    expected = {
        "mlm_loss": mlm / masks, "mlm_accuracy": right / masks, "disc_loss": disc,
        "disc_accuracy": (claimed == replaced)[real].mean(), "disc_precision": replaced[real & claimed].mean(),
        "disc_recall": claimed[real & replaced].mean(), "packing": real.mean(),
    }  # fmt: skip
    assert 0 < replaced.sum() < masks  # some were drawn right
    assert float(loss) == pytest.approx(mlm / masks + 7 * disc, rel=1e-5)
    assert {name: float(a / b) for name, (a, b) in metrics.items()} == pytest.approx(expected, rel=1e-5)
    scores = TASK.score([jax.tree.map(np.asarray, predictions)], [batch])
    assert 0 <= scores.pop("mlm_majority_accuracy") < 0.2
    assert scores == pytest.approx({name: expected[name] for name in expected if name != "packing"}, rel=1e-5)


@pytest.mark.slow
def test_the_discriminator_teaches_the_generator_nothing_but_embeddings(params, batch):
    def loss(params, weight):
        task = dataclasses.replace(TASK, discriminator_weight=weight)
        return task.loss(params, batch, None, task.weights(batch))[0]

    gradients = quick(jax.grad(loss))
    with_it, without = gradients(params, 7.0), gradients(params, 0.0)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=1e-5 * np.abs(b).max() + 1e-8),
        with_it["generator"], without["generator"],
    )  # fmt: skip
    assert max(np.abs(leaf).max() for leaf in jax.tree.leaves(without["discriminator"]["encoder"])) == 0
    words = [g["discriminator"]["embeddings"]["word_embeddings"]["embedding"] for g in (with_it, without)]
    assert all(np.abs(word).max() > 0 for word in words) and not np.allclose(*words, rtol=0.1)


@pytest.mark.slow
def test_with_disentangled_gradients_the_generators_tables_learn_from_its_own_loss_only(params, batch):
    """He et al. 2021 (arXiv:2111.09543), section 3.3."""
    plain, apart = (dataclasses.replace(TASK, model=model) for model in (MODEL, DISENTANGLED))
    own = DISENTANGLED.joined(params["discriminator"], MODEL.generator_params(params))
    assert not any(np.any(table["embedding"]) for table in DISENTANGLED._tables(own["discriminator"]).values())

    def loss(params, task, name):
        return task.loss(params, batch, None, task.weights(batch))[1][name][0]

    def gradient(params, task, name):
        return quick(jax.grad(lambda given: loss(given, task, name)))(params)

    for name in ("disc_loss", "mlm_loss"):
        assert float(loss(own, apart, name)) == pytest.approx(float(loss(params, plain, name)), rel=1e-6)
    shared, disc, mlm = (gradient(params, plain, "disc_loss"), gradient(own, apart, "disc_loss"),
                         gradient(own, apart, "mlm_loss"))  # fmt: skip
    assert all(not np.any(leaf) for leaf in jax.tree.leaves(disc["generator"]))
    assert all(not np.any(leaf) for leaf in jax.tree.leaves(mlm["discriminator"]))
    words = [tree["embeddings"]["word_embeddings"]["embedding"] for tree in (mlm["generator"], disc["discriminator"])]
    assert all(np.any(word) for word in words)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=1e-6 * np.abs(b).max() + 1e-9),
        disc["discriminator"], shared["discriminator"],
    )  # fmt: skip


@pytest.mark.slow
def test_differences_are_added_to_the_generators_tables(params):
    other = jax.tree.map(lambda leaf: leaf + 1, MODEL.generator_params(params))
    own = DISENTANGLED.joined(params["discriminator"], other)
    tables = DISENTANGLED._tables(own["discriminator"])
    assert tables.keys() == {"word_embeddings", "position_embeddings", "token_type_embeddings"}
    np.testing.assert_allclose(tables["word_embeddings"]["embedding"], -1, rtol=0, atol=1e-6)
    back = DISENTANGLED.discriminator_params(own)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=1e-6), back, params["discriminator"])
    assert DISENTANGLED.generator_params(own) is other
    fresh = quick(DISENTANGLED.init)(jax.random.key(0))
    assert not any(np.any(table["embedding"]) for table in DISENTANGLED._tables(fresh["discriminator"]).values())


@pytest.mark.sampled(3)
@pytest.mark.parametrize("sharing", ["es", "gdes", "none"])
@pytest.mark.parametrize("size", [1.0, 0.5])
def test_what_is_shared_fits_a_deberta(sharing, size):
    model = Electra(DEBERTA, generator_config(DEBERTA, size, layers=1), embedding_sharing=sharing)
    params = jax.eval_shape(model.init, jax.random.key(0))
    assert model.generator_config.num_hidden_layers == 1
    for part, of in ((model.generator, model.generator_params), (model.discriminator, model.discriminator_params)):
        shapes = jax.tree.map(lambda leaf: leaf.shape, jax.eval_shape(of, params))
        assert shapes == jax.tree.map(lambda leaf: leaf.shape, part.abstract_params())
    has_words = "word_embeddings" in params["generator"].get("embeddings", {})
    assert has_words == (sharing != "es")


def test_a_sharing_that_is_not_known_is_refused():
    with pytest.raises(InputError, match="embedding_sharing 'gds' is not known; did you mean 'gdes'"):
        dataclasses.replace(MODEL, embedding_sharing="gds")


@pytest.mark.slow
def test_the_discriminator_of_deberta_compares_each_token_with_the_first():
    bert = Bert(DEBERTA, "replaced_token_detection")
    params = quick(bert.init)(jax.random.key(0))
    head = params["discriminator"]
    head["layer_norm"] = {name: jax.random.normal(jax.random.key(i), (32,)) for i, name in enumerate(("scale", "bias"))}
    ids = np.arange(10)[None] + 5
    out = quick(bert.apply)(params, ids)
    x = np.asarray(out.last_hidden_state, np.float64)
    x = x + x[:, :1]
    x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + DEBERTA.layer_norm_eps)
    x = x * np.asarray(head["layer_norm"]["scale"]) + np.asarray(head["layer_norm"]["bias"])
    x = np.asarray(jax.nn.gelu(x @ head["dense"]["kernel"] + head["dense"]["bias"], approximate=False))
    expected = (x @ head["output"]["kernel"] + head["output"]["bias"])[..., 0]
    np.testing.assert_allclose(out.logits, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


def test_in_training_other_tokens_are_drawn_each_step(params, batch):
    step = quick(lambda key: TASK.loss(params, batch, key, TASK.weights(batch))[1]["disc_recall"][1])
    assert len({float(step(jax.random.key(i))) for i in range(8)}) > 1


@pytest.mark.sampled(2)
@pytest.mark.parametrize("family", ["electra", "deberta-v2"])
def test_packed_rows_are_learned_from_as_if_apart(params, monkeypatch, family):
    """In their slots other tokens would be drawn: here the likeliest is."""
    task = TASK
    if family == "deberta-v2":
        task = dataclasses.replace(
            TASK, model=Electra(DEBERTA, generator_config(DEBERTA, 0.5), embedding_sharing="gdes")
        )
        params = quick(task.model.init)(jax.random.key(0))
    monkeypatch.setattr(losses, "_sample", lambda logits, words: logits.argmax(-1).astype(jnp.int32))
    apart, rows = examples()
    # A place that is masked twice would be filled in by either.
    apart["masked_weights"][:, 1:] *= np.diff(np.sort(apart["masked_positions"], 1), axis=1).all(1)[:, None]
    packed = pack(apart, rows, LENGTH, slots=int(np.bincount(rows).max()) * SLOTS, most=int(np.bincount(rows).max()))
    loss = quick(lambda *given: task.loss(*given))
    (expected, found) = (loss(params, b, None, task.weights(b))[1] for b in (apart, packed))
    share = [{n: float(a / b) for n, (a, b) in m.items() if n != "packing"} for m in (expected, found)]
    assert share[1] == pytest.approx(share[0], rel=1e-5)
