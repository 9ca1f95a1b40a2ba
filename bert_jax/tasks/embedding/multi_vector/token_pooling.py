"""Token pooling: merge similar token vectors of a document, so that its index is smaller.

Clavié, Chaffin and Adams 2024 (arXiv:2409.14683), section 3: hierarchical clustering with Ward's criterion.
"""

import dataclasses
from typing import Any

import numpy as np

from bert_jax.conversion.multi_vector_settings import MultiVectorSettings, TokenPooling
from bert_jax.errors import InputError

_LEAST_NORM = 1e-12


def pool_token_vectors(vectors: np.ndarray, pooling: TokenPooling) -> np.ndarray:
    """Return the pooled vectors of a text's tokens, float32 `[T, D] -> [P, D]`.

    The first `protected` vectors stay. The others are clustered by their cosine distances into a share of about
    1 / `factor` of their number, and each cluster becomes its mean.

    Args:
        vectors: the vectors, of length 1.
        pooling: the settings.
    """
    count = len(vectors) - pooling.protected
    clusters = max(int(count // pooling.factor), 1)
    if pooling.factor > 1 and clusters < count:
        from scipy.cluster import hierarchy  # slow to import
        from scipy.spatial.distance import squareform

        others = vectors[pooling.protected :]
        distances = np.clip(1 - others @ others.T, 0, 2)
        links = hierarchy.linkage(squareform(distances, checks=False), method="ward")
        labels = hierarchy.fcluster(links, t=clusters, criterion="maxclust")
        found, cluster_of = np.unique(labels, return_inverse=True)  # ties may leave fewer clusters
        sums = np.zeros((len(found), others.shape[1]), np.float32)
        np.add.at(sums, cluster_of, others)
        means = sums / np.bincount(cluster_of)[:, None].astype(np.float32)
        vectors = np.concatenate([vectors[: pooling.protected], means])
    if pooling.normalizes:
        vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), _LEAST_NORM)
    return vectors.astype(np.float32, copy=False)


def with_token_pooling(model: Any, factor: float, protected: int = 1) -> Any:
    """Return a multi-vector model that pools the token vectors of documents; `save_pretrained` keeps the setting.

    Args:
        model: a `PretrainedModel` with a vector for each token.
        factor: number of vectors that become one, at least 1, such as 2 for half of the vectors.
        protected: number of leading vectors that stay as they are.

    Raises:
        InputError: the model is of another kind, or a value is out of range.
    """
    if model.head != "multi_vector":
        raise InputError(f"token pooling: expected a model with a vector for each token, found head {model.head!r}")
    settings = model.settings.multi_vector or MultiVectorSettings()
    settings = dataclasses.replace(settings, pooling=TokenPooling(factor, protected))
    return dataclasses.replace(model, settings=dataclasses.replace(model.settings, multi_vector=settings))
