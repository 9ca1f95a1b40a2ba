"""Static embeddings distilled from an encoder, against transformers, scikit-learn and the formulas of model2vec."""

import json

import numpy as np
import pytest

from bert_jax.cli import main
from bert_jax.errors import InputError
from bert_jax.inference import from_pretrained
from bert_jax.tasks.embedding.dense.static_distillation import StaticDistillation, distill_static, zipf_weights


@pytest.fixture(scope="module")
def encoder(tmp_path_factory, write_small):
    return write_small(tmp_path_factory.mktemp("encoder") / "model", "masked_lm", initializer_range=0.5)


@pytest.mark.slow
@pytest.mark.oracle
@pytest.mark.parametrize(("dims", "sif"), [(8, 1e-4), (0, 0.0)])
def test_the_vectors_are_those_of_model2vec(encoder, dims, sif):
    torch = pytest.importorskip("torch", reason="PyTorch is the oracle; it is installed on Python 3.11 only")
    transformers = pytest.importorskip("transformers", reason="the oracle; installed on Python 3.11 only")
    decomposition = pytest.importorskip("sklearn.decomposition")
    found = distill_static(encoder, StaticDistillation(dims, sif, r"\[unused\d+\]|the$", "float32"))
    split = transformers.AutoTokenizer.from_pretrained(str(encoder))
    model = transformers.AutoModel.from_pretrained(str(encoder)).eval()
    special = {split.cls_token, split.sep_token, split.mask_token}
    tokens = [t for t in split.convert_ids_to_tokens(range(len(split))) if t not in special and t != "the"]
    ids = [[split.cls_token_id, i, split.sep_token_id] for i in split.convert_tokens_to_ids(tokens)]
    with torch.no_grad():
        expected = model(torch.tensor(ids)).last_hidden_state.mean(1).numpy().astype(np.float64)
    if dims:
        expected = decomposition.PCA(dims, svd_solver="full").fit_transform(expected)
        expected *= np.sign(expected[np.abs(expected).argmax(0), range(dims)])
    frequency = 1 / np.arange(2, len(tokens) + 2)
    weights = sif / (sif + frequency / frequency.sum()) if sif else np.ones(len(tokens))
    expected *= weights[:, None]
    table = found.params["embeddings"]["word_embeddings"]["embedding"]
    assert list(found.tokenizer.pieces) == tokens and table.dtype == np.float32
    np.testing.assert_allclose(table, expected, atol=2e-5 * np.abs(expected).max())


def test_the_verb_and_what_it_refuses(encoder, tmp_path, capsys):
    main(["distill-static", str(encoder), "--out", str(tmp_path / "static"), "--dims", "8"])
    assert "vectors of 8 dimensions" in capsys.readouterr().out
    about = json.loads((tmp_path / "static" / "config.json").read_text())
    assert about["model_type"] == "model2vec" and about["hidden_dim"] == 8 and about["normalize"] is True
    vectors = from_pretrained(tmp_path / "static").encode(["cat sat", "the dog"])
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-6)
    for options, message in (
        ({"dims": -1}, "expected dims of at least 0"),
        ({"sif": 1.0}, r"sif in \[0, 1\), found 8 and 1.0"),
        ({"remove": "["}, r"remove: expected a regular expression, found '\["),
        ({"dims": 32, "remove": "."}, "expected fewer than the 2 tokens"),
    ):
        with pytest.raises(InputError, match=message):
            distill_static(encoder, StaticDistillation(**{"dims": 8} | options))


def test_weights_by_rank():
    weights = zipf_weights(3, 0.1)
    shares = np.array([1 / 2, 1 / 3, 1 / 4]) / (1 / 2 + 1 / 3 + 1 / 4)
    np.testing.assert_allclose(weights, 0.1 / (0.1 + shares))
    assert (np.diff(weights) > 0).all() and (zipf_weights(3, 0) == 1).all()
