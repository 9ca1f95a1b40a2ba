"""Bad input on the command line: one line that says what is wrong and where, exit status 2, nothing half-written.

Each kind once, through `cli.main`; the finer cases are with the tests of the part that answers them.
"""

import contextlib
import gzip
import json
import os
import pickle
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from bert_jax import recipes
from bert_jax.cli import main
from bert_jax.training.checkpoints import Checkpoints
from bert_jax.training.optimizers import make_optimizer
from bert_jax.training.state import State

RECIPE = """
from bert_jax import recipes

def get_config():
    c = recipes.classification()
    c.num_steps = 1
    c.global_batch_size = 4
    c.data.max_seq_length, c.data.length_buckets = 16, (16,)
    c.init_from, c.data.train = "model", "table.tsv"
    return c
"""
TABLE = "sentence\tlabel\n" + "the cat sat\tgood\nthe dog sat\tbad\n" * 4
CORPUS = "the cat sat on the tree.\nthe dog sat.\n\n" * 40
POSITIONS = 20_000  # so that the parameters outgrow the small disk below

FINETUNE = ("finetune", "--config", "recipe.py", "--workdir", "out", "--quiet")
WRITTEN = [
    "out/config.json",
    "out/data.json",
    "out/metrics.jsonl",
    "out/tensorboard/",
]  # by a run before its first save
EVALUATE = ("evaluate", "--model", "model", "--data")
PREDICT = ("predict", "--out", "out.tsv", "--model", "model", "--data")
CLASSIFY = ("classify", "model", "the cat")


@pytest.fixture
def place(tmp_path, monkeypatch, model):
    """A folder, which is the current one, with a classifier, a recipe that fine-tunes it, and its table."""
    shutil.copytree(model, tmp_path / "model")
    (tmp_path / "recipe.py").write_text(RECIPE)
    (tmp_path / "table.tsv").write_text(TABLE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def model(tmp_path_factory, write_small):
    directory = tmp_path_factory.mktemp("models") / "model"
    sizes = {"hidden_size": 8, "intermediate_size": 16, "max_position_embeddings": POSITIONS}
    return write_small(directory, "sequence_classification", id2label=("bad", "good"), **sizes)


def contents(place: Path) -> dict[str, bytes]:
    return {str(path.relative_to(place)): path.read_bytes() for path in place.rglob("*") if path.is_file()}


def refused(place, capfd, *arguments, leaves=()) -> str:
    """The one line that a command line is refused with; it changes no file and makes none but what it `leaves`."""
    before = contents(place)
    status = main(list(arguments))
    out, err = capfd.readouterr()
    assert (status, out) == (2, "")
    assert err.startswith("bert-jax: ") and err.count("\n") == 1 and err.endswith("\n") and len(err) < 400
    after = contents(place)
    new = {name for name in after if before.get(name) != after[name]}
    assert before.keys() <= after.keys() and all(name.startswith(tuple(leaves)) for name in new), new
    return err


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("num_steps", "num_setps"), "recipe.py:6: there is no key 'num_setps'; did you mean 'num_steps'?"),
        (("num_steps = 1", "num_steps = 'ten'"), "recipe.py:6: num_steps: expected int, found str"),
        (("c.data.max_seq_length", "c.data.max_length"), "no key 'max_length'"),
    ],
)
def test_keys_of_a_recipe_file(place, capfd, change, message):
    (place / "recipe.py").write_text(RECIPE.replace(*change))
    assert message in refused(place, capfd, *FINETUNE)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("--config.optimizer.learnig_rate=1", "config.optimizer has no key 'learnig_rate'; did you mean"),
        ("--config.num_steps=many", "config.num_steps: expected int, found 'many'"),
        ("--config.data.length_buckets=16", "config.data.length_buckets: expected tuple, found '16'"),
    ],
)
def test_keys_on_the_command_line(place, capfd, override, message):
    assert message in refused(place, capfd, *FINETUNE, override)


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("absent.tsv", None, "absent.tsv: no such file"),
        ("a.tsv", b"", "a.tsv: expected rows, found an empty file"),
        (
            "a.tsv.gz",
            gzip.compress(TABLE.encode() * 500, mtime=0)[:-20],
            "expected a whole .gz file, found one that is cut",
        ),
        ("a.tsv", TABLE.encode() + b"caf\xe9\tgood\n", "a.tsv: line 10: expected UTF-8 text, found byte 0xe9"),
        ("a.tsv", TABLE.encode() + b"no tab", "a.tsv: line 10: expected 2 columns as in the first line, found 1"),
        ("a.tsv", b"text\tlabel\nx\tgood\n", "a.tsv: line 1: expected a column 'sentence'"),
    ],
)
def test_tables(place, capfd, name, data, message):
    if data is not None:
        (place / name).write_bytes(data)
    assert message in refused(place, capfd, *FINETUNE, f"--config.data.train={name}")
    assert message in refused(place, capfd, *FINETUNE, f"--config.data.dev={name}")
    assert message in refused(place, capfd, *EVALUATE, name)
    assert message in refused(place, capfd, *PREDICT, name)


def test_a_label_that_training_did_not_have(place, capfd):
    (place / "dev.tsv").write_text(TABLE + "the bird sat\tneutral\n")
    message = "dev.tsv: line 10: expected a label of 'bad', 'good', found 'neutral'"
    assert message in refused(place, capfd, *FINETUNE, "--config.data.dev=dev.tsv")
    assert message in refused(place, capfd, *EVALUATE, "dev.tsv")


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("absent.txt", None, "absent.txt: no such file"),
        ("a.txt", b"", "a.txt: expected text, found an empty file"),
        (
            "a.txt.gz",
            gzip.compress(CORPUS.encode() * 99, mtime=0)[:-20],
            "expected a whole .gz file, found one that is cut short",
        ),
        ("a.txt", CORPUS.encode() + b"caf\xe9\n", "a.txt: line 121: expected UTF-8 text, found byte 0xe9"),
    ],
)
def test_corpora(place, capfd, name, data, message):
    if data is not None:
        (place / name).write_bytes(data)
    prepare = ("prepare", name, "--tokenizer", "model", "--out", "out", "--num-workers", "1")
    assert message in refused(place, capfd, *prepare)
    assert message in refused(place, capfd, "train-tokenizer", name, "--vocab-size", "100", "--out", "out")
    assert not (place / "out").exists()


@pytest.mark.parametrize("damage", ["truncated", "one bit flipped", "one bit of the header flipped"])
def test_damaged_weights(place, capfd, damage):
    path = place / "model" / "model.safetensors"
    data = bytearray(path.read_bytes())
    match damage:
        case "truncated":
            del data[-1000:]
        case "one bit flipped":
            data[-1000] ^= 1
        case "one bit of the header flipped":
            data[20] ^= 4
    path.write_bytes(data)
    for command in (CLASSIFY, ("convert", "model", "out"), FINETUNE):
        assert "model/model.safetensors: " in refused(place, capfd, *command)
    assert not (place / "out").exists()


class Payload:
    """Unpickled, it makes a file named `witness`."""

    def __reduce__(self):
        return os.mkdir, ("witness",)


def test_a_pickle_that_tries_to_run_code(place, capfd):
    (place / "model" / "model.safetensors").unlink()
    payload = pickle.dumps({"bert.pooler.dense.bias": Payload()}, protocol=2)
    (place / "model" / "pytorch_model.bin").write_bytes(payload)
    for command in (CLASSIFY, ("convert", "model", "out"), FINETUNE):
        line = refused(place, capfd, *command)
        assert "pytorch_model.bin: refused: the pickle names posix.mkdir" in line and "nothing was run" in line
    assert not (place / "witness").exists() and not (place / "out").exists()
    pickle.loads(payload)  # it does what it says where it is let
    assert (place / "witness").exists()


def test_a_model_of_another_size(place, capfd):
    message = "config.model.hidden_size: expected 8, as in the model of init_from, found 16"
    assert message in refused(place, capfd, *FINETUNE, "--config.model.hidden_size=16")
    path = place / "model" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"hidden_size": 16}))
    for command in (CLASSIFY, FINETUNE):
        assert "config.json: hidden_size: expected 8, as in tensor " in refused(place, capfd, *command)


def test_a_checkpoint_of_another_size(place, capfd):
    assert main(list(FINETUNE)) == 0
    capfd.readouterr()
    for name in ("checkpoints", "model"):
        shutil.rmtree(place / "out" / name)
    params = {"classifier": {"bias": jnp.zeros(3)}}
    checkpoints = Checkpoints(place / "out" / "checkpoints", keep=1)
    checkpoints.save(State(params, make_optimizer(lambda step: 0.1).init(params), jnp.int32(1)))
    checkpoints.close()
    line = refused(place, capfd, *FINETUNE, leaves=["out/config.json", "out/data.json"])
    assert "/out/checkpoints/1: expected params/" in line and line.endswith("the checkpoint is of another model\n")


def test_a_vocabulary_larger_than_the_embedding(place, capfd):
    with (place / "model" / "vocab.txt").open("a") as file:
        file.write("elephant\n")
    (place / "model" / "tokenizer.json").unlink()
    assert "the vocabulary does not fit the embedding: expected" in refused(place, capfd, *CLASSIFY)
    assert "rows of the model's word embedding (vocab_size)" in refused(place, capfd, *FINETUNE)


def test_sequences_longer_than_the_positions(place, capfd):
    message = (
        f"max_seq_length: expected at most the model's {POSITIONS} positions (max_position_embeddings), found 30000"
    )
    assert message in refused(place, capfd, *FINETUNE, "--config.data.max_seq_length=30000")
    assert message in refused(place, capfd, *EVALUATE, "table.tsv", "--max-seq-length", "30000")


def test_a_workdir_of_another_config(place, capfd):
    (place / "out").mkdir()
    other = recipes.load_recipe("recipe.py", ["--config.seed=7"])
    (place / "out" / "config.json").write_text(recipes.to_json(recipes.resolve(other)))
    assert "out belongs to another config: seed was 7, is now 0; use another --workdir" in refused(
        place, capfd, *FINETUNE
    )


@contextlib.contextmanager
def small_disk():
    """No file may grow beyond 300 kB, as a stand-in for a disk that is full; compiled programs are not kept there."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    kept = jax.config.jax_persistent_cache_min_compile_time_secs
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 3600)
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", kept)


_FULL = """
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
from bert_jax.__main__ import main
sys.exit(main())
"""


def test_a_full_disk_is_one_line_of_a_process(place):
    """In a process of its own, where Orbax, its unfinished tasks and the interpreter would write hundreds of lines."""
    environment = os.environ | {"JAX_ENABLE_COMPILATION_CACHE": "false"}
    command = [sys.executable, "-c", _FULL, *FINETUNE]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 2 and "a checkpoint could not be written: File too large" in done.stderr
    assert done.stderr.startswith("bert-jax: ") and done.stderr.count("\n") == 1, done.stderr


def test_a_full_disk(place, capfd):
    with small_disk():
        line = refused(place, capfd, *FINETUNE, leaves=WRITTEN)
        assert "out/checkpoints: a checkpoint could not be written: File too large (whole checkpoints there: " in line
        assert "copy/model.safetensors: File too large" in refused(place, capfd, "convert", "model", "copy")
    assert not (place / "copy").exists() and not list((place / "out" / "checkpoints").iterdir())
    assert main(list(FINETUNE)) == 0  # with room again, the same command ends well
