"""`bert-jax plan`: recipes compiled for TPU slices, by the TPU compiler, without a TPU."""

import importlib.util
import json
import re
from types import SimpleNamespace

import jax
import pytest

from bert_jax import jobs, recipes
from bert_jax.cli import main
from bert_jax.errors import InputError
from bert_jax.planning import compiling, search, slices
from bert_jax.planning.advice import advise
from bert_jax.planning.compiling import asked_for
from bert_jax.planning.plan import Plan, StagePlan, plan, stage_text
from bert_jax.planning.slices import CHIPS, find_slice
from bert_jax.training.peaks import peak_flops

needs_compiler = pytest.mark.skipif(
    importlib.util.find_spec("libtpu") is None, reason="needs the TPU compiler: pip install 'bert-jax[tpu]'"
)
RECIPE = """
from bert_jax import recipes


def get_config():
    c = recipes.pretraining()
    c.model.size = "tiny"
    c.stages = ((90, 64, 64),)
    c.optimizer.warmup_steps = 10
    return c
"""


@pytest.fixture(scope="module")
def recipe_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("recipes") / "recipe.py"
    path.write_text(RECIPE)
    return str(path)


@pytest.fixture(autouse=True)
def no_memory_of_earlier_plans(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def run(capfd, *arguments):
    status = main(["plan", *arguments])
    out, err = capfd.readouterr()
    return status, out, err


@pytest.mark.slow
@needs_compiler
@pytest.mark.usefixtures("compiled_quickly")
def test_copies_of_the_parameters_exchange_gradients_as_large_as_they(recipe_file, tmp_path, monkeypatch):
    made = plan(recipes.load_recipe(recipe_file), find_slice("v5e:2x2"))
    (stage,) = made.stages
    assert made.mesh == {"data": 4, "fsdp": 1, "tensor": 1}
    assert stage.fits
    assert stage.state_bytes >= 3 * 4 * made.parameters  # float32 parameters and two moments
    assert stage.state_bytes < 3.01 * 4 * made.parameters
    assert stage.peak_bytes > stage.state_bytes
    between_chips = [found for found in stage.collectives if found.devices > 1]
    assert {found.axes for found in between_chips} == {("data",)}
    sent = sum(found.wire_bytes for found in between_chips)
    # A ring all-reduce of float32 gradients; the rest is metrics.
    assert sent == pytest.approx(2 * 3 / 4 * 4 * made.parameters, rel=0.05)
    assert 0 < stage.mfu < 1
    assert made.hours == pytest.approx(90 * stage.seconds.step / 3600)
    assert made.chip_hours == pytest.approx(4 * made.hours)

    def compiling_again(*_):
        raise AssertionError("compiled twice")

    monkeypatch.setattr(compiling, "_compile", compiling_again)
    assert plan(recipes.load_recipe(recipe_file), find_slice("v5e:2x2")).stages == made.stages
    (cached,) = (tmp_path / "cache").glob("bert_jax/plans/*.json")
    cached.write_bytes(cached.read_bytes()[:-9])  # damaged
    with pytest.raises(AssertionError, match="compiled twice"):
        plan(recipes.load_recipe(recipe_file), find_slice("v5e:2x2"))


@pytest.mark.slow
@needs_compiler
@pytest.mark.usefixtures("compiled_quickly")
def test_parameters_that_are_split_take_their_share(recipe_file, capfd):
    status, out, _ = run(
        capfd,
        "--config",
        recipe_file,
        "--topology",
        "v5e:2x2",
        "--config.mesh.fsdp=4",
        "--config.mesh.data=1",
        "--json",
    )
    assert status == 0
    made = json.loads(out)
    assert made["mesh"] == {"data": 1, "fsdp": 4, "tensor": 1}
    assert made["stages"][0]["state_bytes"] < 1.05 * 3 * 4 * made["parameters"] / 4
    assert "P(None, 'fsdp', 'tensor')" in made["shardings"]["encoder/layers/mlp/up/kernel"]
    assert {"all-gather", "all-reduce"} <= {found["kind"] for found in made["stages"][0]["collectives"]}


@needs_compiler
@pytest.mark.usefixtures("compiled_quickly")
@pytest.mark.slow
def test_attention_scores_stay_on_the_devices_of_their_heads(recipe_file):
    """Also those that the backward pass computes again."""
    split = ("mesh.data=1", "mesh.fsdp=2", "mesh.tensor=2", "remat=dots", "stages=((90, 256, 32),)")
    made = plan(recipes.load_recipe(recipe_file, [f"--config.{change}" for change in split]), find_slice("v5e:2x2"))
    (stage,) = made.stages
    scores = 16 * 256 * 256 * 2  # bytes, of the sequences of a device and one head
    in_layers = [found for found in stage.collectives if found.times > 1]
    assert in_layers
    assert max(found.num_bytes for found in in_layers) < scores


@pytest.mark.slow
@needs_compiler
@pytest.mark.usefixtures("compiled_quickly")
def test_what_does_not_fit_says_so_and_exits_with_1(recipe_file, capfd):
    status, out, _ = run(capfd, "--config", recipe_file, "--topology", "v5e:1x1", "--config.stages=((90, 128, 16384),)")
    assert status == 1
    assert "DOES NOT FIT" in out
    assert "--config.remat=full; or use micro-batches: --config.accumulation_steps=2" in " ".join(out.split())


@pytest.mark.parametrize(
    ("state_gib", "said"),
    [
        (24, "24.0 of 16 GiB on each device; it needs 3 times the devices"),
        (2, "a single sequence takes 30.0 of 16 GiB on each device; .* --config.mesh.tensor=2"),
    ],
)
def test_what_fits_no_slice_is_told_what_it_needs(state_gib, said):
    stage = StagePlan(90, 512, 4, state_gib * 2**30, 30 * 2**30, False, (), 1e12, 0, None, 0.0, 1.0)
    place = slices.Slice("v5e:2x2", CHIPS["v5e"], 4, [None] * 4, 1)
    made = Plan(place, {"data": 1, "fsdp": 4, "tensor": 1}, "full", 1, 10**9, {}, (stage,))
    assert not made.fits
    assert re.search(said, advise(made)[0])


@needs_compiler
@pytest.mark.slow
def test_the_search_ends_at_the_largest_batch_whose_double_does_not_fit(recipe_file):
    recipe = recipes.load_recipe(recipe_file, ["--config.stages=((90, 512, 64),)"])
    found = next(search.search(recipe, find_slice("v5e:1x1")))
    assert found.fits is not None and found.beyond is not None
    assert found.fits.stage.fits
    assert not found.beyond.stage.fits
    assert found.beyond.sequences == 2 * found.fits.sequences
    assert found.beyond.stage.peak_bytes > 15.5 * 2**30 > found.fits.stage.peak_bytes


@pytest.mark.parametrize(
    ("fixed", "each", "largest"), [(1.0, 0.1, 128), (1.0, 1.0, 8), (10.0, 3.0, 1), (15.0, 2.0, None)]
)
def test_the_search_needs_few_compilations(fixed, each, largest, monkeypatch):
    """Where memory is `fixed` and so much more for `each` sequence, in GiB of 15.75."""
    tried = []

    def compiled(recipe, place, mesh, remat, sequences, say):
        tried.append(sequences)
        memory = fixed + each * sequences
        return SimpleNamespace(
            sequences=sequences, stage=SimpleNamespace(fits=memory <= 15.75, peak_bytes=memory * 2**30)
        )

    monkeypatch.setattr(search, "_try", compiled)
    place = SimpleNamespace(chip=CHIPS["v5e"])
    found = search._largest(recipes.pretraining(), place, {}, "none", lambda _: None)
    assert (found.fits and found.fits.sequences) == largest
    assert found.beyond.sequences == (2 * largest if largest else 1)
    assert len(tried) == len(set(tried)) <= 4


def test_meshes_keep_all_but_data_within_a_slice():
    assert search.meshes(8, 2, heads=12) == [
        {"data": 8, "fsdp": 1, "tensor": 1},
        {"data": 2, "fsdp": 4, "tensor": 1},
        {"data": 4, "fsdp": 1, "tensor": 2},
        {"data": 2, "fsdp": 2, "tensor": 2},
    ]
    assert search.meshes(4, 1, heads=3) == [{"data": 4, "fsdp": 1, "tensor": 1}, {"data": 1, "fsdp": 4, "tensor": 1}]


@pytest.mark.slow
@needs_compiler
def test_between_slices_only_data_is_exchanged(recipe_file):
    made = plan(recipes.load_recipe(recipe_file, ["--config.mesh.fsdp=4"]), find_slice("v5e:2x2", 2))
    (stage,) = made.stages
    assert made.mesh == {"data": 2, "fsdp": 4, "tensor": 1}
    assert made.topology.chips == 8
    network = [found for found in stage.collectives if found.network]
    assert {found.axes for found in network} == {("data",)}
    assert {found.axes for found in stage.collectives if found.devices > 1 and not found.network} == {("fsdp",)}
    # Each chip's share of the float32 gradients crosses once; the rest is metrics.
    assert sum(found.wire_bytes for found in network) == pytest.approx(4 * made.parameters / 4, rel=0.05)


@needs_compiler
@pytest.mark.parametrize(("name", "chips", "devices"), [
    ("v5e:1x1", 1, 1), ("v5e:16x16", 256, 256), ("v6e:2x2", 4, 4), ("v5p:8x8x16", 1024, 1024), ("v4:2x2x1", 4, 4),
    ("tpu7x:2x2x1", 4, 8), ("v3-8", 4, 8), ("v5litepod-16", 16, 16), ("v4-16", 8, 8),
])  # fmt: skip
def test_slices_of_every_generation(name, chips, devices):
    found = find_slice(name)
    assert (found.chips, len(found.devices)) == (chips, devices)
    assert peak_flops(found.devices[0]) is not None


@needs_compiler
@pytest.mark.parametrize(
    ("topology", "message"),
    [
        ("v5x:4x4", "did you mean 'v5"),
        ("v7:2x2x2", "no TPU 'v7'; did you mean 'tpu7x'?"),
        ("v5:4x4", "did you mean 'v5e' or 'v5p'?"),
        (
            "v5litepod-12",
            "no slice of this size; the number counts chips; the nearest sizes: v5litepod-8 or v5litepod-16",
        ),
        ("v4-4", "the number counts TensorCores, two per chip; the nearest sizes: v4-8 or v4-16"),
        ("v5e:4x4x4", "2 dimensions"),
        ("v5p:4x4", "3 dimensions"),
        ("v5e", "2 dimensions"),
        ("v5e:3x5", "the next larger slice is v5e:4x8"),
        ("v5p:3x4x4", "the next larger slice is v5p:4x4x4"),
    ],
)
def test_a_slice_that_does_not_exist_is_answered_in_one_line(recipe_file, topology, message, capfd):
    status, _, err = run(capfd, "--config", recipe_file, "--topology", topology)
    assert status == 2
    assert message in err.splitlines()[-1]


@needs_compiler
def test_a_mesh_that_does_not_divide_the_slice_is_answered(recipe_file, capfd):
    status, _, err = run(capfd, "--config", recipe_file, "--topology", "v5e:2x2", "--config.mesh.tensor=3")
    assert status == 2
    assert "product of 4, the number of devices" in err


def test_without_the_compiler_the_command_that_installs_it_is_told(monkeypatch):
    monkeypatch.setattr(slices.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(InputError, match=rf"found none: pip install 'jax\[tpu\]=={jax.__version__}'"):
        find_slice("v5e:2x2")


def test_a_compiler_of_another_version_is_told(monkeypatch):
    monkeypatch.setattr(slices.importlib.util, "find_spec", lambda _: True)
    monkeypatch.setattr(slices.importlib.metadata, "version", lambda _: "0.0.1")
    with pytest.raises(InputError, match=r"found 0\.0\.1: pip install"):
        find_slice("v5e:2x2")


def test_slices_of_old_chips_do_not_work_together():
    with pytest.raises(InputError, match="--slices: expected 1, as slices of v3 cannot be combined, found 2"):
        find_slice("v3-8", 2)


def test_without_a_slice_nothing_is_asked_of_the_compiler():
    with pytest.raises(InputError, match=r"no TPU 'v9'"):
        find_slice("v9:2x2")
    assert set(CHIPS) == {"v2", "v3", "v4", "v5e", "v5p", "v6e", "tpu7x"}


def test_what_was_asked_for_is_read_from_both_refusals():
    refusals = (
        "RESOURCE_EXHAUSTED: Ran out of memory on HBM, the total memory required for HLO temporaries (80.92G) exceeds "
        "available HBM (15.75G).",
        "RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. Used 80.92G of 15.75G hbm.",
    )
    assert [asked_for(refusal) / 2**30 for refusal in refusals] == pytest.approx([80.92, 80.92])


def test_steps_of_classification_are_outlined_without_data():
    recipe = recipes.classification()
    recipe.num_steps = 5
    (stage,) = jobs.abstract_task(recipes.resolve(recipe)).stages
    assert stage.num_steps == 5
    assert stage.batch["input_ids"].shape == (32, 128) and stage_text(stage) == "32 x 128"


def test_an_example_may_be_of_several_sequences():
    recipe = recipes.multiple_choice()
    recipe.num_steps = 5
    (stage,) = jobs.abstract_task(recipes.resolve(recipe)).stages
    assert stage_text(stage) == "16 x 4 x 128"
