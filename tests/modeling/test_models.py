"""The model by itself: parameter tree, masks, dropout, and that no choice of `Compute` changes the result."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.config import BertConfig
from bert_jax.config.gliner import GlinerConfig
from bert_jax.errors import InputError
from bert_jax.families.albert.parts import TiedConfig
from bert_jax.modeling import HEADS, Bert, Compute
from bert_jax.modeling.compute import matmul
from bert_jax.modeling.dropout import dropout, random_bits
from bert_jax.modeling.positions import sinusoids

CONFIG = BertConfig.named("tiny", vocab_size=97, max_position_embeddings=24, num_hidden_layers=3)


def batch(rows=4, length=12, seed=0):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(3, length + 1, rows)
    return {
        "input_ids": rng.integers(5, CONFIG.vocab_size, (rows, length)).astype(np.int32),
        "attention_mask": (np.arange(length) < lengths[:, None]).astype(np.int32),
        "token_type_ids": rng.integers(0, 2, (rows, length)).astype(np.int32),
    }


@functools.cache
def init(head):
    return Bert(CONFIG, head).init(jax.random.key(0))


def count(tree):
    return sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(tree))


def test_base_has_the_published_parameter_counts():
    shapes = Bert(BertConfig.named("base"), "pretraining").abstract_params()
    assert count(shapes["embeddings"]) == 23_837_184
    assert count(shapes["encoder"]) == 85_054_464
    assert count(shapes["pooler"]) == 590_592
    assert shapes["encoder"]["layers"]["mlp"]["up"]["kernel"].shape == (12, 768, 3072)


def test_initialisation_is_a_truncated_normal_and_layers_differ():
    params = jax.jit(Bert(CONFIG.replace(hidden_size=256), "masked_lm").init)(jax.random.key(1))
    kernel = np.asarray(params["encoder"]["layers"]["mlp"]["up"]["kernel"])
    assert abs(kernel).max() <= 0.04 + 1e-6
    assert kernel.std() == pytest.approx(0.02 * 0.8796, rel=0.01)
    assert not np.array_equal(kernel[0], kernel[1])
    query, key = (params["encoder"]["layers"]["attention"][name]["kernel"] for name in ("query", "key"))
    assert not np.array_equal(query, key)


@pytest.mark.sampled(15)
@pytest.mark.parametrize("head", HEADS)
def test_every_head_has_its_outputs(head):
    model = Bert(CONFIG.replace(num_labels=3, gliner=GlinerConfig(max_width=2, hidden_size=8)), head)
    inputs = batch()
    if head == "zero_shot_ner":
        inputs |= {"word_positions": np.full((4, 5), 2), "type_positions": np.full((4, 3), 1)}
    if head == "multiple_choice":
        inputs = {name: np.stack([value, value[::-1]], 1) for name, value in inputs.items()}
    out = jax.jit(lambda p: model.apply(p, **inputs, output_hidden_states=True, output_attentions=True))(
        model.init(jax.random.key(0))
    )
    expected = {
        "encoder": {},
        "pretraining": {"prediction_logits": (4, 12, 97), "seq_relationship_logits": (4, 2)},
        "next_sentence": {"logits": (4, 2)},
        "masked_lm": {"logits": (4, 12, 97)},
        "sequence_classification": {"logits": (4, 3)},
        "token_classification": {"logits": (4, 12, 3)},
        "question_answering": {"start_logits": (4, 12), "end_logits": (4, 12)},
        "multiple_choice": {"logits": (4, 2)},
        "replaced_token_detection": {"logits": (4, 12)},
        "sentence_embedding": {"sentence_embedding": (4, 128)},
        "sparse_embedding": {"sentence_embedding": (4, 97)},
        "multi_vector": {"token_embeddings": (4, 12, 128)},
        "zero_shot_ner": {"logits": (4, 5, 2, 3)},
    }[head]
    always = ("last_hidden_state", "pooler_output", "hidden_states", "attentions")
    found = {
        field.name: getattr(out, field.name).shape
        for field in dataclasses.fields(out)
        if field.name not in always and getattr(out, field.name) is not None
    }
    assert found == expected
    assert (out.pooler_output is None) == (
        head
        in ("masked_lm", "token_classification", "question_answering", "replaced_token_detection", "sparse_embedding")
    )
    assert len(out.hidden_states) == 4 and len(out.attentions) == 3
    np.testing.assert_array_equal(out.hidden_states[-1], out.last_hidden_state)
    np.testing.assert_allclose(np.asarray(out.attentions[0]).sum(-1), 1.0, rtol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_padding_changes_nothing_and_a_fully_masked_row_is_finite(dtype):
    run, params, inputs = jax.jit(Bert(CONFIG, "encoder", Compute(dtype)).apply), init("encoder"), batch(rows=2)
    inputs["attention_mask"][:] = np.arange(12) < 7
    inputs["attention_mask"][1] = 0
    padded = run(params, **inputs).last_hidden_state
    cut = run(params, **{name: value[:, :7] for name, value in inputs.items()}).last_hidden_state
    np.testing.assert_allclose(padded[0, :7], cut[0], atol=1e-5 if dtype == "float32" else 0.05)
    assert np.isfinite(np.asarray(padded)).all()


def test_masked_positions_gather_the_same_logits():
    run, params, inputs = jax.jit(Bert(CONFIG, "masked_lm").apply), init("masked_lm"), batch()
    positions = np.array([[1, 2], [0, 2], [2, 1], [1, 1]], np.int32)
    everywhere = np.asarray(run(params, **inputs).logits)
    gathered = run(params, **inputs, masked_positions=positions).logits
    np.testing.assert_allclose(gathered, np.take_along_axis(everywhere, positions[..., None], 1), atol=1e-6)


@functools.cache
def loss_and_gradients(compute, with_dropout=False):
    model, key = Bert(CONFIG, "pretraining", compute), jax.random.key(3) if with_dropout else None

    def loss(params):
        out = model.apply(params, **batch(), dropout_key=key)
        return jnp.square(out.prediction_logits).mean() + jnp.square(out.seq_relationship_logits).mean()

    return jax.device_get(jax.jit(jax.value_and_grad(loss))(init("pretraining")))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("choice", [{"layers": "unroll"}, {"remat": "full"}, {"remat": "dots"}])
def test_compute_choices_do_not_change_loss_or_gradients(choice):
    results = [loss_and_gradients(compute, with_dropout=True) for compute in (Compute(), Compute(**choice))]
    for a, b in zip(*map(jax.tree.leaves, results), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    "compute",
    [
        Compute(),
        *(pytest.param(Compute(**c), marks=pytest.mark.slow) for c in ({"layers": "unroll"}, {"remat": "full"})),
    ],
)
def test_tied_layers_are_layers_with_equal_parameters_and_their_gradients_are_summed(compute):
    tied = CONFIG.replace(num_hidden_layers=5, stack=TiedConfig(2))
    rows, params = np.array(tied.parameter_rows), Bert(tied).init(jax.random.key(0))
    assert {leaf.shape[0] for leaf in jax.tree.leaves(params["encoder"]["layers"])} == {2}

    def run(config, params):
        def loss(params):
            out = Bert(config, compute=compute).apply(
                params, **batch(), dropout_key=jax.random.key(1), output_hidden_states=True
            )
            return sum(jnp.square(state - 0.1).sum() for state in out.hidden_states)

        return jax.device_get(jax.jit(jax.value_and_grad(loss))(params))

    layers = jax.tree.map(lambda leaf: leaf[rows], params["encoder"]["layers"])
    found, gradients = run(tied, params)
    expected, of_copies = run(CONFIG.replace(num_hidden_layers=5), params | {"encoder": {"layers": layers}})
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    summed = jax.tree.map(lambda leaf: np.stack([leaf[rows == row].sum(0) for row in (0, 1)]), of_copies["encoder"])
    for a, b in zip(*map(jax.tree.leaves, (gradients, of_copies | {"encoder": summed})), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-4 * abs(b).max() + 1e-3)


@pytest.mark.parametrize("layers", ["scan", "unroll"])
def test_bfloat16_is_close_to_float32(layers):
    exact, rounded = (loss_and_gradients(Compute(dtype, layers))[1] for dtype in ("float32", "bfloat16"))
    for path, a in jax.tree_util.tree_leaves_with_path(exact):
        b = rounded
        for part in path:
            b = b[part.key]
        assert b.dtype == jnp.float32
        scale = np.linalg.norm(a)
        if scale > 1e-4:  # a key bias has no gradient but rounding
            assert np.linalg.norm(a - b) < 0.05 * scale, path


@pytest.mark.parametrize("platform", ["cpu", "tpu"])
@pytest.mark.parametrize("transposed", [False, True])
def test_matmul_in_bfloat16_has_the_gradients_of_matmul(transposed, platform):
    key = jax.random.key(0)
    x, kernel = jax.random.normal(key, (2, 40, 64)), jax.random.normal(key, (96, 64) if transposed else (64, 96))
    weight = jax.random.normal(jax.random.key(1), (2, 40, 96))

    def gradients(dtype):
        def total(x, kernel):
            return jnp.sum(
                weight * matmul(x, kernel, Compute(dtype, platform=platform), transposed=transposed, dtype=jnp.float32)
            )

        return jax.jit(jax.grad(total, (0, 1)))(x, kernel)

    for a, b in zip(gradients("float32"), gradients("bfloat16"), strict=True):
        assert b.dtype == jnp.float32
        assert np.linalg.norm(a - b) < 0.01 * np.linalg.norm(a)


def test_logits_are_float32_where_activations_are_bfloat16():
    model = Bert(CONFIG, "pretraining", Compute("bfloat16", platform="tpu"))
    out = jax.eval_shape(lambda p: model.apply(p, **batch()), model.abstract_params())
    assert out.last_hidden_state.dtype == jnp.bfloat16
    assert out.prediction_logits.dtype == out.seq_relationship_logits.dtype == jnp.float32


def test_dropout_drops_its_rate_and_keeps_the_mean():
    x = jnp.ones((64, 32, 128))
    y = np.asarray(dropout(x, 0.1, jax.random.key(0)))
    n = y.size
    assert abs((y == 0).mean() - 0.1) < 5 * np.sqrt(0.09 / n)
    np.testing.assert_allclose(y[y > 0], 1 / 0.9, rtol=1e-6)
    assert np.array_equal(dropout(x, 0.0, jax.random.key(0)), x)
    assert np.array_equal(dropout(x, 0.5, None), x)


def test_random_bits_are_uniform_and_independent():
    a = np.asarray(random_bits(jax.random.key(0), (512, 1024)))
    b = np.asarray(random_bits(jax.random.key(1), (512, 1024)))
    n, tolerance = a.size, 5 / np.sqrt(a.size)
    for bit in range(32):
        bits = ((a >> bit) & 1) * 2.0 - 1
        assert abs(bits.mean()) < tolerance
        for other in (bits[:, 1:] * bits[:, :-1], bits[1:] * bits[:-1], bits * (((b >> bit) & 1) * 2.0 - 1)):
            assert abs(other.mean()) < tolerance * 1.01
    counts = np.bincount((a >> 24).ravel(), minlength=256)
    chi2 = ((counts - n / 256) ** 2 / (n / 256)).sum()
    assert chi2 < 255 + 5 * np.sqrt(2 * 255)


def test_dropout_differs_between_layers_and_keys():
    config = CONFIG.replace(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.5)
    model, inputs = Bert(config, "encoder"), batch()
    params = jax.device_get(init("encoder"))
    # Equal layers: only their dropout can tell them apart.
    params["encoder"]["layers"] = jax.tree.map(lambda leaf: np.stack([leaf[0]] * 3), params["encoder"]["layers"])
    run = jax.jit(lambda key: model.apply(params, **inputs, dropout_key=key).last_hidden_state)
    first, again, other = run(jax.random.key(0)), run(jax.random.key(0)), run(jax.random.key(1))
    np.testing.assert_array_equal(first, again)
    assert not np.allclose(first, other, atol=1e-3)
    key = jax.random.key(0)
    masks = {tuple(np.asarray(random_bits(k, (8,)))) for k in jax.random.split(key, 3)}
    assert len(masks) == 3


def test_sinusoidal_positions_have_no_parameters_and_the_papers_values():
    config = CONFIG.replace(position_embedding_type="sinusoidal")
    assert "position_embeddings" not in Bert(config).abstract_params()["embeddings"]
    table = sinusoids(10, 8)
    np.testing.assert_allclose(table[3, 4], np.sin(3 / 10000 ** (4 / 8)), rtol=1e-6)
    np.testing.assert_allclose(table[3, 5], np.cos(3 / 10000 ** (4 / 8)), rtol=1e-6)


def test_position_ids_choose_rows():
    run, params, inputs = jax.jit(Bert(CONFIG).apply), init("encoder"), batch()
    ids = np.tile(np.arange(12, dtype=np.int32), (4, 1))
    plain, same, other = (run(params, **inputs, position_ids=p).last_hidden_state for p in (None, ids, ids + 5))
    np.testing.assert_allclose(plain, same, atol=1e-6)
    assert not np.allclose(plain, other, atol=1e-3)


def test_bad_requests_are_answered():
    with pytest.raises(InputError, match="did you mean 'masked_lm'"):
        Bert(CONFIG, "masked-lm")
    with pytest.raises(InputError, match="needs a pooler"):
        Bert(CONFIG.replace(pooler=False), "pretraining")
    with pytest.raises(InputError, match="did you mean 'bfloat16'"):
        Compute("bfloat")
    model = Bert(CONFIG)
    with pytest.raises(
        InputError, match=r"expected at most the model's 24 positions .*, found a sequence of 25 tokens"
    ):
        jax.eval_shape(lambda p: model.apply(p, jnp.ones((1, 25), jnp.int32)), model.abstract_params())
