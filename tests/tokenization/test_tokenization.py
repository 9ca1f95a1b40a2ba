"""Tokenizers: the original's word pieces, the interface over every kind, files, and learning a vocabulary."""

import gzip
import json
import random
import string
import subprocess
import sys

import numpy as np
import pytest

from bert_jax.errors import InputError
from bert_jax.tokenization import load_tokenizer, train_sentencepiece, train_wordpiece, vocabulary_files, word_piece

SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
TEXTS = [f"The {a} {b} {c} by the river." for a in ("old", "young") for b in ("cat", "dog") for c in ("sat", "sleeps")]


@pytest.fixture(scope="module")
def sentencepiece_tokenizer():
    return train_sentencepiece(TEXTS * 5, 60)


def read_json(path):
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return json.load(file)


# --- The original's word pieces -------------------------------------------------------------------------------------


def test_ten_thousand_questions_give_the_pieces_and_ids_of_the_original(shared_data):
    tokenizer = load_tokenizer(shared_data / "vocab" / "bert-base-uncased-vocab.txt")
    questions = read_json(shared_data / "tokenizer_oracle" / "question_tokens.json.gz")
    ids = read_json(shared_data / "tokenizer_oracle" / "tokenized_questions.json.gz")
    assert len(questions) == 10570
    found = tokenizer.encode_batch([question["original"] for question in questions])
    assert found == ids
    assert [[tokenizer.pieces[i] for i in row] for row in found] == [question["wordpiece"] for question in questions]


def test_encode_and_decode_cases_of_the_uncased_model(shared_data):
    tokenizer = load_tokenizer(shared_data / "vocab" / "bert-base-uncased-vocab.txt")
    cases = read_json(shared_data / "tokenizer_oracle" / "tokenizer_tests.json.gz")["bert-base-uncased"]
    assert cases
    for case in cases:
        batch = tokenizer(case["input"])
        assert {name: batch[name][0].tolist() for name in case["encoded"]} == case["encoded"]
        ids = case["encoded"]["input_ids"]
        assert tokenizer.decode(ids) == case["decoded_without_special"]
        assert tokenizer.decode(ids, skip_special_tokens=False) == case["decoded_with_special"]


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("redoable", ["red", "##o", "##able"]),
        ("The CAT", ["the", "cat"]),
        ("c\u0101t cat\u0301", ["cat", "cat"]),  # accents go with case
        ("cat\x00\ufffd\u200b\x07dog", ["cat", "##d", "##o", "##g"]),  # NUL, U+FFFD, Cf and Cc vanish
        ("cat\tdog\u00a0dog\ndog", ["cat", "dog", "dog", "dog"]),  # every kind of space
        ("cat\ue000", ["[UNK]"]),  # a private-use character is kept, and nothing spells it
        ("cat-dog(cat)", ["cat", "-", "dog", "(", "cat", ")"]),
        ("a$b", ["a", "[UNK]", "b"]),  # ASCII signs are punctuation too
        ("cat\u6c34dog", ["cat", "[UNK]", "dog"]),  # a CJK ideograph stands alone
        ("a" * 200, ["a"] + ["##a"] * 199),
        ("a" * 201, ["[UNK]"]),
        ("", []),
    ],
)
def test_cleaning_and_splitting(tiny_tokenizer, text, pieces):
    assert tiny_tokenizer.tokenize(text) == pieces


def test_cased_keeps_capitals_and_accents():
    tokenizer = word_piece([*SPECIALS, "Cat", "cat", "c\u00e1t"], lowercase=False)
    assert tokenizer.tokenize("Cat cat c\u00e1t") == ["Cat", "cat", "c\u00e1t"]


# --- One interface ---------------------------------------------------------------------------------------------------


def test_special_tokens_in_a_text_are_parsed_only_when_asked(tiny_tokenizer, sentencepiece_tokenizer):
    for tokenizer in (tiny_tokenizer, sentencepiece_tokenizer):
        assert tokenizer.encode("the [MASK] sat").count(tokenizer.mask_id) == 1
        assert tokenizer.mask_id not in tokenizer.encode("the [MASK] sat", parse_special=False)


@pytest.mark.parametrize("lowercase", [True, False])
def test_words_that_are_remembered_have_the_ids_of_the_whole_text(tiny_vocab, lowercase):
    tokenizer, rng = word_piece(tiny_vocab, lowercase=lowercase), random.Random(0)
    strange = "  \t\n\x85\xa0\x1c\0\u200b\u3000\ufffd\u0301\u03a3\u4e00\U0001f600\ue000"
    alphabet = string.printable + 5 * strange
    texts = ["", " ", "the  [MASK] sat", *("".join(rng.choices(alphabet, k=rng.randint(1, 40))) for _ in range(2000))]
    whole = [e.ids for e in tokenizer._plain_backend.encode_batch(texts, add_special_tokens=False)]
    assert tokenizer.encode_batch(texts, parse_special=False) == whole
    assert tokenizer._ids_of_word.cache_info().hits > 100


def test_words_are_not_remembered_where_a_piece_may_span_them(tmp_path, tiny_tokenizer):
    tiny_tokenizer.save(tmp_path)
    content = json.loads((tmp_path / "tokenizer.json").read_text())
    spanning = {"id": tiny_tokenizer.vocab_size, "content": "old cat", "special": False, "single_word": False,
                "lstrip": False, "rstrip": False, "normalized": False}  # fmt: skip
    content["added_tokens"].append(spanning)
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    assert load_tokenizer(tmp_path).encode("the old cat", parse_special=False)[-1] == spanning["id"]


def test_a_batch_of_pairs(tiny_tokenizer):
    t = tiny_tokenizer
    batch = t(["the cat", "a"], ["sat", "the dog sat"], return_offsets=True)
    cls, sep, the, cat, sat, a, dog = (t.token_to_id(p) for p in ("[CLS]", "[SEP]", "the", "cat", "sat", "a", "dog"))
    assert batch["input_ids"].tolist() == [[cls, the, cat, sep, sat, sep, 0], [cls, a, sep, the, dog, sat, sep]]
    assert batch["token_type_ids"].tolist() == [[0, 0, 0, 0, 1, 1, 0], [0, 0, 0, 1, 1, 1, 1]]
    assert batch["attention_mask"].tolist() == [[1] * 6 + [0], [1] * 7]
    assert batch["offset_mapping"][0].tolist() == [[0, 0], [0, 3], [4, 7], [0, 0], [0, 3], [0, 0], [0, 0]]
    assert {array.dtype for array in batch.values()} == {np.dtype(np.int32)}


def test_offsets_point_at_the_text(tiny_tokenizer, sentencepiece_tokenizer):
    text = "The  old [MASK] S\u00e1t."
    for tokenizer in (tiny_tokenizer, sentencepiece_tokenizer):
        batch = tokenizer(text, return_offsets=True)
        marks = batch["input_ids"][0].tolist().index(tokenizer.mask_id)
        start, end = batch["offset_mapping"][0, marks]
        assert text[start:end] == "[MASK]"
        pieces = [text[start:end] for start, end in batch["offset_mapping"][0, 1:-1]]
        assert "".join(pieces) == "Theold[MASK]S\u00e1t."


@pytest.mark.parametrize(
    ("lengths", "max_length", "kept"),
    [((9, 4), 10, (3, 4)), ((4, 9), 10, (4, 3)), ((9, 9), 10, (4, 3)), ((20, 9), 14, (6, 5)), ((2, 3), 10, (2, 3))],
)
def test_truncation_takes_from_the_longer_segment(tiny_tokenizer, lengths, max_length, kept):
    batch = tiny_tokenizer(" ".join("a" * lengths[0]), " ".join("a" * lengths[1]), max_length=max_length)
    ids = batch["input_ids"][0].tolist()
    a, b = ids.index(tiny_tokenizer.sep_id) - 1, batch["token_type_ids"].sum() - 1
    assert sorted((a, b)) == sorted(kept)
    assert (a >= b) == (lengths[0] >= lengths[1]) or a + b == max_length - 3


def test_padding_choices(tiny_tokenizer):
    shape = lambda **options: tiny_tokenizer(["a a a", "a"], **options)["input_ids"].shape  # noqa: E731
    assert shape() == (2, 5)
    assert shape(pad_to_multiple_of=8) == (2, 8)
    assert shape(padding="max_length", max_length=12) == (2, 12)
    assert tiny_tokenizer(["a", "a"], padding=False)["input_ids"].shape == (2, 3)
    for options in ({"padding": False}, {"padding": "longst"}, {"padding": "max_length"}):
        with pytest.raises(InputError, match="padding"):
            shape(**options)
    with pytest.raises(InputError, match="text 0: expected at most 4 tokens, found 5"):
        shape(max_length=4, truncation=False)
    with pytest.raises(InputError, match="max_length"):
        shape(max_length=2)


def test_wrong_arguments_are_named(tiny_tokenizer):
    with pytest.raises(InputError, match="as many text_pairs as texts, found 1 and 2"):
        tiny_tokenizer(["a", "b"], ["c"])
    with pytest.raises(InputError, match="text 1: expected a string, found int"):
        tiny_tokenizer(["a", 3])
    with pytest.raises(InputError, match="at least one text"):
        tiny_tokenizer([])
    with pytest.raises(InputError, match="token id 9999"):
        tiny_tokenizer.id_to_token(9999)
    assert tiny_tokenizer.token_to_id("no such piece") is None


def test_continuations_and_specials(tiny_tokenizer, sentencepiece_tokenizer):
    t = tiny_tokenizer
    assert t.special_ids == (0, 1, 2, 3, 4)
    assert [t.is_continuation[t.token_to_id(p)] for p in ("##ed", "cat", "[MASK]")] == [True, False, False]
    s = sentencepiece_tokenizer
    begins = [piece for piece, goes_on in zip(s.pieces, s.is_continuation, strict=True) if not goes_on]
    assert all(piece.startswith("\u2581") or s.token_to_id(piece) in s.special_ids for piece in begins)


def test_sentencepiece_round_trip(sentencepiece_tokenizer):
    tokenizer = sentencepiece_tokenizer
    ids = tokenizer.encode("the old cat [MASK] by the river.")
    assert tokenizer.decode(ids, skip_special_tokens=False) == "the old cat [MASK] by the river."
    assert tokenizer.decode(ids) == "the old cat by the river."


# --- Files -----------------------------------------------------------------------------------------------------------


def test_saved_and_loaded_again_gives_the_same(tmp_path, tiny_tokenizer, sentencepiece_tokenizer):
    for i, tokenizer in enumerate(
        (tiny_tokenizer, sentencepiece_tokenizer, word_piece([*SPECIALS, "Cat"], lowercase=False))
    ):
        directory = tmp_path / str(i)
        tokenizer.save(directory)
        again = load_tokenizer(directory)
        assert type(again) is type(tokenizer)
        assert again.fingerprint == tokenizer.fingerprint and again.special_ids == tokenizer.special_ids
        text = "The Cat [MASK] sleeps, un\u00e1ble"
        assert again.encode(text) == tokenizer.encode(text)
        assert set(tokenizer.saved_files) == {path.name for path in directory.iterdir()}


def test_transformers_reads_what_is_saved(tmp_path, tiny_vocab, sentencepiece_tokenizer):
    transformers = pytest.importorskip("transformers", reason="compares with transformers, which is not installed")
    for i, tokenizer in enumerate((word_piece(tiny_vocab, max_length=64), sentencepiece_tokenizer)):
        directory = tmp_path / str(i)
        tokenizer.save(directory)
        theirs = transformers.AutoTokenizer.from_pretrained(directory)
        for a, b in (("The old cat [MASK]!", "un\u00e1ble to  sleep"), ("x", "the dog sat by the old river " * 3)):
            ours = tokenizer(a, b, max_length=16)
            expected = theirs(a, b, max_length=16, truncation=True)
            assert ours["input_ids"][0].tolist() == expected["input_ids"]
            assert ours["token_type_ids"][0].tolist() == expected["token_type_ids"]
        assert theirs.mask_token_id == tokenizer.mask_id and theirs.pad_token_id == tokenizer.pad_id
    assert theirs.vocab_size == tokenizer.vocab_size


@pytest.mark.parametrize("added", ["<URL>", "[USER]", "HTTPURL", "@USER"])
def test_special_tokens_in_capitals_are_no_evidence_of_a_cased_vocabulary(tmp_path, caplog, added):
    (tmp_path / "vocab.txt").write_text("\n".join([*SPECIALS, "paris", "is", added]))
    assert load_tokenizer(tmp_path / "vocab.txt").tokenize("Paris IS") == ["paris", "is"]
    assert not caplog.messages


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (list("ACDEFGHIKLMNPQRSTVWY"), "Q V Q L"),  # residues of a protein
        (["AAA", "AAC", "AAG", "AAT"], "AAC AAT"),  # 3-mers of DNA
        (["C", "N", "O", "Cl", "Br", "c", "n", "o", "1", "(", ")"], "C c Cl"),  # atoms of SMILES
    ],
)
def test_letters_of_a_science_keep_their_case_without_a_setting(tmp_path, words, text):
    (tmp_path / "vocab.txt").write_text("\n".join([*SPECIALS, *words]))
    assert load_tokenizer(tmp_path / "vocab.txt").tokenize(text) == text.split()


def test_a_cased_vocabulary_without_a_setting_is_told(shared_data, caplog, monkeypatch):
    monkeypatch.setattr(vocabulary_files._log, "_warned", set())  # a process is told once
    tokenizer = load_tokenizer(shared_data / "vocab" / "bert-base-cased-vocab.txt")
    assert tokenizer.tokenize("Paris is") == ["Paris", "is"]
    assert "its words have capitals, so texts are not lower-cased" in caplog.text


def test_case_is_guessed_from_a_bare_vocabulary_and_can_be_said(tmp_path):
    cased, uncased = tmp_path / "cased.txt", tmp_path / "uncased.txt"
    cased.write_text("\n".join([*SPECIALS, "Cat", "cat"]) + "\n")
    uncased.write_text("\n".join([*SPECIALS, "cat"]))  # the last newline may be missing
    assert load_tokenizer(cased).tokenize("Cat") == ["Cat"]
    assert load_tokenizer(uncased).tokenize("Cat") == ["cat"]
    assert load_tokenizer(cased, lowercase=True).tokenize("Cat") == ["cat"]


def test_tokenizer_config_is_honoured(tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join([*SPECIALS, "cat", "Cat", "c\u00e1t", "\u6c34\u6c34"]))
    config = {"do_lower_case": True, "strip_accents": False, "tokenize_chinese_chars": False, "model_max_length": 77}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer.tokenize("Cat C\u00e1t \u6c34\u6c34") == ["cat", "c\u00e1t", "\u6c34\u6c34"]
    assert tokenizer.max_length == 77


def test_tokenizer_json_is_read_as_it_is_but_for_the_config(tmp_path, tiny_tokenizer):
    tiny_tokenizer.save(tmp_path)
    content = json.loads((tmp_path / "tokenizer.json").read_text())
    content["truncation"] = {"max_length": 3, "strategy": "LongestFirst", "stride": 0, "direction": "Right"}
    content["model"]["max_input_chars_per_word"] = 4
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": False}))
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer.tokenize("house cat a a a") == ["[UNK]", "cat", "a", "a", "a"]
    assert tokenizer.tokenize("Cat") == ["[UNK]"]
    assert load_tokenizer(tmp_path / "tokenizer.json").tokenize("Cat") == ["cat"]


def test_special_tokens_of_a_foreign_sentencepiece_model(shared_data):
    tokenizer = load_tokenizer(shared_data / "vocab" / "xlnet-base-cased-spiece.model")
    names = [tokenizer.pieces[i] for i in (tokenizer.pad_id, tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id)]
    assert names == ["<pad>", "<cls>", "<sep>", "<mask>"] and tokenizer.unk_id == 0


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("vocab.txt", b"", "empty"),
        ("vocab.txt", b"[PAD]\n[UNK]\ncat\n", r"found none for cls, sep among 3 tokens"),
        ("vocab.txt", b"[PAD]\n\xff\n", "UTF-8.*0xff.*line 2"),
        ("tokenizer.json", b'{"model": ', "expected JSON"),
        ("tokenizer.json", b"[]", "JSON object, found list"),
        ("tokenizer.json", b'{"model": {"type": "WordPiece"}}', "tokenizers library"),
        ("x.model", b"not a model", "SentencePiece"),
        ("x.bin", b"what", "expected a vocab.txt"),
    ],
)
def test_bad_files_are_named(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(InputError, match=message) as error:
        load_tokenizer(path)
    assert str(path) in str(error.value) and "\n" not in str(error.value)


def test_missing_paths_are_named(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        load_tokenizer(tmp_path / "vocab.txt")
    with pytest.raises(InputError, match=r"a tokenizer.json, a vocab.txt, a vocab.json or one \*.model, found none"):
        load_tokenizer(tmp_path)


def test_a_sentencepiece_model_without_the_special_tokens(tmp_path):
    import io

    import sentencepiece

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS), model_writer=model, vocab_size=40, hard_vocab_limit=False, minloglevel=2
    )
    (tmp_path / "x.model").write_bytes(model.getvalue())
    with pytest.raises(InputError, match=r"pad token \(<pad> or \[PAD\]\)"):
        load_tokenizer(tmp_path / "x.model")


# --- Learning a vocabulary -------------------------------------------------------------------------------------------

TRAIN = """
import random
from bert_jax.tokenization import train_wordpiece, train_sentencepiece
rng = random.Random(0)
words = ["".join(rng.choices("abcdefgh", k=rng.randint(2, 7))) for _ in range(300)]
texts = [" ".join(rng.choices(words, k=12)) for _ in range(300)]
print(train_wordpiece(texts, 200).fingerprint, train_sentencepiece(texts, 120).fingerprint)
"""


def test_the_same_text_gives_the_same_vocabulary_in_every_process():
    # The words are many and equally frequent, so that an order left to hash maps would show.
    outputs = {subprocess.run([sys.executable, "-c", TRAIN], capture_output=True, check=True).stdout for _ in range(3)}
    assert len(outputs) == 1


def test_learnt_word_pieces():
    tokenizer = train_wordpiece(iter(TEXTS * 3), 80)
    assert tokenizer.pieces[:5] == tuple(SPECIALS)
    assert tokenizer.vocab_size <= 80
    assert tokenizer.tokenize("The river") == ["the", "river"]
    assert tokenizer.unk_id not in tokenizer.encode("tac god revir")  # the alphabet spells anything
    assert train_wordpiece(TEXTS, 80, lowercase=False).tokenize("The") != ["the"]


def test_learning_from_more_texts_than_fit_draws_a_fixed_sample():
    first = train_sentencepiece(TEXTS * 5, 50, max_texts=10)
    assert first.fingerprint == train_sentencepiece(TEXTS * 5, 50, max_texts=10).fingerprint
    assert first.vocab_size <= 50


def test_vocabularies_that_cannot_be_learnt():
    with pytest.raises(InputError, match="found none"):
        train_wordpiece(["  "], 100)
    with pytest.raises(InputError, match="found none"):
        train_sentencepiece([], 100)
    with pytest.raises(InputError, match="vocab_size 10: expected at least"):
        train_wordpiece(TEXTS, 10)
    with pytest.raises(InputError, match="vocab_size 3"):
        train_sentencepiece(TEXTS, 3)
    with pytest.raises(InputError, match="model_type"):
        train_sentencepiece(TEXTS, 50, model_type="words")


def test_a_long_text_is_encoded_in_parts_to_the_same_ids(tiny_tokenizer, monkeypatch):
    text = " ".join(["the cat, sat!", "on a\ntree", "unaffable"] * 40)
    whole = tiny_tokenizer.encode_batch([text, "the cat"])
    monkeypatch.setattr("bert_jax.tokenization.huggingface.LONG_TEXT", 50)
    assert tiny_tokenizer.encode_batch([text, "the cat"]) == whole
    assert tiny_tokenizer.encode_batch(["." * 120]) == [tiny_tokenizer.encode_batch(["."])[0] * 120]
