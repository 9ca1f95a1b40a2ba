"""Open data sets of TensorFlow Datasets from ArrayRecord files, without TensorFlow."""

import os
from collections.abc import Iterable
from typing import Any

from bert_jax.errors import InputError, did_you_mean
from bert_jax.extras import import_extra


def open_tfds(spec: str, feature_names: Iterable[str]) -> tuple[Any, Any]:
    """Open a split of a data set.

    The data set is read from $TFDS_DATA_DIR (default: ~/tensorflow_datasets); when it is missing, it is downloaded and
    prepared there.

    Args:
        spec: `tfds:NAME[:SPLIT]`; the split is `train` unless given.
        feature_names: names of features that the data set must have.

    Returns:
        A random-access data source (with a `dataset_info`), and its features.

    Raises:
        InputError: the package is not installed; there is no such data set, split or feature; or the data set could not
            be prepared.
    """
    tfds = import_extra("tensorflow_datasets", "tfds")  # imported here, as it takes a second
    name, _, split = spec.removeprefix("tfds:").partition(":")
    split = split or "train"
    try:
        source = tfds.data_source(name, split=split, data_dir=os.environ.get("TFDS_DATA_DIR"))
    except Exception as error:  # the data set's own code may raise anything
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise InputError(f"{spec}: expected a TFDS data set with a split {split!r}, found: {reason}") from None
    features = source.dataset_info.features
    for feature in feature_names:
        if feature not in features:
            raise InputError(f"{spec}: expected a feature {feature!r}{did_you_mean(feature, features)}")
    return source, features
