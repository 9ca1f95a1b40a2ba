"""Guides: sentence-embedding models that detect false in-batch negatives (Solatorio 2024, arXiv:2402.16829)."""

from collections.abc import Callable

from bert_jax.conversion.load_pretrained import load_pretrained
from bert_jax.conversion.model_tokenizer import open_tokenizer
from bert_jax.conversion.open_checkpoint import open_model
from bert_jax.conversion.text_settings import TextSettings
from bert_jax.data.finetuning.features import Paddable
from bert_jax.errors import InputError
from bert_jax.jobs.distillation.teacher_outputs import RowsWithOutputs, abstract_outputs, cached_outputs
from bert_jax.jobs.distillation.teachers import Teacher
from bert_jax.jobs.synthetic_rows import only_shapes
from bert_jax.modeling import Bert, Compute
from bert_jax.recipes import Recipe
from bert_jax.tokenization import Tokenizer

GUIDE = "guide_embeddings"  # the name of the guide's vectors in a batch
_HEAD = "sentence_embedding"


def with_guide(
    recipe: Recipe, compute: Compute, rows: Paddable, encode: Callable[[Tokenizer, TextSettings, int], Paddable]
) -> RowsWithOutputs:
    """Add the embeddings of the recipe's guide to training rows, from its cache if it has them.

    Args:
        recipe: a resolved recipe with `data.guide`.
        compute: compute options of the guide.
        rows: n rows, tokenized for the model.
        encode: function of (tokenizer, text settings, max_length) that tokenizes the same n rows for the guide.

    Raises:
        InputError: the recipe names no cache, or the guide is not a sentence-embedding model.
    """
    data = recipe.data
    if only_shapes(recipe):
        return RowsWithOutputs(rows, abstract_outputs(_abstract_guide(data.guide), rows), name=GUIDE)
    if not data.guide_cache:
        raise InputError("config.data.guide_cache: expected a directory for the guide's embeddings, found none")
    loaded = load_pretrained(data.guide, _HEAD, dequantize=True)
    if loaded.missing:
        found = f"{data.guide} without {', '.join(loaded.missing[:3])}"
        raise InputError(f"config.data.guide: expected a model of sentence embeddings, found {found}")
    tokenizer = open_tokenizer(loaded)
    length = min(data.max_seq_length, loaded.config.max_position_embeddings)
    guide = Teacher(Bert(loaded.config, _HEAD, compute), loaded.params, tokenizer, loaded.settings)
    encoded = encode(tokenizer, loaded.settings, length)
    outputs = cached_outputs(guide, encoded, data.guide_cache, recipe.eval_batch_size, length)
    return RowsWithOutputs(rows, outputs, name=GUIDE)


def _abstract_guide(directory: str) -> Bert:
    """Return the architecture of a guide, without reading its weights."""
    with open_model(directory, _HEAD, "") as opened:
        return Bert(opened.model.config.replace(quantization=None), _HEAD)
