"""The last layer where the head reads some positions alone: what it gives there, and what it costs."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.config import BertConfig
from bert_jax.families.big_bird.parts import BigBirdHeadsConfig
from bert_jax.families.nomic_bert.parts import ExpertsConfig
from bert_jax.modeling import Bert, Compute

CONFIG = BertConfig.named("tiny", vocab_size=97, max_position_embeddings=24, num_hidden_layers=2)
SLOW = pytest.mark.slow
WINDOWED = {
    "position_embedding_type": "rotary", "norm_placement": "pre", "gated": True, "local_window": 3,
    "num_hidden_layers": 3,
}  # fmt: skip
UNROLLED = Compute(layers="unroll")
LENGTH = 16


def padded(rows=4, length=LENGTH):
    rng = np.random.default_rng(0)
    return {
        "input_ids": rng.integers(5, CONFIG.vocab_size, (rows, length)).astype(np.int32),
        "attention_mask": (np.arange(length) < rng.integers(3, length + 1, rows)[:, None]).astype(np.int32),
        "masked_positions": rng.integers(0, length, (rows, 3)).astype(np.int32),
    }


def packed():
    inputs = padded()
    mask = inputs.pop("attention_mask")
    segment = np.where(np.arange(LENGTH) < 7, 1, 2) * mask
    starts = np.tile(np.int32([0, 7]), (len(mask), 1))
    return inputs | {"segment_ids": segment, "cls_positions": starts}


@functools.cache
def fresh(config, head):
    """Parameters of a new model."""
    return jax.jit(Bert(config, head).init)(jax.random.key(0))


def loss_of(model, inputs, key, whole):
    def loss(params):
        out = model.apply(params, **inputs, dropout_key=key, output_last_hidden_state=whole)
        assert (out.last_hidden_state is not None) == whole
        fields = (out.logits, out.prediction_logits, out.seq_relationship_logits, out.sentence_embedding)
        return sum((jnp.square(field - 1).mean() for field in fields if field is not None), jnp.zeros(()))

    return loss


def loss_and_gradients(model, inputs, key, whole):
    return jax.jit(jax.value_and_grad(loss_of(model, inputs, key, whole)))(fresh(model.config, model.head))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("head", "inputs", "changes"),
    [
        ("pretraining", packed, {}),
        ("sequence_classification", padded, WINDOWED | {"global_every": 3, "classifier_summary": "transform"}),
        ("multiple_choice", padded, {"relative_attention_buckets": 8}),
        ("pretraining", packed, {"pos_att_type": ("c2p", "p2c"), "position_buckets": 4, "conv_kernel_size": 3}),
        ("masked_lm", packed, {"num_key_value_heads": 1, "head_transform": False}),
        ("sequence_classification", packed, {"attention_windows": (3,), "max_global_tokens": 4}),
        (
            "pretraining",
            packed,
            {
                "position_embedding_type": "alibi",
                "qk_norm": True,
                "attention_output_norm": True,
                "mlp_dropout_at": "both",
            },
        ),
        ("masked_lm", packed, {"stack": ExpertsConfig(3), "num_hidden_layers": 4}),
        pytest.param("pretraining", padded, {}, marks=SLOW),
        pytest.param("masked_lm", packed, WINDOWED | {"global_every": 2}, marks=SLOW),
        pytest.param("sequence_classification", packed, WINDOWED | {"global_every": 3}, marks=SLOW),
        pytest.param("sentence_embedding", padded, {"pooling": "cls"}, marks=SLOW),
    ],
)
def test_it_gives_what_the_whole_layer_gives(head, inputs, changes):
    """With dropout, which takes from a position what it takes from it in the whole layer."""
    inputs = inputs()
    if head not in ("pretraining", "masked_lm"):
        del inputs["masked_positions"]
    if head == "multiple_choice":
        inputs = {name: array.reshape(2, 2, -1) for name, array in inputs.items()}
    check_alike(CONFIG.replace(initializer_range=0.1, **changes), head, inputs, UNROLLED)


@pytest.mark.slow
@pytest.mark.parametrize("compute", [Compute(layers="unroll", remat="full"), Compute()], ids=["remat", "scan"])
def test_however_layers_are_computed(compute):
    check_alike(CONFIG, "pretraining", padded(), compute)


def check_alike(config, head, inputs, compute):
    key = jax.random.key(3)
    expected = jax.tree.leaves(loss_and_gradients(Bert(config, head, UNROLLED), inputs, key, whole=True))
    found = jax.tree.leaves(loss_and_gradients(Bert(config, head, compute), inputs, key, whole=False))
    scale = max(float(jnp.abs(leaf).max()) for leaf in expected)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5 * scale)


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    ("head", "changes", "read"),
    [
        ("pretraining", {}, 4),
        ("masked_lm", {}, 3),
        ("sequence_classification", {}, 1),
        ("sequence_classification", {"classifier_summary": "transform", "classifier_pooling": "mean"}, LENGTH),
        ("token_classification", {}, LENGTH),
        ("question_answering", {}, LENGTH),
        ("sentence_embedding", {"pooling": "mean"}, LENGTH),
    ],
)
def test_it_computes_what_is_read_and_no_more(head, changes, read):
    inputs = padded()
    if head not in ("pretraining", "masked_lm"):
        del inputs["masked_positions"]

    def flops(layers, whole):
        model = Bert(CONFIG.replace(num_hidden_layers=layers, **changes), head, UNROLLED)

        def run(params, inputs):
            return model.apply(params, **inputs, output_last_hidden_state=whole)

        return jax.jit(run).lower(model.abstract_params(), inputs).cost_analysis()["flops"]

    assert Bert(CONFIG.replace(**changes), head, UNROLLED).places_computed(LENGTH, predictions=3) == read
    assert Bert(CONFIG.replace(**changes), head).places_computed(LENGTH, predictions=3) == LENGTH
    layer = flops(4, True) - flops(3, True)
    spared = flops(3, True) - flops(3, False)
    # Keys and values, 2 of the 12 hidden x hidden products of a layer, are of all tokens.
    assert spared == pytest.approx(layer * 10 / 12 * (1 - read / LENGTH), abs=0.06 * layer)


def test_a_pooler_of_masked_lm_reads_the_first_token_or_nothing():
    """BigBird's masked LM has a pooler: where the last layer computes masked positions alone, it has no output."""
    config = CONFIG.replace(heads=BigBirdHeadsConfig())
    model, inputs = Bert(config, "masked_lm", UNROLLED), padded()
    params = model.init(jax.random.key(0))
    whole = model.apply(params, **inputs)
    assert model.apply(params, **inputs, output_last_hidden_state=False).pooler_output is None
    alone = Bert(config, "masked_lm").apply(params, **inputs, output_last_hidden_state=False)
    np.testing.assert_allclose(alone.pooler_output, whole.pooler_output, atol=1e-5)


def test_as_many_positions_as_tokens_are_no_gain():
    inputs = padded(length=4)
    model = Bert(CONFIG, "pretraining", UNROLLED)
    assert model.places_computed(4, predictions=3) == 4
    key = jax.random.key(3)
    found, expected = (
        jax.jit(loss_of(model, inputs, key, whole))(fresh(CONFIG, model.head)) for whole in (False, True)
    )
    assert found == expected
