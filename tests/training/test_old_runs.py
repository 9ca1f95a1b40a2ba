"""Runs and models that earlier versions wrote: opened, scored, and resumed from step 2 to the same end.

`old_runs.zip` (November 2026) has BERT's pretraining, and classification by an ALBERT and by a DeBERTa-v2.
`old_task_runs.tar.xz` (end of November 2026, when each task was one file of `tasks/`) has the other tasks, LoRA and a
distillation. Every run has four steps, and the checkpoint of step 2.
"""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from bert_jax import evaluation, from_pretrained, recipes
from bert_jax.training import train

FAMILIES = ("bert", "albert", "deberta")
# Runs whose task has an evaluator: `scores.json` has the scores of their finished models.
SCORED = (
    "token_classification", "question_answering", "sentence_embedding", "relation_extraction", "multiple_choice",
    "sequence_to_sequence", "masked_diffusion", "zero_shot_ner", "lora", "distillation",
)  # fmt: skip
OTHERS = ("electra", "diffusion_pretraining", "reranking", "sparse_embedding", "multi_vector")


@pytest.fixture
def place(name, tmp_path, monkeypatch):
    """The folder in which the run `name` was started, as its recipe has paths relative to it."""
    if name in FAMILIES:
        shutil.unpack_archive(Path(__file__).with_name("old_runs.zip"), tmp_path)
    else:
        shutil.unpack_archive(Path(__file__).with_name("old_task_runs.tar.xz"), tmp_path, filter="data")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def lines_of(workdir):
    return [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("name", FAMILIES)
def test_a_model_computes_what_it_did(place, name):
    outputs = np.load(place / "outputs.npz")
    found = from_pretrained(place / name / "model")(input_ids=outputs["ids"])
    logits = found.prediction_logits if name == "bert" else found.logits
    np.testing.assert_allclose(logits, outputs[name], rtol=1e-4, atol=1e-6)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", SCORED)
def test_a_model_is_scored_as_it_was(place, name):
    before = json.loads((place / "scores.json").read_text())[name]
    scores = evaluation.evaluate(f"{name}/model", before["data"])
    assert scores == pytest.approx(before["scores"], rel=1e-4, abs=1e-6)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", [*FAMILIES, *SCORED, *OTHERS])
def test_a_run_is_resumed(place, name):
    """The fingerprints in its `data.json` are those of the data today, and its end is the same."""
    workdir = place / name
    finished, lines = load_file(workdir / "model" / "model.safetensors"), lines_of(workdir)
    files = {path.name for path in (workdir / "model").iterdir()}
    shutil.rmtree(workdir / "model")
    results = train(recipes.load_recipe(f"{name}/config.json"), name, progress=False)
    again = load_file(workdir / "model" / "model.safetensors")
    assert again.keys() == finished.keys()
    for tensor, value in finished.items():
        np.testing.assert_allclose(again[tensor], value, rtol=1e-4, atol=1e-6, err_msg=tensor)
    assert {path.name for path in (workdir / "model").iterdir()} == files
    assert sum("train/loss" in line for line in lines_of(workdir)) == 4  # two of them of the run that was resumed
    scores = {key: value for line in lines for key, value in line.items() if key.startswith("eval/")}
    assert {key: results[key] for key in scores} == pytest.approx(scores, rel=1e-4, abs=1e-6)
