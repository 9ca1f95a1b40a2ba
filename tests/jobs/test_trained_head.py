"""Fine-tuning from the trained head of `init_from` (`keep_head`)."""

import numpy as np
import pytest

from bert_jax import jobs, recipes
from bert_jax.conversion.huggingface import load_pretrained
from bert_jax.errors import InputError
from bert_jax.recipes import resolve

HEAD = "sequence_classification"


def job(tmp_path, model, keep_head=True, labels=("bad", "good"), **changes):
    (tmp_path / "train.tsv").write_text("sentence\tlabel\n" + "".join(f"the cat\t{name}\n" for name in labels * 4))
    recipe = recipes.classification()
    recipe.update_from_flattened_dict(
        {"init_from": str(model), "keep_head": keep_head, "data.train": str(tmp_path / "train.tsv"), "num_steps": 1,
         "data.max_seq_length": 16} | changes
    )  # fmt: skip
    return jobs.build(resolve(recipe))


def test_the_outputs_are_in_the_order_of_the_data(tmp_path, write_small):
    model = write_small(tmp_path / "model", HEAD, num_labels=3, id2label=("good", "so", "bad"))
    trained = load_pretrained(model).params
    made = job(tmp_path, model, labels=("so", "good", "bad"))
    assert made.task.model.config.id2label == ("bad", "good", "so")
    params = made.pretrained
    for name in ("kernel", "bias"):
        assert np.array_equal(params["classifier"][name], trained["classifier"][name][..., [2, 0, 1]])
    assert np.array_equal(params["pooler"]["dense"]["kernel"], trained["pooler"]["dense"]["kernel"])


def test_without_it_a_classifier_is_initialised(tmp_path, write_small):
    model = write_small(tmp_path / "model", HEAD, id2label=("bad", "good"))
    assert "classifier" not in job(tmp_path, model, keep_head=False).pretrained


def test_lora_keeps_the_head_too(tmp_path, write_small):
    model = write_small(tmp_path / "model", HEAD, id2label=("bad", "good"))
    params = job(tmp_path, model, **{"lora.rank": 2}).pretrained["base"]
    expected = load_pretrained(model).params["classifier"]["kernel"]
    assert np.array_equal(params["classifier"]["kernel"], expected)


def test_heads_that_cannot_be_kept(tmp_path, write_small):
    model = write_small(tmp_path / "model", HEAD, id2label=("bad", "good"))
    with pytest.raises(
        InputError, match=r"keep_head: expected data with the classes of .*model, bad, good, found bad, so"
    ):
        job(tmp_path, model, labels=("bad", "so"))
    with pytest.raises(InputError, match=r"keep_head: expected a model for sequence_classification in .* for encoder"):
        job(tmp_path, write_small(tmp_path / "encoder"))
    with pytest.raises(InputError, match=r"keep_head: expected a model in config\.init_from, whose head is kept"):
        tokenizer = str(model / "vocab.txt")
        job(tmp_path, "", tokenizer=tokenizer, **{"model.size": "tiny"})
