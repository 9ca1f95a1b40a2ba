"""Abstract tasks without data: jobs that are built on synthetic rows."""

import dataclasses
import gc

import jax
import numpy as np
import pytest

from bert_jax import jobs, recipes
from bert_jax.config import BertConfig
from bert_jax.errors import InputError
from bert_jax.jobs import synthetic
from bert_jax.recipes.keys import TASK_RECIPES

SMALL = {"model.hidden_size": 16, "model.num_hidden_layers": 2, "model.num_attention_heads": 2,
         "model.intermediate_size": 32, "model.vocab_size": 100, "global_batch_size": 4}  # fmt: skip
LARGE = {"model.hidden_size": 2048, "model.num_hidden_layers": 24, "model.num_attention_heads": 16,
         "model.intermediate_size": 8192, "global_batch_size": 4}  # fmt: skip
TASKS_OF_ONE_SET = [name for name, recipe in TASK_RECIPES.items() if not recipe.tasks_of_sets]


def resolved(task, sizes=SMALL, **changes):
    recipe = recipes.RECIPES[task]()
    recipe.update_from_flattened_dict(sizes | changes)
    return recipes.resolve(recipe)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("task", TASKS_OF_ONE_SET)
def test_every_task_has_shapes_without_data(task, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    recipe = resolved(task)
    before = recipe.to_json_best_effort()
    abstract = jobs.abstract_task(recipe)
    (stage,) = abstract.stages
    assert stage.num_steps == recipe.num_steps
    assert all(array.shape[0] == 4 for array in stage.batch.values())
    key = jax.eval_shape(lambda: jax.random.key(0))
    params = jax.eval_shape(abstract.init_params, key)
    weights = jax.eval_shape(abstract.task.weights, stage.batch)
    loss, _ = jax.eval_shape(abstract.task.loss, params, stage.batch, key, weights)
    assert loss.shape == ()
    assert not [*tmp_path.iterdir()]
    assert recipe.to_json_best_effort() == before and recipe.is_locked


@pytest.mark.sampled(3)
@pytest.mark.parametrize("task", TASKS_OF_ONE_SET)
def test_a_billion_parameters_are_not_allocated(task):
    sizes = LARGE | ({"model.family": "electra"} if task == "electra" else {})
    gc.collect()
    before = sum(array.nbytes for array in jax.live_arrays())
    abstract = jobs.abstract_task(resolved(task, sizes))
    params = jax.eval_shape(abstract.init_params, jax.eval_shape(lambda: jax.random.key(0)))
    assert sum(leaf.size for leaf in jax.tree.leaves(params)) > 1e9
    assert sum(array.nbytes for array in jax.live_arrays()) - before < 1e6


def test_a_task_without_synthetic_rows_needs_data(monkeypatch):
    plain = dataclasses.replace(TASK_RECIPES["classification"], synthetic_rows=None)
    monkeypatch.setattr(jobs, "_recipe_of", lambda _: plain)
    message = (
        r"config\.data: expected data, as task 'classification' has no synthetic rows to take shapes from, found none; "
        r"TaskRecipe\.synthetic_rows can define them"
    )
    with pytest.raises(InputError, match=message):
        jobs.abstract_task(resolved("classification"))


def test_the_shapes_of_several_tasks_need_their_sets():
    with pytest.raises(InputError, match=r"config\.data\.sets: expected a data set for each head, .* found none"):
        jobs.abstract_task(resolved("multi_task"))


def test_a_job_still_needs_data():
    with pytest.raises(InputError, match=r"config\.data\.train: expected a file"):
        jobs.build(resolved("relation_extraction"))
    with pytest.raises(InputError, match=r"config\.data\.prepared: expected a directory"):
        jobs.build(resolved("pretraining", **{"optimizer.warmup_steps": 1}))


def test_keys_of_files_do_not_matter_without_data():
    changes = {"data.packing": 48, "data.length_buckets": (), "data.dev": "none.tsv", "data.encoding": "utf-16",
               "data.has_header": False, "data.text_column": "3", "data.label_column": "1", "num_steps": 7}  # fmt: skip
    (stage,) = jobs.abstract_task(resolved("classification", **changes, **{"data.max_seq_length": 20})).stages
    assert stage.num_steps == 7 and stage.batch["input_ids"].shape == (4, 20)


def test_classes_are_those_of_the_recipe():
    names = {"data.label_names": ("bad", "fair", "good")}
    task = jobs.abstract_task(resolved("classification", **names)).task
    assert task.model.config.label_names == ("bad", "fair", "good")
    task = jobs.abstract_task(resolved("token_classification", **{"data.tag_names": ("NOUN", "VERB")})).task
    assert task.names == ("NOUN", "VERB")
    batch = jobs.abstract_task(resolved("multiple_choice", **{"data.choice_columns": ("a", "b", "c")})).stages[0].batch
    assert batch["input_ids"].shape == (4, 3, 128)


def test_batches_have_the_arrays_of_a_step():
    """Also those that a source adds to the rows."""
    batch = jobs.abstract_task(resolved("sparse_embedding", **{"data.flops_warmup": 0.1})).stages[0].batch
    assert batch["flops_share"].shape == (4,)
    batch = jobs.abstract_task(resolved("sentence_embedding", **{"data.layers_per_step": 1})).stages[0].batch
    assert batch["layer_0"].shape == (4,)


def test_the_synthetic_tokenizer():
    for family, pad in (("bert", 0), ("roberta", 1)):
        config = BertConfig.named("tiny", family, vocab_size=50)
        tokenizer = synthetic.SyntheticTokenizer(config)
        assert (tokenizer.vocab_size, tokenizer.pad_id) == (50, pad)
        assert len({*tokenizer.special_ids, *tokenizer.encode("word")}) == 6
    assert tokenizer.encode_batch_with_offsets(["a  word"]) == [([5, 5], [(0, 1), (3, 7)])]
    assert tokenizer.token_to_id("[E1]") == 5 and tokenizer.token_to_id("") is None
    assert tokenizer(["a b c"], max_length=4)["input_ids"].shape == (1, 4)
    assert not np.any(tokenizer.is_continuation)
    with pytest.raises(InputError, match=r"config\.model\.vocab_size: expected at least 6 tokens, found 5"):
        synthetic.SyntheticTokenizer(config.replace(vocab_size=5))
