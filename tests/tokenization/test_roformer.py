"""Tokenizer of Chinese RoFormers: words of rjieba, as transformers segments them."""

import gzip
import json
import random
import sys

import pytest

from bert_jax.errors import InputError
from bert_jax.tokenization import load_tokenizer

pytest.importorskip("rjieba", reason="rjieba segments the words")
SENTENCES = [
    "今天天气非常好。",
    "我在北京大学学习，GPT-4也不错!",
    "房间太小,服务员态度 很好",
    "The café on 中山路 closed.",
    "",
]


def vocabulary(shared_data):
    """Chinese BERT's pieces, and words of several ideographs."""
    pieces = (shared_data / "vocab" / "bert-base-chinese-vocab.txt").read_text(encoding="utf-8").split("\n")
    return [piece for piece in pieces if piece] + [
        "今天",
        "非常",
        "北京大学",
        "天气",
        "学习",
        "服务员",
        "态度",
        "很好",
        "不错",
    ]


@pytest.fixture
def folder(shared_data, tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join(vocabulary(shared_data)) + "\n", encoding="utf-8")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "roformer"}))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "RoFormerTokenizer"}))
    return tmp_path


def texts(shared_data):
    with gzip.open(shared_data / "tokenizer_oracle" / "question_tokens.json.gz", "rt", encoding="utf-8") as file:
        questions = [question["original"] for question in json.load(file)]
    reviews = (shared_data / "zh_chnsenticorp" / "dev.tsv").read_text(encoding="utf-8").splitlines()[1:300]
    pick = random.Random(0)
    strange = ["".join(chr(pick.randrange(1, 0xD800)) for _ in range(20)) for _ in range(200)]
    return SENTENCES + questions + reviews + strange


def test_ids_are_those_of_transformers(folder, shared_data):
    transformers = pytest.importorskip("transformers", reason="transformers is the oracle")
    ids = {piece: i for i, piece in enumerate(vocabulary(shared_data))}  # from_pretrained of 5.24 looks words up in the
    theirs, ours = transformers.RoFormerTokenizer(ids), load_tokenizer(folder)  # path of the vocabulary
    given = texts(shared_data)
    expected = theirs(given, add_special_tokens=False)["input_ids"]
    assert ours.encode_batch(given) == expected
    assert [ids for ids, _ in ours.encode_batch_with_offsets(given)] == expected
    pair = ours(["今天天气非常好。"], ["北京大学"])
    found = theirs("今天天气非常好。", "北京大学", return_token_type_ids=True)
    assert pair["input_ids"][0].tolist() == found["input_ids"]
    assert pair["token_type_ids"][0].tolist() == found["token_type_ids"]


def test_words_of_several_ideographs_are_tokens(folder):
    tokenizer = load_tokenizer(folder)
    assert tokenizer.tokenize("北京大学的天气") == ["北京大学", "的", "天气"]
    (_, offsets) = tokenizer.encode_batch_with_offsets(["北京大学的天气"])[0]
    assert offsets == [(0, 4), (4, 5), (5, 7)]
    assert tokenizer.tokenize("[MASK]天气")[0] == "[MASK]" and "[MASK]" not in [
        tokenizer.pieces[i] for i in tokenizer.encode("[MASK]天气", parse_special=False)
    ]


def test_a_saved_copy_is_the_same(folder, tmp_path, shared_data):
    given, tokenizer = texts(shared_data)[:300], load_tokenizer(folder)
    tokenizer.save(tmp_path / "saved")
    again = load_tokenizer(tmp_path / "saved")
    assert again.encode_batch(given) == tokenizer.encode_batch(given)
    (tmp_path / "saved" / "vocab.txt").unlink()  # tokenizer.json alone
    assert load_tokenizer(tmp_path / "saved").encode_batch(given) == tokenizer.encode_batch(given)


def test_without_the_package(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "rjieba", None)
    with pytest.raises(InputError, match=r"expected the package rjieba, .*found none: pip install .*\[rjieba\]'"):
        load_tokenizer(folder)
