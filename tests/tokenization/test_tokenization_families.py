"""Tokenizers of BERT's cousins, beside those of transformers: ids, ranges, types, rows of pairs, text, files."""

import gzip
import itertools
import json
import unicodedata

import numpy as np
import pytest
import tokenizers
from decoder_tokenizers import byte_level, gemma_folder, mmbert_folder, qwen_folder, t5_folder, unigrams, write_json
from tokenizers import AddedToken, models, pre_tokenizers, processors, trainers

from bert_jax.tokenization import load_tokenizer

transformers = pytest.importorskip("transformers", reason="compares with transformers, which is not installed")

ROBERTA = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
BERT = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PLAIN = [f"The {a} {b}, {c} by the river." for a in ("old", "young") for b in ("cat", "dog's") for c in ("sat", "I")]
STRANGE = [
    "",
    " ",
    "  two  spaces ",
    "The cat <mask> by the river.",
    "the cat<mask> sat",
    " <mask>  <mask><mask>",
    "a [MASK] cat [SEP] [CLS] </s> <s> [PAD] <pad>",
    "it ' s not n't , is n't it ?",
    "caf\u00e9 cafe\u0301 na\u00efve Z\u0301\u0302 \u00c5ngstr\u00f6m \u1e9b\u0323",
    "\u6c34 and \u4eca\u5929\u5929\u6c14\u5f88\u597d\u3002\u3000\uff21 \u30ab\u30bf\u30ab\u30ca \ud55c\uad6d\uc5b4",
    "\u05e9\u05dc\u05d5\u05dd \u05e2\u05d5\u05dc\u05dd \u0645\u0631\u062d\u0628\u0627 \u200fabc\u200e",
    "\U0001f600 \U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea\u2764\ufe0f!",
    "tab\there\nnew\r\nline\u00a0nbsp\u2028sep\u0085next",
    "nul\x00bell\x07esc\x1b[0m soft\u00adhyphen zero\u200bwidth \ufeffbom \ufffd",
    "private \ue000 unassigned \u0378 end",
    "a" * 101 + " " + "\u00df" * 150,
    "\u0130stanbul I\u0307 \ufb01ne \u00bd \u2122 \u2026",
    "x=1;y==2&&z!=3 // 100,000.50% #tag @user http://a.b/c?d=e",
]


@pytest.fixture(scope="module")
def lines(shared_data):
    """Several hundred lines of English articles, questions and Chinese reviews."""
    with gzip.open(shared_data / "wikitext-2" / "wiki.valid.raw.gz", "rt", encoding="utf-8") as file:
        articles = [line.rstrip("\n") for line in itertools.islice(file, 300)]
    with gzip.open(shared_data / "tokenizer_oracle" / "question_tokens.json.gz", "rt", encoding="utf-8") as file:
        questions = [question["original"] for question in json.load(file)]
    unusual = [question for question in questions if not question.isascii()]
    reviews = (shared_data / "zh_chnsenticorp" / "dev.tsv").read_text(encoding="utf-8").splitlines()[1:100]
    longest = 300  # characters; the library makes every piece that truncation cuts off, of pairs all combinations
    return sorted((line[:longest] for line in (*articles, *questions[:100], *unusual[:200], *reviews)), key=len)


# --- Folders as transformers saves them, and as older files stand -----------------------------------------------------


def roberta_files(directory, texts):
    """`vocab.json`, `merges.txt` and a `config.json`, as the first release had them."""
    byte_level(texts, ROBERTA).model.save(str(directory))
    write_json(directory / "config.json", {"model_type": "roberta"})
    mask = AddedToken("<mask>", lstrip=True, normalized=False)  # as in roberta-base's tokenizer.json
    return transformers.RobertaTokenizer.from_pretrained(directory, mask_token=mask)


def roberta_folder(add_prefix_space):
    def write(directory, texts):
        (directory / "old").mkdir()
        roberta_files(directory / "old", texts)
        mask = AddedToken("<mask>", lstrip=True, normalized=False)
        transformers.RobertaTokenizer.from_pretrained(
            directory / "old", mask_token=mask, add_prefix_space=add_prefix_space, model_max_length=512
        ).save_pretrained(directory)
        write_json(directory / "config.json", {"model_type": "roberta"})
        return transformers.AutoTokenizer.from_pretrained(directory)

    return write


def xlm_roberta_files(directory, texts):
    (directory / "sentencepiece.bpe.model").write_bytes(unigrams(texts))
    write_json(directory / "config.json", {"model_type": "xlm-roberta"})
    mask = AddedToken("<mask>", lstrip=True, normalized=False)
    return transformers.XLMRobertaTokenizer.from_pretrained(directory, mask_token=mask)


def xlm_roberta_folder(directory, texts):
    (directory / "old").mkdir()
    xlm_roberta_files(directory / "old", texts).save_pretrained(directory)
    return transformers.AutoTokenizer.from_pretrained(directory)


def gte_folder(directory, texts):
    xlm_roberta_folder(directory, texts)
    write_json(directory / "config.json", {"model_type": "gte"})
    return transformers.AutoTokenizer.from_pretrained(directory)


def deberta_files(**settings):
    def write(directory, texts):
        model = unigrams(texts, pad_id=0, bos_id=1, eos_id=2, unk_id=3, pad_piece="[PAD]", bos_piece="[CLS]",
                         eos_piece="[SEP]", unk_piece="[UNK]", user_defined_symbols=["<0>"])  # fmt: skip
        (directory / "spm.model").write_bytes(model)
        write_json(directory / "config.json", {"model_type": "deberta-v2"})
        write_json(directory / "tokenizer_config.json", {"vocab_type": "spm"} | settings)  # as in the releases
        return transformers.AutoTokenizer.from_pretrained(directory)

    return write


def camembert_files(directory, texts):
    (directory / "sentencepiece.bpe.model").write_bytes(unigrams(texts))
    write_json(directory / "config.json", {"model_type": "camembert"})
    return transformers.CamembertTokenizer.from_pretrained(directory)


def camembert_folder(directory, texts):
    (directory / "old").mkdir()
    camembert_files(directory / "old", texts).save_pretrained(directory)
    return transformers.AutoTokenizer.from_pretrained(directory)


# transformers 5 gives no token types for ALBERT, unlike transformers 4; the settings can name its inputs.
TYPES = {"model_input_names": ["input_ids", "token_type_ids", "attention_mask"]}


def albert_files(**options):
    """`spiece.model`, in which some pieces are user-defined as in ALBERT's release, and settings."""

    def write(directory, texts):
        model = unigrams(texts, pad_id=0, unk_id=1, bos_id=-1, eos_id=-1, control_symbols=["[CLS]", "[SEP]", "[MASK]"],
                         user_defined_symbols=["(", ")", '"'])  # fmt: skip
        (directory / "spiece.model").write_bytes(model)
        write_json(directory / "config.json", {"model_type": "albert"})
        write_json(directory / "tokenizer_config.json", options)
        theirs = transformers.AlbertTokenizer.from_pretrained(directory, **TYPES)
        # As in the tokenizer.json of ALBERT's release; transformers 5 lets the mask of a spiece.model absorb no space.
        theirs.backend_tokenizer.add_special_tokens([AddedToken("[MASK]", lstrip=True, normalized=False)])
        return theirs

    return write


def albert_folder(**options):
    def write(directory, texts):
        (directory / "old").mkdir()
        albert_files(**options)(directory / "old", texts).save_pretrained(directory)
        config = json.loads((directory / "tokenizer_config.json").read_text())
        write_json(directory / "tokenizer_config.json", config | TYPES)
        return transformers.AutoTokenizer.from_pretrained(directory)

    return write


def deberta_bpe_files(directory, texts):
    """`vocab.json` and `merges.txt`, whose last token is the mask, as in DeBERTa's release."""
    byte_level(texts, BERT).model.save(str(directory))
    write_json(directory / "config.json", {"model_type": "deberta"})
    write_json(directory / "tokenizer_config.json", {"do_lower_case": False, "vocab_type": "gpt2"})
    theirs = transformers.AutoTokenizer.from_pretrained(directory)
    assert type(theirs).__name__ == "DebertaTokenizer"
    return as_transformers_4(theirs)


def as_transformers_4(deberta):
    """transformers 5 writes two [SEP] between the texts of a pair, and its mask absorbs no space."""
    backend = tokenizers.Tokenizer.from_str(deberta.backend_tokenizer.to_str())
    backend.add_special_tokens([AddedToken("[MASK]", lstrip=True, normalized=False)])
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(token, backend.token_to_id(token)) for token in ("[CLS]", "[SEP]")])  # fmt: skip
    roles = {f"{role}_token": getattr(deberta, f"{role}_token") for role in ("pad", "unk", "cls", "sep", "mask")}
    return transformers.PreTrainedTokenizerFast(tokenizer_object=backend, **roles, **TYPES)


def deberta_bpe_folder(directory, texts):
    """`tokenizer.json` as transformers 4 wrote it."""
    (directory / "old").mkdir()
    theirs = deberta_bpe_files(directory / "old", texts)
    theirs.save_pretrained(directory)
    config = json.loads((directory / "tokenizer_config.json").read_text())
    write_json(directory / "tokenizer_config.json", config | {"tokenizer_class": "DebertaTokenizer"})
    return theirs


def deberta_folder(directory, texts):
    (directory / "old").mkdir()
    deberta_files()(directory / "old", texts).save_pretrained(directory)
    return transformers.AutoTokenizer.from_pretrained(directory)


def big_bird_files(directory, texts):
    """`spiece.model` whose special tokens are among the first pieces, the unknown one last, as in the release."""
    model = unigrams(texts, pad_id=0, eos_id=1, bos_id=2, unk_id=7,
                     control_symbols=["<sep>", "[CLS]", "[SEP]", "[MASK]"], user_defined_symbols=["<0>"])  # fmt: skip
    (directory / "spiece.model").write_bytes(model)
    write_json(directory / "config.json", {"model_type": "big_bird"})
    theirs = transformers.BigBirdTokenizer.from_pretrained(directory)
    # As in transformers 4, and in its tokenizer.json; transformers 5 lets the mask of a spiece.model absorb no space.
    theirs.backend_tokenizer.add_special_tokens([AddedToken("[MASK]", lstrip=True, normalized=False)])
    return theirs


def big_bird_folder(directory, texts):
    (directory / "old").mkdir()
    big_bird_files(directory / "old", texts).save_pretrained(directory)
    write_json(directory / "config.json", {"model_type": "big_bird"})
    return transformers.AutoTokenizer.from_pretrained(directory)


def longformer_files(directory, texts):
    byte_level(texts, ROBERTA).model.save(str(directory))
    write_json(directory / "config.json", {"model_type": "longformer"})
    mask = AddedToken("<mask>", lstrip=True, normalized=False)
    return transformers.AutoTokenizer.from_pretrained(directory, mask_token=mask)


def fast_bpe_files(name):
    """`vocab.txt` and `bpe.codes` as fastBPE writes them, without the tokens of which the texts have few."""

    def write(directory, texts):
        backend = tokenizers.Tokenizer(models.BPE(end_of_word_suffix="</w>"))
        backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        trainer = trainers.BpeTrainer(vocab_size=700, end_of_word_suffix="</w>", show_progress=False)
        backend.train_from_iterator(texts, trainer)
        merges = json.loads(backend.to_str())["model"]["merges"]
        (directory / "bpe.codes").write_text("".join(f"{a} {b} {900 - i}\n" for i, (a, b) in enumerate(merges)))
        symbols = [symbol for symbol in backend.get_vocab() if symbol.strip("\x85\xa0\u2028\u3000") == symbol]
        words = [s.removesuffix("</w>") if s.endswith("</w>") else f"{s}@@" for s in sorted(symbols)]
        words = [word for word in words if word and word not in ROBERTA]
        (directory / "vocab.txt").write_text("".join(f"{word} 9\n" for i, word in enumerate(words) if i % 7))
        write_json(directory / "config.json", {"model_type": "roberta", "tokenizer_class": name})
        return transformers.AutoTokenizer.from_pretrained(directory)

    return write


def word_pieces(texts, specials, unk):
    backend = tokenizers.Tokenizer(models.WordPiece(unk_token=unk))
    backend.normalizer = tokenizers.normalizers.BertNormalizer()
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.train_from_iterator(
        texts, trainers.WordPieceTrainer(vocab_size=900, special_tokens=specials, show_progress=False)
    )
    ids = backend.get_vocab()
    return sorted(ids, key=ids.__getitem__)


def mpnet_files(directory, texts):
    # MPNet's vocabulary is BERT's between its own specials, so that [CLS] and the like are pieces like any other.
    pieces = word_pieces(texts, ["<s>", "<pad>", "</s>", "<unk>", *BERT], "[UNK]")
    (directory / "vocab.txt").write_text("\n".join([*pieces, "<mask>"]) + "\n", encoding="utf-8")
    return transformers.MPNetTokenizer.from_pretrained(directory)


def mpnet_folder(directory, texts):
    (directory / "old").mkdir()
    mpnet_files(directory / "old", texts).save_pretrained(directory)
    return transformers.AutoTokenizer.from_pretrained(directory)


def modernbert_folder(directory, texts):
    backend = byte_level(texts, BERT)
    ids = backend.get_vocab()
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B [SEP]",
        special_tokens=[(token, ids[token]) for token in ("[CLS]", "[SEP]")])  # fmt: skip
    backend.normalizer = tokenizers.normalizers.NFC()
    backend.add_special_tokens([AddedToken("[MASK]", lstrip=True, normalized=False)])
    backend.add_tokens([AddedToken("  ", normalized=True)])  # as its runs of spaces
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]",
        mask_token="[MASK]", model_input_names=["input_ids", "attention_mask"], model_max_length=8192,
        clean_up_tokenization_spaces=True).save_pretrained(directory)  # fmt: skip
    write_json(directory / "config.json", {"model_type": "modernbert"})
    return transformers.AutoTokenizer.from_pretrained(directory)


def eurobert_folder(single, pair):
    """Llama 3's byte-level BPE, with its own pattern of words, and without cls and sep."""

    def write(directory, texts):
        names = ["<|begin_of_text|>", "<|end_of_text|>", "<|mask|>"]
        backend = byte_level(texts, names)
        ids = backend.get_vocab()
        words = (
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
            r"\s+(?!\S)|\s+"
        )
        backend.pre_tokenizer = pre_tokenizers.Sequence([
            pre_tokenizers.Split(tokenizers.Regex(words), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])  # fmt: skip
        backend.post_processor = processors.Sequence([
            processors.ByteLevel(trim_offsets=True),
            processors.TemplateProcessing(single=single, pair=pair, special_tokens=[(n, ids[n]) for n in names[:2]]),
        ])  # fmt: skip
        transformers.PreTrainedTokenizerFast(
            tokenizer_object=backend, bos_token=names[0], eos_token=names[1], pad_token=names[1], mask_token=names[2],
            model_input_names=["input_ids", "attention_mask"], model_max_length=8192,
        ).save_pretrained(directory)  # fmt: skip
        write_json(directory / "config.json", {"model_type": "eurobert"})
        return transformers.AutoTokenizer.from_pretrained(directory)

    return write


def esm_files(directory, texts):
    """The vocabulary of ESM-2, which is the same for all models."""
    pieces = ["<cls>", "<pad>", "<eos>", "<unk>", *"LAGVSERTIDPKQNFYMHWCXBUZO.-", "<null_1>", "<mask>"]
    (directory / "vocab.txt").write_text("\n".join(pieces))
    write_json(directory / "config.json", {"model_type": "esm"})
    write_json(directory / "tokenizer_config.json", {"tokenizer_class": "EsmTokenizer"})
    return transformers.AutoTokenizer.from_pretrained(directory)


def esm_folder(directory, texts):
    (directory / "old").mkdir()
    esm_files(directory / "old", texts).save_pretrained(directory)
    return transformers.AutoTokenizer.from_pretrained(directory)


def bert_folder(name, model_type):
    def write(directory, texts):
        pieces = word_pieces(texts, BERT, "[UNK]")
        (directory / "vocab.txt").write_text("\n".join(pieces) + "\n", encoding="utf-8")
        kind = getattr(transformers, name)
        kind.from_pretrained(directory, clean_up_tokenization_spaces=True).save_pretrained(directory)
        (directory / "vocab.txt").unlink()
        write_json(directory / "config.json", {"model_type": model_type})
        return transformers.AutoTokenizer.from_pretrained(directory)

    return write


FAMILIES = {
    "roberta vocab.json and merges.txt": roberta_files,
    "roberta": roberta_folder(False),
    "roberta with a space before texts": roberta_folder(True),
    "xlm-r sentencepiece.bpe.model": xlm_roberta_files,
    "xlm-r": xlm_roberta_folder,
    "gte": gte_folder,
    "camembert sentencepiece.bpe.model": camembert_files,
    "camembert": camembert_folder,
    "albert spiece.model": albert_files(),
    "albert spiece.model with case and accents": albert_files(do_lower_case=False, keep_accents=True),
    "albert": albert_folder(),
    "albert with case and accents": albert_folder(do_lower_case=False, keep_accents=True),
    "phobert": fast_bpe_files("PhobertTokenizer"),
    "bertweet": fast_bpe_files("BertweetTokenizer"),
    "deberta vocab.json": deberta_bpe_files,
    "deberta": deberta_bpe_folder,
    "deberta-v2 spm.model": deberta_files(do_lower_case=False),
    "deberta-v2 spm.model, uncased": deberta_files(do_lower_case=True, split_by_punct=True),
    "deberta-v2": deberta_folder,
    "big_bird spiece.model": big_bird_files,
    "big_bird": big_bird_folder,
    "longformer vocab.json and merges.txt": longformer_files,
    "mpnet vocab.txt": mpnet_files,
    "mpnet": mpnet_folder,
    "modernbert": modernbert_folder,
    "eurobert": eurobert_folder(
        "<|begin_of_text|> $A <|end_of_text|>", "<|begin_of_text|> $A <|end_of_text|> $B <|end_of_text|>"
    ),
    "eurobert with the rows of llama 3": eurobert_folder(
        "<|begin_of_text|> $A", "<|begin_of_text|> $A <|begin_of_text|>:1 $B:1"
    ),
    "gemma3_text": gemma_folder,
    "modernbert with the vocabulary of gemma": mmbert_folder,
    "t5": t5_folder,
    "qwen3 embedding": qwen_folder(True),
    "qwen3": qwen_folder(False),
    "esm vocab.txt": esm_files,
    "esm": esm_folder,
    "electra": bert_folder("ElectraTokenizer", "electra"),
    "distilbert": bert_folder("DistilBertTokenizer", "distilbert"),
    "nomic-bert": bert_folder("BertTokenizer", "nomic_bert"),
    "ernie": bert_folder("BertTokenizer", "ernie"),
    "neobert": bert_folder("BertTokenizer", "neobert"),
    "megatron-bert": bert_folder("BertTokenizer", "megatron-bert"),
    "mobilebert": bert_folder("MobileBertTokenizer", "mobilebert"),
}


# As others here, but for their files: they cut real lines in the slow tests only.
SAME = (
    "camembert", "camembert sentencepiece.bpe.model", "bertweet", "albert", "gte",
    "albert spiece.model with case and accents", "albert with case and accents", "ernie", "megatron-bert", "neobert",
    "mobilebert",    "longformer vocab.json and merges.txt",
)  # fmt: skip


@pytest.fixture(scope="module", params=FAMILIES)
def family(request, tmp_path_factory):
    """A folder with a family's files over a small vocabulary, and transformers' tokenizer for it."""
    directory = tmp_path_factory.mktemp("family_" + request.param.replace(" ", "_"))
    return directory, FAMILIES[request.param](directory, [*PLAIN * 5, *STRANGE])


def assert_same(ours, theirs, texts):
    """The same arrays for texts, pairs and truncated pairs, and the same texts back."""
    others = [*texts[1:], texts[0]]
    # A tokenizer in Python gives no ranges, and cuts pairs of one length in another way.
    in_python = not theirs.is_fast
    for pairs, max_length in ((None, None), (None, 12), (others, None), (others, 16), (others, 33)):
        if in_python and pairs and max_length:
            continue
        found = ours(texts, pairs, max_length=max_length, return_offsets=True)
        expected = theirs(
            texts, pairs, max_length=max_length, truncation=max_length is not None, padding=True,
            return_offsets_mapping=not in_python)  # fmt: skip
        for name, array in expected.items():
            assert found[name].tolist() == np.array(array).tolist(), (name, max_length)
        if "token_type_ids" not in expected:
            assert not found["token_type_ids"].any()
    for row in ours.encode_batch(texts):
        for skip in (True, False):
            assert ours.decode(row, skip_special_tokens=skip) == theirs.decode(row, skip_special_tokens=skip)
    for role in ("pad", "unk", "cls", "sep", "mask"):
        other = {"cls": "bos", "sep": "eos"}.get(role, role)  # where there are no names for the first
        expected = getattr(theirs, f"{role}_token_id")
        expected = getattr(theirs, f"{other}_token_id") if expected is None and role != "unk" else expected
        assert expected is None or getattr(ours, f"{role}_id") == expected
    assert ours.vocab_size == len(theirs)


# --- The same as transformers -----------------------------------------------------------------------------------------


def test_strange_texts_are_cut_as_transformers_cuts_them(family):
    directory, theirs = family
    assert_same(load_tokenizer(directory), theirs, [*PLAIN, *STRANGE])


@pytest.mark.sampled(3)
def test_random_unicode_is_cut_as_transformers_cuts_it(family):
    directory, theirs = family
    generator = np.random.default_rng(0)
    points = [
        *range(0x20, 0x250),
        *range(0x300, 0x370),
        0x3000,
        0x200D,
        *range(0x4E00, 0x4E20),
        *range(0x1F600, 0x1F640),
    ]
    texts = ["".join(map(chr, generator.choice(points, size))) for size in generator.integers(1, 40, 60)]
    assert_same(load_tokenizer(directory), theirs, texts)


@pytest.mark.sampled(3)
def test_transformers_reads_what_is_saved_as_it_read_the_source(family, tmp_path):
    directory, theirs = family
    ours = load_tokenizer(directory)
    ours.save(tmp_path / "saved")
    assert set(ours.saved_files) == {path.name for path in (tmp_path / "saved").iterdir()}
    again = load_tokenizer(tmp_path / "saved")
    assert (again.fingerprint, again.layout, again.max_length) == (ours.fingerprint, ours.layout, ours.max_length)
    reread = transformers.AutoTokenizer.from_pretrained(tmp_path / "saved")
    assert_same(again, reread, [*PLAIN, *STRANGE])
    if "PreTrained" not in type(theirs).__name__:
        assert type(reread) is type(theirs)
    texts = [*PLAIN, *STRANGE]
    assert reread(texts, texts[::-1])["input_ids"] == theirs(texts, texts[::-1])["input_ids"]


def test_a_tokenizer_json_alone_is_enough(family, tmp_path):
    directory, theirs = family
    if not theirs.is_fast:
        pytest.skip("its files are vocab.txt and bpe.codes")
    if "llama" in directory.name or "gemma" in directory.name:
        pytest.skip("only its settings say that token types do not count")
    if "qwen" in directory.name or "t5" in directory.name:
        pytest.skip("only its settings name special tokens")
    load_tokenizer(directory).save(tmp_path)
    ours = load_tokenizer(tmp_path / "tokenizer.json")
    texts = [*PLAIN, *STRANGE]
    assert ours(texts, texts[::-1])["input_ids"].tolist() == theirs(texts, texts[::-1], padding=True)["input_ids"]
    assert [ours.pieces[i] for i in ours.special_ids] == sorted(
        {
            theirs.pad_token,
            theirs.unk_token,
            theirs.cls_token or theirs.bos_token,
            theirs.sep_token or theirs.eos_token,
            theirs.mask_token,
        }
        - {None},
        key=theirs.convert_tokens_to_ids,
    )


def test_the_config_says_whether_a_space_stands_before_texts(tmp_path):
    roberta_folder(False)(tmp_path, PLAIN)
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    for add_prefix_space in (True, False):
        write_json(tmp_path / "tokenizer_config.json", config | {"add_prefix_space": add_prefix_space})
        theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
        assert_same(load_tokenizer(tmp_path), theirs, PLAIN)
        assert theirs.tokenize("The")[0].startswith("\u0120") == add_prefix_space


@pytest.mark.sampled(18)
@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] if name in SAME or "deberta" in name else []) for name in FAMILIES],
)  # DeBERTa has a test of its own with more lines
def test_hundreds_of_real_lines_are_cut_as_transformers_cuts_them(name, every, lines, tmp_path):
    theirs = FAMILIES[name](tmp_path, lines)
    ours = load_tokenizer(tmp_path)
    assert len(lines) > 500
    some = lines[::every]
    for start in range(0, len(some), 50):
        assert_same(ours, theirs, some[start : start + 50])


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_all_questions_and_a_thousand_random_strings_are_cut_as_transformers_cuts_them(
    name, lines, shared_data, tmp_path
):
    theirs = FAMILIES[name](tmp_path, lines)
    with gzip.open(shared_data / "tokenizer_oracle" / "question_tokens.json.gz", "rt", encoding="utf-8") as file:
        texts = [question["original"] for question in json.load(file)]
    generator = np.random.default_rng(1)
    points = np.array([point for point in range(0x20, 0x30000) if unicodedata.category(chr(point)) not in ("Cs", "Cn")])
    texts += ["".join(map(chr, generator.choice(points, 20))) for _ in range(1000)]
    expected = theirs(texts, add_special_tokens=False)["input_ids"]
    for text, found, ids in zip(texts, load_tokenizer(tmp_path).encode_batch(texts), expected, strict=True):
        assert found == ids, text


def test_residues_and_questions_are_cut_as_transformers_cuts_them(shared_data, tmp_path):
    theirs = esm_files(tmp_path, [])
    with gzip.open(shared_data / "tokenizer_oracle" / "question_tokens.json.gz", "rt", encoding="utf-8") as file:
        questions = [question["original"] for question in json.load(file)]
    rng = np.random.default_rng(0)
    letters = [*"LAGVSERTIDPKQNFYMHWCXBUZO.-xj*1 \n\u00e9\u00a0", "<mask>", "<null_1>", "<pad>", "<m"]
    proteins = ["".join(rng.choice(letters, 60)) for _ in range(500)]
    texts = [*proteins, *questions]
    ours = load_tokenizer(tmp_path)
    assert ours.encode_batch(texts) == theirs(texts, add_special_tokens=False)["input_ids"]
    plain = ours.encode_batch(["MK<mask>T", "<eos>"], parse_special=False)
    assert not {ours.mask_id, ours.sep_id} & {i for row in plain for i in row}
    assert not ours.is_continuation.any()


@pytest.mark.parametrize("write", [deberta_files(do_lower_case=False), deberta_bpe_files], ids=["v2", "v1"])
def test_deberta_cuts_questions_and_random_characters_as_transformers_does(shared_data, tmp_path, write):
    with gzip.open(shared_data / "tokenizer_oracle" / "question_tokens.json.gz", "rt", encoding="utf-8") as file:
        questions = [question["original"] for question in json.load(file)]
    theirs = write(tmp_path, questions[:2000])
    rng = np.random.default_rng(0)
    planes = [rng.integers(0x20, highest, (500, 40)) for highest in (0x250, 0x3000, 0xD800, 0x20000)]
    codes = np.where(np.concatenate(planes) // 0x800 == 0x1B, 0x20, np.concatenate(planes))  # no surrogates
    texts = questions + ["".join(map(chr, row)) for row in codes]
    ours = load_tokenizer(tmp_path)
    assert ours.encode_batch(texts) == theirs(texts, add_special_tokens=False)["input_ids"]


def test_the_vocabulary_of_roberta_base_cuts_real_lines_as_transformers_does(shared_data, lines, tmp_path):
    for name in ("vocab.json", "merges.txt"):
        (tmp_path / name).write_bytes((shared_data / "vocab" / f"roberta-{name}").read_bytes())
    mask = AddedToken("<mask>", lstrip=True, normalized=False)
    theirs = transformers.RobertaTokenizer.from_pretrained(tmp_path, mask_token=mask)
    ours = load_tokenizer(shared_data / "vocab" / "roberta-vocab.json")
    assert ours.tokenize("Hello world, it<mask> is <mask>.")[:2] == ["Hello", "\u0120world"]
    assert ours("Hello world")["input_ids"].tolist() == [[0, 31414, 232, 2]]  # as the release of RoBERTa prints it
    assert_same(ours, theirs, lines[-100:])
