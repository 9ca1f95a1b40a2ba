"""Quantization-aware fine-tuning: the model ends quantized, better than one quantized afterwards; runs resume."""

import os
import random
import signal

import numpy as np
import pytest

from bert_jax import recipes
from bert_jax.compression.quantization import quantize
from bert_jax.config.quantization import KEEP, TRAINED_MODES, Quantization
from bert_jax.conversion.huggingface import load_pretrained, save_pretrained
from bert_jax.data.finetuning.columns import Columns
from bert_jax.errors import InputError
from bert_jax.evaluation.driver import evaluate
from bert_jax.tasks.classification.task import ClassificationTask
from bert_jax.tokenization import load_tokenizer
from bert_jax.training.loop import Preempted, train

WORDS = ("cat", "dog", "bird", "fish", "house", "tree", "river", "stone", "red", "green")


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Texts whose label is a number: cats count 1, dogs -1."""
    path, draw = tmp_path_factory.mktemp("table") / "train.tsv", random.Random(0)
    texts = [" ".join(draw.choices(WORDS, k=6)) for _ in range(256)]
    rows = [f"{text}\t{text.count('cat') - text.count('dog')}.0\n" for text in texts]
    path.write_text("sentence\tlabel\n" + "".join(rows))
    return str(path)


def recipe(table, init_from, **changes):
    c = recipes.classification()
    settings = {
        "init_from": str(init_from), "data.train": table, "data.dev": table, "data.task_type": "regression",
        "num_steps": 60, "global_batch_size": 32, "optimizer.learning_rate": 3e-3, "data.max_seq_length": 16,
        "data.length_buckets": (8,), "model.hidden_dropout_prob": 0.0, "model.attention_probs_dropout_prob": 0.0,
        "checkpoint_every": 0,
    }  # fmt: skip
    c.update_from_flattened_dict(settings | changes)
    return c


@pytest.fixture(scope="module")
def trained(table, write_small, tmp_path_factory):
    """A fine-tuned model that is hard to quantize: most rows of `down` and `output` are a hundredth of the others.

    Its function is that of an ordinary model: relu(100 x) / 100 = relu(x), and attention is linear in its values.
    """
    folder = tmp_path_factory.mktemp("float")
    start = write_small(folder / "start", "encoder", hidden_act="relu")
    train(recipe(table, start, num_steps=200), folder / "run", progress=False)
    loaded = load_pretrained(folder / "run" / "model")
    layers = loaded.params["encoder"]["layers"]
    for before, after in ((layers["mlp"]["up"], layers["mlp"]["down"]),
                          (layers["attention"]["value"], layers["attention"]["output"])):  # fmt: skip
        most = np.arange(after["kernel"].shape[1]) % 16 > 0
        before["kernel"][..., most] *= 100
        before["bias"][..., most] *= 100
        after["kernel"][:, most] /= 100
    tokenizer = load_tokenizer(folder / "run" / "model")
    save_pretrained(folder / "hard", loaded.config, loaded.head, loaded.params, tokenizer)
    plain, hard = (mse(path, table) for path in (folder / "run" / "model", folder / "hard"))
    assert hard == pytest.approx(plain, rel=1e-4)
    return folder / "hard"


def mse(model, table):
    return evaluate(model, table, Columns("sentence", label="label"), metric_names=("mse",))["mse"]


@pytest.mark.slow
def test_training_with_rounding_beats_rounding_afterwards(trained, table, tmp_path):
    quantization = Quantization("int4", group_size=32)
    quantize(trained, tmp_path / "after", quantization)
    result = train(
        recipe(table, trained, **{"quantization.mode": "int4", "quantization.group_size": 32,
                                  "optimizer.learning_rate": 1e-3}),
        tmp_path / "run", progress=False,
    )  # fmt: skip
    model = tmp_path / "run" / "model"
    assert load_pretrained(model).config.quantization == quantization
    before, after, exact = mse(tmp_path / "after", table), mse(model, table), mse(trained, table)
    assert before > 1.2 * exact, (before, exact)
    assert after - exact < 0.5 * (before - exact), (exact, after, before)
    assert after == pytest.approx(result["eval/mse"], rel=1e-3)  # evaluated in training as it is saved


@pytest.mark.parametrize(
    "mode",
    [pytest.param(mode, marks=() if mode == "int4" else pytest.mark.slow) for mode in TRAINED_MODES],
)
def test_the_finished_model_is_quantized(write_small, table, tmp_path, mode):
    start = write_small(tmp_path / "start", "encoder")
    few = {"num_steps": 2, "quantization.mode": mode, "quantization.keep": (*KEEP, "encoder/layers/attention/*")}
    result = train(recipe(table, start, **few), tmp_path / "run", progress=False)
    model = load_pretrained(tmp_path / "run" / "model")
    assert (model.config.quantization.mode, model.config.quantization.stage) == (mode, "quantized")
    layer = model.params["encoder"]["layers"]
    assert isinstance(layer["mlp"]["up"]["kernel"], dict)
    assert layer["attention"]["query"]["kernel"].dtype == np.float32
    assert mse(tmp_path / "run" / "model", table) == pytest.approx(result["eval/mse"], rel=2e-2)


@pytest.mark.slow
def test_training_from_a_quantized_model_starts_from_its_dequantized_parameters(write_small, table, tmp_path, caplog):
    quantize(write_small(tmp_path / "start", "encoder"), tmp_path / "int8", Quantization("int8"))
    train(recipe(table, tmp_path / "int8", num_steps=1), tmp_path / "run", progress=False)
    assert "quantized (int8); its parameters are dequantized" in caplog.text
    assert load_pretrained(tmp_path / "run" / "model").config.quantization is None


@pytest.mark.slow  # test_resume.py stops other runs
def test_a_run_that_is_stopped_ends_as_one_that_is_not(write_small, table, tmp_path, monkeypatch):
    start = write_small(tmp_path / "start", "encoder")
    few = recipe(table, start, num_steps=4, eval_every=1, **{"quantization.mode": "int8_dynamic"})
    train(few, tmp_path / "whole", progress=False)
    plain, scored = ClassificationTask.score, []

    def score(*args):
        scored.append(args)
        if len(scored) == 2:
            os.kill(os.getpid(), signal.SIGTERM)
        return plain(*args)

    monkeypatch.setattr(ClassificationTask, "score", score)
    with pytest.raises(Preempted):
        train(few, tmp_path / "stopped", progress=False)
    train(few, tmp_path / "stopped", progress=False)
    whole, stopped = ((tmp_path / run / "model" / "model.safetensors").read_bytes() for run in ("whole", "stopped"))
    assert whole == stopped


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"quantization.mode": "int3"}, "config.quantization.mode: 'int3' is not known"),
        ({"quantization.mode": "int8_static"}, "config.quantization.mode: 'int8_static' is not known"),
        ({"quantization.mode": "int4", "quantization.group_size": 24}, "expected a divisor of the 32 inputs of"),
        (
            {"quantization.mode": "int8", "quantization.keep": ("encoder/layer/*",)},
            "config.quantization.keep 'encoder/layer/*': expected a pattern of parameters",
        ),
    ],
)
def test_recipes_that_do_not_fit(write_small, table, tmp_path, change, message):
    start = write_small(tmp_path / "start", "encoder")
    with pytest.raises(InputError) as error:
        train(recipe(table, start, **change), tmp_path / "run", progress=False)
    assert message in str(error.value)
    assert not (tmp_path / "run").exists()
