"""The head of a GLiNER beside NumPy: padding changes nothing, and the gradient is that of the equations."""

import jax
import numpy as np
import pytest
from gliners import HEAD, gliner, head_in_numpy

from bert_jax.errors import InputError
from bert_jax.modeling import Bert

WORDS, TYPES = [[6, 7, 9, 10, 12], [8, 9, 11]], [[1, 3], [1, 3, 5]]
LENGTHS = (14, 13)


@pytest.fixture(scope="module", params=["usual", "two layers", "no layer"])
def model(request, tiny_tokenizer):
    import dataclasses

    changes = {"usual": {}, "two layers": {"num_rnn_layers": 2, "hidden_size": 16}, "no layer": {"num_rnn_layers": 0}}
    return gliner(tiny_tokenizer, head=dataclasses.replace(HEAD, **changes[request.param]))[:2]


def batch_of(config, more_tokens=0, more_words=0, more_types=0):
    """Two rows, with as much padding besides as is asked for."""
    generator = np.random.default_rng(1)
    length = max(LENGTHS) + more_tokens
    ids, mask = np.zeros((2, length), np.int32), np.zeros((2, length), np.int32)
    words = np.zeros((2, 5 + more_words), np.int32)
    types = np.zeros((2, 3 + more_types), np.int32)
    for row, size in enumerate(LENGTHS):
        ids[row, :size] = generator.integers(5, config.vocab_size, size)
        mask[row, :size] = 1
        words[row, : len(WORDS[row])] = WORDS[row]
        types[row, : len(TYPES[row])] = TYPES[row]
    return {"input_ids": ids, "attention_mask": mask, "word_positions": words, "type_positions": types}


@pytest.mark.sampled(2)
def test_scores_are_those_of_the_equations(model):
    config, params = model
    run = jax.jit(lambda **batch: Bert(config, "zero_shot_ner").apply(params, **batch))
    for padding in ({}, {"more_tokens": 7, "more_words": 6, "more_types": 2}):
        output = run(**batch_of(config, **padding))
        logits, states = np.asarray(output.logits), np.asarray(output.last_hidden_state)
        for row in range(2):
            expected = head_in_numpy(params, states[row], WORDS[row], TYPES[row], HEAD.max_width)
            found = {
                (a, a + width, kind): logits[row, a, width, kind] for a, width, kind in np.argwhere(logits[row] > -1e8)
            }
            assert found.keys() == expected.keys()
            largest = max(map(abs, expected.values()))
            worst = max(abs(found[key] - value) for key, value in expected.items())
            assert worst < 1e-5 * largest, f"row {row}, {padding}"


@pytest.mark.sampled(5)
def test_the_gradient_is_that_of_the_equations(model):
    config, params = model
    batch = batch_of(config)
    weights = np.random.default_rng(2).normal(size=(2, 5, HEAD.max_width, 3))
    states = np.asarray(Bert(config, "zero_shot_ner").apply(params, **batch).last_hidden_state)

    def of_numpy(head):
        total = 0.0
        for row in range(2):
            logits = head_in_numpy({"gliner": head}, states[row], WORDS[row], TYPES[row], HEAD.max_width)
            total += sum(weights[row, a, z - a, kind] * value for (a, z, kind), value in logits.items())
        return total

    def of_jax(head):
        logits = Bert(config, "zero_shot_ner").apply(params | {"gliner": head}, **batch).logits
        return (jax.numpy.where(logits > -1e8, logits, 0) * weights).sum()

    head = params["gliner"]
    gradient = jax.jit(jax.grad(of_jax))(head)
    generator = np.random.default_rng(3)
    direction = jax.tree.map(lambda leaf: generator.normal(size=leaf.shape), head)
    step = 1e-6
    ahead, behind = (
        of_numpy(
            jax.tree.map(lambda leaf, way, sign=sign: np.asarray(leaf, float) + sign * step * way, head, direction)
        )
        for sign in (1, -1)
    )
    along = sum(jax.tree.leaves(jax.tree.map(lambda leaf, way: (leaf * way).sum(), gradient, direction)))
    assert float(along) == pytest.approx((ahead - behind) / (2 * step), rel=1e-4)


@pytest.mark.sampled(3)
def test_dropout_changes_scores_and_needs_a_key(model):
    config, params = model
    run = jax.jit(lambda key: Bert(config, "zero_shot_ner").apply(params, **batch_of(config), dropout_key=key).logits)
    first, again, other = (np.asarray(run(jax.random.key(seed))) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def test_what_it_needs(tiny_tokenizer):
    config, params, _ = gliner(tiny_tokenizer)
    with pytest.raises(InputError, match="expected word_positions and type_positions, found none"):
        Bert(config, "zero_shot_ner").apply(params, np.ones((1, 8), np.int32))
    with pytest.raises(InputError, match="needs a model config with gliner, found none"):
        Bert(config.replace(gliner=None), "zero_shot_ner")
