"""Words that are added to a model: pieces, rows, and the same in transformers."""

import itertools

import numpy as np
import pytest
from decoder_tokenizers import gemma_folder, qwen_folder, t5_folder
from random_models import write_model

from bert_jax import from_pretrained
from bert_jax.cli import main
from bert_jax.config import BertConfig
from bert_jax.errors import InputError
from bert_jax.inference.added_tokens import add_tokens
from bert_jax.tokenization import load_tokenizer

transformers = pytest.importorskip("transformers", reason="compares with transformers, which is not installed")

TEXTS = ["a quick red bird sat on the old stone", "the river by the house, and a tree"]
WORDS = ["pytree", "vmap", "covid-19", "PyTree", "house", "vmap"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory, tiny_tokenizer):
    """Folders of tokenizers by their algorithm."""
    root = tmp_path_factory.mktemp("tokenizers")
    tiny_tokenizer.save(root / "WordPiece")
    for name, write in {"BPE": gemma_folder, "byte-level BPE": qwen_folder(True), "unigrams": t5_folder}.items():
        (root / name).mkdir()
        write(root / name, TEXTS * 10 + ["house"] * 20)
    return root


@pytest.mark.parametrize("algorithm", ["WordPiece", "BPE", "byte-level BPE", "unigrams"])
@pytest.mark.parametrize("new_rows", ["pieces", "all"])
def test_words_get_rows_and_nothing_else_changes(folders, tmp_path, algorithm, new_rows):
    tokenizer = load_tokenizer(folders / algorithm)
    size = tokenizer.vocab_size
    sizes = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 16}
    config = BertConfig.named("tiny", vocab_size=size, tie_word_embeddings=algorithm == "BPE", **sizes)
    model = from_pretrained(write_model(tmp_path / "model", config, "masked_lm", tokenizer))
    grown = add_tokens(model, WORDS, new_rows, multiple=32)
    new = range(size, grown.tokenizer.vocab_size)
    assert 3 <= len(new) <= 5 and grown.config.vocab_size == -(-grown.tokenizer.vocab_size // 32) * 32
    assert grown.tokenizer.pieces[:size] == tokenizer.pieces
    assert [grown.tokenizer.encode(text) for text in TEXTS] == [tokenizer.encode(text) for text in TEXTS]
    for word in ("pytree", "vmap", "covid-19"):
        (piece,) = grown.tokenizer.encode(f"the {word} sat")[len(grown.tokenizer.encode("the")) :][:1]
        assert piece in new
        sources = tokenizer.encode(word) if new_rows == "pieces" else range(size)
        for tables in zip(*(_tables(each) for each in (model, grown)), strict=True):
            before, after = map(np.asarray, tables)
            np.testing.assert_array_equal(after[:size], before)
            np.testing.assert_allclose(after[piece], before[list(sources)].mean(0), atol=1e-6)
    inputs = model.tokenizer(TEXTS)
    names = ("input_ids", "attention_mask")
    found, expected = (each(**{name: inputs[name] for name in names}).logits for each in (grown, model))
    np.testing.assert_allclose(found[..., :size], expected, atol=1e-5)

    grown.save_pretrained(tmp_path / "grown")
    again = from_pretrained(tmp_path / "grown")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "grown")
    texts = [*TEXTS, "a pytree and vmap, by covid-19 pytrees", "vmap", "the PyTree house"]
    for text in texts:
        assert again.tokenizer.encode(text) == grown.tokenizer.encode(text)
        assert theirs(text, add_special_tokens=False)["input_ids"] == grown.tokenizer.encode(text)
    assert transformers.BertForMaskedLM.from_pretrained(tmp_path / "grown").config.vocab_size == again.config.vocab_size


def _tables(model):
    """The arrays with a row for each piece."""
    head = model.params["mlm"]
    tables = [model.params["embeddings"]["word_embeddings"]["embedding"], head["bias"]]
    return tables + ([head["decoder"]["embedding"]] if "decoder" in head else [])


def test_the_command(write_small, tmp_path, capsys):
    write_small(tmp_path / "model", "sentence_embedding")
    (tmp_path / "words.txt").write_text("pytree\n\nvmap \nthe\npytree\n")
    rows = BertConfig.from_pretrained(tmp_path / "model").vocab_size
    names = itertools.count()

    def convert(*options):
        out = tmp_path / str(next(names))
        words = ["convert", str(tmp_path / "model"), str(out), "--add-tokens", str(tmp_path / "words.txt"), *options]
        return main(words), out, capsys.readouterr()

    code, out, said = convert("--pad-rows-to", "8", "--dtype", "bfloat16")
    assert code == 0 and "2 of 4 words added" in said.out
    grown = from_pretrained(out)
    assert grown.config.vocab_size == -(-(rows + 2) // 8) * 8 and grown.head == "sentence_embedding"
    assert grown.tokenizer.tokenize("the pytrees")[:2] == ["the", "pytree"]
    for options, message in (
        (("--new-rows", "none"), "expected new rows of pieces or all, and a positive multiple, found 'none' and 1"),
        (("--pad-rows-to", "0"), "found 'pieces' and 0"),
    ):
        code, out, said = convert(*options)
        assert code == 2 and message in said.err and not out.exists()


def test_models_that_take_no_words(write_small, tmp_path):
    model = from_pretrained(write_small(tmp_path / "model"))
    with pytest.raises(InputError, match="expected words with at least one piece each, found ' '"):
        add_tokens(model, ["a", " "])
    write_model(tmp_path / "plain", model.config)
    with pytest.raises(InputError, match="expected a model with a tokenizer, found none"):
        add_tokens(from_pretrained(tmp_path / "plain"), ["a"])
