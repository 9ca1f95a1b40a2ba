"""Rows as a family lays them out: read from files, written into batches; and files that do not fit."""

import itertools
import json

import numpy as np
import pytest

from bert_jax.cli import main
from bert_jax.data.pretraining.prepare import prepare
from bert_jax.data.pretraining.prepared import PreparedInstances
from bert_jax.errors import InputError
from bert_jax.tokenization import (
    FastBpeTokenizer,
    RowLayout,
    byte_level_bpe,
    load_tokenizer,
    mpnet,
    train_bpe,
    xlm_roberta,
)

SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
ROBERTA = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
TEXTS = [f"The {a} {b} {c} by the river." for a in ("old", "young") for b in ("cat", "dog") for c in ("sat", "sleeps")]


@pytest.fixture(scope="module")
def bpe():
    return train_bpe(TEXTS * 3, 340)


@pytest.fixture
def edited(tmp_path, tiny_tokenizer):
    """Saves BERT's tokenizer with something in its tokenizer.json changed, and returns the folder."""

    def edit(**changes):
        tiny_tokenizer.save(tmp_path)
        content = json.loads((tmp_path / "tokenizer.json").read_text())
        (tmp_path / "tokenizer.json").write_text(json.dumps(content | changes))
        return tmp_path

    return edit


def template(single, pair, tokens):
    """A TemplateProcessing of tokenizer.json from words such as `$A:0` and `[SEP]:1`."""

    def item(word):
        name, _, type_id = word.rpartition(":")
        kind = "Sequence" if name.startswith("$") else "SpecialToken"
        return {kind: {"id": name.removeprefix("$"), "type_id": int(type_id)}}

    special = {name: {"id": name, "ids": [i], "tokens": [name]} for name, i in tokens.items()}
    single, pair = ([item(word) for word in words.split()] for words in (single, pair))
    return {"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": special}


# --- Read from tokenizer.json -----------------------------------------------------------------------------------------

CLS_SEP = {"[CLS]": 2, "[SEP]": 3}
BERT_PAIR = "[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1"


@pytest.mark.parametrize(
    ("post_processor", "layout"),
    [
        (None, RowLayout((2,), (3,), (3,), 1)),
        ({"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]}, RowLayout((2,), (3,), (3,), 1)),
        (
            {"type": "RobertaProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2], "trim_offsets": True,
             "add_prefix_space": False},
            RowLayout((2,), (3, 3), (3,), 0),
        ),
        (template("[CLS]:0 $A:0 [SEP]:0", BERT_PAIR, CLS_SEP), RowLayout((2,), (3,), (3,), 1)),
        (template("$A:0 [SEP]:0", "$A:0 [SEP]:0 [CLS]:0 $B:0 [SEP]:0", CLS_SEP), RowLayout((), (3, 2), (3,), 0)),
        (
            {"type": "Sequence", "processors": [
                {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True},
                template("[CLS]:0 $A:0 [SEP]:0", BERT_PAIR, CLS_SEP)]},
            RowLayout((2,), (3,), (3,), 1),
        ),
    ],
)  # fmt: skip
def test_the_file_says_how_rows_are_laid_out(edited, post_processor, layout):
    tokenizer = load_tokenizer(edited(post_processor=post_processor))
    assert tokenizer.layout == layout
    batch = tokenizer("a cat", "the dog sat", return_offsets=True)
    a, b = tokenizer.encode("a cat"), tokenizer.encode("the dog sat")
    assert batch["input_ids"][0].tolist() == [*layout.start, *a, *layout.between, *b, *layout.end]
    types = [0] * len([*layout.start, *a, *layout.between]) + [layout.second_type] * len([*b, *layout.end])
    assert batch["token_type_ids"][0].tolist() == types
    second = batch["offset_mapping"][0, len(layout.start) + len(a) + len(layout.between) :][: len(b)]
    assert second.tolist() == [[0, 3], [4, 7], [8, 11]]
    assert tokenizer("a cat")["input_ids"][0].tolist() == [*layout.start, *a, *layout.end]


def test_without_a_word_about_rows_the_names_of_the_special_tokens_tell(tmp_path, bpe):
    bpe.save(tmp_path)
    content = json.loads((tmp_path / "tokenizer.json").read_text())
    for silent in (None, {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}):
        (tmp_path / "tokenizer.json").write_text(json.dumps(content | {"post_processor": silent}))
        tokenizer = load_tokenizer(tmp_path / "tokenizer.json")
        assert tokenizer.layout == RowLayout.roberta(bpe.cls_id, bpe.sep_id)
        tokenizer.save(tmp_path / "said")
        assert json.loads((tmp_path / "said" / "tokenizer.json").read_text())["post_processor"] != silent


def test_models_that_are_not_told_segments_apart_get_one_type(edited):
    directory = edited()
    assert load_tokenizer(directory)("a", "a")["token_type_ids"].any()
    (directory / "config.json").write_text(json.dumps({"model_type": "distilbert"}))
    assert not load_tokenizer(directory)("a", "a")["token_type_ids"].any()


@pytest.mark.parametrize(
    ("post_processor", "message"),
    [
        (
            template("[CLS]:0 $A:0 [SEP]:0", BERT_PAIR, {"[CLS]": 2, "[SEP]": 7}),
            r"found '\[SEP\]' with ids \[7\], which has id 3",
        ),
        (template("<x>:0 $A:0", "<x>:0 $A:0 $B:0", {"<x>": 900}), r"found '<x>' with ids \[900\], which has none in"),
        ({"type": "BertProcessing", "sep": ["</s>", 3], "cls": ["[CLS]", 2]}, "found '</s>' with ids"),
        (
            template("[CLS]:0 $A:0 [SEP]:0", "$A:0 $B:1", CLS_SEP),
            r"found '\[CLS\]:0 \$A:0 \[SEP\]:0' for one text and '\$A:0 \$B:1' for a pair",
        ),
        (
            template("[CLS]:0 $A:0", "[CLS]:0 $B:0 $A:0", CLS_SEP),
            "expected special tokens of type 0 around a single text",
        ),
        (template("$A:0 [SEP]:0 [CLS]:2", "$A:0 [SEP]:0 $B:1 [SEP]:1 [CLS]:2", CLS_SEP), r"\[CLS\]:2"),
        (
            template("[CLS]:0 $A:0 [SEP]:0", BERT_PAIR, {"[CLS]": 2}),
            r"expected a special token among \[CLS\], found '\[SEP\]'",
        ),
    ],
)
def test_rows_that_cannot_be_are_refused(edited, post_processor, message):
    directory = edited(post_processor=post_processor)
    with pytest.raises(InputError, match=message) as error:
        load_tokenizer(directory)
    assert str(directory) in str(error.value) and "\n" not in str(error.value)


# --- Pieces of words --------------------------------------------------------------------------------------------------


def test_a_byte_level_piece_begins_a_word_where_it_begins_with_a_space(bpe):
    goes_on = {piece: bool(bpe.is_continuation[i]) for i, piece in enumerate(bpe.pieces)}
    assert not goes_on["\u0120"] and not goes_on["\u0120the"] and goes_on["."] and goes_on["a"]
    assert not any(goes_on[token] for token in ROBERTA)


def test_special_tokens_in_a_corpus_are_text(bpe):
    xlm = xlm_roberta(unigrams())
    pieces = mpnet(["<s>", "<pad>", "</s>", "[UNK]", "the", "mask", "<", ">", "/", "s", "<mask>"])
    for tokenizer in (bpe, xlm, pieces):
        text = "the <mask> the</s>"
        assert tokenizer.encode(text).count(tokenizer.mask_id) == 1
        assert not {tokenizer.mask_id, tokenizer.sep_id} & set(tokenizer.encode(text, parse_special=False))
    assert bpe.decode(bpe.encode("the <mask> the</s>", parse_special=False)) == "the <mask> the</s>"


def unigrams():
    import io

    import sentencepiece

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([*TEXTS, "the <mask> or </s> of a text"] * 3), model_writer=model, vocab_size=60,
        hard_vocab_limit=False, minloglevel=2)  # fmt: skip
    return model.getvalue()


# --- Learnt -----------------------------------------------------------------------------------------------------------


def test_learnt_byte_pairs(bpe):
    assert bpe.pieces[:5] == tuple(ROBERTA) and bpe.vocab_size <= 340
    assert bpe.tokenize("The cat sat by the river.") == [
        "The",
        *("\u0120" + w for w in ["cat", "sat", "by", "the", "river"]),
        ".",
    ]
    text = "\u6c34 \U0001f600 nai\u0308ve\x00 \t x"
    assert bpe.decode(bpe.encode(text)) == text  # bytes spell anything
    assert train_bpe(TEXTS, 300, add_prefix_space=True).tokenize("The")[0].startswith("\u0120")
    assert bpe.fingerprint == train_bpe(iter(TEXTS * 3), 340).fingerprint
    with pytest.raises(InputError, match="vocab_size 260: expected at least 261"):
        train_bpe(TEXTS, 260)
    with pytest.raises(InputError, match="found none"):
        train_bpe(["  ", ""], 300)


def test_saved_byte_pairs_come_back_from_either_file(tmp_path, bpe):
    bpe.save(tmp_path)
    expected = bpe("The old <mask>.", "a dog")["input_ids"].tolist()
    for removed in ((), ("tokenizer.json",)):
        for name in removed:
            (tmp_path / name).unlink()
        again = load_tokenizer(tmp_path)
        assert again("The old <mask>.", "a dog")["input_ids"].tolist() == expected
        assert (again.fingerprint, again.layout) == (bpe.fingerprint, bpe.layout)


def test_the_command_line_trains_byte_pairs(tmp_path, capsys):
    (tmp_path / "corpus.txt").write_text("\n".join(TEXTS))
    command = ["train-tokenizer", str(tmp_path / "corpus.txt"), "--kind", "bpe", "--vocab-size", "300"]
    assert main([*command, "--out", str(tmp_path / "out")]) == 0
    assert "vocabulary of" in capsys.readouterr().out
    assert load_tokenizer(tmp_path / "out").layout.between == (2, 2)


# --- Pretraining ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("objective", "packed"), [("nsp", False), ("mlm", False), ("sop", True)])
def test_prepared_rows_are_laid_out_as_the_tokenizer_has_them(tmp_path, bpe, objective, packed):
    (tmp_path / "corpus.txt").write_text("\n\n".join("\n".join(TEXTS[i:] + TEXTS[:i]) for i in range(8)))
    prepare(
        str(tmp_path / "corpus.txt"), bpe, tmp_path / "out", objective=objective, packed=packed, max_seq_length=48,
        dupe_factor=1, validation_fraction=0, num_workers=1)  # fmt: skip
    examples = PreparedInstances(tmp_path / "out", "train", 48, mask_replace_prob=0.0, random_replace_prob=0.0)
    batch = examples.batch(np.arange(len(examples)), np.zeros(len(examples), np.int64))
    assert not batch["token_type_ids"].any()
    start, sep = bpe.cls_id, bpe.sep_id
    for ids in batch["input_ids"]:
        row = ids[ids != bpe.pad_id].tolist()
        assert row[0] == start and row[-1] == sep
        doubled = sum(pair == (sep, sep) for pair in itertools.pairwise(row))
        if objective == "mlm":
            assert doubled == 0 and row.count(start) == 1
        else:
            assert doubled == row.count(start) and row.count(sep) == 3 * row.count(start)
    assert packed == (max(np.count_nonzero(ids == start) for ids in batch["input_ids"]) > 1)


def test_rows_too_short_for_a_pair_are_refused(tmp_path, bpe):
    (tmp_path / "corpus.txt").write_text("\n".join(TEXTS))
    with pytest.raises(InputError, match="max_seq_length: expected lengths of at least 6"):
        prepare(str(tmp_path / "corpus.txt"), bpe, tmp_path / "out", max_seq_length=5)


# --- Files that do not fit --------------------------------------------------------------------------------------------

VOCABULARY = {token: i for i, token in enumerate([*ROBERTA, "a", "b", "ab"])}


@pytest.mark.parametrize(
    ("vocabulary", "merges", "message"),
    [
        (VOCABULARY, None, "merges.txt: no such file"),
        ([*VOCABULARY], "a b\n", "vocab.json: expected a JSON object, found list"),
        (
            VOCABULARY | {"b": VOCABULARY["a"]},
            "a b\n",
            "vocab.json: expected each id once, found 5 for 'a' and 'b'",
        ),
        (VOCABULARY | {"b": "6"}, "a b\n", "'b': expected an id from 0 to 4194303, found '6'"),
        (VOCABULARY, "#version: 0.2\na b\nab\n", "merges.txt: line 3: expected two tokens .* found 'ab'"),
        (VOCABULARY, "a b c\n", "merges.txt: line 1: expected two tokens"),
        (VOCABULARY, "b a\n", "merge 'b' 'a': expected pieces of the vocabulary, found 'ba'"),
        ({"a": 0, "b": 1, "ab": 2}, "a b\n", "found none for pad, cls, sep among 3 tokens"),
    ],
)
def test_bad_byte_pairs_are_named(tmp_path, vocabulary, merges, message):
    (tmp_path / "vocab.json").write_text(json.dumps(vocabulary))
    if merges is not None:
        (tmp_path / "merges.txt").write_text(merges)
    with pytest.raises(InputError, match=message) as error:
        load_tokenizer(tmp_path)
    assert str(tmp_path) in str(error.value) and "\n" not in str(error.value)


def test_byte_pairs_need_no_version_line_and_take_either_line_end(tmp_path):
    (tmp_path / "vocab.json").write_text(json.dumps(VOCABULARY))
    (tmp_path / "merges.txt").write_bytes(b"a b\r\n")
    assert load_tokenizer(tmp_path).encode("ab") == [VOCABULARY["ab"]]
    assert byte_level_bpe(VOCABULARY, []).encode("ab") == [VOCABULARY["a"], VOCABULARY["b"]]


def test_an_xlm_r_folder_with_another_model_is_refused(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "xlm-roberta"}))
    for content in (b"not a model", b""):
        (tmp_path / "sentencepiece.bpe.model").write_bytes(content)
        with pytest.raises(InputError, match=r"sentencepiece.bpe.model: expected .*SentencePiece model"):
            load_tokenizer(tmp_path)


FAST_BPE = ("low@@ 5\nlow 4\ner 3\n", "l o 9\nlo w 8\nlo w</w> 7\ne r</w> 6\n")  # without `l@@`, `lo@@` and `e`


def test_words_of_fast_bpe(tmp_path):
    pieces = FastBpeTokenizer(*FAST_BPE)
    assert pieces.pieces == ("<s>", "<pad>", "</s>", "<unk>", "low@@", "low", "er", "<mask>")
    assert pieces.tokenize("lower low<mask> lo er") == ["low@@", "er", "low", "<mask>", "<unk>", "<unk>", "er"]
    assert pieces.encode("low <mask>", parse_special=False) == [5, 3, 3, 3, 3, 3, 3]
    assert pieces.encode_batch_with_offsets(["a lower"]) == [([3, 4, 6], [(0, 1), (2, 5), (5, 7)])]
    assert pieces.encode("LOW") == [3, 3, 3] and pieces.lowercased().encode("LOW") == [5]
    assert pieces.decode([0, 4, 6, 5, 7, 2]) == "lower low"
    pieces.lowercased().save(tmp_path)
    assert load_tokenizer(tmp_path).encode("LOW") == [5]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("vocab.txt", "low 5\nlow\n", "vocab.txt: line 2: expected a token and its count, found 'low'"),
        ("vocab.txt", "", "vocab.txt: line 1: expected a token and its count, found ''"),
        ("bpe.codes", "l o 9\nlow\n", "bpe.codes: line 2: expected two symbols and a count, found 'low'"),
        ("bpe.codes", None, "vocab.txt: expected bpe.codes beside it, which PhobertTokenizer needs, found none"),
        ("tokenizer_config.json", '{"normalization": true}', "normalization: expected False, found True"),
    ],
)
def test_files_of_fast_bpe_that_do_not_fit(tmp_path, name, content, message):
    FastBpeTokenizer(*FAST_BPE).save(tmp_path)
    (tmp_path / name).unlink() if content is None else (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=message):
        load_tokenizer(tmp_path)


def test_words_cannot_be_masked_if_tokens_do_not_say_where_they_begin(tmp_path):
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("lower low\n\nlow er lower\n" * 30)
    prepare(str(corpus), FastBpeTokenizer(*FAST_BPE), tmp_path / "out", objective="mlm", max_seq_length=16,
            dupe_factor=1, validation_fraction=0.0, num_workers=1)  # fmt: skip
    assert len(PreparedInstances(tmp_path / "out", "train", 16)) > 0
    with pytest.raises(InputError, match=r"data.mask_unit: expected token, as the tokens of the tokenizer in .* word$"):
        PreparedInstances(tmp_path / "out", "train", 16, mask_unit="word")


@pytest.mark.parametrize(
    ("part", "content"),
    [
        (part, content)
        for part in ("model", "added_tokens", "post_processor", "normalizer")
        for content in ([], 3, "x", {"type": "what"})
        if (part, content) != ("added_tokens", [])  # which is as good as any
    ],
)
def test_a_tokenizer_json_with_parts_of_another_kind_is_refused(edited, part, content):
    with pytest.raises(InputError, match="of the tokenizers library"):
        load_tokenizer(edited(**{part: content}))
