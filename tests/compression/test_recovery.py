"""Iterative pruning with recovery training, and how it resumes."""

import contextlib
import json
import random
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from pruned_models import random_params

from bert_jax import recipes
from bert_jax.cli import main
from bert_jax.compression import recovery
from bert_jax.compression.pruning import Pruning
from bert_jax.compression.recovery import prune_and_recover
from bert_jax.config import BertConfig
from bert_jax.conversion.huggingface import load_pretrained, save_pretrained
from bert_jax.errors import InputError
from bert_jax.training import loop

HEAD = "sequence_classification"
TEXTS = ["the cat sat on the tree", "a dull and grey film", "the dog sees a red house", "two big birds sat under it"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory, tiny_tokenizer) -> Path:
    """A folder with a classifier, its table and a corpus."""
    folder = tmp_path_factory.mktemp("recovery")
    config = BertConfig(
        vocab_size=tiny_tokenizer.vocab_size, hidden_size=32, num_hidden_layers=1, num_attention_heads=4,
        intermediate_size=48, num_labels=2, id2label=("good", "bad"), max_position_embeddings=32,
    )  # fmt: skip
    save_pretrained(folder / "model", config, HEAD, random_params(config, HEAD), tiny_tokenizer)
    rows = "".join(f"{text}\t{'bad' if i % 2 else 'good'}\n" for i, text in enumerate(TEXTS * 2))
    (folder / "train.tsv").write_text("sentence\tlabel\n" + rows)
    (folder / "corpus.txt").write_text("\n".join(TEXTS))
    return folder


@pytest.fixture(scope="module")
def whole(folder):
    """A run that was never killed: its model and metrics."""
    return recover(folder, "whole")


def pruning_of(folder: Path) -> Pruning:
    return Pruning(heads=0.5, columns=0.5, vocabulary=(str(folder / "corpus.txt"),))


def recipe(folder: Path, **changes):
    c = recipes.classification()
    table = str(folder / "train.tsv")
    c.update_from_flattened_dict(
        {"data.train": table, "data.dev": table, "num_steps": 3, "global_batch_size": 4, "checkpoint_every": 1,
         "data.max_seq_length": 8, "data.length_buckets": (8,), "optimizer.learning_rate": 1e-3} | changes
    )  # fmt: skip
    return c


def recover(folder: Path, name: str, **options):
    given = {"rounds": 2, "examples": 8, "progress": False} | options
    return prune_and_recover(
        folder / "model", folder / name / "out", pruning_of(folder), recipe(folder), folder / name / "work", **given
    )


def files_of(directory: Path) -> dict[str, bytes]:
    return {str(p.relative_to(directory)): p.read_bytes() for p in sorted(directory.rglob("*")) if p.is_file()}


@pytest.mark.slow
def test_rounds_remove_a_part_each(folder, whole):
    model, results = whole
    assert (model.config.num_attention_heads, model.config.intermediate_size) == (2, 24)
    assert "eval/accuracy" in results
    sizes, work = [], folder / "whole/work"
    for name in ("round-1/pruned", "round-1/run/model", "round-2/pruned", "round-2/run/model"):
        config = load_pretrained(work / name).config
        sizes.append((config.num_attention_heads, config.intermediate_size, config.vocab_size))
    pieces = model.config.vocab_size
    assert sizes == [(3, 36, pieces)] * 2 + [(2, 24, pieces)] * 2
    assert pieces < load_pretrained(folder / "model").config.vocab_size
    trained = files_of(work / "round-2/run/model")
    assert files_of(folder / "whole/out") == {name: data for name, data in trained.items() if name != "README.md"}


@pytest.mark.slow
@pytest.mark.parametrize("killed", ["before training", "in the second training"])
def test_a_killed_run_resumes_to_the_same_bytes(killed, folder, whole, monkeypatch):
    def killed_train(made, workdir, progress):
        if killed != "before training":
            if "round-1" in str(workdir):
                return loop.train(made, workdir, progress=progress)
            for state, _ in loop.steps(made, workdir, progress=progress):
                if int(state.step) == 2:
                    break
        raise KeyboardInterrupt

    name = killed.replace(" ", "-")
    with monkeypatch.context() as patch:
        patch.setattr(recovery, "train", killed_train)
        with pytest.raises(KeyboardInterrupt):
            recover(folder, name)
    assert not (folder / name / "out").exists()
    recover(folder, name)
    for part in ("out", "work/round-1/pruned", "work/round-2/pruned"):
        assert files_of(folder / name / part) == files_of(folder / "whole" / part), part


@pytest.mark.slow
def test_a_command_killed_at_any_moment_ends_in_the_same_bytes(folder):
    table = folder / "train.tsv"

    def command(name):
        return [
            sys.executable, "-m", "bert_jax", "prune", folder / "model", "--out", folder / name / "out",
            "--heads", "0.5", "--columns", "0.5", "--examples", "8", "--rounds", "2", "--config", "classification",
            "--workdir", folder / name / "work", "--quiet", f"--config.data.train={table}",
            f"--config.data.dev={table}",
            "--config.num_steps=30", "--config.data.max_seq_length=8", "--config.checkpoint_every=3",
        ]  # fmt: skip

    start = time.monotonic()
    subprocess.run(command("alive"), check=True)
    longest, kills = time.monotonic() - start, 0
    while not (folder / "killed" / "out").exists():
        process = subprocess.Popen(command("killed"))
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(None if kills == 8 else random.SystemRandom().uniform(0.3, 1) * longest)
        if process.poll() is None:
            process.kill()
            process.wait()
            kills += 1
    assert kills
    for part in ("out", "work/round-1/pruned", "work/round-2/pruned"):
        assert files_of(folder / "killed" / part) == files_of(folder / "alive" / part), part


@pytest.mark.slow
def test_training_starts_from_the_pruned_model_with_its_head(folder, whole):
    """The last model is that of `finetune` on the pruned model of the last round."""
    last = folder / "whole/work/round-2/pruned"
    started = recovery.starting_from(recipe(folder), last)
    assert (started.init_from, started.keep_head) == (str(last), True)
    assert started.data.label_names == ("good", "bad")  # the order of the model, not of the alphabet
    loop.train(started, folder / "by_hand", progress=False)
    ours, theirs = (load_pretrained(folder / path).params for path in ("whole/out", "by_hand/model"))
    assert np.array_equal(ours["classifier"]["kernel"], theirs["classifier"]["kernel"])


@pytest.mark.slow
def test_recovery_may_have_the_whole_model_as_its_teacher(folder, tmp_path):
    taught = recipe(folder, **{"distillation.teacher": str(folder / "model"), "distillation.weights.labels": 0.0,
                               "distillation.weights.soft_labels": 1.0})  # fmt: skip
    model, results = prune_and_recover(
        folder / "model", tmp_path / "out", Pruning(heads=0.5), taught, tmp_path / "work", examples=8, progress=False
    )
    assert model.config.num_attention_heads == 2 and "eval/accuracy" in results
    lines = (tmp_path / "work/round-1/run/metrics.jsonl").read_text().splitlines()
    assert any(json.loads(line).get("train/soft_labels_loss", 0) > 0 for line in lines)
    small = load_pretrained(tmp_path / "work/round-1/pruned").params["classifier"]["kernel"]
    assert not np.array_equal(load_pretrained(tmp_path / "out").params["classifier"]["kernel"], small)


def test_another_pruning_in_the_work_directory(folder, tmp_path):
    settings = {"model": str(folder / "model"), "rounds": 3, "examples": 8, "heads": 0.5, "columns": 0.5, "layers": [],
                "num_layers": 0, "vocabulary": [str(folder / "corpus.txt")]}  # fmt: skip
    for changed, says in (
        ({"settings": settings}, "rounds was 3, is now 2"),
        ({"settings": settings | {"rounds": 2}, "recipe": recipe(folder, seed=5).to_dict()}, "seed was 5, is now 0"),
    ):
        content = {"recipe": recipe(folder).to_dict()} | changed
        (tmp_path / "pruning.json").write_text(json.dumps(content))
        with pytest.raises(InputError, match=f"belongs to another pruning: {says}; use another --workdir"):
            prune_and_recover(
                folder / "model", tmp_path / "out", pruning_of(folder), recipe(folder), tmp_path, rounds=2, examples=8
            )
    (tmp_path / "pruning.json").write_text("{}")
    with pytest.raises(InputError, match=r"pruning\.json: expected the settings of a pruning, found something else"):
        prune_and_recover(folder / "model", tmp_path / "out", pruning_of(folder), recipe(folder), tmp_path)


@pytest.mark.slow
def test_the_command(folder, tmp_path, capsys):
    table = folder / "train.tsv"
    words = ["prune", folder / "model", "--out", tmp_path / "out", "--columns", "0.5", "--examples", "8", "--config",
             "classification", "--workdir", tmp_path / "work", "--quiet", f"--config.data.train={table}",
             f"--config.data.dev={table}", "--config.num_steps=1", "--config.data.max_seq_length=8"]  # fmt: skip
    assert main(list(map(str, words))) == 0
    assert f"{tmp_path}/out: eval/accuracy " in capsys.readouterr().out.splitlines()[-1]
    assert load_pretrained(tmp_path / "out").config.intermediate_size == 24
    # A process that is killed after it wrote the model is started again.
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()}
    assert main(list(map(str, words))) == 0
    assert f"{tmp_path}/out: eval/accuracy " in capsys.readouterr().out.splitlines()[-1]
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()} == before
    (tmp_path / "out/notes.txt").write_text("of the user")
    assert main(list(map(str, words))) == 2
    assert "out: expected a new or empty directory" in capsys.readouterr().err


def test_recipes_that_do_not_fit(folder, tmp_path):
    with pytest.raises(InputError, match=r"--vocabulary: expected a fine-tuning recipe"):
        prune_and_recover(folder / "model", tmp_path / "out", pruning_of(folder), recipes.pretraining(), tmp_path)
    (tmp_path / "tags.txt").write_text("the O\ncat B-PER\n\n" * 4)
    tags = recipes.token_classification()
    tags.data.train, tags.data.max_seq_length = str(tmp_path / "tags.txt"), 16
    with pytest.raises(InputError, match=r"config\.keep_head: expected a model for token_classification in .*model"):
        prune_and_recover(folder / "model", tmp_path / "out", Pruning(heads=0.5), tags, tmp_path / "work")
