"""Recipes: typed keys, files, overrides, and one-line errors that name the key."""

import json

import pytest

from bert_jax import recipes
from bert_jax.data.pretraining.masking import UNITS
from bert_jax.errors import InputError
from bert_jax.modeling.electra import EMBEDDING_SHARINGS
from bert_jax.recipes.keys import KEYS, SETS, synonyms
from bert_jax.recipes.shipped import recipe_names, summary
from bert_jax.tasks.pretraining.recipe import MASK_UNITS

RECIPE = """
from bert_jax import recipes
def get_config(arg="tiny"):
    config = recipes.pretraining()
    config.model.size = arg
    config.num_steps = 10
    return config
"""


@pytest.fixture
def recipe_file(tmp_path):
    path = tmp_path / "recipe.py"
    path.write_text(RECIPE)
    return str(path)


def test_a_recipe_file_its_argument_and_overrides(recipe_file):
    overrides = ["--config.optimizer.learning_rate=3e-4", "config.data.mask_unit=word", "--config.num_steps=1e3",
                 "--config.stages=((8, 128, 16), (2, 512, 4))", "--config.model.hidden_dropout_prob=0"]  # fmt: skip
    config = recipes.load_recipe(recipe_file + ":mini", overrides)
    assert (config.model.size, config.optimizer.learning_rate, config.num_steps) == ("mini", 3e-4, 1000)
    assert config.data.mask_unit == "word" and config.stages == ((8, 128, 16), (2, 512, 4))
    assert recipes.model_config(config, vocab_size=100).hidden_dropout_prob == 0.0
    assert recipes.resolve(config).num_steps == 10
    assert [recipes.batch_size_at(config, step) for step in (0, 7, 8, 9)] == [16, 16, 4, 4]


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (
            "--config.optimizer.learning_rat=1",
            "config.optimizer has no key 'learning_rat'; did you mean 'learning_rate'?",
        ),
        ("--config.optimiser.learning_rate=1", "has no key 'optimiser'; did you mean 'optimizer.learning_rate'?"),
        ("--config.num_steps=many", "config.num_steps: expected int, found 'many'"),
        ("--config.num_steps=1.5", "config.num_steps: expected int, found '1.5'"),
        ("--config.optimizer.bias_correction=maybe", "config.optimizer.bias_correction: expected bool, found 'maybe'"),
        ("--config.model.hidden_size=wide", "config.model.hidden_size: expected int, found 'wide'"),
        ("--config.optimizer=1", "config.optimizer: expected one of its keys: "),
        ("--config.seed.x=1", "config.seed.x: config.seed has no keys inside"),
        ("--config.seed", "--config.seed: expected --config.KEY=VALUE"),
        ("--config.help", "expected a key; `bert-jax config RECIPE` prints all keys"),
        (
            "--config.optimizer.eps=--help",
            "config.optimizer.eps: expected a value (float, more than 0), found '--help'; its meaning: added",
        ),
        ("--config.data.mask_unit=?", "expected a value (one of token, word, span), found '?'"),
        ("--config.optimizer=--help", "config.optimizer: expected one of its keys: average_decay, beta1"),
        ("--config.batch_size=8", "config has no key 'batch_size'; did you mean 'global_batch_size'?"),
        ("--config.lr=1", "config has no key 'lr'; did you mean 'optimizer.learning_rate'?"),
        ("--config.learning_rate=1", "did you mean 'optimizer.learning_rate'?"),
        ("--config.max_length=64", "did you mean 'data.sequence_length'?"),
        ("--config.optimizer.warmup_proportion=0.1", "did you mean 'warmup_ratio'?"),
        ("--config.optim.lr=1", "config has no key 'optim'; did you mean 'optimizer.learning_rate'?"),
        ("--config.dropout=0", "did you mean 'model.hidden_dropout_prob'?"),
        ("--config.maskprob=0.2", "did you mean 'data.mask_prob'?"),
    ],
)
def test_an_override_that_does_not_fit(recipe_file, override, message):
    with pytest.raises(InputError) as error:
        recipes.load_recipe(recipe_file, [override])
    assert message in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"optimizer.schedule": "linaer"}, "config.optimizer.schedule: 'linaer' is not known; did you mean 'linear'?"),
        ({"optimizer.learning_rate": -1.0}, "config.optimizer.learning_rate: expected at least 0, found -1.0"),
        ({"optimizer.learning_rate": float("nan")}, "config.optimizer.learning_rate: expected at least 0, found nan"),
        ({"optimizer.beta2": 1.0}, "config.optimizer.beta2: expected at least 0 and below 1, found 1.0"),
        ({"optimizer.warmup_ratio": 0.1}, "config.optimizer: expected warmup_steps or warmup_ratio, found both"),
        ({"global_batch_size": 10, "accumulation_steps": 4}, "expected a divisor of the batch size 10, found 4"),
        ({"stages": ((1, 2),)}, "config.stages: expected (num_steps, sequence_length, global_batch_size)"),
        ({"num_steps": 0}, "expected num_steps, num_epochs or stages, found none"),
        (
            {"data.random_replace_prob": 0.3},
            "expected mask_replace_prob + random_replace_prob of at most 1, found 0.8 + 0.3",
        ),
        (
            {"quantization.mode": "int8", "reduce_dtype": "bfloat16"},
            "config.reduce_dtype: expected float32 with quantization.mode, found bfloat16",
        ),
    ],
)
def test_a_value_that_is_out_of_range(change, message):
    config = recipes.pretraining()
    config.update_from_flattened_dict(change)
    with pytest.raises(InputError) as error:
        recipes.resolve(config)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = (", "recipe.py:1: SyntaxError: '(' was never closed"),
        ("x = 1", "expected a function get_config, found none"),
        (RECIPE.replace("num_steps", "num_setps"), "py:6: there is no key 'num_setps'; did you mean 'num_steps'?"),
        (RECIPE.replace("= 10", "= 'ten'"), "recipe.py:6: num_steps: expected int, found str"),
        (RECIPE.replace("config.num_steps", "config.epochs"), "there is no key 'epochs'; did you mean 'num_epochs'?"),
        ("def get_config():\n    return 3", "must return a recipe of bert_jax.recipes, found int"),
    ],
)
def test_a_broken_recipe_file(tmp_path, text, message):
    path = tmp_path / "recipe.py"
    path.write_text(text)
    with pytest.raises(InputError) as error:
        recipes.load_recipe(str(path))
    assert message in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("task", KEYS)
def test_a_recipe_has_exactly_the_keys_of_its_table(task):
    flat = recipes.flatten(recipes.RECIPES[task]())
    assert flat.keys() == KEYS[task].keys() - {SETS}  # a group that is empty
    for name, value in flat.items():
        key = KEYS[task][name]
        assert value is None or isinstance(value, key.type), name
        assert not key.choices or value is None or value in key.choices, name


@pytest.mark.parametrize("task", KEYS)
def test_every_key_has_a_meaning_of_one_line(task):
    for name, key in KEYS[task].items():
        assert 10 < len(key.meaning) < 140 and "\n" not in key.meaning and not key.meaning.endswith("."), name


def beyond(key):
    """Values just outside of what a key allows."""
    if key.choices:
        yield "neither"
    for limit, step in ((key.least, 1), (key.above, 0), (key.below, 0)):
        if limit is not None and abs(limit) != float("inf"):
            yield key.type(limit - step)
    if key.limits() and key.type is float:
        yield from (float("nan"), float("inf"))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("task", KEYS)
def test_only_a_key_without_a_default_may_be_none(task):
    for name, key in KEYS[task].items():
        recipe = recipes.RECIPES[task]()
        recipe.update_from_flattened_dict({name: None})
        if key.value is None:
            continue
        message = (
            "config.task: None is not known" if name == "task" else rf"config.{name}: expected {key.type.__name__}, "
        )
        with pytest.raises(InputError, match=message):
            recipes.resolve(recipe, "cpu")


@pytest.mark.sampled(3)
@pytest.mark.parametrize("task", KEYS)
def test_a_value_outside_of_a_keys_table_is_refused_by_name(task):
    for name, key in KEYS[task].items():
        for value in beyond(key):
            recipe = recipes.RECIPES[task]()
            recipe.update_from_flattened_dict({name: value})
            with pytest.raises(InputError) as error:
                recipes.resolve(recipe, "cpu")
            expected = f"expected {key.limits()}, found" if key.limits() else "'neither' is not known"
            assert f"config.{name}: " in str(error.value) and expected in str(error.value)


@pytest.mark.parametrize("task", KEYS)
def test_names_of_other_libraries_are_those_of_no_key(task):
    last = {name.rpartition(".")[2] for name in KEYS[task]}
    for name, others in synonyms(task).items():
        assert not {other for other in others.split() if "-" in other or other != other.lower()}, name
        assert name not in others.split()
    assert "learning_rate" in last and synonyms(task)["learning_rate"].startswith("lr ")


def test_the_hint_of_a_key_is_derived_from_its_declaration(recipe_file):
    with pytest.raises(InputError, match=r"has no key 'mlm_probability'; did you mean 'data.mask_prob'\?"):
        recipes.load_recipe(recipe_file, ["--config.mlm_probability=0.3"])


def test_the_names_that_recipes_know_are_those_that_there_are():
    assert MASK_UNITS == UNITS
    assert KEYS["electra"]["model.embedding_sharing"].choices == EMBEDDING_SHARINGS


@pytest.mark.parametrize("name", recipe_names())
def test_a_recipe_opens_by_its_name_from_any_folder(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).mkdir()  # a folder of the same name hides no recipe
    recipe = recipes.load_recipe(name, ["--config.seed=3"])
    assert recipe.seed == 3 and recipes.resolve(recipe, "cpu").task in KEYS
    assert len(summary(name)) > 20


def test_a_recipe_by_name_takes_its_argument():
    recipe = recipes.load_recipe("classification:sst2,gs://bucket/SST-2")
    assert recipe.data.train == "gs://bucket/SST-2/train.tsv"


def test_a_work_directory_is_a_recipe(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json").write_text(recipes.to_json(recipes.electra()))
    assert recipes.load_recipe(str(tmp_path / "run")).task == recipes.load_recipe(f"{tmp_path}/run/").task == "electra"


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("nowhere.py", "nowhere.py: no such recipe file; recipes that come with bert_jax: bert_base, bert_large,"),
        ("configs/squad.py:v2", "no such recipe file; the recipe of that name comes with bert_jax: --config squad"),
        ("squad.py", "no such recipe file; the recipe of that name comes with bert_jax: --config squad"),
        ("my/recipes", "my/recipes: no such recipe file; recipes that come with bert_jax: bert_base,"),
        ("clasification", "no recipe 'clasification'; did you mean 'classification'?; known: bert_base, bert_large,"),
        ("ner", "no recipe 'ner'; did you mean 'token_classification'?"),
        ("zzzz", "no recipe 'zzzz'; known: bert_base, bert_large, class_embedding, classification"),
        ("pretraining:x", "pretraining: expected no argument after the name of a task, found 'x'"),
        ("table.tsv", "table.tsv: expected a recipe file ending in .py or .json"),
    ],
)
def test_no_such_recipe(tmp_path, monkeypatch, spec, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "table.tsv").write_text("a\tb\n")
    with pytest.raises(InputError) as error:
        recipes.load_recipe(spec)
    assert message in str(error.value)


@pytest.mark.parametrize("task", recipes.RECIPES)
def test_a_resolved_recipe_is_one_again(tmp_path, task):
    resolved = recipes.resolve(recipes.RECIPES[task]())
    assert resolved.dtype == "float32" and resolved.eval_batch_size == resolved.global_batch_size
    path = tmp_path / "config.json"
    path.write_text(recipes.to_json(resolved))
    again = recipes.load_recipe(str(path))
    assert recipes.to_json(recipes.resolve(again)) == path.read_text()


@pytest.mark.parametrize(("rows", "given", "expected"), [(6, 0, 36), (40, 0, 40), (6, 8, 8)])
def test_batches_of_evaluation_where_rows_are_packed(rows, given, expected):
    c = recipes.classification()
    c.data.packing, c.global_batch_size, c.eval_batch_size = 72, rows, given
    assert recipes.resolve(c).eval_batch_size == expected


def test_the_former_name_of_a_key_is_read_from_a_saved_recipe_and_else_a_hint(tmp_path):
    saved = recipes.classification().to_dict()
    saved["data"].pop("invalid_rows")
    saved["data"]["bad_rows"] = "skip"
    path = tmp_path / "config.json"
    path.write_text(json.dumps(saved))
    assert recipes.load_recipe(str(path)).data.invalid_rows == "skip"
    for former, name in (("data.bad_rows", "invalid_rows"), ("data.dev_share", "validation_split"),
                         ("fresh_layers", "reinit_layers")):  # fmt: skip
        with pytest.raises(InputError, match=rf"has no key .*; did you mean '(data\.)?{name}'\?"):
            recipes.load_recipe("classification", [f"--config.{former}=1"])


def test_a_saved_recipe_with_an_unknown_key(tmp_path):
    saved = recipes.classification().to_dict() | {"colour": "red"}
    path = tmp_path / "config.json"
    path.write_text(json.dumps(saved))
    with pytest.raises(InputError, match="config has no key 'colour'"):
        recipes.load_recipe(str(path))


@pytest.mark.parametrize(
    ("key", "value"), [("optimizer.eps", 1e-300), ("optimizer.weight_decay", 1e39), ("optimizer.learning_rate", 1e-40)]
)
def test_numbers_that_float32_does_not_hold(key, value):
    recipe = recipes.pretraining()
    recipe.update_from_flattened_dict({key: value})
    with pytest.raises(InputError, match=rf"config\.{key}: expected 0 or a float32 number from 1.18e-38 to 3.4e\+38"):
        recipes.resolve(recipe)
    recipe.update_from_flattened_dict({key: 1e-7})
    recipes.resolve(recipe)
