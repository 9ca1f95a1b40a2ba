"""Longformer's and BigBird's attention: the same by blocks and by maps, in packed rows, and linear in the length."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import jaxprs_in_params

from bert_jax.config import BertConfig
from bert_jax.errors import InputError
from bert_jax.modeling import Bert, Compute

SHAPE = {"vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 24}
LONGFORMER = {"attention_windows": (2, 3), "max_global_tokens": 4, "sep_token_id": 2, "type_vocab_size": 1}
BIG_BIRD = {"block_size": 4, "num_random_blocks": 1, "sep_token_id": 2}
FIELDS = {"longformer": LONGFORMER, "big_bird": BIG_BIRD}


def model(family, head="encoder", compute=None, **fields):
    config = BertConfig.named("tiny", family, **SHAPE | {"max_position_embeddings": 64} | FIELDS[family] | fields)
    bert = Bert(config, head, compute or Compute())
    generator = np.random.default_rng(0)
    return bert, jax.tree.map(
        lambda leaf: jnp.asarray(generator.normal(0, 0.3, leaf.shape), jnp.float32), bert.abstract_params()
    )


def rows():
    """Two rows, of which the second has padding, and their global tokens: more than there is room for."""
    generator = np.random.default_rng(1)
    ids, mask, chosen = generator.integers(3, 50, (2, 44)), np.ones((2, 44), np.int32), np.zeros((2, 44), np.int32)
    mask[1, 35:] = 0
    chosen[0, [0, 5, 20, 21, 40]] = chosen[1, [3, 30]] = 1
    return jnp.where(mask, ids, 1).astype(jnp.int32), jnp.asarray(mask), jnp.asarray(chosen)


@pytest.mark.slow
@pytest.mark.parametrize("family", FIELDS)
@pytest.mark.parametrize("layers", ["scan", "unroll"])
def test_blocks_compute_what_maps_compute_with_dropout_too(family, layers):
    bert, params = model(family, compute=Compute(layers=layers))
    ids, mask, chosen = rows()
    options = {"global_attention_mask": chosen} if family == "longformer" else {}
    apply = jax.jit(bert.apply, static_argnames="output_attentions")
    for key in (None, jax.random.key(3)):
        blocks = apply(params, ids, mask, dropout_key=key, **options)
        maps = apply(params, ids, mask, dropout_key=key, output_attentions=True, **options)
        found, expected = (np.asarray(out.last_hidden_state)[mask > 0] for out in (blocks, maps))
        np.testing.assert_allclose(found, expected, atol=1e-5)
        assert maps.attentions is not None and len(maps.attentions) == 3
        for x in maps.attentions:
            np.testing.assert_allclose(np.asarray(x).sum(-1)[0], 1, atol=1e-5)


def test_rows_beyond_the_room_are_local():
    bert, params = model("longformer")
    ids, mask, chosen = rows()
    first = jnp.where(jnp.cumsum(chosen, 1) <= 4, chosen, 0)
    apply = jax.jit(bert.apply)
    some, none, more = (
        apply(params, ids, mask, global_attention_mask=x).last_hidden_state for x in (first, 0 * first, chosen)
    )
    np.testing.assert_array_equal(more, some)
    assert np.abs(some - none)[:, 10].max() > 1e-3


@pytest.mark.parametrize("layers", ["scan", "unroll"])
def test_packed_rows_have_a_global_token_each(layers):
    """The first tokens of both examples, neither of which attends to the other example."""
    bert, params = model("longformer", "sequence_classification", Compute(layers=layers))
    ids = rows()[0][:, :20]
    apply = jax.jit(bert.apply)
    apart = apply(params, ids).logits
    places = jnp.arange(20)
    packed = apply(
        params,
        ids.reshape(1, 40),
        position_ids=jnp.concatenate((places, places))[None],
        segment_ids=jnp.repeat(jnp.array([1, 2]), 20)[None],
        cls_positions=jnp.array([[0, 20]]),
    ).logits
    np.testing.assert_allclose(packed[0], apart, atol=1e-5)


@pytest.mark.parametrize(("family", "head"), [("longformer", "multiple_choice"), ("big_bird", "question_answering")])
def test_packed_rows_of_questions_are_refused(family, head):
    bert, params = model(family, head)
    ids = jnp.ones((1, 12), jnp.int32)
    ids = ids[:, None] if head == "multiple_choice" else ids
    with pytest.raises(InputError, match=r"expected (an array for packed rows of questions|none, as the span head)"):
        bert.apply(params, ids, segment_ids=jnp.ones((1, 12), jnp.int32))


@pytest.mark.parametrize(("family", "name"), [("longformer", "global attention"), ("big_bird", "block-sparse")])
def test_a_kernel_that_cannot_is_refused(family, name):
    bert, params = model(family, "sequence_classification", Compute(attention="splash", platform="tpu"),
                         attention_probs_dropout_prob=0.0)  # fmt: skip
    with pytest.raises(InputError, match=f"attention=splash: does not support .*{name}"):
        bert.apply(params, jnp.ones((1, 44), jnp.int32))


def largest(family, length, gradient):
    """The most elements of an array in the program of a forward pass, or of a forward and backward pass."""
    bert, params = model(family, "sequence_classification", max_position_embeddings=length, num_hidden_layers=2)

    def total(params):
        return bert.apply(params, jnp.ones((1, length), jnp.int32), dropout_key=jax.random.key(0)).logits.sum()

    sizes = []

    def visit(jaxpr):
        for equation in jaxpr.eqns:
            sizes.extend(getattr(variable.aval, "size", 0) for variable in equation.outvars)
            for inner in jaxprs_in_params(equation.params):
                visit(inner)

    visit(jax.make_jaxpr(jax.grad(total) if gradient else total)(params).jaxpr)
    return max(sizes)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("gradient", [False, True], ids=["forward", "backward"])
@pytest.mark.parametrize("family", FIELDS)
def test_no_array_grows_with_the_square_of_the_length(family, gradient):
    assert largest(family, 1024, gradient) <= 4.2 * largest(family, 256, gradient)
    assert largest(family, 1024, gradient) < 1024**2 / 4


@pytest.mark.slow
@pytest.mark.parametrize("gradient", [False, True], ids=["forward", "backward"])
@pytest.mark.parametrize("family", FIELDS)
def test_memory_of_released_windows_and_blocks_is_linear(family, gradient):
    """With windows of 512 and blocks of 64 as in the releases, as the compiler counts it."""
    fields = {"longformer": {"attention_windows": (256,), "max_global_tokens": 16}, "big_bird": {"block_size": 64,
              "num_random_blocks": 3}}[family]  # fmt: skip

    def bytes_at(length):
        bert, params = model(family, "sequence_classification", max_position_embeddings=4096, hidden_size=64, **fields)

        def total(params, ids):
            return bert.apply(params, ids, dropout_key=jax.random.key(0)).logits.sum()

        run = jax.jit(jax.grad(total) if gradient else total)
        compiled = run.lower(params, jax.ShapeDtypeStruct((1, length), jnp.int32)).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    assert bytes_at(4096) < 1.2 * 4 * bytes_at(1024)
