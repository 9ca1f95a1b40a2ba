"""README.md of a finished model: huggingface_hub reads its metadata, and its code runs as written."""

import dataclasses
import re
from types import SimpleNamespace

import pytest

from bert_jax import recipes, storage
from bert_jax.config import BertConfig
from bert_jax.inference import from_pretrained
from bert_jax.training.model_card import write_model_card
from bert_jax.training.resuming import DataRecord

# Task -> the head of its models, and fields of the config of one.
TASKS = {
    "pretraining": ("pretraining", {}),
    "masked_diffusion": ("masked_lm", {}),
    "diffusion_pretraining": ("masked_lm", {}),
    "classification": ("sequence_classification", {"num_labels": 2}),
    "token_classification": ("token_classification", {"num_labels": 3}),
    "question_answering": ("question_answering", {}),
    "multiple_choice": ("multiple_choice", {}),
    "electra": ("replaced_token_detection", {"family": "electra"}),
    "sentence_embedding": ("sentence_embedding", {}),
    "sparse_embedding": ("sparse_embedding", {}),
    "multi_vector": ("multi_vector", {}),
}


def job_of(directory, classes=None):
    model = from_pretrained(directory)
    part = SimpleNamespace(config=model.config, head=model.head)
    task = SimpleNamespace(model=SimpleNamespace(parts=(part,)))
    return SimpleNamespace(task=task, tokenizer=model.tokenizer, num_steps=1234, classes=classes or {})


def card_of(tmp_path, write_small, task, scores=None, classes=None, config=None, **keys):
    head, fields = TASKS[task]
    fields = fields | (config or {})
    if "family" in fields:
        named = BertConfig.named("tiny", fields["family"])
        fields = {field.name: getattr(named, field.name) for field in dataclasses.fields(named)}
        del fields["vocab_size"]
    directory = write_small(tmp_path / "model", head, **fields)
    recipe = recipes.RECIPES[task]()
    for name, value in keys.items():
        group, _, key = name.rpartition(".")
        (recipe[group] if group else recipe)[key] = value
    record = DataRecord(storage.Path(tmp_path / "data.json"))
    record.write({"train": {"rows": 1500}, "dev": None}, 1234)
    write_model_card(directory, recipe, job_of(directory, classes), record, scores or {})
    return directory, (directory / "README.md").read_text()


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("section", [0, 1], ids=["bert_jax", "PyTorch"])
def test_its_code_runs(tmp_path, write_small, task, section, capsys):
    if section:
        pytest.importorskip("torch", reason="the code of the card's second section runs in PyTorch")
    directory, text = card_of(tmp_path, write_small, task)
    sections = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(sections) == 2  # a library of PyTorch opens the models of every task
    code = sections[section].replace('"path/to/this/folder"', repr(str(directory)))
    assert str(directory) in code
    exec(code, {})
    assert capsys.readouterr().out.strip()


def test_folders_are_left_out_of_every_path(tmp_path, write_small):
    _, text = card_of(tmp_path, write_small, "pretraining", **{"data.mixture": ("/home/me/one", "gs://bucket/two/")})
    assert "| `data.mixture` | `('one', 'two')` |" in text and "/home" not in text and "bucket" not in text


def test_the_hub_reads_it(tmp_path, write_small):
    hub = pytest.importorskip("huggingface_hub")
    scores = {"eval/accuracy": 0.875, "eval/loss": 0.25, "train/loss": 0.1, "eval/nothing": float("nan")}
    keys = {
        "init_from": "hf://org/bert",
        "data.dev": "/home/me/reviews: new.csv",
        "data.train": "gs://bucket/train.csv",
    }
    directory, text = card_of(tmp_path, write_small, "classification", scores, {"yes": 1000, "no|so": 500}, **keys)
    data = hub.ModelCard.load(directory / "README.md").data
    assert (data.license, data.pipeline_tag, data.base_model) == ("unknown", "text-classification", "org/bert")
    found = {(result.metric_type, result.metric_value, result.dataset_name) for result in data.eval_results}
    assert found == {("accuracy", 0.875, "reviews: new.csv"), ("loss", 0.25, "reviews: new.csv")}
    assert "1,234 steps" in text and "| train | 1,500 rows |" in text and r"| no\|so | 500 |" in text
    assert "| `data.train` | `train.csv` |" in text
    assert "/home" not in text and "bucket" not in text


def test_a_family_without_a_class_of_transformers(tmp_path, write_small):
    _, text = card_of(tmp_path, write_small, "classification", config={"family": "nomic_bert"})
    assert 'library_name: "bert_jax"' in text and text.count("```python") == 1


@pytest.mark.parametrize(
    "task, pipeline",
    [("pretraining", "fill-mask"), ("masked_diffusion", "text-generation"), ("diffusion_pretraining", "fill-in")],
)
def test_it_runs_the_pipeline_of_its_task(tmp_path, write_small, task, pipeline):
    assert f'bert_jax.pipeline("{pipeline}", folder)' in card_of(tmp_path, write_small, task)[1]
