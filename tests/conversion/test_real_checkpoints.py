"""Checkpoints that people hold, as they are: TensorFlow's, and an old pickle with a vocabulary of its own."""

import shutil

import numpy as np
import pytest

from bert_jax import from_pretrained
from bert_jax.cli import main
from bert_jax.conversion.huggingface import load_pretrained

# The heavy chain of an antibody; the model has seen the like and not this one.
ANTIBODY = (
    "EVQLVQSGPEVKKPGTSVKVSCKASGFTFMSSAVQWVRQARGQRLEWIGWIVIGSGNTNYAQKFQERVTITRDMSTSTAYMELSSLRSEDTAVYYCAAPYCSSISCNDGFDIW"
    "GQGTMVTV"
)


@pytest.fixture(scope="session")
def simbert(shared_data):
    return shared_data / "tf1_simbert_tiny"


def cosine(a, b):
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


def test_sentences_that_mean_the_same_are_near_in_a_tensorflow_checkpoint(simbert):
    model = from_pretrained(simbert, head="encoder")
    assert (model.config.family, model.config.embedding_width, model.config.hidden_size) == ("electra", 128, 312)
    sentences = ["我想买一部手机", "我要购买一个手机", "今天天气很好"]
    vectors = model(**model.tokenizer(sentences)).pooler_output
    assert cosine(vectors[0], vectors[1]) > 0.7
    assert abs(cosine(vectors[0], vectors[2])) < 0.2


def test_a_tensorflow_checkpoint_is_that_electra_in_pytorch(simbert, tmp_path, capsys):
    torch = pytest.importorskip("torch", reason="PyTorch is the oracle; it is installed on Python 3.11 only")
    transformers = pytest.importorskip("transformers", reason="transformers is the oracle")
    assert main(["convert", str(simbert), str(tmp_path / "model")]) == 0
    printed = capsys.readouterr().out
    for what in (
        "from tf1",
        "float64",
        "left out",
        "electra.pooler.dense.weight",
        "electra for masked lm, 6,600,717 parameters read",
    ):
        assert what in printed
    theirs, info = transformers.ElectraForMaskedLM.from_pretrained(tmp_path / "model", output_loading_info=True)
    assert not any(info.values()), info
    ours = from_pretrained(simbert)
    inputs = ours.tokenizer(["今天天[MASK]很好", "我想买一部手机，便宜一点的。"])
    with torch.no_grad():
        expected = theirs.eval()(**{name: torch.tensor(array).long() for name, array in inputs.items()}).logits.numpy()
    is_token = inputs["attention_mask"] > 0
    difference = np.abs(ours(**inputs).logits - expected)[is_token].max()
    assert difference < 1e-5 * np.abs(expected).max()


@pytest.mark.parametrize("weights", ["safetensors", "flax"])
def test_what_was_converted_is_the_same_model(simbert, tmp_path, weights):
    assert main(["convert", str(simbert), str(tmp_path / "model"), "--head", "encoder", "--format", weights]) == 0
    before, after = load_pretrained(simbert, "encoder"), load_pretrained(tmp_path / "model")
    assert after.format == weights and after.config == before.config
    assert after.missing == after.unused == []
    for name in ("encoder", "embeddings", "pooler"):
        found, expected = (flat(loaded.params[name]) for loaded in (after, before))
        assert found.keys() == expected.keys() and all(np.array_equal(found[k], expected[k]) for k in expected)


def flat(tree, prefix=""):
    if not isinstance(tree, dict):
        return {prefix: tree}
    return {path: leaf for name, child in tree.items() for path, leaf in flat(child, f"{prefix}/{name}").items()}


@pytest.mark.slow
@pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.slow)])
def test_the_residues_of_an_antibody(antiberty, every, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(antiberty / "AntiBERTy_md_smooth", folder)
    shutil.copy(antiberty / "vocab.txt", folder)
    model = from_pretrained(folder, head="masked_lm")
    assert model.missing == () and model.tokenizer.vocab_size == 25
    row = model.tokenizer([" ".join(ANTIBODY)])["input_ids"][0]
    assert len(ANTIBODY) == 121 and len(row) == len(ANTIBODY) + 2
    places = np.arange(1, len(ANTIBODY) + 1, every)
    ids = np.tile(row, (len(places), 1))
    ids[np.arange(len(places)), places] = model.tokenizer.mask_id  # one residue hidden a row
    logits = model(ids, masked_positions=places[:, None]).logits[:, 0]
    assert (logits.argmax(-1) == row[places]).mean() >= 105 / 121
    torch = pytest.importorskip("torch", reason="PyTorch is the oracle; it is installed on Python 3.11 only")
    transformers = pytest.importorskip("transformers", reason="transformers is the oracle")
    theirs = transformers.BertForMaskedLM.from_pretrained(folder).eval()
    with torch.no_grad():
        expected = theirs(input_ids=torch.tensor(ids).long()).logits.numpy()[np.arange(len(places)), places]
    assert np.array_equal(logits.argmax(-1), expected.argmax(-1))
    assert np.abs(logits - expected).max() < 1e-5 * np.abs(expected).max()
