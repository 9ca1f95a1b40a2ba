"""`bert-jax config`: the recipes, and what their keys are, mean and may be."""

import json

import pytest

from bert_jax import recipes
from bert_jax.cli import main
from bert_jax.recipes.keys import KEYS
from bert_jax.recipes.shipped import recipe_names


def run(capsys, *arguments):
    status = main(["config", *arguments])
    out, err = capsys.readouterr()
    return status, out, err


def test_the_recipes_are_listed(capsys):
    status, out, _ = run(capsys)
    assert status == 0 and set(recipe_names()) <= {line.partition(" ")[0] for line in out.splitlines()}
    _, out, _ = run(capsys, "--json")
    assert json.loads(out)["recipes"].keys() == set(recipe_names())


@pytest.mark.parametrize("task", KEYS)
def test_every_key_is_printed_with_value_and_meaning(capsys, task):
    _, out, _ = run(capsys, task)
    lines = out.splitlines()
    values = recipes.flatten(recipes.RECIPES[task]())
    for (name, key), line, meaning in zip(KEYS[task].items(), lines[::2], lines[1::2], strict=True):
        assert line.startswith(f"{name} = ") and meaning == f"    {key.meaning} [{key.allowed()}]"
        value = values.get(name, {})  # a flattened recipe lacks empty dicts
        assert str(value).lower() in line.lower() or value in ("", None)


def test_one_key_a_group_and_a_changed_value(capsys):
    _, out, _ = run(capsys, "classification", "optimizer.learning_rate", "--config.optimizer.learning_rate=1e-3")
    assert out.splitlines()[0] == "optimizer.learning_rate = 0.001 (default: 3e-05)" and out.count("\n") == 2
    _, out, _ = run(capsys, "classification", "lora")
    assert [line.split()[0] for line in out.splitlines()[::2]] == ["lora.rank", "lora.alpha", "lora.targets"]


def test_json_has_type_choices_and_limits(capsys):
    _, out, _ = run(capsys, "bert_base", "optimizer", "--json")
    content = json.loads(out)
    keys = {key["key"]: key for key in content["keys"]}
    assert content["task"] == "pretraining" and keys["optimizer.warmup_steps"]["value"] == 10_000
    assert keys["optimizer.schedule"]["choices"] == list(recipes.SCHEDULES)
    assert [keys["optimizer.beta2"][limit] for limit in ("type", "least", "above", "below")] == ["float", 0, None, 1]


def test_a_work_directory(tmp_path, capsys):
    c = recipes.classification()
    c.num_epochs = 7.0
    (tmp_path / "config.json").write_text(recipes.to_json(recipes.resolve(c, "cpu")))
    _, out, _ = run(capsys, str(tmp_path), "num_epochs")
    assert out.startswith("num_epochs = 7.0 (default: 3.0)\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["classification", "lr"], "config.lr: config has no key 'lr'; did you mean 'optimizer.learning_rate'?"),
        (["classification", "text"], "did you mean 'data.text_column'?"),
        (["clasification"], "no recipe 'clasification'; did you mean 'classification'?"),
        (["classification", "--batch-size", "3"], "'--batch-size' was not expected"),
    ],
)
def test_what_there_is_not(capsys, arguments, message):
    status, out, err = run(capsys, *arguments)
    assert (status, out) == (2, "") and message in err and err.count("\n") == 1
