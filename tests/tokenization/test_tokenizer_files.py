"""What the files of a model directory say about its tokenizer is followed as transformers follows it, or refused."""

import json
import logging

import pytest
import tokenizers

from bert_jax.errors import InputError
from bert_jax.model_files import tokenizer as tables
from bert_jax.model_files.keys import USUAL_KEYS
from bert_jax.tokenization import added_tokens, load_tokenizer, train_bpe, train_sentencepiece, xlm_roberta

transformers = pytest.importorskip("transformers", reason="compares with transformers, which is not installed")

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefgehinot", *(f"##{c}" for c in "abcdefghinotuy"),
          "the", "cat", "dog", "new", "york", "[", "]", ",", "unk", "mask"]  # fmt: skip
PIECES = list(dict.fromkeys(PIECES))
SIZE = len(PIECES)
TEXTS = [
    "the [ent] cat [ENT] dog",
    "a[ent]b  [ent] , [e2]c",
    "new york the  New York",
    "[MASK] the [CLS]cat",
    " [e2] a[e2] ",
]
BERT = {"tokenizer_class": "BertTokenizer", "do_lower_case": True}
# Keys of published files that are in no table.
WITHOUT_EFFECT = (
    "vocab_type", "do_basic_tokenize", "never_split", "do_split_on_punc", "do_word_tokenize", "do_subword_tokenize",
    "mecab_kwargs", "sudachi_kwargs", "jumanpp_kwargs", "add_bos_token", "add_eos_token",
    "spaces_between_special_tokens", "errors", "remove_space", "legacy", "max_length", "stride", "truncation_strategy",
    "pad_to_multiple_of", "pad_token_type_id", "unk_id", "vocab_size", "merges_file", "tokenizer_file",
    "special_tokens_map_file", "added_tokens_file", "init_inputs", "from_slow", "slow_tokenizer_class", "backend",
    "is_local", "local_files_only", "files_loaded", "verbose", "processor_class", "chat_template",
    "chat_control_tokens", "response_template", "response_schema", "tokenizer_type", "model_type", "lang",
)  # fmt: skip


def token(content, **flags):
    plain = {"lstrip": False, "rstrip": False, "normalized": False, "single_word": False, "special": True}
    return {"content": content, **plain, **flags}


def write(directory, pieces=PIECES, **files):
    """A folder with a vocab.txt and JSON files, `a__json` for `a.json`."""
    directory.mkdir(exist_ok=True)
    if pieces is not None:
        (directory / "vocab.txt").write_text("\n".join(pieces) + "\n", encoding="utf-8")
    for name, content in {"tokenizer_config__json": BERT, **files}.items():
        (directory / name.replace("__", ".")).write_text(json.dumps(content))
    return directory


def assert_same_ids(directory, texts=TEXTS):
    """The same ids as transformers, here and from what is saved again; and transformers reads both alike."""
    theirs, ours = transformers.AutoTokenizer.from_pretrained(directory), load_tokenizer(directory)
    saved = directory / "saved"
    ours.save(saved)
    theirs_again, ours_again = transformers.AutoTokenizer.from_pretrained(saved), load_tokenizer(saved)
    for text in texts:
        expected = theirs(text)["input_ids"]
        assert ours(text)["input_ids"][0].tolist() == expected, text
        assert ours_again(text)["input_ids"][0].tolist() == expected, text
        assert theirs_again(text)["input_ids"] == expected, text
        for skip in (True, False):
            decoded = theirs.decode(expected, skip_special_tokens=skip)
            assert theirs_again.decode(expected, skip_special_tokens=skip) == decoded
    return ours


# --- Added tokens -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "files",
    [
        {"added_tokens__json": {"[ent]": SIZE, "[e2]": SIZE + 1}},
        {"tokenizer_config__json": BERT | {"added_tokens_decoder": {
            str(SIZE): token("[ent]", lstrip=True), str(SIZE + 1): token("[e2]", rstrip=True, special=False)}}},
        {"tokenizer_config__json": BERT | {"added_tokens_decoder": {
            str(SIZE): token("New York", normalized=True, special=False),
            str(SIZE + 1): token("[e2]", single_word=True)}}},
        {"tokenizer_config__json": BERT | {"additional_special_tokens": ["[ent]", "[e2]"]}},
        {"tokenizer_config__json": BERT | {"extra_special_tokens": {"entity_token": "[ent]", "other_token": "[e2]"}}},
        {"tokenizer_config__json": BERT | {"bos_token": "[e2]", "entity_token": "[ent]"}},
        {"special_tokens_map__json": {
            "additional_special_tokens": ["[ent]"], "cls_token": token("[CLS]", lstrip=True)}},
        {"tokenizer_config__json": BERT | {"additional_special_tokens": ["[e2]"]},
         "special_tokens_map__json": {"additional_special_tokens": ["[ent]"]}},
        {"tokenizer_config__json": BERT | {"split_special_tokens": True}},
    ],
)  # fmt: skip
@pytest.mark.parametrize("with_json", [False, True])
def test_added_tokens_of_word_pieces(tmp_path, files, with_json):
    directory = write(tmp_path / "model", **files)
    if with_json:
        plain = write(tmp_path / "plain")
        transformers.AutoTokenizer.from_pretrained(plain).save_pretrained(tmp_path / "saved")
        (directory / "tokenizer.json").write_bytes((tmp_path / "saved" / "tokenizer.json").read_bytes())
    assert_same_ids(directory)


@pytest.mark.parametrize("kind", ["RobertaTokenizer", "XLMRobertaTokenizer"])
@pytest.mark.parametrize(
    "settings",
    [
        {"additional_special_tokens": ["[ent]", "[e2]"]},
        {"added_tokens_decoder": {
            "900": token("[ent]", lstrip=True, rstrip=True), "901": token("[e2]", special=False, single_word=True)}},
        {"add_prefix_space": True, "extra_special_tokens": ["[ent]"]},
    ],
)  # fmt: skip
def test_added_tokens_of_other_families(tmp_path, kind, settings):
    texts = ["the cat and the dog of new york", "a cat, the river"] * 20
    if kind == "RobertaTokenizer":
        train_bpe(texts, 300).save(tmp_path)
        kept = ("vocab.json", "merges.txt")
    else:
        unigrams(texts).save(tmp_path)
        kept = ("sentencepiece.bpe.model",)
    for path in tmp_path.iterdir():
        if path.name not in kept:
            path.unlink()
    mask = {"__type": "AddedToken", **token("<mask>", lstrip=True)}  # which the class itself no longer says
    write(tmp_path, None, tokenizer_config__json={"tokenizer_class": kind, "mask_token": mask, **settings})
    assert_same_ids(tmp_path, [*TEXTS, " the <mask>[e2]", "<s>x</s>"])


def unigrams(texts):
    import io

    import sentencepiece

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts), model_writer=model, vocab_size=60, hard_vocab_limit=False, minloglevel=2
    )
    return xlm_roberta(model.getvalue())


@pytest.mark.parametrize("model_type", ["unigram", "bpe"])
def test_added_tokens_of_a_sentencepiece_model(tmp_path, model_type):
    own = train_sentencepiece(["the cat and the dog", "a cat, the river"] * 20, 60, model_type=model_type)
    own.save(tmp_path)
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    decoder = {str(own.vocab_size): token("[ent]", lstrip=True), str(own.vocab_size + 1): token("[e2]", special=False)}
    write(tmp_path, None, tokenizer_config__json=config | {"added_tokens_decoder": decoder})
    (tmp_path / "tokenizer.json").unlink(missing_ok=True)
    ours = load_tokenizer(tmp_path)
    assert ours.tokenize("the [ent] cat[e2]") == [*own.tokenize("the"), "[ent]", *own.tokenize("cat"), "[e2]"]
    ids = ours.encode("the [ent] cat [e2]")
    assert ours.decode(ids) == "the cat [e2]" and ours.decode(ids, skip_special_tokens=False) == "the [ent] cat [e2]"
    assert ours.encode_batch_with_offsets(["a [ent]b"])[0][1][1] == (1, 7)
    ours.save(tmp_path / "saved")
    again = load_tokenizer(tmp_path / "saved")
    assert again.pieces == ours.pieces and again.encode("the [ent] cat[e2]") == ours.encode("the [ent] cat[e2]")
    if model_type == "unigram":
        theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "saved")
        assert theirs("the [ent] cat [e2]")["input_ids"] == ours("the [ent] cat [e2]")["input_ids"][0].tolist()


def test_a_token_without_a_row_is_not_added_and_said_once(tmp_path, caplog):
    caplog.set_level(logging.WARNING)
    settings = BERT | {"additional_special_tokens": ["[ent]"]}
    write(tmp_path, tokenizer_config__json=settings, config__json={"model_type": "bert", "vocab_size": SIZE})
    added_tokens._log._warned.clear()
    for _ in range(2):
        assert load_tokenizer(tmp_path).vocab_size == SIZE
    assert [record.getMessage() for record in caplog.records] == [
        f"added tokens are skipped, as the word embedding has no row for them (vocab_size {SIZE}): [ent]"
    ]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"added_tokens__json": {"[ent]": 2**32}}, r"added_tokens.json: \[ent\]: expected an id from 0 to"),
        ({"added_tokens__json": {"": 3}}, "expected a token of 1 to 1000 characters, found 0"),
        ({"added_tokens__json": ["[ent]"]}, "added_tokens.json: expected a JSON object, found list"),
        ({"tokenizer_config__json": {"added_tokens_decoder": []}}, "expected a map of ids to tokens, found list"),
        ({"tokenizer_config__json": {"added_tokens_decoder": {"x": token("[e]")}}}, "expected an id .*found 'x'"),
        ({"tokenizer_config__json": {"added_tokens_decoder": {"9": {"lstrip": True}}}}, "an object with its content"),
        ({"tokenizer_config__json": {"added_tokens_decoder": {"9": token("[e]", lstrip=3)}}}, "lstrip: .* found 3"),
        ({"special_tokens_map__json": {"cls_token": 3}}, "cls_token: expected a string .*, found 3"),
        ({"tokenizer_config__json": {"additional_special_tokens": "[ent]"}}, "expected a list or map of tokens"),
        ({"tokenizer_config__json": {"additional_special_tokens": [["[ent]"]]}}, "expected a string or an object"),
    ],
)
def test_added_tokens_that_cannot_be_are_named(tmp_path, files, message):
    write(tmp_path, **files)
    with pytest.raises(InputError, match=message) as error:
        load_tokenizer(tmp_path)
    assert str(tmp_path) in str(error.value) and "\n" not in str(error.value)


# --- Special tokens ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "files",
    [
        {"tokenizer_config__json": BERT | {"cls_token": "<cls>", "sep_token": "<sep>"}},
        {"special_tokens_map__json": {"cls_token": "<cls>", "sep_token": token("<sep>")}},
    ],
)
def test_special_tokens_may_have_other_names(tmp_path, files):
    pieces = ["<cls>" if p == "[CLS]" else "<sep>" if p == "[SEP]" else p for p in PIECES]
    tokenizer = assert_same_ids(write(tmp_path, pieces, **files), ["the cat <sep> dog", "[CLS]"])
    assert (tokenizer.cls_id, tokenizer.sep_id) == (2, 3)


def test_a_vocabulary_without_a_mask(tmp_path):
    pieces = [piece for piece in PIECES if piece != "[MASK]"]
    tokenizer = assert_same_ids(write(tmp_path, pieces), ["the cat", "new york"])
    with pytest.raises(InputError, match="expected a tokenizer with a mask token"):
        _ = tokenizer.mask_id
    # Where the model has a row for it, or tokens come behind it, it is added as transformers adds it.
    config = {"model_type": "bert", "vocab_size": len(pieces) + 1}
    assert assert_same_ids(write(tmp_path / "row", pieces, config__json=config)).mask_id == len(pieces)
    files = {"tokenizer_config__json": BERT | {"additional_special_tokens": ["[ent]"]}}
    assert assert_same_ids(write(tmp_path / "more", pieces, **files)).encode("[ent]") == [len(pieces) + 1]
    assert_same_ids(write(tmp_path / "null", tokenizer_config__json=BERT | {"mask_token": None}))


def test_a_vocabulary_without_an_unknown_token_needs_known_text(tmp_path):
    tokenizer = load_tokenizer(write(tmp_path, [piece for piece in PIECES if piece != "[UNK]"]))
    assert tokenizer.tokenize("the cat") == ["the", "cat"]
    for encode in (tokenizer.encode, tokenizer, lambda text: tokenizer.encode(text, parse_special=False)):
        with pytest.raises(InputError, match=r"Missing \[UNK\] token"):
            encode("zebra")


# --- vocab.txt --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "size"),
    [
        ("\r\n".join(PIECES) + "\r\n", SIZE),
        ("\n".join(PIECES), SIZE),
        ("\n".join(PIECES) + "\n\n\n\n", SIZE),
        ("\n".join([*PIECES[:9], "", "", *PIECES[9:]]) + "\n", SIZE + 2),
        ("\n".join([*PIECES, "cat", "the ", "dog\u3000", "zoo"]) + "\n", SIZE + 4),
        ("\n".join(["[unused1]", *PIECES, "[unused1]"]) + "\n", SIZE + 2),
    ],
    ids=["CRLF", "no end", "blank end", "blank lines", "repeated", "unused"],
)
def test_a_vocabulary_is_read_as_transformers_reads_it(tmp_path, content, size):
    write(tmp_path)
    (tmp_path / "vocab.txt").write_bytes(content.encode())
    assert assert_same_ids(tmp_path, ["the cat", "a dog, the zoo", "[unused1] [MASK]", "new york"]).vocab_size == size


def test_tokens_behind_blank_lines_have_the_ids_that_transformers_gives_them(tmp_path):
    write(tmp_path, [*PIECES, "", ""], added_tokens__json={"[ent]": SIZE})
    assert_same_ids(tmp_path)


# --- Classes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["BertJapaneseTokenizer", "BertweetTokenizer", "CamembertTokenizer", "T5Tokenizer", "HerbertTokenizer",
     "CanineTokenizer", "RobertaTokenizerFast", "OwnTokenizer"],
)  # fmt: skip
@pytest.mark.parametrize("file", ["tokenizer_config.json", "config.json"])
def test_a_class_with_another_algorithm_is_named(tmp_path, name, file):
    write(tmp_path, tokenizer_config__json={})
    (tmp_path / file).write_text(json.dumps({"tokenizer_class": name, "model_type": "bert"}))
    with pytest.raises(InputError, match=name):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize(
    "name", ["OwnTokenizer", "PreTrainedTokenizerFast", "ElectraTokenizerFast", "DPRReaderTokenizer"]
)
def test_a_tokenizer_json_says_what_its_class_does(tmp_path, name):
    plain = write(tmp_path / "plain")
    transformers.AutoTokenizer.from_pretrained(plain).save_pretrained(tmp_path / "model")
    roles = {f"{role}_token": f"[{role.upper()}]" for role in ("pad", "unk", "cls", "sep", "mask")}
    write(tmp_path / "model", None, tokenizer_config__json={"tokenizer_class": name, **roles})
    assert_same_ids(tmp_path / "model")


def test_a_class_that_reads_no_tokenizer_json_is_named(tmp_path):
    transformers.AutoTokenizer.from_pretrained(write(tmp_path / "plain")).save_pretrained(tmp_path / "model")
    write(tmp_path / "model", None, tokenizer_config__json={"tokenizer_class": "BertJapaneseTokenizer"})
    with pytest.raises(InputError, match="BertJapaneseTokenizer"):
        load_tokenizer(tmp_path / "model")


@pytest.mark.parametrize("name", ["RobertaTokenizer", "RobertaTokenizerFast", "T5Tokenizer", "DebertaV2Tokenizer"])
def test_a_tokenizer_json_counts_more_than_a_class_of_another_model(tmp_path, caplog, name):
    """As in camembertv2, whose WordPiece is under the name RobertaTokenizer: transformers 4 follows the file."""
    plain = write(tmp_path / "plain")
    transformers.AutoTokenizer.from_pretrained(plain).save_pretrained(tmp_path / "model")
    roles = {f"{role}_token": f"[{role.upper()}]" for role in ("pad", "unk", "cls", "sep", "mask")}
    settings = {"tokenizer_class": name, "add_prefix_space": True, "do_lower_case": False, **roles}
    write(tmp_path / "model", None, tokenizer_config__json=settings)
    (tmp_path / "model" / "config.json").write_text('{"model_type": "roberta"}')
    file = tokenizers.Tokenizer.from_file(str(tmp_path / "model" / "tokenizer.json"))
    ours = load_tokenizer(tmp_path / "model")
    for text, pair in (("The cat's", None), ("THE dog", "the Cats"), ("new york.", "[MASK] a")):
        assert ours(text, pair)["input_ids"][0].tolist() == file.encode(text, pair).ids
    assert f"its model WordPiece does not fit the class {name}" in caplog.text


def test_byte_pairs_of_a_kind_that_no_file_names_are_refused(tmp_path):
    write(tmp_path, None, tokenizer_config__json={})
    names = ["<pad>", "<unk>", "<s>", "</s>", "<mask>", "a</w>"]
    (tmp_path / "vocab.json").write_text(json.dumps({name: i for i, name in enumerate(names)}))
    (tmp_path / "merges.txt").write_text("#version: 0.2\n")
    with pytest.raises(InputError, match="tokens of byte-level BPE, found tokens of another BPE, which end in </w>"):
        load_tokenizer(tmp_path)


# --- Lengths and sides ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "expected"),
    [({"model_max_length": 40}, 40), ({"model_max_length": 40.0}, 40), ({"max_len": 40}, 40),
     ({"model_max_length": 30, "max_len": 40}, 30), ({"model_max_length": 1e30}, None),
     ({"model_max_length": int(1e30)}, None), ({"model_max_length": None}, None), ({}, None)],
)  # fmt: skip
def test_the_longest_row(tmp_path, settings, expected):
    tokenizer = load_tokenizer(write(tmp_path, tokenizer_config__json=BERT | settings))
    assert tokenizer.max_length == expected
    tokenizer.save(tmp_path / "saved")
    assert load_tokenizer(tmp_path / "saved").max_length == expected


@pytest.mark.parametrize("limit", ["512", 0, -1, True, 12.5, [512], float("nan")])
def test_a_longest_row_that_cannot_be_is_named(tmp_path, limit):
    write(tmp_path, tokenizer_config__json=BERT | {"model_max_length": limit})
    with pytest.raises(
        InputError, match=r"tokenizer_config.json: model_max_length: expected a number of tokens above 0"
    ):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize("side", ["left", "right"])
def test_texts_are_cut_on_the_side_that_the_files_say(tmp_path, side):
    write(tmp_path, tokenizer_config__json=BERT | {"truncation_side": side})
    theirs, ours = transformers.AutoTokenizer.from_pretrained(tmp_path), load_tokenizer(tmp_path)
    ours.save(tmp_path / "saved")
    again = load_tokenizer(tmp_path / "saved")
    for pair in (None, "new york", "a b c d e f g h"):
        for length in (5, 6, 8, 11):
            expected = theirs("the cat the dog a e i o", pair, max_length=length, truncation=True)["input_ids"]
            for tokenizer in (ours, again):
                found = tokenizer("the cat the dog a e i o", pair, max_length=length)
                assert found["input_ids"][0].tolist() == expected


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"padding_side": "left"}, "padding_side: expected 'right', found 'left': .*same outputs with \"right\""),
        ({"truncation_side": "middle"}, "truncation_side: expected left or right, found 'middle'"),
        ({"do_lower_case": "false"}, "do_lower_case: expected true or false, found 'false'"),
        ({"strip_accents": 1}, "strip_accents: expected true, false or null, found 1"),
        ({"model_input_names": "input_ids"}, "model_input_names: expected a list of names"),
        ({"wordpieces_prefix": "@@"}, "wordpieces_prefix: expected '##', found '@@'"),
    ],
)
def test_settings_that_cannot_be_followed_are_named(tmp_path, settings, message):
    write(tmp_path, tokenizer_config__json=BERT | settings)
    with pytest.raises(InputError, match=message) as error:
        load_tokenizer(tmp_path)
    assert str(tmp_path) in str(error.value)


# --- The tables -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", tables.TOKENIZER_CONFIG, ids=lambda key: key.name)
def test_every_key_of_the_table_is_what_it_says(tmp_path, key, caplog):
    """A harmless key changes no ids and is not named; a refused one is an error; both with an unusual value."""
    if key.fate == "honoured":
        return  # each has a test above or in test_tokenization.py
    value = {"unusual": 1} if key.name.endswith("kwargs") else "unusual"
    write(tmp_path, tokenizer_config__json=BERT | {key.name: value})
    if key.fate == "refused":
        with pytest.raises(InputError, match=key.name):
            load_tokenizer(tmp_path)
        return
    ours, plain = load_tokenizer(tmp_path), load_tokenizer(write(tmp_path / "plain"))
    assert [ours.encode(text) for text in TEXTS] == [plain.encode(text) for text in TEXTS]
    assert not caplog.records


def test_keys_that_nobody_knows_are_named_once(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    write(tmp_path, tokenizer_config__json=BERT | {"shout": True, "do_lowercase": True, "name_or_path": "x"})
    for _ in range(2):
        load_tokenizer(tmp_path)
    assert [(record.levelname, record.getMessage().split(": ", 1)[1]) for record in caplog.records] == [
        ("WARNING", "unknown keys are ignored: do_lowercase=True (did you mean 'do_lower_case'?)"),
        ("INFO", "1 key is not read: shout"),
    ]


@pytest.mark.parametrize("name", WITHOUT_EFFECT)
def test_a_key_without_effect_changes_no_ids(tmp_path, name, caplog):
    write(tmp_path, tokenizer_config__json=BERT | {name: {"unusual": 1} if name.endswith("kwargs") else "unusual"})
    ours, plain = load_tokenizer(tmp_path), load_tokenizer(write(tmp_path / "plain"))
    assert [ours.encode(text) for text in TEXTS] == [plain.encode(text) for text in TEXTS]
    assert not caplog.records


def test_the_keys_that_transformers_writes_are_in_the_table(tmp_path):
    names = {*(key.name for key in tables.TOKENIZER_CONFIG), *USUAL_KEYS, *WITHOUT_EFFECT}
    for i, kind in enumerate(("BertTokenizer", "MPNetTokenizer", "RobertaTokenizer", "XLMRobertaTokenizer")):
        theirs = getattr(transformers, kind)()
        theirs.save_pretrained(tmp_path / str(i))
        assert json.loads((tmp_path / str(i) / "tokenizer_config.json").read_text()).keys() <= names
    content = json.loads(tokenizers.Tokenizer(tokenizers.models.BPE()).to_str())
    assert content.keys() <= {key.name for key in tables.TOKENIZER_JSON}
    assert set(tokenizers.AddedToken("x").__getstate__()) <= {key.name for key in tables.ADDED_TOKEN}
