"""README.md of a finished model: huggingface_hub reads its metadata, and its code runs as written."""

import ast
import dataclasses
import re
from types import SimpleNamespace

import pytest

from bert_jax import recipes
from bert_jax.config import BertConfig
from bert_jax.inference import PIPELINES, from_pretrained
from bert_jax.recipes.keys import TASK_RECIPES
from bert_jax.training.data_record import DataRecord
from bert_jax.training.model_card import write_model_card

# Task -> the head of its models, and fields of the config of one.
TASKS = {
    "pretraining": ("pretraining", {}),
    "masked_diffusion": ("masked_lm", {}),
    "diffusion_pretraining": ("masked_lm", {}),
    "classification": ("sequence_classification", {"num_labels": 2}),
    "token_classification": ("token_classification", {"num_labels": 3}),
    "question_answering": ("question_answering", {}),
    "multiple_choice": ("multiple_choice", {}),
    "reranking": ("sequence_classification", {"num_labels": 1}),
    "electra": ("replaced_token_detection", {"family": "electra"}),
    "sentence_embedding": ("sentence_embedding", {}),
    "sparse_embedding": ("sparse_embedding", {}),
    "multi_vector": ("multi_vector", {}),
}


def job_of(directory, classes=None):
    model = from_pretrained(directory)
    part = SimpleNamespace(config=model.config, head=model.head)
    task = SimpleNamespace(model=SimpleNamespace(models=(part,)))
    return SimpleNamespace(task=task, tokenizer=model.tokenizer, num_steps=1234, classes=classes or {}, heads={})


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
    record = DataRecord({"train": {"rows": 1500}, "dev": None}, 1234)
    write_model_card(directory, recipe, job_of(directory, classes), record, scores or {})
    return directory, (directory / "README.md").read_text()


@pytest.mark.sampled(18)
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


def test_every_recipe_names_a_pipeline_that_exists():
    uses = {task: recipe.use for task, recipe in TASK_RECIPES.items()}
    assert {task for task, use in uses.items() if not use.pipeline} == {"multiple_choice", "electra", "multi_task"}
    assert {use.pipeline for use in uses.values() if use.pipeline} <= set(PIPELINES)
    assert uses["reranking"].tag == "text-ranking"


HOSTILE = {
    "a|b": "a|b",
    "a\\|b": "a\\|b",
    "<script>alert(1)</script>": "<script>alert(1)</script>",
    "[x](javascript:alert(1))": "[x](javascript:alert(1))",
    "![x](http://127.0.0.1/pixel.png)": "![x](http://127.0.0.1/pixel.png)",
    "a\n\n# A title\n---\nlicense: mit": "a # A title --- license: mit",
    "a\r| b | c |": "a | b | c |",
    "`` ` <b>": "`` ` <b>",
    "&lt;b&gt; &#124;": "&lt;b&gt; &#124;",
    "\x1b[31m\u202ered \x9b": "\\x1b[31m\\u202ered \\x9b",
    "=1+1 😀": "=1+1 😀",
}


def test_texts_of_the_user_are_shown_as_they_are(tmp_path, write_small):
    """Labels, names of metrics, files and values of the recipe, as a reader of Markdown shows them."""
    markdown_it = pytest.importorskip("markdown_it", reason="reads the card as a website does")
    yaml = pytest.importorskip("yaml", reason="reads the card's metadata as a website does")
    names = list(HOSTILE)
    scores = {f"eval/{name}": 0.5 for name in names}
    keys = {"data.dev": "dev `<b>`\n---\nlicense: mit 😀.csv", "data.train": "`|\\|<script>.csv"}
    _, text = card_of(tmp_path, write_small, "classification", scores, dict.fromkeys(names, 3), **keys)
    _, metadata, body = text.split("---\n", 2)
    card = yaml.safe_load(metadata)
    assert card["license"] == "unknown" and card["model-index"][0]["results"][0]["dataset"]["name"] == keys["data.dev"]
    assert {metric["type"] for metric in card["model-index"][0]["results"][0]["metrics"]} == set(names)
    tokens = markdown_it.MarkdownIt("commonmark", {"html": True}).enable("table").parse(body)
    inner = [child for token in tokens for child in token.children or ()]
    assert {child.type for child in inner} <= {"text", "code_inline", "softbreak", "text_special"}
    assert not [token for token in tokens if token.type == "html_block"]
    rows = ["".join(child.content for child in token.children) for token in tokens if token.type == "inline"]
    for shown in HOSTILE.values():
        assert rows.count(shown) == 2  # a class and a metric
    assert keys["data.train"] in rows
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", text)


def test_a_mask_token_is_no_code(tmp_path, write_small):
    directory, _ = card_of(tmp_path, write_small, "pretraining")
    job = job_of(directory)
    evil = '"); import os; os._exit(3) #\n```\n'
    job.tokenizer = SimpleNamespace(mask_id=4, id_to_token=lambda _: evil)
    write_model_card(directory, recipes.RECIPES["pretraining"](), job, DataRecord(), {})
    (code, *_) = re.findall(r"```python\n(.*?)\n```\n", (directory / "README.md").read_text(), re.DOTALL)
    call = ast.parse(code).body[-1].value.args[0]
    assert ast.literal_eval(call.args[0]) == f"A text with a {evil} word."
