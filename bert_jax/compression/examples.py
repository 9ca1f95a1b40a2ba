"""Examples from which the importance of a model's parts is computed: labelled data, or text for masked LM."""

import itertools
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from bert_jax import recipes, storage, tasks
from bert_jax.conversion.huggingface import Loaded, load_pretrained
from bert_jax.conversion.open_checkpoint import open_model
from bert_jax.data.batches import Batch
from bert_jax.data.corpora.sources import open_corpus
from bert_jax.data.finetuning.columns import Columns
from bert_jax.data.finetuning.text_pairs import read_pairs
from bert_jax.data.pretraining.masking import Masking, apply_masks
from bert_jax.errors import InputError
from bert_jax.inference.loading import open_tokenizer
from bert_jax.modeling import Bert, Compute, Params
from bert_jax.tasks.base import Task
from bert_jax.tasks.pretraining import PretrainingTask
from bert_jax.tasks.remembered import Remembered, read_remembered
from bert_jax.tokenization import Tokenizer

# Head -> the task whose loss it was trained with.
_TASKS = {
    "sequence_classification": "classification",
    "token_classification": "token_classification",
    "question_answering": "question_answering",
    "multiple_choice": "multiple_choice",
    "sentence_embedding": "sentence_embedding",
}
_MASKED_LM = ("masked_lm", "pretraining")
_BATCH = 8
_LONGEST = 128  # tokens of an example
_TEXTS = 100_000  # the most texts of a corpus from which examples are drawn


class Examples(NamedTuple):
    """A model's loss on examples.

    Attributes:
        task: the task, with the model.
        params: the parameters of the model.
        batches: the batches; read once.
    """

    task: Task
    params: Params
    batches: Iterable[Batch]


def examples_of_data(loaded: Loaded, data: str, count: int) -> Examples:
    """Return the loss of a model on data: labelled rows, or text for a model with a masked-LM head.

    Columns are those that `bert_jax.json` records, or else the defaults of the task's recipe.

    Args:
        loaded: the model, with the head that it was saved with.
        data: a file of labelled data (`data.train` of the task's recipe), or a corpus (`open_corpus`).
        count: the most examples.

    Raises:
        InputError: the model has a head without a loss, or the data are invalid.
    """
    if loaded.head in _MASKED_LM:
        return _masked_lm(loaded.directory, data, count)
    if loaded.head not in _TASKS:
        expected = f"a model for one of {', '.join([*_MASKED_LM, *_TASKS])}"
        raise InputError(f"{loaded.directory}: expected {expected}, whose loss importance is computed from, found one "
                         f"for {loaded.head}; name a recipe with --config")  # fmt: skip
    return examples_of_recipe(_recipe_of(loaded, data), loaded.directory, count)


def examples_of_recipe(recipe: Any, model_dir: storage.PathLike, count: int) -> Examples:
    """Return the loss of a recipe's task, with the parameters of a model directory, on the recipe's training data.

    Args:
        recipe: a recipe with training data.
        model_dir: the model, saved with the head of the recipe's task.
        count: the most examples.

    Raises:
        InputError: as `tasks.build`; or the model was saved with another head or other classes, or is an ELECTRA with
            its generator.
    """
    recipe = starting_from(recipe, model_dir)
    recipe.distillation = recipes.RECIPES[recipe.task]().distillation  # none
    changes: dict[str, Any] = {"lora.rank": 0}
    if "stages" not in recipe:
        changes |= {"global_batch_size": _BATCH, "accumulation_steps": 1, "data.dev": "", "data.dev_share": 0.0,
                    "best_metric": "", "stop_after": 0}  # fmt: skip
        longest = recipe.data.max_seq_length
        changes["data.length_buckets"] = tuple(-(-longest // part) for part in (4, 2, 1))  # few, as each is compiled
        if "packing" in recipe.data:
            changes["data.packing"] = 0
    recipe.update_from_flattened_dict(changes)
    job = tasks.build(recipes.resolve(recipe))
    if len(job.task.model.models) > 1 or job.pretrained is None:
        raise InputError(f"config.task: expected a task of one pretrained model, found {recipe.task}")
    source = job.train_source
    steps = getattr(source, "steps_per_epoch", job.num_steps)
    return Examples(job.task, job.pretrained, _first(map(source.batch, range(steps)), count))


def starting_from(recipe: Any, model_dir: storage.PathLike) -> Any:
    """Return a copy of a recipe that starts from a model directory, with its head and in the order of its classes."""
    changed = recipe.copy_and_resolve_references()
    changed.unlock()
    changed.init_from = str(model_dir)
    if changed.task not in recipes.PRETRAINING:
        changed.tokenizer = ""  # the model's own, which may have been pruned
    if "keep_head" in changed:
        changed.keep_head = True
    if "label_names" in changed.data and not changed.data.label_names and changed.data.task_type != "regression":
        with open_model(str(model_dir), None, "") as opened:
            changed.data.label_names = opened.model.config.label_names
    return changed.lock()


def _first(batches: Iterable[Batch], count: int) -> Iterator[Batch]:
    """Yield batches until they have `count` examples; the last one is cut."""
    for batch in batches:
        rows = batch["input_ids"].shape[0]
        yield {name: array[:count] for name, array in batch.items()}
        count -= rows
        if count <= 0:
            return


def _recipe_of(loaded: Loaded, data: str) -> Any:
    """Return the recipe of the task for which a model was fine-tuned, with the columns that it remembers."""
    remembered = read_remembered(loaded.directory)
    relations = remembered.relations if loaded.head == "sequence_classification" else None
    task = "relation_extraction" if relations else _TASKS[loaded.head]
    recipe = recipes.RECIPES[task]()
    longest = loaded.settings.longest(loaded.config.max_position_embeddings, open_tokenizer(loaded))
    changes: dict[str, Any] = {"data.train": data, "data.max_seq_length": min(longest, _LONGEST), "num_epochs": 1.0}
    changes |= _columns_of(task, remembered.columns)
    if task == "question_answering":
        changes |= {"data.max_seq_length": min(longest, recipe.data.max_seq_length)}
        room = changes["data.max_seq_length"]
        changes |= {
            "data.doc_stride": min(recipe.data.doc_stride, room // 3),
            "data.max_query_length": min(64, room // 3),
        }
    if task == "classification":
        changes |= _labels_of(loaded, remembered)
    if relations:
        several = loaded.config.problem_type == "multi_label_classification"
        changes |= {"data.markers": relations.markers, "data.null_label": relations.null_label}
        changes |= {"data.multi_label": several}
    recipe.update_from_flattened_dict(changes)
    if task == "sentence_embedding" and recipe.data.label_column:
        columns = Columns(recipe.data.text_column, recipe.data.pair_column, recipe.data.label_column,
                          recipe.data.has_header, delimiter=recipe.data.delimiter)  # fmt: skip
        scale = max((abs(float(row[columns.label])) for _, row in read_pairs(data, columns)), default=1.0)
        recipe.update_from_flattened_dict({"data.loss": "cosine", "data.label_scale": scale or 1.0})
    return recipe


def _columns_of(task: str, columns: Columns) -> dict[str, Any]:
    """Return the recipe keys of the columns that a model remembers."""
    if not columns.wanted or task == "question_answering":
        return {}
    named: dict[str, Any] = {"text_column": columns.text, "label_column": columns.label}
    if task != "token_classification":
        named |= {"pair_column": columns.pair, "has_header": columns.has_header, "delimiter": columns.delimiter}
    if task == "multiple_choice":
        named["context_column"], named["question_column"] = named.pop("text_column"), named.pop("pair_column")
        named["choice_columns"] = columns.more or (columns.texts,)
    if task == "classification" and columns.separator:
        named["label_separator"] = columns.separator
    return {f"data.{name}": value for name, value in named.items()}


def _labels_of(loaded: Loaded, remembered: Remembered) -> dict[str, Any]:
    """Return the recipe keys of the kind of labels that a sequence classifier has."""
    config = loaded.config
    kind = "multi_label" if config.problem_type == "multi_label_classification" else "classification"
    if config.problem_type == "regression" or config.num_labels == 1:
        kind = "regression"
    return {"data.task_type": kind, "data.missing_labels": remembered.missing_labels}


def _masked_lm(model_dir: storage.PathLike, spec: str, count: int) -> Examples:
    """Return the masked-LM loss on texts drawn from a corpus."""
    loaded = load_pretrained(model_dir, "masked_lm")
    tokenizer = open_tokenizer(loaded)
    longest = min(loaded.settings.longest(loaded.config.max_position_embeddings, tokenizer), _LONGEST)
    texts = list(itertools.islice(filter(str.strip, open_corpus(spec).texts()), _TEXTS))
    if not texts:
        raise InputError(f"{spec}: expected text, found none")
    chosen = np.random.default_rng(0).permutation(len(texts))[:count]
    batches = _masked_batches(tokenizer, [texts[i] for i in sorted(chosen)], longest)
    task = PretrainingTask(Bert(loaded.config, "masked_lm", Compute()), majority_id=0, objective="mlm")
    return Examples(task, loaded.params, batches)


def _masked_batches(tokenizer: Tokenizer, texts: list[str], longest: int) -> Iterator[Batch]:
    masking = Masking(tokenizer.vocab_size, tokenizer.mask_id, max_predictions=max(1, round(0.15 * longest)))
    for start in range(0, len(texts), _BATCH):
        some = texts[start : start + _BATCH]
        rows = tokenizer(some, max_length=longest, padding="max_length")
        ids, mask = rows["input_ids"], rows["attention_mask"]
        candidates = (mask > 0) & ~np.isin(ids, tokenizer.special_ids)
        keys = masking.keys(np.zeros(len(some), int), np.arange(start, start + len(some)))
        masked = apply_masks(ids, candidates, mask.sum(1), keys, masking)
        yield rows | masked | {"example_weights": (candidates.any(1)).astype(np.float32)}
