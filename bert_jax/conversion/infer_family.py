"""Infer the family of a model from config.json, tensor names and tokenizer files."""

import contextlib
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from bert_jax import storage
from bert_jax.conversion.checkpoint import Checkpoint
from bert_jax.conversion.tensor_names import unknown_layer_tensor
from bert_jax.errors import InputError
from bert_jax.families import FAMILIES, Json, architectures_of, family_of, of_model_type
from bert_jax.lazy import LazyModule

if TYPE_CHECKING:
    from bert_jax.conversion import family_signs
else:  # most files name their family
    family_signs = LazyModule("bert_jax.conversion.family_signs")


def infer_family(checkpoint: Checkpoint, family: str) -> Checkpoint:
    """Return a checkpoint with the family as model_type: `family`, or else as `settle_family` infers it.

    Raises:
        InputError: as for `settle_family`.
    """
    hf = checkpoint.hf
    if family:
        hf = {key: value for key, value in hf.items() if key != "architectures" or family == hf.get("model_type")}
    else:
        family = settle_family(hf, checkpoint.weights.tensors, checkpoint.beside, checkpoint.where)
    return checkpoint._replace(hf=hf | {"model_type": family})


def settle_family(hf: Json, tensors: Iterable[str], files: Collection[str], where: storage.Path) -> str:
    """Return the family of a model: from config.json, else from its tensor names and tokenizer files.

    Raises:
        InputError: config.json contradicts itself, or the family cannot be determined.
    """
    names, stated = list(tensors), hf.get("model_type")
    narrow = hf.get("embedding_size", hf.get("hidden_size")) != hf.get("hidden_size")
    if stated is None and narrow and not any(family_signs.has_tensor(kind.sign, names) for kind in FAMILIES.values()):
        return next(kind.name for kind in FAMILIES.values() if kind.narrow_embeddings)
    described = of_model_type(hf)
    if described is None or unknown_layer_tensor(FAMILIES[described].names, names):
        for family, kind in FAMILIES.items():  # tensor names distinguish families that share a model_type
            if kind.model_type and stated in (None, kind.model_type) and family_signs.has_tensor(kind.sign, names):
                return family
    if stated is not None:
        return family_of(hf, where)
    if architectures_of(hf, where):
        with contextlib.suppress(InputError):  # architectures may name no family
            return family_of(hf, where)
    if shown := family_signs.family_by_files(names, files):
        return shown
    raise InputError(
        f"{where}: expected a model_type, found none, and neither architectures nor the names of the tensors say "
        f"which of {', '.join(FAMILIES)} the model is"
    )
