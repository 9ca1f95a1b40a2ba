"""Examples that share a row are learned from as if each had a row to itself."""

import jax
import numpy as np
import pytest
from packed_examples import LENGTH, SLOTS, examples

from bert_jax.config import BertConfig
from bert_jax.data.packing import pack
from bert_jax.modeling import Bert
from bert_jax.tasks.pretraining.task import PretrainingTask

CONFIG = BertConfig(
    vocab_size=90, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
    max_position_embeddings=LENGTH, initializer_range=0.2,
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("objective", "positions"),
    [
        ("nsp", "absolute"),
        pytest.param("nsp", "sinusoidal", marks=pytest.mark.slow),
        pytest.param("sop", "absolute", marks=pytest.mark.slow),
        ("mlm", "absolute"),
    ],
)
def test_loss_and_gradients_are_those_of_the_examples_apart(objective, positions):
    head = "masked_lm" if objective == "mlm" else "pretraining"
    task = PretrainingTask(Bert(CONFIG.replace(position_embedding_type=positions), head), 5, objective)
    apart, rows = examples()
    most = int(np.bincount(rows).max())
    packed = pack(apart, rows, LENGTH, slots=most * SLOTS, most=most)
    assert most > 2 and len(packed["input_ids"]) < 0.7 * len(rows)
    params = jax.jit(task.model.init)(jax.random.key(0))
    step = jax.jit(jax.value_and_grad(task.loss, has_aux=True))
    (expected, metrics), expected_grads = step(params, apart, None, task.weights(apart))
    (loss, packed_metrics), grads = step(params, packed, None, task.weights(packed))
    assert float(loss) == pytest.approx(float(expected), rel=1e-5)
    # Of the keys' biases the gradient is 0, and what is seen of it is rounding: hence the 1e-8.
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=1e-5 * np.abs(b).max() + 1e-8), grads, expected_grads
    )
    share = {name: float(total / count) for name, (total, count) in packed_metrics.items()}
    assert share.pop("packing") == pytest.approx(apart["attention_mask"].sum() / packed["input_ids"].size)
    assert share == pytest.approx(
        {name: float(a / b) for name, (a, b) in metrics.items() if name != "packing"}, rel=1e-5
    )
    predict = jax.jit(task.predict)
    sums, packed_sums = ({name: float(x.sum()) for name, x in predict(params, batch).items()}
                         for batch in (apart, packed))  # fmt: skip
    assert packed_sums == pytest.approx(sums, rel=1e-5)
