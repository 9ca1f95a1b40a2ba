"""Static embeddings against sentence-transformers, in both directions, and folders of model2vec."""

import json

import numpy as np
import pytest

from bert_jax import BertConfig, recipes
from bert_jax.conversion.huggingface import convert, load_pretrained
from bert_jax.errors import InputError
from bert_jax.inference import from_pretrained, pipeline
from bert_jax.tokenization import load_tokenizer
from bert_jax.training import train

TEXTS = ["the cat sat on a mat", "", "a river of stone " * 200, "Red RIVER [MASK] [SEP]", "x"]


@pytest.fixture(scope="module")
def tokenizer_json(tmp_path_factory, write_small):
    return write_small(tmp_path_factory.mktemp("encoder") / "model") / "tokenizer.json"


@pytest.fixture(scope="module")
def library():
    pytest.importorskip("torch", reason="PyTorch is the oracle; it is installed on Python 3.11 only")
    return pytest.importorskip("sentence_transformers", reason="the oracle; installed on Python 3.11 only")


def close(ours, theirs):
    assert ours.shape == theirs.shape and ours.dtype == np.float32
    return np.abs(ours - theirs).max() < 2e-6 * max(1, np.abs(theirs).max())


def write_model2vec(path, tokenizer_json, modules=True, normalize=True, **tensors):
    from safetensors.numpy import save_file

    path.mkdir()
    save_file(tensors, path / "model.safetensors")
    (path / "tokenizer.json").write_bytes(tokenizer_json.read_bytes())
    about = {"model_type": "model2vec", "architectures": ["StaticModel"], "tokenizer_name": "x", "apply_pca": 8,
             "sif_coefficient": 1e-4, "hidden_dim": 8, "seq_length": 1000000, "normalize": normalize,
             "max_length": 512, "embedding_dtype": "float32", "pooling": "mean"}  # fmt: skip
    (path / "config.json").write_text(json.dumps(about))
    listed = [{"idx": 0, "name": "0", "path": ".", "type": "sentence_transformers.models.StaticEmbedding"}]
    if normalize:
        listed.append({"idx": 1, "name": "1", "path": "1_Normalize", "type": "sentence_transformers.models.Normalize"})
    if modules:
        (path / "modules.json").write_text(json.dumps(listed))
    return path


@pytest.mark.oracle
@pytest.mark.parametrize("folder", ["", "0_StaticEmbedding"])
def test_vectors_are_those_of_sentence_transformers_in_both_directions(library, tokenizer_json, tmp_path, folder):
    import torch
    from sentence_transformers.sentence_transformer import modules
    from tokenizers import Tokenizer

    torch.manual_seed(0)  # of the Dense
    split = Tokenizer.from_file(str(tokenizer_json))
    if folder:
        split.enable_truncation(7, direction="left")
    values = np.random.default_rng(0).normal(size=(split.get_vocab_size(), 8)).astype(np.float32)
    parts = [modules.StaticEmbedding(split, values), modules.Dense(8, 6), modules.Normalize()]
    path, options = tmp_path / "model", {"prompts": {"query": "find the: "}, "similarity_fn_name": "dot"}
    library.SentenceTransformer(modules=parts[: 1 if folder else 3], device="cpu", **options).save(str(path))
    if folder:  # the layout of earlier versions
        (path / folder).mkdir()
        for name in ("model.safetensors", "tokenizer.json"):
            (path / name).rename(path / folder / name)
        module = {"idx": 0, "name": "0", "path": folder, "type": "sentence_transformers.models.StaticEmbedding"}
        (path / "modules.json").write_text(json.dumps([module]))
    theirs, model = library.SentenceTransformer(str(path), device="cpu"), from_pretrained(path)
    assert model.config.family == "static_embedding" and model.config.num_hidden_layers == 0 and not model.missing
    expected = theirs.encode(TEXTS)
    assert close(model.encode(TEXTS), expected) and close(model.encode(["", ""]), theirs.encode(["", ""]))
    assert close(model.encode_query(TEXTS), theirs.encode_query(TEXTS))
    assert close(model.similarity(expected, expected), theirs.similarity(expected, expected).numpy())
    convert(path, tmp_path / "converted", load_tokenizer)
    model.save_pretrained(tmp_path / "again")
    before = load_pretrained(path)
    for written in ("converted", "again"):
        after = load_pretrained(tmp_path / written)
        assert after.config == before.config and after.settings == before.settings and not after.unused
        again = library.SentenceTransformer(str(tmp_path / written), device="cpu")
        np.testing.assert_array_equal(again.encode(TEXTS), expected)
        assert close(from_pretrained(tmp_path / written).encode(TEXTS), expected)


@pytest.mark.oracle
@pytest.mark.parametrize("kind", ["float32", "float16", "quantized"])
def test_folders_of_model2vec(library, tokenizer_json, tmp_path, kind):
    random, size = np.random.default_rng(1), load_tokenizer(tokenizer_json).vocab_size
    rows = 20 if kind == "quantized" else size
    tensors = {"embeddings": random.normal(size=(rows, 8)).astype("float16" if kind == "float16" else "float32")}
    if kind == "quantized":
        tensors["mapping"] = random.integers(0, rows, size)
        tensors["weights"] = random.uniform(0, 2, size)  # float64, as model2vec writes them
    path = write_model2vec(tmp_path / "model", tokenizer_json, normalize=kind != "float16", **tensors)
    expected = library.SentenceTransformer(str(path), device="cpu").encode(TEXTS)
    model = from_pretrained(path)
    tolerance = 2e-3 if kind == "float16" else 2e-6  # the library adds in float16
    np.testing.assert_allclose(model.encode(TEXTS), expected, atol=tolerance)
    bare = write_model2vec(tmp_path / "bare", tokenizer_json, False, kind != "float16", **tensors)
    np.testing.assert_array_equal(from_pretrained(bare).encode(TEXTS), model.encode(TEXTS))
    model.save_pretrained(tmp_path / "written")
    again = library.SentenceTransformer(str(tmp_path / "written"), device="cpu")
    np.testing.assert_allclose(again.encode(TEXTS), expected, atol=tolerance)


def test_what_is_refused(tokenizer_json, tmp_path):
    size = load_tokenizer(tokenizer_json).vocab_size
    table = np.ones((size, 8), np.float32)
    path = write_model2vec(tmp_path / "model", tokenizer_json, embeddings=table)
    for head, message in (("masked_lm", "has no head 'masked_lm'"), ("sequence_classification", "has no head")):
        with pytest.raises(InputError, match=message):
            load_pretrained(path, head)
    path = write_model2vec(tmp_path / "mapped", tokenizer_json, embeddings=table, mapping=np.arange(3))
    (path / "config.json").write_text(json.dumps({"model_type": "model2vec", "normalize": 3}))
    with pytest.raises(InputError, match="normalize must be true or false, found 3"):
        load_pretrained(path)
    path = write_model2vec(tmp_path / "weights", tokenizer_json, embeddings=table, weights=np.ones(3, np.float32))
    with pytest.raises(InputError, match=r"'weights': expected shape \[\d+\], found \[3\]"):
        load_pretrained(path)
    path = write_model2vec(tmp_path / "rows", tokenizer_json, embeddings=table, mapping=np.full(size, size))
    with pytest.raises(InputError, match=f"'mapping': expected rows of 'embeddings', found {size}"):
        load_pretrained(path)
    config = load_pretrained(tmp_path / "model").config
    with pytest.raises(InputError, match="num_hidden_layers: expected 0 in a static_embedding, found 2"):
        config.replace(num_hidden_layers=2)
    with pytest.raises(InputError, match="num_hidden_layers must be a positive integer, found 0"):
        BertConfig(num_hidden_layers=0)


def test_training(library, tokenizer_json, tmp_path):
    values = np.random.default_rng(0).normal(size=(load_tokenizer(tokenizer_json).vocab_size, 8))
    start = write_model2vec(tmp_path / "start", tokenizer_json, embeddings=values.astype(np.float32))
    pairs = {"cat": "dog", "bird": "fish", "house": "tree", "river": "stone"}
    rows = [json.dumps({"a": f"the {first}", "b": f"a big {second} by day"}) + "\n" for first, second in pairs.items()]
    (tmp_path / "train.jsonl").write_text("".join(rows * 4))
    (tmp_path / "dev.jsonl").write_text("".join(rows))
    c = recipes.sentence_embedding()
    c.update_from_flattened_dict({
        "init_from": str(start), "data.train": str(tmp_path / "train.jsonl"), "data.dev": str(tmp_path / "dev.jsonl"),
        "data.text_column": "a", "data.pair_column": "b", "data.max_seq_length": 5, "global_batch_size": 8,
        "num_epochs": 30.0, "optimizer.learning_rate": 0.05, "data.length_buckets": (8,),
        "data.mask_duplicates": True,
    })  # fmt: skip
    results = train(c, tmp_path / "run", progress=False)
    assert results["eval/retrieval_accuracy"] > 0.9
    model = from_pretrained(tmp_path / "run" / "model")
    found = pipeline("search", model)("the cat", ["a big tree", "a big dog by day"], top_k=1)
    assert found[0]["text"] == "a big dog by day"
    theirs = library.SentenceTransformer(str(tmp_path / "run" / "model"), device="cpu")
    assert close(model.encode(TEXTS), theirs.encode(TEXTS))
