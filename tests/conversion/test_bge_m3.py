"""BGE-M3 as FlagEmbedding publishes it: three kinds of embeddings, against the paper's equations in PyTorch."""

import json

import numpy as np
import pytest

from bert_jax.cli import main
from bert_jax.errors import InputError
from bert_jax.inference import from_pretrained, pipeline

torch = pytest.importorskip("torch", reason="PyTorch is the oracle; it is installed on Python 3.11 only")
transformers = pytest.importorskip("transformers", reason="transformers is the oracle; installed on Python 3.11 only")

TEXTS = ["the cat sat on a cat", "red river!", "a", "a river of stone " * 3, "[MASK] \u2603"]
XLM = {"family": "xlm-roberta", "position_offset": 1, "pad_token_id": 0, "type_vocab_size": 1, "head_act": "gelu",
       "classifier_summary": "tanh", "drop_before_summary": True}  # fmt: skip


@pytest.fixture(scope="module", params=["bert", "xlm-roberta"])
def folder(request, tmp_path_factory, write_small):
    path = tmp_path_factory.mktemp("m3") / request.param
    fields = XLM if request.param == "xlm-roberta" else {}
    write_small(path, "sentence_embedding", initializer_range=0.5, pooling="cls", **fields)
    torch.manual_seed(1)
    for name, width in (("sparse_linear", 1), ("colbert_linear", 24)):
        layer = torch.nn.Linear(32, width)
        torch.nn.init.normal_(layer.weight, std=1.0)
        torch.save(layer.state_dict(), path / f"{name}.pt")
    return path


@pytest.fixture(scope="module")
def expected(folder):
    """Section 3.2 of the paper in float64, one text at a time: dense vectors, token weights and token vectors."""
    model, tokenizer = from_pretrained(folder), from_pretrained(folder).tokenizer
    encoder = transformers.AutoModel.from_pretrained(folder).eval().double()
    layers = {
        name: {key: tensor.double() for key, tensor in torch.load(folder / f"{name}.pt").items()}
        for name in ("sparse_linear", "colbert_linear")
    }
    found = {"dense": [], "lexical": [], "colbert": []}
    for text in TEXTS:
        ids = torch.tensor(tokenizer(text, max_length=model.max_length, truncation=True)["input_ids"]).long()
        with torch.no_grad():
            hidden = encoder(ids, attention_mask=torch.ones_like(ids)).last_hidden_state[0]
            found["dense"].append(torch.nn.functional.normalize(hidden[0], dim=-1).numpy())
            weights = torch.relu(hidden @ layers["sparse_linear"]["weight"].T + layers["sparse_linear"]["bias"])
            vectors = hidden[1:] @ layers["colbert_linear"]["weight"].T + layers["colbert_linear"]["bias"]
        unused = {tokenizer.cls_id, tokenizer.sep_id, tokenizer.pad_id, tokenizer.unk_id}
        lexical: dict[int, float] = {}
        for i, weight in zip(ids[0].tolist(), weights[:, 0].tolist(), strict=True):
            if i not in unused and weight > 0:
                lexical[i] = max(lexical.get(i, 0), weight)
        found["lexical"].append(lexical)
        found["colbert"].append(torch.nn.functional.normalize(vectors, dim=-1).numpy())
    return found


def test_dense_vectors(folder, expected):
    np.testing.assert_allclose(pipeline("embed", folder)(TEXTS), np.stack(expected["dense"]), atol=1e-5)


def test_weights_of_tokens(folder, expected):
    vectors = pipeline("sparse-embedding", folder)(TEXTS)
    for row, lexical in enumerate(expected["lexical"]):
        own = vectors[row : row + 1]
        assert own.indices.tolist() == sorted(lexical)
        np.testing.assert_allclose(own.data, [lexical[i] for i in own.indices], rtol=1e-5, atol=1e-6)
    assert sum(map(len, expected["lexical"])) > 3


def test_vectors_of_tokens(folder, expected):
    embed = pipeline("multi-vector-embedding", folder)
    for task in ("query", "document", None):
        for ours, theirs in zip(embed(TEXTS, task=task), expected["colbert"], strict=True):
            assert ours.shape == theirs.shape
            np.testing.assert_allclose(ours, theirs, atol=1e-5)


def test_scores(folder, expected):
    lexical, colbert = expected["lexical"], expected["colbert"]
    products = [[sum(w * b.get(i, 0) for i, w in a.items()) for b in lexical] for a in lexical]
    maxima = [[(a @ b.T).max(axis=1).mean() for b in colbert] for a in colbert]
    for kind, scores in (("sparse", products), ("multi-vector", maxima)):
        found, numbers = pipeline(f"{kind}-search", folder).nearest(TEXTS, TEXTS, len(TEXTS))
        np.testing.assert_allclose(found, np.take_along_axis(np.array(scores), numbers, 1), rtol=1e-4, atol=1e-5)
        assert (np.diff(found, axis=1) <= 0).all()


def test_the_kind_is_an_option_of_verbs(folder, tmp_path, capsys):
    (tmp_path / "corpus.txt").write_text("\n".join(TEXTS))
    corpus, found = ["--corpus", str(tmp_path / "corpus.txt"), "--json"], []
    for kind in ([], ["--kind", "sparse"], ["--kind", "multi-vector"]):
        assert main(["search", str(folder), "the cat sat", *corpus, *kind]) == 0
        found.append(json.loads(capsys.readouterr().out)["answers"][0]["score"])
    assert len(set(found)) == 3
    assert main(["embed", str(folder), "the cat", "--kind", "sparse", "--json"]) == 0
    assert isinstance(json.loads(capsys.readouterr().out)["embedding"], dict)


def test_layers_that_do_not_fit_and_what_cannot_be_written(folder, tmp_path):
    model = from_pretrained(folder, head="sparse_embedding")
    with pytest.raises(InputError, match="found BGE-M3's token weights"):
        model.save_pretrained(tmp_path / "model")
    from_pretrained(folder, head="multi_vector").save_pretrained(tmp_path / "late")
    again = pipeline("embed", tmp_path / "late")
    for ours, theirs in zip(again(TEXTS), pipeline("multi-vector-embedding", folder)(TEXTS), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)
    from_pretrained(folder).save_pretrained(tmp_path / "other")
    torch.save(torch.nn.Linear(31, 1).state_dict(), tmp_path / "other" / "sparse_linear.pt")
    with pytest.raises(InputError, match=r"expected a weight of 32 columns and a bias, found weight \[1, 31\]"):
        pipeline("sparse-embedding", tmp_path / "other")
