"""Tokenizers with a part of their vocabulary: text that uses only that part has the same tokens, here and in
transformers."""

import io
import json
import random

import numpy as np
import pytest
import sentencepiece
import tokenizers

from bert_jax.errors import InputError
from bert_jax.tokenization import (
    SentencePieceTokenizer,
    albert,
    byte_level_bpe,
    camembert,
    load_tokenizer,
    train_bpe,
    train_sentencepiece,
    train_wordpiece,
    word_piece,
    xlm_roberta,
)
from bert_jax.tokenization.huggingface import BackendTokenizer
from bert_jax.tokenization.pruning import used_ids, with_fewer_pieces


def texts_of(seed: int, count: int) -> list[str]:
    """Texts of words from syllables, some in other scripts."""
    rng = random.Random(seed)
    syllables = [a + b for a in "bdfgklmnprst" for b in "aeiou"] + ["é", "ß", "Ω", "の"]
    words = ["".join(rng.choices(syllables, k=rng.randint(1, 4))) for _ in range(200)]
    return [
        " ".join(rng.choices(words, k=rng.randint(2, 9))) + rng.choice([".", "!", " ;-)", ""]) for _ in range(count)
    ]


TRAINING = texts_of(0, 300)
CORPUS, OTHERS = TRAINING[:6], [*TRAINING[6:], *texts_of(1, 60)]


def from_sentencepiece(size: int, **options) -> bytes:
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TRAINING), model_writer=written, vocab_size=size, minloglevel=2, **options
    )
    return written.getvalue()


ALBERT = {"pad_id": 0, "unk_id": 1, "bos_id": -1, "eos_id": -1, "control_symbols": "[CLS],[SEP],[MASK]"}
TOKENIZERS = {
    "wordpiece": lambda: train_wordpiece(TRAINING, 250),
    "bpe": lambda: train_bpe(TRAINING, 420),
    "unigram": lambda: train_sentencepiece(TRAINING, 150),
    "sentencepiece bpe": lambda: train_sentencepiece(TRAINING, 150, model_type="bpe"),
    "xlm-r": lambda: xlm_roberta(from_sentencepiece(150)),
    "albert": lambda: albert(from_sentencepiece(150, **ALBERT)),
    "camembert": lambda: camembert(from_sentencepiece(150)),
}


@pytest.fixture(scope="module", params=TOKENIZERS)
def tokenizer(request):
    return TOKENIZERS[request.param]()


def pruned(tokenizer, corpus=CORPUS):
    return with_fewer_pieces(tokenizer, used_ids(tokenizer, corpus))


def same(tokenizer, smaller, ids, texts) -> bool:
    """Whether texts have the same tokens, each with its new id."""
    before, after = tokenizer.encode_batch(texts), smaller.encode_batch(texts)
    return [[int(ids[i]) for i in row] for row in after] == before


def test_text_of_the_remaining_pieces_has_the_same_tokens(tokenizer):
    smaller, ids = pruned(tokenizer)
    assert len(ids) == smaller.vocab_size < 0.9 * tokenizer.vocab_size
    assert smaller.pieces == tuple(tokenizer.pieces[i] for i in ids)
    assert same(tokenizer, smaller, ids, CORPUS)
    kept = set(ids.tolist())
    fitting = [t for t, row in zip(OTHERS, tokenizer.encode_batch(OTHERS), strict=True) if kept.issuperset(row)]
    assert len(fitting) >= 3
    assert same(tokenizer, smaller, ids, fitting)
    assert not same(tokenizer, smaller, ids, OTHERS)  # which uses other pieces too


def test_rows_and_special_tokens(tokenizer):
    smaller, ids = pruned(tokenizer)
    mask = tokenizer.pieces[tokenizer.mask_id]
    texts = [f"{CORPUS[0]} {mask}", mask]
    assert same(tokenizer, smaller, ids, texts)
    before, after = (made(CORPUS[:3], CORPUS[3:6]) for made in (tokenizer, smaller))
    real = before["attention_mask"] == 1
    assert np.array_equal(ids[after["input_ids"][real]], before["input_ids"][real])
    assert np.array_equal(after["token_type_ids"], before["token_type_ids"])
    for name in ("pad_id", "cls_id", "sep_id", "mask_id", "unk_id"):
        assert ids[getattr(smaller, name)] == getattr(tokenizer, name)
    assert smaller.decode(smaller.encode(CORPUS[0])) == tokenizer.decode(tokenizer.encode(CORPUS[0]))


def test_the_saved_files_are_of_the_same_vocabulary(tokenizer, tmp_path):
    smaller, _ = pruned(tokenizer)
    smaller.save(tmp_path)
    loaded = load_tokenizer(tmp_path)
    texts = [*CORPUS, *OTHERS[:40], "[MASK] <mask> \u2603 ab"]
    expected = smaller.encode_batch(texts)
    assert loaded.pieces == smaller.pieces
    assert loaded.encode_batch(texts) == expected
    for name in ("vocab.txt", "vocab.json", "sentencepiece.bpe.model", "spiece.model"):  # beside tokenizer.json
        if (tmp_path / name).exists():
            (tmp_path / "tokenizer.json").unlink(missing_ok=True)
            again = load_tokenizer(tmp_path)
            assert again.pieces == smaller.pieces
            assert again.encode_batch(CORPUS) == expected[: len(CORPUS)]


def test_transformers_gives_the_same_ids(tokenizer, tmp_path):
    transformers = pytest.importorskip("transformers")
    smaller, _ = pruned(tokenizer)
    smaller.save(tmp_path)
    if not (tmp_path / "tokenizer.json").exists():
        pytest.skip("transformers has no tokenizer for a BPE model of SentencePiece")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    rows = smaller(CORPUS)
    ours = [ids[mask == 1].tolist() for ids, mask in zip(rows["input_ids"], rows["attention_mask"], strict=True)]
    assert theirs(CORPUS)["input_ids"] == ours
    assert len(theirs) == smaller.vocab_size
    raw = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert [raw.encode(text, add_special_tokens=False).ids for text in CORPUS] == smaller.encode_batch(CORPUS)


def test_an_unknown_word_stays_unknown():
    """`abcd` is unknown, as `##d` is missing after `abc`; without `abc` it would be `ab ##cd`."""
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "abc", "ab", "##cd", "zz", "a", "b"]
    tokenizer = word_piece(pieces)
    smaller, ids = pruned(tokenizer, ["abcd abq", "abcd ab", "xab ab cd"])
    assert tokenizer.tokenize("abcd") == ["[UNK]"]
    assert "abc" in smaller.pieces
    assert "zz" not in smaller.pieces
    assert same(tokenizer, smaller, ids, ["abcd", "abcd ab"])


def test_bpe_keeps_all_bytes_and_the_pieces_on_the_way():
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    merges = [("a", "b"), ("c", "d"), ("ab", "cd"), ("x", "y"), ("xy", "z")]
    pieces = ["<s>", "<pad>", "</s>", "<unk>", *alphabet, *(a + b for a, b in merges), "<mask>"]
    tokenizer = byte_level_bpe({piece: i for i, piece in enumerate(pieces)}, merges)
    smaller, _ = pruned(tokenizer, ["abcd"])
    assert set(pieces) - set(smaller.pieces) == {"xy", "xyz"}
    assert smaller.tokenize("abcdxyz") == ["abcd", "x", "y", "z"]


def test_added_tokens_stay(tmp_path):
    train_wordpiece(TRAINING, 250).save(tmp_path)
    size = load_tokenizer(tmp_path).vocab_size
    settings = json.loads((tmp_path / "tokenizer_config.json").read_text())
    extra = {
        str(size): {"content": "<user>", "special": True},
        str(size + 1): {"content": "cafe bar", "special": False},
    }
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings | {"added_tokens_decoder": extra}))
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer.vocab_size == size + 2
    smaller, ids = pruned(tokenizer)
    assert smaller.pieces[-2:] == ("<user>", "cafe bar")
    assert same(tokenizer, smaller, ids, [f"<user> {CORPUS[0]} cafe bar"])
    smaller.save(tmp_path / "smaller")
    assert load_tokenizer(tmp_path / "smaller").pieces == smaller.pieces


def test_tokenizers_that_cannot_be_pruned():
    special = {"pad": "[PAD]", "cls": "[CLS]", "sep": "[SEP]"}
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"[PAD]": 0, "[CLS]": 1, "[SEP]": 2, "a": 3}, "[PAD]"))
    with pytest.raises(
        InputError, match="expected a vocabulary of WordPiece, byte-level BPE or a unigram model, found"
    ):
        with_fewer_pieces(BackendTokenizer(words, special, {}), {3})
    suffix = tokenizers.models.BPE({"[PAD]": 0, "[CLS]": 1, "[SEP]": 2, "a</w>": 3}, [], end_of_word_suffix="</w>")
    with pytest.raises(InputError, match="expected byte-level BPE, found another BPE"):
        with_fewer_pieces(BackendTokenizer(tokenizers.Tokenizer(suffix), special, {}), {3})
    with pytest.raises(InputError, match="found one of words or characters"):
        with_fewer_pieces(SentencePieceTokenizer(from_sentencepiece(32, model_type="char", pad_id=3)), {5})


def test_special_tokens_behind_the_vocabulary_get_new_ids(tmp_path):
    tokenizer = word_piece(["zz", "yy", "aa", "bb", "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
    smaller, ids = pruned(tokenizer, ["aa bb"])
    assert ids.tolist() == [2, 3, 4, 5, 6, 7, 8]
    assert smaller(["aa"], ["bb aa"])["input_ids"].tolist() == [[4, 0, 5, 1, 0, 5]]
    smaller.save(tmp_path)
    transformers = pytest.importorskip("transformers")
    assert transformers.AutoTokenizer.from_pretrained(tmp_path)(["aa"], ["bb aa"])["input_ids"] == [[4, 0, 5, 1, 0, 5]]
