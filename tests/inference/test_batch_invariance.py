"""With `batch_invariant`, the bits of an answer depend on neither its batch, nor its neighbours, nor padding."""

import json

import numpy as np
import pytest

from bert_jax.cli import main
from bert_jax.inference import pipeline
from bert_jax.inference.base import Pipeline

WORDS = ["the", "cat", "sat", "on", "a", "red", "river", "of", "stone", "and", "old", "house"]


@pytest.fixture(scope="module")
def texts():
    rng = np.random.default_rng(0)
    return [" ".join(rng.choice(WORDS, rng.integers(1, 14))) for _ in range(60)]


def orders(count):
    rng = np.random.default_rng(1)
    return np.arange(count)[::-1], rng.permutation(count)


@pytest.mark.slow
def test_vectors_of_minilm(minilm, texts):
    embed = pipeline("embed", minilm, batch_invariant=True)
    together = embed(texts)
    for order in orders(len(texts)):
        np.testing.assert_array_equal(embed([texts[i] for i in order]), together[order])
    np.testing.assert_array_equal(np.concatenate([embed(texts[i : i + 7]) for i in range(0, 42, 7)]), together[:42])
    np.testing.assert_array_equal(np.stack([embed(text) for text in texts[:20]]), together[:20])
    np.testing.assert_array_equal(embed.model.encode(texts[:9], batch_size=3, batch_invariant=True), together[:9])
    np.testing.assert_allclose(pipeline("embed", minilm)(texts[:20]), together[:20], atol=1e-6)


def test_a_text_is_computed_in_the_same_shape_alone_and_among_others(write_small, tmp_path, monkeypatch, texts):
    embed = pipeline(
        "embed", write_small(tmp_path / "model", "encoder", max_position_embeddings=64), batch_invariant=True
    )
    used = []
    begin = type(embed.model).begin

    def noted(model, inputs, fields, **options):
        used.append((inputs["input_ids"].shape[0], options["rows"], options["length"]))
        return begin(model, inputs, fields, **options)

    monkeypatch.setattr(type(embed.model), "begin", noted)
    embed(texts[0])
    alone = used.pop()
    embed(texts)
    assert alone[1:] in [shape[1:] for shape in used]
    assert sum(rows for rows, _, _ in used) == len(texts)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("verb", ["fill-mask", "classify", "tag"])
def test_verbs(write_small, tmp_path, capsys, verb):
    head = {"fill-mask": "masked_lm", "classify": "sequence_classification", "tag": "token_classification"}[verb]
    model = write_small(tmp_path / "model", head, initializer_range=0.5, num_labels=3)
    masked = ["the [MASK] sat", "[MASK] [MASK] [MASK]", "a red [MASK] of [MASK]", "the cat [MASK]"]
    texts = masked if verb == "fill-mask" else ["the cat sat", "a red river of stone", "dog"]

    def ask(*given):
        assert main([verb, str(model), *given, "--json", "--batch-invariant"]) in (0, None)
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    assert ask(*texts) == [ask(text)[0] for text in texts] == ask(*texts[::-1])[::-1]


def test_the_number_of_masks_is_part_of_the_shape(write_small, tmp_path, monkeypatch):
    fill = pipeline("fill-mask", write_small(tmp_path / "model", "masked_lm"), batch_invariant=True)
    seen = []
    batches = Pipeline._invariant_shapes
    monkeypatch.setattr(
        Pipeline, "_invariant_shapes", lambda *given: seen.extend(found := [*batches(*given)]) or iter(found)
    )
    fill(["the [MASK] sat", "[MASK] [MASK] [MASK]"])
    assert sorted(shape[3] for shape in seen) == [1, 3]
