"""Change the head of a loaded model to one whose parameters it already has."""

import dataclasses
from typing import Any

from bert_jax.errors import InputError

# Head that can be made from another head's parameters -> the parts of the parameter tree that it needs.
_KEPT = {
    "encoder": ("embeddings", "encoder", "pooler", "contact_head"),
    "sentence_embedding": ("embeddings", "encoder", "pooler", "contact_head"),
    "masked_lm": ("embeddings", "encoder", "contact_head", "mlm"),
    "sparse_embedding": ("embeddings", "encoder", "contact_head", "mlm"),
}
_WITH_MASKED_LM = ("pretraining", "masked_lm", "sparse_embedding")


def with_head(model: Any, head: str, task: str) -> Any:
    """Return the model with another head, whose parameters it already has.

    Raises:
        InputError: the model lacks the parameters of the head.
    """
    needs_masked_lm = head in ("masked_lm", "sparse_embedding")
    if head not in _KEPT or (needs_masked_lm and model.head not in _WITH_MASKED_LM):
        raise InputError(f"{task} needs a model with a {head} head, found a {model.head} head")
    params = {name: part for name, part in model.params.items() if name in _KEPT[head]}
    config = (
        model.config
        if needs_masked_lm
        else model.config.replace(pooler="pooler" in params or not model.config.setting("pooler_dense", True))
    )
    settings = model.settings.of_another_head()
    if head == "sparse_embedding":
        config, settings = config.replace(pooling="splade_max"), dataclasses.replace(settings, similarity="dot")
    return dataclasses.replace(model, config=config, head=head, params=params, settings=settings)
