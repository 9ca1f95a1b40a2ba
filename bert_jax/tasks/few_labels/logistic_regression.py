"""The classifier over embeddings: scikit-learn's logistic regression, as parameters of a dense layer."""

import numpy as np

from bert_jax.extras import import_extra
from bert_jax.modeling import Params

_MOST_STEPS = 1000  # of L-BFGS


def fit_classifier(embeddings: np.ndarray, classes: np.ndarray, regularization_c: float) -> Params:
    """Fit a logistic regression with an L2 penalty, and return it as a dense layer.

    Args:
        embeddings: `[n, D]`.
        classes: int `[n]`, 0 to C - 1; each class has an embedding.
        regularization_c: scikit-learn's C, the inverse of the penalty's weight.

    Returns:
        `kernel` `[D, C]` and `bias` `[C]`, float32, whose logits have the softmax of the regression.

    Raises:
        InputError: scikit-learn is not installed.
    """
    regression = import_extra("sklearn.linear_model", "few-labels").LogisticRegression
    fitted = regression(C=regularization_c, max_iter=_MOST_STEPS).fit(embeddings.astype(np.float64), classes)
    weights, bias = fitted.coef_, fitted.intercept_
    if len(weights) == 1:  # of two classes: one logit z, whose sigmoid is the softmax of -z / 2 and z / 2
        weights, bias = np.concatenate([-weights, weights]) / 2, np.concatenate([-bias, bias]) / 2
    return {"kernel": np.ascontiguousarray(weights.T, np.float32), "bias": bias.astype(np.float32)}
