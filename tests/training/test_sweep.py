"""Several values of some keys of a recipe, on the command line: runs, tables, what does not fit."""

import json
import statistics
from pathlib import Path

import jax
import pytest
from jax.experimental.compilation_cache import compilation_cache

from bert_jax.cli import main
from bert_jax.errors import InputError
from bert_jax.training.metrics import read_metrics
from bert_jax.training.sweep import parse_grid


@pytest.fixture(scope="module")
def command(tmp_path_factory, write_small):
    root = tmp_path_factory.mktemp("sweep")
    rows = [f"the cat sat\t{i % 3 % 2}" for i in range(24)]
    (root / "train.tsv").write_text("\n".join(["sentence\tlabel", *rows]) + "\n")
    write_small(root / "encoder", hidden_size=8, num_attention_heads=1, intermediate_size=8, max_position_embeddings=16)
    recipe = Path(__file__).parents[2] / "configs" / "classification.py"
    changes = {"init_from": root / "encoder", "data.train": root / "train.tsv", "data.dev": root / "train.tsv",
               "num_steps": 2, "global_batch_size": 8, "data.max_seq_length": 16, "best_metric": "mse"}  # fmt: skip
    changes |= {"data.task_type": "regression", "data.text_column": "sentence", "data.label_column": "label"}
    return ["finetune", "--quiet", "--config", str(recipe), *(f"--config.{k}={v}" for k, v in changes.items())]


@pytest.mark.slow
def test_seeds_are_averaged_and_the_best_comes_first(command, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    grid = ["--sweep", "optimizer.learning_rate=1e-9,0.3", "--sweep", "seed=0,1"]
    assert main([*command, "--workdir", str(tmp_path), *grid]) == 0
    rows = json.loads((tmp_path / "sweep.json").read_text())
    for row in rows:
        rate = row["values"]["optimizer.learning_rate"]
        runs = [tmp_path / f"optimizer.learning_rate={rate},seed={seed}" for seed in (0, 1)]
        found = [read_metrics(run / "metrics.jsonl")[-1]["eval/mse"] for run in runs]
        assert row["seeds"] == 2 and found[0] != found[1]
        assert row["mean"]["mse"] == pytest.approx(statistics.fmean(found))
        assert row["spread"]["mse"] == pytest.approx(statistics.stdev(found))
    assert rows[0]["mean"]["mse"] < rows[1]["mean"]["mse"]
    table = capsys.readouterr().out
    assert f"{rows[0]['mean']['mse']:.4f} ± {rows[0]['spread']['mse']:.4f}" in table
    finished = (runs[0] / "metrics.jsonl").stat().st_mtime_ns
    assert main([*command, "--workdir", str(tmp_path), *grid]) == 0
    assert (runs[0] / "metrics.jsonl").stat().st_mtime_ns == finished  # not run again
    assert json.loads((tmp_path / "sweep.json").read_text()) == rows


@pytest.fixture
def compiled(tmp_path):
    """Return the names of the compiled programs since the start of the test, as JAX's cache has them."""
    options = {
        "jax_compilation_cache_dir": str(tmp_path / "programs"),
        "jax_persistent_cache_min_compile_time_secs": 0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    before = {name: getattr(jax.config, name) for name in options}
    for name, value in options.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()  # else JAX stays with its directory
    yield lambda: {path.name.removesuffix("-cache") for path in (tmp_path / "programs").glob("*-cache")}
    for name, value in before.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()


def test_another_seed_compiles_nothing(command, tmp_path, compiled):
    runs = [[*command, "--workdir", str(tmp_path / str(seed)), f"--config.seed={seed}"] for seed in (0, 2**31 - 1)]
    assert main(runs[0]) == 0
    first = compiled()
    assert any(name.startswith("jit_train_step-") for name in first)
    assert main(runs[1]) == 0
    assert compiled() == first


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["seed"], "expected KEY=VALUE,VALUE"),
        (["seed=0,,1"], "expected KEY=VALUE,VALUE"),
        (["seed=0", "seed=1"], "with a new key"),
        (["=1"], "expected KEY=VALUE,VALUE"),
    ],
)
def test_grids_that_do_not_fit(words, message):
    with pytest.raises(InputError, match=message):
        parse_grid(words)


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("sed=0,1", "config has no key 'sed'; did you mean 'seed'?"),
        ("seed=0,x", "config.seed: expected int, found 'x'"),
        ("seed=0,0", "--sweep: expected each value once"),
        ("optimizer.learning_rate=1e-3,-1", "config.optimizer.learning_rate: expected at least 0"),
    ],
)
def test_values_that_do_not_fit_are_found_before_any_run(command, tmp_path, capsys, word, message):
    assert main([*command, "--workdir", str(tmp_path), "--sweep", word]) == 2
    assert message in capsys.readouterr().err and not list(tmp_path.iterdir())
