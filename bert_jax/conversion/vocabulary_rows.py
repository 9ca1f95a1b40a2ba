"""The parameters of a model that have a row for each piece of the vocabulary."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np


def with_rows(params: Mapping[str, Any], change: Callable[[np.ndarray], np.ndarray]) -> dict[str, Any]:
    """Return the canonical tree with `change` applied to each array `[V, ...]`.

    These are the word embedding, the output matrices and the bias of masked LM, and the weights of a query's tokens.
    """

    def table(part: Mapping[str, Any]) -> dict[str, Any]:
        return {name: change(np.asarray(array)) for name, array in part.items()}

    words = {"word_embeddings": table(params["embeddings"]["word_embeddings"])}
    changed = dict(params) | {"embeddings": params["embeddings"] | words}
    if "mlm" in params:
        head = params["mlm"]
        tables = {name: table(head[name]) for name in head.keys() & {"decoder", "further_decoder"}}
        changed["mlm"] = head | tables | table({name: head[name] for name in head.keys() & {"bias"}})
    if "query_weights" in params:
        changed["query_weights"] = table(params["query_weights"])
    return changed
