"""Runs and models that an earlier version wrote (`old_runs.zip`, November 2026): opened, and resumed to the same end.

BERT's pretraining, and classification by an ALBERT and by a DeBERTa-v2: four steps each. The checkpoint is of step 2.
"""

import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from bert_jax import from_pretrained, recipes
from bert_jax.training import train

NAMES = ("bert", "albert", "deberta")


@pytest.fixture
def place(tmp_path, monkeypatch):
    """The folder in which the runs were started, as their recipes have paths relative to it."""
    shutil.unpack_archive(Path(__file__).with_name("old_runs.zip"), tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", NAMES)
def test_a_model_computes_what_it_did(place, name):
    outputs = np.load(place / "outputs.npz")
    found = from_pretrained(place / name / "model")(input_ids=outputs["ids"])
    logits = found.prediction_logits if name == "bert" else found.logits
    np.testing.assert_allclose(logits, outputs[name], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_a_run_is_resumed(place, name):
    finished = load_file(place / name / "model" / "model.safetensors")
    shutil.rmtree(place / name / "model")
    train(recipes.load_recipe(f"{name}/config.json"), name, progress=False)
    again = load_file(place / name / "model" / "model.safetensors")
    assert again.keys() == finished.keys()
    for tensor, value in finished.items():
        np.testing.assert_allclose(again[tensor], value, rtol=1e-4, atol=1e-6, err_msg=tensor)
    lines = (place / name / "metrics.jsonl").read_text().splitlines()
    assert sum('"train/loss"' in line for line in lines) == 4  # two of them of the run that was resumed
