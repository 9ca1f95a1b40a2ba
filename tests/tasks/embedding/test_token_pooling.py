"""Token pooling of multi-vector models, against the HierarchicalTokenPooling of sentence-transformers."""

import json

import numpy as np
import pytest

from bert_jax.conversion.huggingface import load_pretrained
from bert_jax.conversion.multi_vector_settings import TokenPooling
from bert_jax.errors import InputError
from bert_jax.inference import from_pretrained, pipeline
from bert_jax.tasks.embedding.multi_vector.token_pooling import pool_token_vectors, with_token_pooling

TEXTS = ["the cat, sat on a mat.", "Red RIVER", "a river of stone " * 5, "x", ""]


@pytest.mark.oracle
@pytest.mark.parametrize("normalizes", [True, False])
@pytest.mark.parametrize("protected", [0, 1, 3])
@pytest.mark.parametrize("factor", [1.0, 1.5, 2, 7])
def test_vectors_are_those_of_sentence_transformers(factor, protected, normalizes):
    torch = pytest.importorskip("torch", reason="PyTorch is the oracle; it is installed on Python 3.11 only")
    library = pytest.importorskip("sentence_transformers.multi_vector_encoder.modules", reason="the oracle")
    theirs = library.HierarchicalTokenPooling(
        factor, num_protected_tokens=protected, normalize_embeddings=normalizes
    )  # fmt: skip
    pooling = TokenPooling(factor, protected, normalizes)
    for count in (0, 1, 2, 5, 40):
        vectors = np.random.default_rng(count).normal(size=(count, 6)).astype(np.float32)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        expected = theirs.pool([torch.tensor(vectors)])[0].numpy()
        found = pool_token_vectors(vectors, pooling)
        assert found.shape == expected.shape and found.dtype == np.float32
        np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.oracle
def test_folders_in_both_directions(write_small, tmp_path):
    pytest.importorskip("torch", reason="PyTorch is the oracle; it is installed on Python 3.11 only")
    library = pytest.importorskip("sentence_transformers", reason="the oracle; installed on Python 3.11 only")
    if not hasattr(library, "MultiVectorEncoder"):
        pytest.skip("needs sentence-transformers 6")
    from sentence_transformers.base.modules import Normalize, Transformer
    from sentence_transformers.multi_vector_encoder.modules import HierarchicalTokenPooling, MultiVectorMask

    write_small(tmp_path / "encoder", initializer_range=0.5)
    tokens = {"module_input_name": "token_embeddings"}
    modules = [Transformer(str(tmp_path / "encoder")), MultiVectorMask(["."]), Normalize(**tokens),
               HierarchicalTokenPooling(2, tasks=["document", "query"])]  # fmt: skip
    library.MultiVectorEncoder(modules=modules, device="cpu").save(str(tmp_path / "model"))
    theirs, model = (
        library.MultiVectorEncoder(str(tmp_path / "model"), device="cpu"),
        from_pretrained(tmp_path / "model"),
    )
    model.save_pretrained(tmp_path / "again")
    again = library.MultiVectorEncoder(str(tmp_path / "again"), device="cpu")
    assert load_pretrained(tmp_path / "again").settings == model.settings
    for kind in ("encode", "encode_query", "encode_document"):
        expected = getattr(theirs, kind)(TEXTS)
        for found in (getattr(model, kind)(TEXTS), [each.numpy() for each in getattr(again, kind)(TEXTS)]):
            for ours, other in zip(found, expected, strict=True):
                np.testing.assert_allclose(ours, other.numpy(), atol=1e-5)
    whole = with_token_pooling(model, 1)
    assert sum(map(len, whole.encode(TEXTS))) > 1.5 * sum(map(len, model.encode(TEXTS)))
    search = pipeline("search", with_token_pooling(whole, 3))
    search.write_index(TEXTS[:3], tmp_path / "index")
    search.open_index(tmp_path / "index")
    assert search("red river", top_k=1)[0]["corpus_id"] == 1
    where = next((tmp_path / "again").glob("*_HierarchicalTokenPooling/config.json"))
    for content, message in (
        ({"pool_factor": 0.5}, "factor: expected a number of at least 1, found 0.5"),
        ({"num_protected_tokens": 1.5}, "protected: expected a number of at least 0, found 1.5"),
        ({"tasks": [3]}, r"tasks: expected a list of strings, found \[3\]"),
    ):
        where.write_text(json.dumps(content))
        with pytest.raises(InputError, match=message):
            load_pretrained(tmp_path / "again")
    modules = json.loads((tmp_path / "again" / "modules.json").read_text())
    (tmp_path / "again" / "modules.json").write_text(json.dumps([modules[0], modules[-1], *modules[1:-1]]))
    with pytest.raises(InputError, match="perhaps last a HierarchicalTokenPooling, found Transformer, Hier"):
        load_pretrained(tmp_path / "again")
    with pytest.raises(InputError, match="expected a model with a vector for each token, found head 'encoder'"):
        with_token_pooling(from_pretrained(tmp_path / "encoder"), 2)
