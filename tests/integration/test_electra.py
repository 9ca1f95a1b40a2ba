"""ELECTRA through the loop: a run that is killed ends as one that is not, and what it wrote is read by others."""

import shutil

import numpy as np
import pytest
from small import assert_alike, metrics_of, recipe, train_in_processes

from bert_jax import from_pretrained
from bert_jax.config import BertConfig
from bert_jax.errors import InputError
from bert_jax.jobs import abstract_task, build
from bert_jax.recipes import resolve


def made(data, **changes):
    one_length = {"stages": (), "data.sequence_length": 32, "global_batch_size": 16, "best_metric": "disc_loss",
                  "eval_every": 0, "layers": "scan"}  # fmt: skip
    return recipe(data, "electra", **one_length | changes)


def made_disentangled(data, **changes):
    """DeBERTa-v3's pretraining: a generator of half the depth, gradient-disentangled embedding sharing."""
    deberta = {"model.family": "deberta-v2", "model.embedding_size": None, "model.position_buckets": 8,
               "model.generator_size": 1.0, "model.generator_layers": 1, "model.embedding_sharing": "gdes"}  # fmt: skip
    return made(data, **deberta | changes)


@pytest.fixture(scope="module")
def disentangled(tmp_path_factory, data):
    """The directory of a finished run of DeBERTa-v3's pretraining."""
    workdir = tmp_path_factory.mktemp("deberta") / "whole"
    train_in_processes(made_disentangled(data), workdir, [{}])
    return workdir


@pytest.fixture(scope="module")
def run(tmp_path_factory, data):
    """The directory of a finished run."""
    workdir = tmp_path_factory.mktemp("electra") / "whole"
    train_in_processes(made(data), workdir, [{}])
    return workdir


@pytest.mark.slow
def test_it_learns(run):
    lines = [line for line in metrics_of(run) if "train/loss" in line]
    assert lines[-1]["train/mlm_loss"] < lines[0]["train/mlm_loss"] - 0.3
    assert lines[-1]["train/disc_loss"] < lines[0]["train/disc_loss"] - 0.05
    assert lines[-1]["train/disc_accuracy"] > 0.8


@pytest.mark.slow  # test_resume.py kills other tasks
def test_killed_and_gone_on_with_it_ends_alike(run, data):
    other = run.parent / "killed"
    train_in_processes(made(data), other, [{"kill_at": 10}, {}])
    assert_alike(run, other)


@pytest.mark.slow
def test_debertas_pretraining_learns(disentangled):
    lines = [line for line in metrics_of(disentangled) if "train/loss" in line]
    assert lines[-1]["train/mlm_loss"] < lines[0]["train/mlm_loss"] - 0.3
    assert lines[-1]["train/disc_loss"] < lines[0]["train/disc_loss"] - 0.05


@pytest.mark.slow  # as above
def test_debertas_pretraining_killed_and_gone_on_with_ends_alike(disentangled, data):
    other = disentangled.parent / "killed"
    train_in_processes(made_disentangled(data), other, [{"kill_at": 10}, {}])
    assert_alike(disentangled, other)


@pytest.mark.slow
def test_debertas_discriminator_is_a_plain_deberta(disentangled, data):
    """Its word embeddings are the sum of the generator's and the difference, which is no longer 0."""
    torch = pytest.importorskip("torch", reason="PyTorch is the oracle; it is installed on Python 3.11 only")
    transformers = pytest.importorskip("transformers", reason="the oracle; installed on Python 3.11 only")
    ids = np.random.default_rng(0).integers(5, 100, (3, 20))
    ours = from_pretrained(disentangled / "model")
    assert (ours.config.family, ours.head, ours.missing) == ("deberta-v2", "replaced_token_detection", ())
    theirs, info = transformers.AutoModel.from_pretrained(disentangled / "model", output_loading_info=True)
    unexpected = info.pop("unexpected_keys")
    assert not any(info.values()) and all(key.startswith("mask_predictions.") for key in unexpected), info
    with torch.no_grad():
        expected = theirs.eval()(torch.tensor(ids)).last_hidden_state.numpy()
    found = np.asarray(ours(input_ids=ids).last_hidden_state)
    assert np.abs(found - expected).max() < 1e-5 * np.abs(expected).max()
    generator = from_pretrained(disentangled / "model" / "generator")
    assert (generator.head, generator.config.num_hidden_layers, ours.config.num_hidden_layers) == ("masked_lm", 1, 2)
    theirs, info = transformers.AutoModelForMaskedLM.from_pretrained(
        disentangled / "model" / "generator", output_loading_info=True
    )
    assert not any(info.values()), info
    with torch.no_grad():
        expected = theirs.eval()(torch.tensor(ids)).logits.numpy()
    assert np.abs(np.asarray(generator(input_ids=ids).logits) - expected).max() < 1e-5 * np.abs(expected).max()

    sizes = ("hidden_size", "intermediate_size", "max_position_embeddings", "position_buckets")
    unset = {f"model.{name}": None for name in sizes}
    again = made_disentangled(data, init_from=str(disentangled / "model"), **unset)
    params = build(resolve(again)).pretrained
    words = [params[part]["embeddings"]["word_embeddings"]["embedding"] for part in ("discriminator", "generator")]
    assert np.abs(words[0]).max() > 1e-3  # the difference
    np.testing.assert_allclose(
        words[0] + words[1], ours.params["embeddings"]["word_embeddings"]["embedding"], rtol=0, atol=1e-7
    )


@pytest.mark.slow
def test_both_models_are_read_by_both_libraries(run):
    torch = pytest.importorskip("torch", reason="PyTorch is the oracle; it is installed on Python 3.11 only")
    transformers = pytest.importorskip("transformers", reason="the oracle; installed on Python 3.11 only")
    ids = np.random.default_rng(0).integers(5, 100, (3, 20))
    for place, kind in (("model", "ElectraForPreTraining"), ("model/generator", "ElectraForMaskedLM")):
        ours = from_pretrained(run / place)
        theirs, info = getattr(transformers, kind).from_pretrained(run / place, output_loading_info=True)
        assert not any(info.values()) and not ours.missing, info
        with torch.no_grad():
            expected = theirs.eval()(torch.tensor(ids)).logits.numpy()
        assert np.abs(np.asarray(ours(input_ids=ids).logits) - expected).max() < 1e-5 * np.abs(expected).max()


@pytest.mark.slow
def test_its_model_is_gone_on_with(run, data, tmp_path):
    changes = dict.fromkeys(("model.hidden_size", "model.intermediate_size", "model.max_position_embeddings"))
    again = made(data, init_from=str(run / "model"), **changes)
    job = build(resolve(again))
    words = job.pretrained["discriminator"]["embeddings"]["word_embeddings"]["embedding"]
    generator = from_pretrained(run / "model" / "generator").params
    np.testing.assert_array_equal(words, generator["embeddings"]["word_embeddings"]["embedding"])
    np.testing.assert_array_equal(job.pretrained["generator"]["mlm"]["bias"], generator["mlm"]["bias"])
    assert job.task.model.config == BertConfig.from_json_file(run / "model" / "config.json")
    again.model.generator_size = 0.25
    with pytest.raises(InputError, match=r"generator: hidden_size: expected 4 for config\.model\.generator_size 0\.25"):
        build(resolve(again))
    again.init_from = str(shutil.copytree(run / "model", tmp_path / "alone", ignore=lambda *_: ["generator"]))
    with pytest.raises(InputError, match="expected the generator in generator/, found none"):
        build(resolve(again))


def test_another_family_has_no_such_head(data):
    with pytest.raises(InputError, match="expected a family with head 'replaced_token_detection', found 'bert'"):
        build(resolve(made(data, **{"model.family": "bert", "model.embedding_size": None})))


def test_the_outline_has_the_batches_that_the_data_give(data):
    with_data, without = (abstract_task(resolve(made(data, **{"data.prepared": where})))
                          for where in (str(data / "prepared"), ""))  # fmt: skip
    pairs = {"next_sentence_labels"}  # which these data have, and nothing looks at
    assert with_data.stages[0].batch.keys() - pairs == without.stages[0].batch.keys()
    for name, array in without.stages[0].batch.items():
        assert array == with_data.stages[0].batch[name]
