"""Every pretraining recipe on its slices, by the TPU compiler: fits with room to spare, splits and exchanges as it did.

goldens.json is written by goldens.py; look at what changed before it is committed.
"""

import importlib.util
import json

import goldens
import pytest

from bert_jax import recipes
from bert_jax.planning.slices import find_slice

MARGIN = 0.92  # of the memory, at the most

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("libtpu") is None, reason="needs the TPU compiler: pip install 'bert-jax[tpu]'"
)
GOLDENS = json.loads(goldens.FILE.read_text())
CASES = [case if case in goldens.QUICK else pytest.param(case, marks=pytest.mark.slow) for case in goldens.CASES]


def test_every_pretraining_recipe_has_its_slices():
    found = {path.stem: recipes.load_recipe(str(path)) for path in goldens.CONFIGS.glob("*.py")}
    of_pretraining = {name for name, recipe in found.items() if recipes.is_pretraining(recipe)}
    of_pretraining.remove("distil_minilm")  # whose memory depends on the teacher
    assert of_pretraining == {recipe for recipe, _, _ in goldens.CASES.values()}
    assert GOLDENS["cases"].keys() == goldens.CASES.keys()


@pytest.mark.parametrize("case", CASES)
def test_a_recipe_on_a_slice(case):
    made = goldens.compiled(case)
    assert made.fits
    room = MARGIN * made.topology.chip.hbm_gib
    assert all(stage.peak_bytes / 2**30 <= room for stage in made.stages)
    found, expected = goldens.golden(made), GOLDENS["cases"][case]
    assert (found["mesh"], found["shardings"]) == (expected["mesh"], expected["shardings"])
    if goldens.versions() != GOLDENS["versions"]:
        pytest.skip(f"fits; the goldens of its collectives are of {GOLDENS['versions']}")
    for name, stage in expected["stages"].items():
        assert found["stages"][name]["collectives"] == stage["collectives"]
        assert found["stages"][name]["peak_gib"] == pytest.approx(stage["peak_gib"], rel=0.05)
        assert found["stages"][name]["mfu"] == pytest.approx(stage["mfu"], rel=0.05)


@pytest.mark.parametrize("case", goldens.CASES)
def test_goldens_fit_with_room_to_spare(case):
    _, slice_name, _ = goldens.CASES[case]
    room = MARGIN * find_slice(slice_name).chip.hbm_gib
    assert all(stage["peak_gib"] <= room for stage in GOLDENS["cases"][case]["stages"].values())


def test_bert_large_at_512_is_bound_by_arithmetic_and_hides_its_collectives():
    stage = GOLDENS["cases"]["bert_large v5e:4x4"]["stages"]["256 x 512"]
    assert stage["mfu"] >= 0.6
    hidden = sum(count for name, count in stage["collectives"].items() if name.endswith("hidden"))
    assert hidden > sum(stage["collectives"].values()) / 2
