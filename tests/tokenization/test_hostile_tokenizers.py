"""Tokenizer files that would crash, hang or fill memory, and texts that are no Unicode, end in one line."""

import base64
import json
import struct
import subprocess
import sys
import time

import jax
import numpy as np
import pytest
from sentencepiece import sentencepiece_model_pb2

from bert_jax.cli import main
from bert_jax.config import BertConfig
from bert_jax.conversion.huggingface import save_pretrained
from bert_jax.errors import InputError
from bert_jax.modeling import Bert
from bert_jax.tokenization import load_tokenizer, train_bpe, train_sentencepiece, train_wordpiece
from bert_jax.tokenization.charsmap import check_charsmap

TEXTS = ["the cat and the dog", "a cat, the river"] * 20
VOCABULARY = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4}
WORD_PIECE = {
    "type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 9
}  # fmt: skip


@pytest.fixture(scope="module")
def model():
    """A SentencePiece model with the normalisation of NFKC."""
    return train_sentencepiece(TEXTS, 50)


@pytest.fixture(scope="module")
def charsmap(model):
    return sentencepiece_model_pb2.ModelProto.FromString(model._model).normalizer_spec.precompiled_charsmap


@pytest.fixture
def edited(tmp_path, tiny_tokenizer):
    """The path of a tokenizer.json with some parts changed."""

    def edit(**changes):
        tiny_tokenizer.save(tmp_path)
        path = tmp_path / "tokenizer.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))
        return path

    return edit


def replace(pattern, content):
    return {"type": "Replace", "pattern": pattern, "content": content}


def split(pattern):
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def in_sequence(*normalizers):
    return {"type": "Sequence", "normalizers": list(normalizers)}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"normalizer": replace({"Regex": "(a"}, "")}, "unmatched parenthesis"),
        ({"decoder": replace({"Regex": "[a"}, "")}, "expected a tokenizer.json of the tokenizers library"),
        ({"normalizer": replace({"String": "a"}, "a" * 900 + "b" * 200)}, "at most 1000 characters, found 1100"),
        ({"normalizer": in_sequence(*[replace({"String": "a"}, "aaaa")] * 9)}, "found some that make 262144"),
        ({"normalizer": in_sequence(*[replace({"Regex": " {2,}"}, "a" * 50)] * 2)}, "found some that make 2601"),
        ({"normalizer": in_sequence(*[{"type": "Lowercase"}] * 1001)}, "at most 1000 parts"),
        (
            {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA"}},
            "expected a trie and its replacements",
        ),
        ({"normalizer": {"type": "Precompiled", "precompiled_charsmap": "\u00fc"}}, "expected base64"),
        ({"model": {"type": "WordPiece", "vocab": {"a": 2**32 - 1}}}, "'a': expected an id from 0 to"),
        ({"model": WORD_PIECE | {"vocab": VOCABULARY | {"a": 10**6}}}, "expected ids without large gaps"),
        ({"model": {"type": "WordPiece", "vocab": {"a": 10**30}}}, "'a': expected an id from 0 to"),
        ({"model": {"type": "WordPiece", "vocab": {}, "max_input_chars_per_word": 2**60}}, "expected at most 1000"),
        ({"model": {"type": "BPE", "vocab": {}, "merges": [], "dropout": 0.5}}, "dropout: expected null"),
        (
            {"model": {"type": "BPE", "vocab": {}, "merges": [["a", "b"]], "continuing_subword_prefix": "##"}},
            "a second piece that begins with '##'",
        ),
        ({"added_tokens": [{"content": "x", "id": 2**40}]}, "added_tokens: number 1: id: expected an id"),
        ({"added_tokens": [{"content": "x" * 2000, "id": 3}]}, "expected a token of 1 to 1000 characters"),
        ({"pre_tokenizer": {"type": "FixedLength", "length": 0}}, "FixedLength: length: expected at least 1"),
        ({"decoder": {"type": "Strip", "content": "a", "start": 2**40, "stop": 0}}, "start: expected at most"),
        ({"padding": {"direction": "Up"}}, "padding: expected null, or a direction"),
        ({"padding": {"direction": "Left"}}, "padding_side: expected 'right', found 'left'"),
        ({"version": "3.0"}, "version: expected '1.0', found '3.0'"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_hostile_tokenizer_json_is_refused_in_seconds(edited, changes, message):
    path, start = edited(**changes), time.monotonic()
    with pytest.raises(InputError, match=message) as error:
        load_tokenizer(path)
    assert time.monotonic() - start < 20
    assert str(path) in str(error.value) and len(str(error.value)) <= 500 and "\n" not in str(error.value)


@pytest.mark.parametrize("content", ['{"model":' * 100_000, '{"model": ' + "9" * 5000 + "}", '{"a": "\\ud800"}'])
def test_json_that_cannot_be_read_is_refused(edited, content):
    path = edited()
    path.write_text(content)
    with pytest.raises(InputError, match="expected"):
        load_tokenizer(path)


@pytest.mark.parametrize(
    ("changes", "text", "pieces"),
    [
        ({"pre_tokenizer": split("(?<=a)b|[^a-z]{2,}?c")}, "the cat", None),
        (
            {"normalizer": in_sequence(*[replace({"String": c}, " smile ") for c in "\u263a\u263b\u2639"])},
            "\u263a",
            None,
        ),
        ({"normalizer": replace({"Regex": " {2,}"}, " ")}, "the   cat", ["the", "cat"]),
    ],
)
def test_unusual_parts_that_do_no_harm_are_taken(edited, changes, text, pieces):
    tokenizer = load_tokenizer(edited(**changes))
    assert tokenizer.encode(text)
    assert pieces is None or tokenizer.tokenize(text) == pieces


# --- Compiled normalisations ------------------------------------------------------------------------------------------


def test_the_normalisation_of_sentencepiece_is_whole(charsmap):
    check_charsmap(charsmap)


def test_damaged_normalisations_are_seen(charsmap):
    size = struct.unpack("<I", charsmap[:4])[0]
    units = np.frombuffer(charsmap, "<u4", size // 4, offset=4).copy()
    texts = charsmap[4 + size :]

    def packed(units, texts, size=size):
        return struct.pack("<I", size) + units.astype("<u4").tobytes() + texts

    out_of_trie, far_leaf = units.copy(), units.copy()
    out_of_trie[0] = 0x3FFFFF << 10 | 0x200
    leaves = np.flatnonzero((units >> 31) == 1)
    far_leaf[leaves] = 0x80000000 | 0x7FFFFFF
    for damaged, message in (
        (b"", "found 0 bytes"),
        (charsmap[:1000], "found 1000 bytes"),
        (packed(units, texts, size - 2), "expected a trie"),
        (packed(out_of_trie, texts), "found a step outside it"),
        (packed(far_leaf, texts), "found a replacement that does not"),
        (packed(units, b"x" * len(texts)), "found a replacement that does not"),
        (packed(units, b"x" * 300 + texts[300:]), "at most 256 bytes"),
        (packed(units, texts.replace(b"\xc2", b"\xff")), "expected replacements in UTF-8"),
    ):
        with pytest.raises(InputError, match=message):
            check_charsmap(damaged)


def test_a_sentencepiece_model_with_a_damaged_normalisation_is_refused(tmp_path, model, charsmap):
    proto = sentencepiece_model_pb2.ModelProto.FromString(model._model)
    for spec in ("normalizer_spec", "denormalizer_spec"):
        broken = sentencepiece_model_pb2.ModelProto.FromString(model._model)
        getattr(broken, spec).precompiled_charsmap = charsmap[:4] + b"\xff" * (len(charsmap) - 4)
        (tmp_path / "x.model").write_bytes(broken.SerializeToString())
        with pytest.raises(InputError, match=rf"x.model: {spec}.precompiled_charsmap: expected"):
            load_tokenizer(tmp_path / "x.model")
    (tmp_path / "x.model").write_bytes(proto.SerializeToString())
    assert load_tokenizer(tmp_path / "x.model").tokenize("the cat") == model.tokenize("the cat")


def test_bit_flips_of_a_normalisation_end_no_process(tmp_path, charsmap):
    """What is not refused, the library runs over text: in a process of its own, that a crash would end."""
    vocab = [["[PAD]", 0.0], ["[UNK]", 0.0], ["[CLS]", 0.0], ["[SEP]", 0.0], ["[MASK]", 0.0], ["a", -1.0]]
    for seed in range(6):
        rng, damaged = np.random.default_rng(seed), bytearray(charsmap)
        for place in rng.integers(0, len(damaged), (1, 30, 1000)[seed % 3]):
            damaged[place] = rng.integers(256)
        normalizer = {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(bytes(damaged)).decode()}
        content = {
            "version": "1.0",
            "normalizer": normalizer,
            "model": {"type": "Unigram", "unk_id": 1, "vocab": vocab},
        }
        (tmp_path / f"{seed}.json").write_text(json.dumps(content))
    script = f"""
import glob, sys
from bert_jax.errors import InputError
from bert_jax.tokenization import load_tokenizer
text = "".join(map(chr, [*range(1, 0xd800), *range(0xe000, 0x20000)]))
for path in glob.glob({str(tmp_path)!r} + "/*.json"):
    try:
        load_tokenizer(path).encode(text)
    except InputError:
        pass
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0 and "panicked" not in done.stderr, done.stderr[-2000:]


# --- Texts that are no Unicode ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "sentencepiece"])
def test_half_a_surrogate_pair_is_named(kind, tiny_tokenizer, model):
    tokenizer = {"wordpiece": tiny_tokenizer, "bpe": train_bpe(TEXTS, 300), "sentencepiece": model}[kind]
    texts = ["the cat", "the \ud83d cat"]
    message = r"expected Unicode text, found half a surrogate pair, U\+D83D, at character 5"
    for call in (
        tokenizer,
        tokenizer.encode_batch,
        tokenizer.encode_batch_with_offsets,
        lambda texts: tokenizer.encode_batch(texts, parse_special=False),
        lambda texts: tokenizer(["a", "b"], texts),
    ):
        with pytest.raises(InputError, match="text 1: " + message):
            call(texts)
    for call in (tokenizer.encode, tokenizer.tokenize, tokenizer):
        with pytest.raises(InputError, match="text 0: " + message):
            call(texts[1])


@pytest.mark.parametrize("train", [train_wordpiece, train_bpe, train_sentencepiece])
def test_half_a_surrogate_pair_is_not_learnt_from(train):
    with pytest.raises(InputError, match=r"text 40: .*half a surrogate pair, U\+DC00, at character 1"):
        train([*TEXTS, "\udc00"], 300)


def test_bytes_of_the_command_line_that_are_no_text_are_named(tmp_path, tiny_tokenizer, capsys):
    config = BertConfig(
        vocab_size=tiny_tokenizer.vocab_size, hidden_size=8, num_hidden_layers=1, num_attention_heads=1,
        intermediate_size=8, max_position_embeddings=32)  # fmt: skip
    params = Bert(config, "masked_lm").init(jax.random.key(0))
    save_pretrained(tmp_path / "model", config, "masked_lm", params, tiny_tokenizer)
    assert main(["fill-mask", str(tmp_path / "model"), "[MASK] caf\udce9"]) == 2
    expected = "text 1 of the command line: expected UTF-8 text, found byte 0xe9 at offset 10"
    assert capsys.readouterr().err == f"bert-jax: {expected}\n"
