"""configs/classification.py on the layouts of GLUE's files."""

from pathlib import Path

import pytest

from bert_jax import recipes
from bert_jax.data.finetuning.features import encode_texts
from bert_jax.data.finetuning.labelled_rows import labels_of, read_labelled
from bert_jax.errors import InputError
from bert_jax.tasks.classification import task as classification

CONFIG = Path(__file__).parents[3] / "configs" / "classification.py"


def test_files_columns_and_metrics_of_a_task():
    c = recipes.resolve(recipes.load_recipe(f"{CONFIG}:mrpc,glue/MRPC"))
    assert (c.data.train, c.data.dev) == ("glue/MRPC/train.tsv", "glue/MRPC/dev.tsv")
    columns = classification.labelled_columns(c)
    assert (columns.text, columns.pair, columns.label) == ("#1 String", "#2 String", "Quality")
    assert c.data.metrics == ("f1", "accuracy")


@pytest.mark.parametrize(
    ("task", "message"), [("colla,x", "found 'colla'; did you mean 'cola'"), ("cola", "the directory of its files")]
)
def test_a_task_that_is_not_one(task, message):
    with pytest.raises(InputError, match=message):
        recipes.load_recipe(f"{CONFIG}:{task}")


@pytest.mark.parametrize(
    ("task", "folder", "rows"), [("sst2", "SST-2", 872), ("cola", "CoLA", 1043), ("stsb", "STS-B", 1500)]
)
def test_real_glue_files_are_read(shared_data, tiny_tokenizer, task, folder, rows):
    c = recipes.resolve(recipes.load_recipe(f"{CONFIG}:{task},{shared_data / 'glue' / folder}"))
    regression = c.data.task_type == "regression"
    columns = classification.labelled_columns(c)
    read, names = read_labelled(c.data.dev, columns, None, regression)
    features = encode_texts(tiny_tokenizer, read, labels_of(read, columns, names), 128)
    assert len(features) == rows
    assert names == (() if regression else ("0", "1"))


@pytest.mark.slow
def test_an_epoch_of_sst2_has_at_most_six_shapes(shared_data):
    vocabulary = shared_data / "vocab" / "bert-base-uncased-vocab.txt"
    changes = [f"--config.tokenizer={vocabulary}", "--config.model.size=tiny"]
    c = recipes.resolve(recipes.load_recipe(f"{CONFIG}:sst2,{shared_data / 'glue' / 'SST-2'}", changes))
    source = classification.build(c).train_source
    shapes = source.shapes()
    assert len(shapes) <= 6 and sum(shapes.values()) == source.steps_per_epoch
    padded = sum(length * batches * c.global_batch_size for length, batches in shapes.items())
    assert source.features.lengths.sum() / padded > 0.75  # rows of any lengths together: 0.3
