"""Entities of types that are named at call time: beside NumPy and the original, in windows, and what is refused."""

import dataclasses
import itertools
import json
import random

import numpy as np
import pytest
from gliners import HEAD, head_in_numpy, write_gliner

from bert_jax.cli import main
from bert_jax.errors import InputError
from bert_jax.inference import from_pretrained, pipeline
from bert_jax.tasks.zero_shot_ner.rows import word_ranges, word_windows
from bert_jax.tasks.zero_shot_ner.span_decoding import ScoredSpans, choose_spans
from bert_jax.tokenization import train_bpe, train_sentencepiece
from bert_jax.tokenization.families import deberta_v2
from bert_jax.tokenization.settings import TokenizerFiles

TYPES = ["person", "a tree", "old bird"]
TEXT = "The old man sat under a tree by the river, and the young dog runs."
WITHOUT_ORIGINAL = "the original, which has no release for these transformers: pip install --no-deps gliner"
WORDS = (
    "the",
    "old",
    "man",
    "Sat",
    "under",
    "a",
    "tree-top",
    "by",
    "night",
    "and",
    "bird",
    "fish",
    ",",
    ".",
    "x_y",
    "é",
)


def random_texts(count, most=16):
    draw = random.Random(0)
    return [" ".join(draw.choices(WORDS, k=draw.randrange(1, most))) for _ in range(count)]


@pytest.fixture(scope="module")
def model(tmp_path_factory, tiny_tokenizer):
    return write_gliner(tmp_path_factory.mktemp("gliner") / "model", tiny_tokenizer)


@pytest.fixture(scope="module")
def find(model):
    return pipeline("zero-shot-ner", model)


def places(found):
    return [(entity["start"], entity["end"], entity["text"], entity["label"]) for entity in found]


def entities_in_numpy(directory, text, types, threshold):
    """Entities without overlap, one row at a time, from the last hidden state of the model."""
    model = from_pretrained(directory)
    tokenizer = model.tokenizer
    ids, at, words = [tokenizer.cls_id], [], []
    for name in types:
        at.append(len(ids))
        ids += [tokenizer.token_to_id("<<ENT>>"), *tokenizer.encode(name)]
    ids.append(tokenizer.token_to_id("<<SEP>>"))
    for start, end in word_ranges(text):
        words.append(len(ids))
        ids += tokenizer.encode(text[start:end])
    ids.append(tokenizer.sep_id)
    batch = {"word_positions": [words], "type_positions": [at]}
    states = np.asarray(model([ids], **batch).last_hidden_state)[0]
    scored = head_in_numpy(model.params, states, words, at, HEAD.max_width)
    scored = {span: 1 / (1 + np.exp(-logit)) for span, logit in scored.items()}
    chosen = []
    for (first, last, kind), score in sorted(scored.items(), key=lambda item: -item[1]):
        if score > threshold and all(last < other[0] or first > other[1] for other in chosen):
            chosen.append((first, last, kind, score))
    ranges = word_ranges(text)
    return [(ranges[a][0], ranges[z][1], types[kind], score) for a, z, kind, score in sorted(chosen)]


@pytest.mark.oracle
def test_entities_are_those_of_the_equations(model, find):
    for text in [TEXT, *random_texts(3)]:
        expected = entities_in_numpy(model, text, TYPES, 0.4)
        found = find(text, TYPES, threshold=0.4)
        assert [(e["start"], e["end"], e["label"]) for e in found] == [each[:3] for each in expected]
        np.testing.assert_allclose([e["score"] for e in found], [each[3] for each in expected], rtol=1e-4)
        assert all(text[e["start"] : e["end"]] == e["text"] for e in found) and found


def tokenizer_of(family, tiny_tokenizer):
    texts = [" ".join(WORDS), *random_texts(60), *TYPES * 9]
    if family == "deberta-v2":
        files = TokenizerFiles({"pad_token": "<pad>", "unk_token": "<unk>"})
        return deberta_v2(train_sentencepiece(texts * 3, 60, lowercase=False).model, files)
    return train_bpe(texts, 320) if family == "modernbert" else tiny_tokenizer


@pytest.mark.parametrize("family", ["bert", "deberta-v2", "modernbert"])
def test_entities_are_those_of_the_original(tmp_path, tiny_tokenizer, family):
    original = pytest.importorskip("gliner", reason=WITHOUT_ORIGINAL)
    write_gliner(tmp_path / "model", tokenizer_of(family, tiny_tokenizer), family)
    theirs = original.GLiNER.from_pretrained(str(tmp_path / "model"), local_files_only=True)
    find, texts = pipeline("zero-shot-ner", tmp_path / "model"), [*random_texts(50), " ", "東京 and Zürich — naïve!"]
    for flat, multi in ((True, False), (False, False), (False, True)):
        expected = theirs.inference(texts, TYPES, flat_ner=flat, multi_label=multi, threshold=0.4)
        found = find(texts, TYPES, threshold=0.4, flat_ner=flat, multi_label=multi)
        assert [places(each) for each in found] == [places(each) for each in expected]
        assert sum(map(len, found)) > 100
        scores = [[entity["score"] for each in side for entity in each] for side in (found, expected)]
        np.testing.assert_allclose(*scores, atol=1e-4)


def test_a_text_has_the_same_entities_in_any_batch(find):
    texts = [*random_texts(12), "", "  "]
    together = find(texts, TYPES, threshold=0.3)
    assert together[-2:] == [[], []]
    for text, found in zip(texts, together, strict=True):
        alone = find(text, TYPES, threshold=0.3)
        assert places(alone) == places(found)
        np.testing.assert_allclose([e["score"] for e in alone], [e["score"] for e in found], rtol=1e-5)
    assert find(texts, "person, a tree,old bird", threshold=0.3) == together


def test_options(find):
    flat = find(TEXT, TYPES, threshold=0.2)
    assert all(a["end"] <= b["start"] for a, b in itertools.pairwise(flat))
    nested = find(TEXT, TYPES, threshold=0.2, flat_ner=False)
    several = find(TEXT, TYPES, threshold=0.2, flat_ner=False, multi_label=True)
    assert len(flat) < len(nested) < len(several)
    spans = {(e["start"], e["end"]) for e in nested}
    assert len(spans) == len(nested)
    assert not any(a < c < b < d for a, b in spans for c, d in spans)
    assert max(len(word_ranges(e["text"])) for e in several) == HEAD.max_width
    assert find(TEXT, TYPES, threshold=1.0) == []


def test_choosing():
    spans = ScoredSpans(
        np.array([0, 1, 0, 0, 3]), np.array([2, 3, 3, 3, 4]), np.array([0, 0, 0, 1, 1]),
        np.array([0.9, 0.8, 0.7, 0.7, 0.6], np.float32),
    )  # fmt: skip

    def chosen(**options):
        return [tuple(map(int, each[:3])) for each in zip(*choose_spans(spans, **options), strict=True)]

    assert chosen() == [(0, 2, 0), (3, 4, 1)]
    assert chosen(flat=False) == [(0, 2, 0), (0, 3, 0), (3, 4, 1)]
    assert chosen(flat=False, multi_label=True) == [(0, 2, 0), (0, 3, 0), (0, 3, 1), (3, 4, 1)]


def test_windows_own_every_word_once_and_show_spans_whole():
    draw = random.Random(1)
    for _ in range(300):
        lengths = [draw.choice((1, 1, 1, 2, 5)) for _ in range(draw.randrange(0, 90))]
        room, most, width = draw.randrange(24, 60), draw.randrange(16, 50), draw.randrange(1, 4)
        config = dataclasses.replace(HEAD, max_len=most, max_width=width)
        windows = word_windows(lengths, room, config)
        owned = [i for window in windows for i in range(window.own_start, window.own_stop)]
        assert owned == list(range(len(lengths)))
        for window in windows:
            assert window.start <= window.own_start <= window.own_stop <= window.stop <= window.start + most
            assert sum(lengths[window.start : window.stop]) <= room
            for first in range(window.own_start, window.own_stop):
                assert min(first + width, len(lengths)) <= window.stop
    assert word_windows([3, 99, 3], 40, HEAD)[1].stop == 2  # a long word has a window of its own


def test_long_texts_are_read_in_windows(tmp_path, tiny_tokenizer):
    """With attention to neighbours alone a token's state depends on few others, so that windows change little."""
    head = dataclasses.replace(HEAD, num_rnn_layers=0)
    write_gliner(tmp_path / "short", tiny_tokenizer, head=head, max_position_embeddings=40, num_hidden_layers=1)
    find = pipeline("zero-shot-ner", tmp_path / "short")
    text = " ".join(random_texts(12))
    found = find([text, TEXT], TYPES, threshold=0.3, flat_ner=False)
    assert all(text[e["start"] : e["end"]] == e["text"] for e in found[0])
    assert max(e["end"] for e in found[0]) > 0.9 * len(text) and min(e["start"] for e in found[0]) < 0.1 * len(text)
    assert find("x" * 500 + " the old man", TYPES, threshold=0.0)  # a word of more tokens than a row has


@pytest.mark.parametrize(
    ("labels", "options", "message"),
    [
        ([], {}, "labels: expected at least one entity type, found none"),
        ("", {}, "labels: expected names of entity types, found ''"),
        (["person", "person"], {}, "labels: expected each entity type once, found 'person' twice"),
        (["person", " "], {}, "labels: expected names of entity types, found ' '"),
        (["person", 3], {}, "labels: expected names of entity types, found 3"),
        (["\x00"], {}, r"expected names of entity types that have tokens, found '\\x00'"),
        (TYPES, {"threshold": 1.5}, r"threshold: expected a probability in \[0, 1\], found 1.5"),
        (TYPES, {"threshold": float("nan")}, r"threshold: expected a probability in \[0, 1\], found nan"),
        (["old man " * 30], {}, "names leave room for a text in 64 tokens, found 1 types of 63 tokens"),
        (TYPES, {"treshold": 0.5}, "treshold"),
    ],
)
def test_invalid_input(find, labels, options, message):
    with pytest.raises((InputError, TypeError), match=message) as error:
        find([TEXT], labels, **options)
    assert "\n" not in str(error.value)


def test_the_verb(model, tmp_path, capsys, monkeypatch):
    assert main(["tag", str(model), TEXT, "--labels", "person,a tree", "--threshold", "0.4", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer == {"text": TEXT, "entities": pipeline("zero-shot-ner", model)(TEXT, TYPES[:2], threshold=0.4)}
    (tmp_path / "texts.txt").write_text(f"{TEXT}\n\nthe old bird\n")
    arguments = ["tag", str(model), "--file", str(tmp_path / "texts.txt"), "--labels", "person", "--threshold", "0.1"]
    assert main([*arguments, "--nested", "--multi-label"]) == 0
    assert "characters" in capsys.readouterr().out
    assert main([*arguments[:4], "--nested"]) == 2
    assert "--labels: expected types of entities with --nested" in capsys.readouterr().err
    assert main(["tag", str(model), TEXT]) == 2
    assert "needs a trained token_classification head" in capsys.readouterr().err
    assert main([*arguments[:4], "--labels", "a,a"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_another_model(tmp_path, write_small):
    with pytest.raises(InputError, match="zero-shot-ner needs a trained zero_shot_ner head, found none"):
        pipeline("zero-shot-ner", write_small(tmp_path / "bert"))
