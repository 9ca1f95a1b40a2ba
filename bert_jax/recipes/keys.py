"""Build the recipe of each task from `definitions.py`, and read its stages, batch sizes and architecture."""

import itertools
from collections.abc import Callable, Mapping
from typing import Any

from ml_collections import ConfigDict, config_dict

from bert_jax.config import BertConfig
from bert_jax.config.quantization import Quantization
from bert_jax.recipes.definitions import KEYS
from bert_jax.recipes.model_keys import model_fields


def _recipe(task: str, defaults: Mapping[str, Any]) -> ConfigDict:
    """Return the locked recipe of a task: every key of its table, where `defaults` override the table's defaults."""
    c = ConfigDict()
    for name, key in KEYS[task].items():
        *parents, last = name.split(".")
        node = c
        for parent in parents:
            if parent not in node:
                node[parent] = ConfigDict()
            node = node[parent]
        node[last] = config_dict.placeholder(key.type) if key.value is None else key.default
    c.update_from_flattened_dict({"task": task, **defaults})
    return c.lock()


def pretraining() -> ConfigDict:
    """Return the recipe of masked-LM and next-sentence pretraining, with the paper's values as defaults."""
    return _recipe("pretraining", {"num_steps": 1_000_000, "optimizer.warmup_steps": 10_000})


def electra() -> ConfigDict:
    """Return the recipe of replaced-token detection, with the paper's small models as defaults."""
    sizes = {"model.family": "electra", "model.size": "small"}
    steps = {"num_steps": 1_000_000, "optimizer.warmup_steps": 10_000}
    return _recipe("electra", {**sizes, **steps, "data.hidden_share": 1.0, "data.random_share": 0.0})


def diffusion_pretraining() -> ConfigDict:
    """Return the recipe of masked-diffusion pretraining: masked LM at every mask rate."""
    return _recipe("diffusion_pretraining", {"num_steps": 1_000_000, "optimizer.warmup_steps": 10_000})


def _fine_tuning(task: str, batch_size: int, epochs: float, learning_rate: float) -> ConfigDict:
    """Return the recipe of a fine-tuning task."""
    batches = {"global_batch_size": batch_size, "num_epochs": epochs}
    return _recipe(task, {**batches, "optimizer.learning_rate": learning_rate, "optimizer.warmup_ratio": 0.1})


def classification() -> ConfigDict:
    """Return the recipe of sequence classification or regression (`data.task_type`) on single texts or pairs."""
    return _fine_tuning("classification", batch_size=32, epochs=3.0, learning_rate=3e-5)


def token_classification() -> ConfigDict:
    """Return the recipe of token classification: sentences with a tag for each word, such as entities."""
    return _fine_tuning("token_classification", batch_size=32, epochs=3.0, learning_rate=5e-5)


def multiple_choice() -> ConfigDict:
    """Return the recipe of multiple choice: questions with several choices, one of them right."""
    return _fine_tuning("multiple_choice", batch_size=16, epochs=3.0, learning_rate=2e-5)


def question_answering() -> ConfigDict:
    """Return the recipe of extractive question answering, with the paper's values for SQuAD 1.1 as defaults."""
    return _fine_tuning("question_answering", batch_size=32, epochs=3.0, learning_rate=5e-5)


def sentence_embedding() -> ConfigDict:
    """Return the recipe of sentence embeddings from pairs or triplets of texts."""
    return _fine_tuning("sentence_embedding", batch_size=32, epochs=1.0, learning_rate=2e-5)


def reranking() -> ConfigDict:
    """Return the recipe of rerankers: cross-encoders that score the relevance of a passage to a query."""
    return _fine_tuning("reranking", batch_size=32, epochs=1.0, learning_rate=2e-5)


def sparse_embedding() -> ConfigDict:
    """Return the recipe of sparse embeddings (SPLADE) from pairs of queries and documents."""
    return _fine_tuning("sparse_embedding", batch_size=32, epochs=1.0, learning_rate=2e-5)


def multi_vector() -> ConfigDict:
    """Return the recipe of late interaction (ColBERT): a vector for each token of queries and documents."""
    return _fine_tuning("multi_vector", batch_size=32, epochs=1.0, learning_rate=2e-5)


def zero_shot_ner() -> ConfigDict:
    """Return the recipe of zero-shot NER (GLiNER): texts with spans of named types."""
    return _fine_tuning("zero_shot_ner", batch_size=8, epochs=3.0, learning_rate=2e-5)


def masked_diffusion() -> ConfigDict:
    """Return the recipe of masked diffusion: generating answers to prompts, or texts."""
    return _fine_tuning("masked_diffusion", batch_size=32, epochs=10.0, learning_rate=1e-4)


def relation_extraction() -> ConfigDict:
    """Return the recipe of relation extraction: texts with two entities and the relation between them."""
    return _fine_tuning("relation_extraction", batch_size=32, epochs=5.0, learning_rate=3e-5)


def sequence_to_sequence() -> ConfigDict:
    """Return the recipe of encoder-decoders from two encoders: pairs of a text to read and a text to write."""
    return _fine_tuning("sequence_to_sequence", batch_size=32, epochs=3.0, learning_rate=5e-5)


PRETRAINING: dict[str, Callable[[], ConfigDict]] = {
    "pretraining": pretraining,
    "electra": electra,
    "diffusion_pretraining": diffusion_pretraining,
}
RECIPES = PRETRAINING | {
    "classification": classification,
    "token_classification": token_classification,
    "question_answering": question_answering,
    "sentence_embedding": sentence_embedding,
    "reranking": reranking,
    "sparse_embedding": sparse_embedding,
    "multi_vector": multi_vector,
    "multiple_choice": multiple_choice,
    "zero_shot_ner": zero_shot_ner,
    "masked_diffusion": masked_diffusion,
    "relation_extraction": relation_extraction,
    "sequence_to_sequence": sequence_to_sequence,
}


def stages(recipe: ConfigDict) -> tuple[tuple[int, int, int], ...]:
    """Return the stages of a pretraining recipe: `(num_steps, sequence_length, global_batch_size)` each."""
    if recipe.stages:
        return tuple(tuple(stage) for stage in recipe.stages)
    return ((recipe.num_steps, recipe.data.sequence_length, recipe.global_batch_size),)


def batch_size_at(recipe: ConfigDict, step: int) -> int:
    """Return the number of examples in the batch of `step`, counted from 0."""
    if "stages" in recipe and recipe.stages:
        ends = itertools.accumulate(stage[0] for stage in recipe.stages)
        sizes = (stage[2] for stage in recipe.stages)
        return next((size for end, size in zip(ends, sizes, strict=True) if step < end), recipe.global_batch_size)
    return recipe.global_batch_size


def model_config(recipe: ConfigDict, base: BertConfig | None = None, **changes: Any) -> BertConfig:
    """Return the architecture that `recipe.model` describes.

    Args:
        recipe: fields of its `model` group that are set override the base.
        base: the architecture to start from, such as that of init_from; None means the named size `model.size`.
        changes: fields that override the recipe, such as the tokenizer's vocab_size.

    Raises:
        InputError: the fields do not fit together.
    """
    given = {name: recipe.model[name] for name in model_fields() if recipe.model.get(name) is not None}
    if not given["vocab_size"]:
        del given["vocab_size"]
    given |= changes
    if (q := recipe.quantization).mode:
        given["quantization"] = Quantization(q.mode, tuple(q.keep), q.group_size, stage="training")
    return base.replace(**given) if base is not None else BertConfig.named(recipe.model.size, **given)
