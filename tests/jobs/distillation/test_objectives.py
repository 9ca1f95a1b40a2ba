"""The objectives of distillation against loops over numbers, as the papers write them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.jobs.distillation import objectives

B, S, N, H, K = 2, 3, 2, 2, 5  # K: hidden size of the student where it differs
D = N * H
RNG = np.random.default_rng(0)
TOKENS = np.array([[1, 1, 1], [1, 1, 0]])
PAIRS = np.asarray(objectives.pairs_of(jnp.asarray(TOKENS)))


def normal(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def softmax(x):
    e = np.exp(np.asarray(x, np.float64) - np.max(x))
    return e / e.sum()


def divergence(p, q):
    return sum(a * np.log(a / b) for a, b in zip(p, q, strict=True))


def head(x, row, token, number, heads):
    size = x.shape[-1] // heads
    return x[row, token, number * size : (number + 1) * size].astype(np.float64)


def test_soft_labels_of_hinton():
    """At temperature 2 the logits are halved, and the divergence is multiplied by 4."""
    student, teacher = np.array([2.0, 0.0, -2.0]), np.array([0.0, 4.0, 2.0])
    p, q = softmax([0, 2, 1]), softmax([1, 0, -1])
    assert float(objectives.soft_label_divergence(student, teacher, 2.0)) == pytest.approx(4 * divergence(p, q))
    assert float(objectives.soft_label_divergence(teacher, teacher, 2.0)) == 0


def test_the_gradient_of_soft_labels_is_the_difference_of_the_probabilities():
    """Hinton et al., equation 2: dC/dz = (q - p) / T, here times T^2."""
    student, teacher = jnp.array([2.0, 0.0, -2.0]), jnp.array([0.0, 4.0, 2.0])
    found = jax.grad(objectives.soft_label_divergence)(student, teacher, 2.0)
    np.testing.assert_allclose(found, 2 * (softmax([1, 0, -1]) - softmax([0, 2, 1])), rtol=1e-5)


def test_soft_labels_of_independent_classes():
    """The mean of the divergences of two coins each."""
    student, teacher = np.array([1.0, -3.0]), np.array([0.5, 2.0])
    of_coins = [
        divergence(*([1 / (1 + np.exp(-z)), 1 / (1 + np.exp(z))] for z in (t / 2, s / 2)))
        for s, t in zip(student, teacher, strict=True)
    ]
    found = objectives.soft_binary_divergence(student, teacher, 2.0)
    assert float(found) == pytest.approx(4 * np.mean(of_coins), rel=1e-5)


def test_hidden_states_of_tinybert():
    """Equation 8: the mean squared error of H_S W and H_T."""
    student, teacher, kernel = normal(B, S, K), normal(B, S, D), normal(K, D)
    expected = [[np.mean((student[b, s] @ kernel - teacher[b, s]) ** 2) for s in range(S)] for b in range(B)]
    found = objectives.hidden_state_error(student, teacher, kernel)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert float(objectives.hidden_state_error(teacher, teacher).sum()) == 0


def test_attention_scores_of_tinybert():
    """Equation 7, on the scores before the softmax: the mean over heads of squared errors, here for each query."""
    q, k, teacher_q, teacher_k = (normal(B, S, D) for _ in range(4))
    expected = np.zeros((B, S))
    for b in range(B):
        for i in range(S):
            for j in range(S):
                for n in range(N) if TOKENS[b, i] and TOKENS[b, j] else ():
                    ours = head(q, b, i, n, N) @ head(k, b, j, n, N) / np.sqrt(H)
                    theirs = head(teacher_q, b, i, n, N) @ head(teacher_k, b, j, n, N) / np.sqrt(H)
                    expected[b, i] += (ours - theirs) ** 2 / N
    found = objectives.attention_score_error((q, k), (teacher_q, teacher_k), N, PAIRS)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize("width", [D, 2 * D], ids=["as wide", "wider"])
@pytest.mark.parametrize("heads", [1, 4])
def test_relations_of_minilm(heads, width):
    """MiniLMv2, equations 5 to 7: KL(teacher || student) of softmax(A A^T / sqrt(d_r)), averaged over the heads."""
    a, b, teacher_a, teacher_b = normal(B, S, D), normal(B, S, D), normal(B, S, width), normal(B, S, width)
    expected = np.zeros((B, S))
    for row in range(B):
        real = np.flatnonzero(TOKENS[row])
        for i in real:
            for n in range(heads):
                both = []
                for x, y in ((teacher_a, teacher_b), (a, b)):
                    scale = np.sqrt(x.shape[-1] / heads)
                    both.append(softmax([head(x, row, i, n, heads) @ head(y, row, j, n, heads) / scale for j in real]))
                expected[row, i] += divergence(*both) / heads
    found = objectives.relation_divergence((a, b), (teacher_a, teacher_b), heads, PAIRS)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


def test_cosine_of_distilbert():
    student, teacher = np.array([[3.0, 4.0], [1.0, 0.0]]), np.array([[6.0, 8.0], [-2.0, 0.0]])
    np.testing.assert_allclose(objectives.cosine_distance(student, teacher), [0, 2], atol=1e-6)


def test_distances_of_embeddings():
    student, teacher = np.array([[3.0, 4.0]]), np.array([[0.0, 0.0]])
    np.testing.assert_allclose(objectives.squared_distance(student, teacher), [25])


def test_similarities_do_not_depend_on_the_number_of_dimensions():
    """Cosines 0 and 1 of a student of two dimensions, and 1 and 0 of a teacher of three; the last row is padding."""
    student = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 2.0], [9.0, 9.0]])
    teacher = np.array([[1.0, 0.0, 0.0], [2.0, 0.0, 0.0], [0.0, 0.0, 3.0], [0.0, 0.0, 0.0]])
    # of row 0 the cosine to row 1 differs by 1; of row 1 those to rows 0 and 2; of row 2 that to row 1
    found = objectives.similarity_error(student, teacher, np.array([1.0, 1.0, 1.0, 0.0]))
    np.testing.assert_allclose(found[:3], [1 / 3, 2 / 3, 1 / 3], rtol=1e-6)


def test_tokens_of_an_example_are_pairs():
    """Packed rows: two examples and padding."""
    found = objectives.pairs_of(jnp.array([[1, 1, 2, 0]]))
    expected = [[[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0]]]
    np.testing.assert_array_equal(found, np.array(expected, bool))
