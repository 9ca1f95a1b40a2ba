"""Scores from logits, in float64."""

import numpy as np

from bert_jax.inference.scoring import log_softmax


def test_logarithms_of_probabilities_far_apart():
    ours = log_softmax(np.float32([[0, 2000], [1, 1]]))
    np.testing.assert_allclose(ours, [[-2000, 0], np.log([0.5, 0.5])])
