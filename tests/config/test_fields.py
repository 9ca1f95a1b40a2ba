"""What `setting` declares: checks, docstrings, keys of recipes, and settings of parts in other packages."""

import dataclasses
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from bert_jax import recipes
from bert_jax.config import BertConfig
from bert_jax.config.fields import Declared, Setting, setting
from bert_jax.config.parts import PLACES, declared_settings, kinds_of
from bert_jax.errors import InputError
from bert_jax.families import import_parts
from bert_jax.recipes.model_keys import model_keys

ROOT = Path(__file__).parents[2]
import_parts()
CLASSES = [
    BertConfig,
    *(kind for place in PLACES for kind in kinds_of(place) if kind.__module__.startswith("bert_jax")),
]


def run(code, *arguments):
    done = subprocess.run([sys.executable, "-c", code, *arguments], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_field_is_declared_and_described(kind):
    assert [field.name for field in dataclasses.fields(kind)] == list(kind.declared)
    for name, declared in kind.declared.items():
        assert declared.meaning and "\n" not in declared.meaning and not declared.meaning.endswith("."), name
        assert f"    {name}: {declared.meaning}." in kind.__doc__
        number = declared.type in (int, float)
        assert number == any(limit is not None for limit in (declared.least, declared.above)), f"{name}: its range"


def test_no_two_places_have_settings_of_one_name():
    places = {}
    for place in PLACES:
        for name in {name for kind in kinds_of(place) for name in kind.declared}:
            places.setdefault(name, []).append(place)
    assert not {name: found for name, found in places.items() if len(found) > 1}


@pytest.mark.parametrize(
    ("declared", "values", "message"),
    [
        (Setting(annotation="int", least=1, most=9), (0, True, 1.0, None), "must be a positive integer, found"),
        (Setting(annotation="int", least=1, most=9), (10,), "must be at most 9, found 10"),
        (Setting(annotation="int", least=0), (-1, "1"), "must be a non-negative integer, found"),
        (Setting(annotation="int", least=3, below=7), (2, 7), "must be an integer, at least 3, below 7, found"),
        (Setting(annotation="float", above=0), (0, float("nan"), float("inf"), "1"), "must be a positive number"),
        (Setting(annotation="float", least=0, below=1), (1, -0.1), r"must be a rate in \[0, 1\), found"),
        (Setting(annotation="float | None"), ("1", True), "must be a number, found"),
        (Setting(annotation="bool"), (1, None), "must be true or false, found"),
        (Setting(annotation="str", choices=("post", "pre")), ("prr",), "'prr' is not known; did you mean 'pre'"),
    ],
)
def test_what_is_not_allowed(declared, values, message):
    for value in values:
        with pytest.raises(InputError, match=f"^x .*{message}"):
            declared.check(value, "x")


def test_what_is_allowed():
    Setting(annotation="int | None", least=1).check(None, "x")
    Setting(annotation="float", above=0).check(1, "x")
    Setting(annotation="tuple[int, ...]").check((), "x")


def test_a_field_that_is_not_declared_has_its_type():
    @dataclasses.dataclass(frozen=True)
    class Layer(Declared):
        width: int
        bias: bool = setting(True, "whether it has a bias")

    assert Layer(-1).bias and Layer.__doc__.startswith("Layer\n\nAttributes:\n")
    with pytest.raises(InputError, match="model config: width must be an integer, found 'wide'"):
        Layer("wide")


def test_recipes_have_what_is_declared_for_them():
    declared = declared_settings(BertConfig)
    keys = {name.removeprefix("model."): key for name, key in model_keys().items()}
    assert keys.keys() - declared.keys() == {"size"}
    assert keys["hidden_size"].least == declared["hidden_size"].least == 1
    assert keys["hidden_act"].choices == declared["hidden_act"].choices
    assert (keys["layer_norm_eps"].above, declared["layer_norm_eps"].least) == (0, 0)  # files may have 0
    assert keys["embedding_size"].meaning == "width of the embeddings; not set = hidden_size"
    assert "head_dim" not in keys and declared["head_dim"].shapes and "num_labels" not in keys
    names = list(keys)
    assert names[:4] == ["size", "vocab_size", "family", "hidden_size"]
    assert names.index("pooling") < names.index("num_hidden_groups"), "those of one family come last"


def test_a_kind_that_is_not_known():
    with pytest.raises(InputError, match="position_embedding_type 'rotery' is not known; did you mean 'rotary'"):
        BertConfig().replace(position_embedding_type="rotery")


def test_a_setting_of_a_family_that_nobody_imported():
    code = """
import sys
from bert_jax.config import BertConfig
from bert_jax.errors import InputError
try:
    BertConfig().replace(num_experts=2)
except InputError as error:
    print(error)
"""
    assert re.match("model config: num_experts: expected no setting.* bert .*found 2$", run(code))


STRANGER = """
from __future__ import annotations
import dataclasses
from bert_jax import recipes

before = recipes.pretraining()

from bert_jax.config import BertConfig
from bert_jax.config.fields import setting
from bert_jax.config.layers import StackConfig
from bert_jax.errors import InputError

@dataclasses.dataclass(frozen=True)
class SkippingConfig(StackConfig):
    '''A stack that skips layers.'''

    skipped_layers: int = setting(0, "layers that are skipped; 0 = none", least=0, shapes=True)
    skip_scale: float | None = setting(None, "factor of what is skipped; None = 1", above=0, recipe=True)

recipe = recipes.load_recipe("pretraining", ["--config.model.skipped_layers=2", "--config.model.skip_scale=0.5"])
base = BertConfig.named("tiny", stack=SkippingConfig())
print(recipes.model_config(recipes.resolve(recipe, "cpu"), base).stack)
print(recipes.model_config(before, base).stack)
for key, value in (("skipped_layers", -1), ("skip_scale", 0.0)):
    changed = recipes.pretraining()
    changed.model[key] = value
    try:
        recipes.resolve(changed, "cpu")
    except InputError as error:
        print(error)
try:
    recipes.model_config(recipe)
except InputError as error:
    print(error)
print(SkippingConfig.__doc__)
"""


def test_a_setting_of_another_package_is_a_key_of_recipes():
    assert run(STRANGER).splitlines() == [
        "SkippingConfig(skipped_layers=2, skip_scale=0.5)",
        "SkippingConfig(skipped_layers=0, skip_scale=None)",
        "config.model.skipped_layers: expected at least 0, found -1",
        "config.model.skip_scale: expected more than 0, found 0.0",
        "model config: skipped_layers: expected no setting, as the stack of this bert has, found 2",
        "A stack that skips layers.",
        "",
        "Attributes:",
        "    skipped_layers: layers that are skipped; 0 = none.",
        "    skip_scale: factor of what is skipped; None = 1.",
    ]


def test_a_saved_recipe_with_a_setting_of_a_family_that_is_gone(tmp_path):
    saved = json.loads(recipes.to_json(recipes.classification()))
    path = tmp_path / "config.json"
    path.write_text(json.dumps(saved | {"model": saved["model"] | {"skipped_layers": None}}))
    assert recipes.to_json(recipes.load_recipe(str(path))) == recipes.to_json(recipes.classification())
    path.write_text(json.dumps(saved | {"model": saved["model"] | {"skipped_layers": 2}}))
    with pytest.raises(InputError, match=r"config\.model has no key 'skipped_layers'"):
        recipes.load_recipe(str(path))
