"""Compiled programs are kept on disk: a later process neither traces nor compiles, and answers the same bits."""

import json
import os
import subprocess
import sys

import jax
import numpy as np
import pytest
from jax.experimental.compilation_cache import compilation_cache

from bert_jax import program_cache
from bert_jax.conversion import model_tensors
from bert_jax.inference import from_pretrained, programs

FIRST_ANSWER = """
import json, sys
import jax
compiled = []
jax.monitoring.register_event_duration_secs_listener(
    lambda event, *_, **__: compiled.append(event) if "compile" in event or "trac" in event else None
)
from bert_jax.inference import pipeline
answer = pipeline(sys.argv[1], sys.argv[2])("the cat [MASK]")
print(json.dumps({"answer": str(answer), "compiled": compiled, "imported": sorted(sys.modules)}))
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A folder for the programs of one test; JAX's own cache, in the same folder, keeps none of them."""
    before = jax.config.jax_compilation_cache_dir, jax.config.jax_persistent_cache_min_compile_time_secs
    jax.config.update("jax_compilation_cache_dir", str(tmp_path / "programs"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 1e9)
    compilation_cache.reset_cache()  # else JAX stays with its folder
    monkeypatch.setattr(programs, "_programs", {})
    model_tensors._abstract.cache_clear()
    yield tmp_path / "programs"
    jax.config.update("jax_compilation_cache_dir", before[0])
    jax.config.update("jax_persistent_cache_min_compile_time_secs", before[1])
    compilation_cache.reset_cache()


def kept(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.glob("bert_jax-*/*"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "head"),
    [
        ("sentence-embedding", "sentence_embedding"),
        ("classify", "sequence_classification"),
        pytest.param("tag", "token_classification", marks=pytest.mark.slow),
        pytest.param("fill-mask", "masked_lm", marks=pytest.mark.slow),
    ],
)
def test_a_second_process_compiles_nothing_and_imports_no_more_than_it_needs(write_small, tmp_path, task, head):
    model = write_small(tmp_path / "model", head, initializer_range=0.5)
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path / "cache"), "JAX_COMPILATION_CACHE_DIR": ""}
    del environment["JAX_COMPILATION_CACHE_DIR"]

    def first_answer():
        command = [sys.executable, "-c", FIRST_ANSWER, task, str(model)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    first, second = first_answer(), first_answer()
    assert second["answer"] == first["answer"]
    assert first["compiled"] and not second["compiled"]
    slow = {"flax", "optax", "scipy", "orbax", "tensorstore", "rich", "matplotlib", "etils.etree"}
    assert "flax" in first["imported"] and not slow & set(second["imported"])
    assert kept(next((tmp_path / "cache" / "bert_jax" / "programs").iterdir()))


def outputs(model, **options):
    return model(np.array([[5, 6, 7], [7, 6, 5]]), **options).to_tuple()


def assert_equal(found, expected):
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_array_equal(a, b)


def test_outputs_of_every_kind_come_back(write_small, tmp_path, folder, monkeypatch):
    model = from_pretrained(write_small(tmp_path / "model", "question_answering"))
    options = {"output_hidden_states": True, "output_attentions": True}
    expected = outputs(model, **options)
    assert len(kept(folder)) == 2  # the program and the shapes of the parameters
    monkeypatch.setattr(programs, "_programs", {})
    monkeypatch.setattr(programs, "_forward_named", None)
    found = outputs(model, **options)
    assert_equal(found, expected)
    assert [type(part) for part in found] == [type(part) for part in expected]


def test_a_program_that_came_from_the_cache_of_jax_is_not_written(write_small, tmp_path, folder, monkeypatch):
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    model = from_pretrained(write_small(tmp_path / "model", "sequence_classification"))

    def again():
        monkeypatch.setattr(programs, "_programs", {})
        assert_equal(outputs(model), expected)
        return kept(folder)

    expected = outputs(model)
    shapes, program = sorted(kept(folder), key=lambda name: (folder / name).stat().st_size)
    (folder / program).unlink()
    assert again() == [shapes]
    monkeypatch.setattr(program_cache, "_versions", lambda: "other versions")
    names = again()
    assert len(names) == 2
    monkeypatch.setattr(programs, "_forward_named", None)
    assert again() == names


@pytest.mark.sampled(3)
@pytest.mark.parametrize("damage", [lambda content: b"", lambda content: content[:100], lambda content: b"{}\n",
               lambda content: content[:-9] + bytes([content[-9] ^ 1]) + content[-8:]])  # fmt: skip
def test_a_damaged_file_is_made_again(write_small, tmp_path, folder, monkeypatch, damage):
    directory = write_small(tmp_path / "model", "sequence_classification")
    expected, names = outputs(from_pretrained(directory)), kept(folder)
    whole = {name: (folder / name).read_bytes() for name in names}
    for name, content in whole.items():
        (folder / name).write_bytes(damage(content))
    monkeypatch.setattr(programs, "_programs", {})
    model_tensors._abstract.cache_clear()
    assert_equal(outputs(from_pretrained(directory)), expected)
    assert kept(folder) == names
    assert all(len((folder / name).read_bytes()) > 200 for name in names)


def test_what_decides_a_program_is_in_its_name(write_small, tmp_path, folder):
    model = from_pretrained(write_small(tmp_path / "model", "sequence_classification"))
    outputs(model)
    others = [
        jax.default_matmul_precision("bfloat16"),
        jax.threefry_partitionable(not jax.config.jax_threefry_partitionable),
        jax.default_prng_impl("rbg"),
    ]
    for number, other in enumerate(others):
        with other:
            outputs(model)
        assert len(kept(folder)) == 2 + number + 1  # the program, the shapes of the parameters, and these
    for change in ({"pooling_skip": 1}, {"layer_norm_eps": 0.1}):
        assert repr(model.config.replace(**change)) != repr(model.config)


@pytest.mark.parametrize("named", ["gs://bert-bucket/programs", "/proc/programs"])
@pytest.mark.usefixtures("bucket")
def test_a_folder_that_cannot_be_used_is_no_error(write_small, tmp_path, named):
    jax.config.update("jax_compilation_cache_dir", named)
    assert outputs(from_pretrained(write_small(tmp_path / "model", "encoder")))


def test_nothing_is_kept_where_the_user_wants_no_cache(write_small, tmp_path, folder, monkeypatch):
    model = from_pretrained(write_small(tmp_path / "model", "encoder"))
    before = kept(folder)
    jax.config.update("jax_enable_compilation_cache", False)
    try:
        outputs(model)
    finally:
        jax.config.update("jax_enable_compilation_cache", True)
    assert kept(folder) == before
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    (tmp_path / "file").write_text("")
    assert program_cache.default_directory() is None


def test_parameters_that_jit_is_to_place_are_left_to_it(write_small, tmp_path, folder):
    model = from_pretrained(write_small(tmp_path / "model", "encoder"))
    expected, before = outputs(model), kept(folder)
    on_host = jax.tree.map(np.asarray, model)
    assert_equal(outputs(on_host), expected)
    with jax.disable_jit():
        for a, b in zip(outputs(model), expected, strict=True):
            np.testing.assert_allclose(a, b, atol=1e-5)
    assert kept(folder) == before
