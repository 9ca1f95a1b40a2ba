"""StableHLO programs against the model in JAX."""

import jax
import jax.export
import numpy as np
import pytest
from small_models import SHAPE

from bert_jax.config import BertConfig
from bert_jax.export.signature import example_inputs, forward
from bert_jax.export.stablehlo import PLATFORMS, flat_weights, stablehlo_program
from bert_jax.families import FAMILIES
from bert_jax.modeling import Bert, Compute
from bert_jax.modeling.layers import erf_by_arithmetic, gelu


def exported(family, head, dtype="float32", **fields):
    config = BertConfig.named("tiny", family, **SHAPE | {"max_position_embeddings": 12} | fields)
    bert, generator = Bert(config, head, Compute(attention="xla")), np.random.default_rng(0)
    params = jax.tree.map(lambda leaf: generator.normal(0, 0.4, leaf.shape).astype(np.float32), bert.abstract_params())
    weights = flat_weights(params)
    program = jax.export.deserialize(stablehlo_program(config, head, weights, dtype).serialize())
    return bert, params, weights, program


# Each family whose shapes enter the program in a way of their own, and heads with axes of their own.
CASES = [
    ("bert", "multiple_choice", {}),
    ("roberta", "encoder", {}),
    ("mpnet", "sentence_embedding", {}),
    ("modernbert", "masked_lm", {"local_window": 2}),
    ("albert", "pretraining", {"num_hidden_groups": 1}),
    ("esm", "masked_lm", {}),
    ("mobilebert", "pretraining", {"embedding_size": 4, "intra_bottleneck_size": 6, "num_feedforward_networks": 2}),
    ("eurobert", "sequence_classification", {"num_key_value_heads": 1}),
    ("deberta-v2", "masked_lm", {"conv_kernel_size": 3}),
    ("longformer", "question_answering", {"attention_windows": (2,), "max_global_tokens": 4, "sep_token_id": 4}),
    ("big_bird", "question_answering", {"sep_token_id": 4}),
    ("jina-bert-qk", "encoder", {}),
    ("nomic-moe", "encoder", {}),
]


@pytest.mark.sampled(15)
@pytest.mark.parametrize("family, head, fields", CASES)
def test_any_batch_and_length(family, head, fields):
    bert, params, weights, program = exported(family, head, **fields)
    assert set(program.platforms) == set(PLATFORMS)
    choices = (2,) if head == "multiple_choice" else ()
    for shape in ((1, *choices, 2), (3, *choices, 11)):
        inputs = example_inputs(bert.config, head, shape)
        expected = jax.jit(forward, static_argnums=0)(bert, params, inputs)
        found = jax.jit(program.call)(weights, *inputs.values())
        assert found.keys() == expected.keys()
        for name, values in found.items():
            np.testing.assert_allclose(values, expected[name], rtol=0, atol=1e-5, err_msg=name)


LONG = [family for family in FAMILIES if family != "big_bird"]  # whose attention of long sequences is refused


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    "family",
    [pytest.param(name, marks=[pytest.mark.slow] * (name not in ("deberta-v2", "modernbert"))) for name in LONG],
)
def test_a_model_of_many_positions(family, dtype):
    """The attention backends that a length of over 512 might choose have no symbolic length."""
    head = "encoder" if family == "gte" else "masked_lm"
    bert, params, weights, program = exported(family, head, dtype, max_position_embeddings=1024)
    for shape in ((2, 7), (1, 640)):
        inputs = example_inputs(bert.config, head, shape)
        expected = jax.jit(forward, static_argnums=0)(bert, params, inputs)
        found = jax.jit(program.call)(weights, *inputs.values())
        for name, values in found.items():
            size = np.abs(expected[name]).max()
            limit = 1e-5 if dtype == "float32" else 0.1
            np.testing.assert_allclose(values, expected[name], rtol=0, atol=limit * max(1, size), err_msg=name)


def test_bfloat16():
    bert, params, weights, program = exported("bert", "question_answering", "bfloat16")
    inputs = example_inputs(bert.config, bert.head, (3, 9))
    expected = jax.jit(forward, static_argnums=0)(bert, params, inputs)
    found = jax.jit(program.call)(weights, *inputs.values())
    for name, values in found.items():
        assert values.dtype == np.float32
        np.testing.assert_allclose(values, expected[name], atol=0.05)
        assert np.abs(values - expected[name]).max() > 1e-5  # the products are not float32


def test_a_sequence_that_is_too_long_is_an_error():
    bert, _, weights, program = exported("bert", "token_classification")
    with pytest.raises(ValueError, match=r"sequence_length|[Ss]hape"):
        program.call(weights, *example_inputs(bert.config, bert.head, (1, 13)).values())


def test_a_program_names_no_file_of_the_machine_that_wrote_it():
    *_, program = exported("bert", "token_classification")
    assert b".py" not in program.mlir_module_serialized


def test_erf_as_sums_and_products():
    x = np.linspace(-6, 6, 2001, dtype=np.float32)
    with erf_by_arithmetic():
        text = jax.jit(lambda x: gelu(x)).lower(x).as_text()
        np.testing.assert_allclose(jax.jit(lambda x: gelu(x) + 0)(x), gelu(x), atol=2e-6)
    assert "erf" not in text.replace("erf_by_arithmetic", "")
    assert "erf" in jax.jit(lambda x: gelu(x)).lower(x).as_text()
