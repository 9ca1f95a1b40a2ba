"""Chunks of long documents, against token vectors of transformers; and search that finds the best chunk."""

import json
import re

import numpy as np
import pytest

from bert_jax.cli import main
from bert_jax.errors import InputError
from bert_jax.inference import pipeline
from bert_jax.tasks.embedding.dense.chunking import Chunking, _chunk_starts, embed_chunks

DOCUMENTS = [
    "the cat sat. a dog sleeps on the tree! red fish\n\none old house by the river. a bird\n\nthe young cat",
    "red fish",
    "",
    " ".join(["the cat", "a big house", "one bird", "two trees by the river", "red fish", "the old dog"] * 6),
]
WINDOW = 24  # tokens that the model reads


@pytest.fixture(scope="module")
def model(tmp_path_factory, write_small):
    path = tmp_path_factory.mktemp("model") / "model"
    return str(write_small(path, "sentence_embedding", initializer_range=0.5, max_position_embeddings=WINDOW))


@pytest.fixture(scope="module")
def pipe(model):
    return pipeline("sentence-embedding", model)


def split(chunks):
    """The vectors and spans of each document."""
    ends = np.cumsum(chunks.counts)[:-1]
    return zip(np.split(chunks.vectors, ends), np.split(chunks.spans, ends), strict=True)


def token_vectors(model, pipe, ids, prompt_ids, overlap):
    """The vector of each token of a document: of the first window that it is in; by transformers."""
    import torch
    from transformers import AutoModel

    bert, vectors, done = AutoModel.from_pretrained(model).eval(), [], 0
    room = WINDOW - 2 - len(prompt_ids)
    while done < len(ids):
        first = max(0, done - overlap)
        window = ids[first : first + room]
        row = [pipe.tokenizer.cls_id, *prompt_ids, *window, pipe.tokenizer.sep_id]
        with torch.no_grad():
            states = bert(torch.tensor([row])).last_hidden_state[0].numpy()
        vectors.extend(states[1 + len(prompt_ids) + done - first : -1])
        done = first + len(window)
    return np.array(vectors)


@pytest.mark.oracle
@pytest.mark.sampled(3)
@pytest.mark.parametrize(("overlap", "prompt"), [(None, ""), (0, "the river "), (9, "")])
def test_late_chunking_is_the_mean_of_token_vectors_of_transformers(model, pipe, overlap, prompt):
    chunking = Chunking(5, late_chunking=True, window_overlap=overlap)
    chunks = embed_chunks(pipe, DOCUMENTS, prompt, chunking)
    prompt_ids = pipe.tokenizer.encode(prompt) if prompt else []
    for text, (own, spans) in zip(DOCUMENTS, split(chunks), strict=True):
        ((ids, offsets),) = pipe.tokenizer.segments([text], offsets=True)
        if not ids:
            np.testing.assert_allclose(own, pipe([text], prompt=prompt), atol=1e-5)
            continue
        tokens = token_vectors(model, pipe, ids, prompt_ids, WINDOW // 8 if overlap is None else overlap)
        means = np.array([tokens[i : i + 5].mean(axis=0) for i in range(0, len(ids), 5)])
        np.testing.assert_allclose(own, means / np.linalg.norm(means, axis=1, keepdims=True), atol=2e-5)
        assert spans.tolist() == [[offsets[i][0], offsets[min(i + 5, len(ids)) - 1][1]] for i in range(0, len(ids), 5)]


def test_a_chunk_on_its_own_is_embedded_as_a_text(pipe):
    chunks = embed_chunks(pipe, DOCUMENTS, "red ", Chunking(5))
    texts = [text[start:end] for text, (_, spans) in zip(DOCUMENTS, split(chunks), strict=True) for start, end in spans]
    np.testing.assert_allclose(chunks.vectors, pipe(texts, prompt="red "), atol=1e-5)
    assert chunks.counts.tolist()[1:3] == [1, 1] and len(texts) == len(chunks.vectors)


@pytest.mark.slow
def test_layers_after_pooling_are_applied(tmp_path, write_small):
    from bert_jax.config.values import EmbeddingLayer

    layers = (EmbeddingLayer("dense", 32, 12, activation="tanh"), EmbeddingLayer("normalize", 12, 12))
    changes = {"embedding_layers": layers, "normalize_embeddings": False, "initializer_range": 0.5}
    pipe = pipeline("sentence-embedding", str(write_small(tmp_path / "model", "sentence_embedding", **changes)))
    vectors = embed_chunks(pipe, DOCUMENTS[:2], "", Chunking(5, late_chunking=True)).vectors
    assert vectors.shape[1] == 12
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    states = pipe.model(**pipe.tokenizer([DOCUMENTS[1]])).last_hidden_state[0, 1:-1]
    dense = pipe.model.params["embedding_layers"]["layer_0"]["dense"]
    expected = np.tanh(np.asarray(states).mean(axis=0) @ np.asarray(dense["kernel"]) + np.asarray(dense["bias"]))
    np.testing.assert_allclose(vectors[-1], expected / np.linalg.norm(expected), atol=1e-5)


@pytest.mark.parametrize(
    ("boundary", "size", "expected"),
    [
        ("tokens", 8, ["One two. Three four five six", "!\n\nSeven eight nine. Ten", "eleven.\n\nTwelve."]),
        ("sentences", 8, ["One two.", "Three four five six!", "Seven eight nine.", "Ten eleven.\n\nTwelve."]),
        ("paragraphs", 8, ["One two. Three four five six", "!", "Seven eight nine. Ten elev", "en.\n\nTwelve."]),
        ("paragraphs", 40, ["One two. Three four five six!\n\nSeven eight nine. Ten eleven.\n\nTwelve."]),
        ("sentences", 1, None),
    ],
)
def test_boundaries(boundary, size, expected):
    text = "One two. Three four five six!\n\nSeven eight nine. Ten eleven.\n\nTwelve."
    offsets = [match.span() for match in re.finditer(r"\w{1,4}|[^\w\s]", text)]  # at most four letters are a token
    starts = _chunk_starts(text, np.array(offsets), size, boundary)
    ends = [*starts[1:], len(offsets)]
    assert all(0 < end - start <= size for start, end in zip(starts, ends, strict=True))
    chunks = [text[offsets[start][0] : offsets[end - 1][1]] for start, end in zip(starts, ends, strict=True)]
    assert expected is None or chunks == expected


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "options", [{}, {"precision": "binary", "rescore_precision": "float32"}, {"approximate": True}]
)
def test_search_finds_the_best_chunk(model, pipe, tmp_path, options):
    if "approximate" in options:
        pytest.importorskip("usearch", reason="of the [usearch] extra")
    search, chunking = pipeline("search", model), Chunking(5, "sentences", late_chunking=True)
    search.write_index(DOCUMENTS[:3], tmp_path / "index", chunking=chunking, truncate_dim=24, ids="abc", **options)
    search.update_index(tmp_path / "index", DOCUMENTS[3:], ids="d")
    search.open_index(tmp_path / "index")
    queries, chunks = ["red fish", "the old house"], embed_chunks(pipe, DOCUMENTS, "", chunking)
    unit = chunks.vectors[:, :24] / np.linalg.norm(chunks.vectors[:, :24], axis=1, keepdims=True)
    of_queries = pipe(queries, truncate_dim=24)
    scores = of_queries / np.linalg.norm(of_queries, axis=1, keepdims=True) @ unit.T
    of_chunk = np.repeat(np.arange(4), chunks.counts)
    for _ in range(2):
        for query, answers in zip(scores, search(queries, top_k=4), strict=True):
            best = [query[of_chunk == document].max() for document in range(4)]
            assert [answer["score"] for answer in answers] == pytest.approx(sorted(best, reverse=True), abs=1e-5)
            for answer in answers:
                assert answer["score"] == pytest.approx(best[answer["corpus_id"]], abs=1e-5)
                assert answer["id"] == "abcd"[answer["corpus_id"]]
                span = chunks.spans[np.flatnonzero(of_chunk == answer["corpus_id"])]
                (place,) = np.flatnonzero((span == [answer["start"], answer["end"]]).all(axis=1))
                assert query[of_chunk == answer["corpus_id"]][place] == pytest.approx(answer["score"], abs=1e-5)
                assert answer["chunk"] == answer["text"][answer["start"] : answer["end"]]
        assert search.update_index(tmp_path / "index", compact=True).texts == 4
        search.open_index(tmp_path / "index")


def test_the_verbs_embed_and_index_chunks(model, pipe, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [{"url": f"u{i}", "body": text or "x"} for i, text in enumerate(DOCUMENTS)]
    (tmp_path / "pages.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows[:3]))
    (tmp_path / "new.jsonl").write_text("".join(json.dumps(row) + "\n" for row in [rows[3], rows[0]]))
    chunked = ["--chunk-tokens", "5", "--late-chunking"]
    expected = embed_chunks(pipe, DOCUMENTS[:2], "", Chunking(5, late_chunking=True))
    assert main(["embed", model, *DOCUMENTS[:2], *chunked, "--out", "chunks.npz"]) == 0
    with np.load("chunks.npz") as arrays:
        np.testing.assert_allclose(arrays["vectors"], expected.vectors, atol=1e-5)
        assert arrays["spans"].tolist() == expected.spans.tolist()
        assert np.diff(arrays["starts"]).tolist() == expected.counts.tolist()
    capsys.readouterr()
    assert main(["embed", model, DOCUMENTS[0], *chunked, "--json"]) == 0
    (chunk, *_) = json.loads(capsys.readouterr().out)["chunks"]
    np.testing.assert_allclose(chunk["embedding"], expected.vectors[0], atol=1e-5)
    columns = ["--text-column", "body", "--id-column", "url"]
    assert main(["index", model, "--corpus", "pages.jsonl", *columns, *chunked, "--out", "index"]) == 0
    assert main(["index", model, "--update", "index", "--corpus", "new.jsonl", *columns, "--delete", "u2"]) == 0
    assert capsys.readouterr().out.endswith("index: 2 added, 1 replaced, 1 deleted; index of 3 texts\n")
    assert main(["search", model, "red fish", "--index", "index", "--json"]) == 0
    answers = json.loads(capsys.readouterr().out)["answers"]
    assert {answer["id"] for answer in answers} == {"u0", "u1", "u3"}
    assert all(answer["text"][answer["start"] : answer["end"]] == answer["chunk"] for answer in answers)
    assert main(["search", model, "red fish", "--index", "index"]) == 0
    table = capsys.readouterr().out
    assert "u1" in table and answers[0]["chunk"] in table
    for arguments, message in (
        (["index", model, "--out", "a", "--update", "index"], "as --out DIR, or an index to change, as --update DIR"),
        (["index", model, "--update", "index"], "--update: expected --corpus, --delete, --delete-file or --compact"),
        (["index", model, "--update", "index", "--corpus", "x", *chunked], "--chunk-tokens: expected none with --upd"),
        (["index", model, "--out", "a", "--corpus", "x", "--delete", "u1"], "--delete: expected --update with it"),
        (["index", model, "--out", "a", "--corpus", "x", "--id-column", "url"], "--id-column: expected --text-column"),
        (["index", model, "--update", "index", "--delete", "u2"], "delete: expected ids of texts in the index, found"),
        (
            ["embed", model, "x", "--late-chunking"],
            "late_chunking: expected a number of chunk_tokens with it, found no",
        ),
    ):
        assert main(arguments) == 2
        assert message in capsys.readouterr().err


def test_chunks_that_do_not_fit(pipe, write_small, tmp_path):
    cls = pipeline("sentence-embedding", str(write_small(tmp_path / "cls", "sentence_embedding", pooling="cls")))
    for model, chunking, message in (
        (cls, Chunking(5, late_chunking=True), "late_chunking: expected a model with mean pooling, found cls"),
        (pipe, Chunking(23), "chunk_tokens: expected at most 22 without late_chunking, as the model reads 24 tokens"),
        (pipe, Chunking(0), "chunk_tokens: expected a positive integer, found 0"),
        (pipe, Chunking(5, "words"), "chunk_boundary: expected tokens, sentences, paragraphs, found 'words'"),
        (pipe, Chunking(5, window_overlap=2), "window_overlap: expected late_chunking with it, found none"),
        (pipe, Chunking(5, late_chunking=True, window_overlap=22), "expected a window_overlap below 22, as 24 tokens"),
    ):
        with pytest.raises(InputError, match=message):
            embed_chunks(model, DOCUMENTS, "", chunking)
    with pytest.raises(InputError, match="chunking: expected a model of sentence embeddings, found another one"):
        path = str(write_small(tmp_path / "sparse", "sparse_embedding"))
        pipeline("search", path).write_index(["x"], tmp_path / "index", chunking=Chunking(5))
