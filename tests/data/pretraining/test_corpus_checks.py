"""What `prepare` notices in a corpus that makes poor data, with its number; and that it is silent where all is well."""

import logging

import pytest
from prepared_corpora import VOCABULARY, write_corpus

from bert_jax.data.corpora.readers import Document
from bert_jax.data.corpora.sources import Corpus
from bert_jax.data.pretraining.corpus_checks import Duplicates
from bert_jax.data.pretraining.prepare import prepare
from bert_jax.tokenization import load_tokenizer

WORDS = VOCABULARY.split()


def sentences(number, count=12):
    """Sentences that only this document has; `number` is spelt in words."""
    spelt = " ".join(WORDS[int(digit)] for digit in f"{number:04}")
    return " ".join(f"{spelt} {WORDS[i % 16]} sat. The dog runs." for i in range(count // 2)).replace(". ", ". The ")


def said(tmp_path, caplog, tokenizer, corpus, **settings):
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        manifest = prepare(corpus, tokenizer, tmp_path / "out", **{"max_seq_length": 32, "num_workers": 1} | settings)
    return [record.getMessage() for record in caplog.records], manifest


def of(documents):
    return Corpus("mine", lambda: (Document(str(i), (text,)) for i, text in enumerate(documents)))


@pytest.mark.parametrize("objective", ["nsp", "sop", "mlm"])
def test_nothing_is_said_of_an_ordinary_corpus(tmp_path, caplog, tiny_tokenizer, objective):
    corpus = str(write_corpus(tmp_path / "corpus.txt", documents=200))
    assert said(tmp_path, caplog, tiny_tokenizer, corpus, objective=objective)[0] == []


def test_wikitext(tmp_path, caplog, tiny_tokenizer):
    lines = []
    for article in range(40):
        lines += [f" = {WORDS[article % 16]} {article} = ", ""]
        for section in range(3):
            lines += [" = = The river = = ", "", f" {sentences(10 * article + section, 4)} ", ""]
    (tmp_path / "wiki.txt").write_text("\n".join(lines))
    found, manifest = said(tmp_path, caplog, tiny_tokenizer, str(tmp_path / "wiki.txt"))
    assert "160 of 280 lines are headings like ' = Title = '" in found[0] and "wikitext:PATH" in found[0]
    [train] = [part for part in manifest.sets if part.split == "train"]
    assert f"{train.label_1 / train.examples:.0%} of the pairs are random" in found[1]
    assert "57% of the documents have a single sentence" in found[1]  # the 160 headings of 280
    found, manifest = said(tmp_path / "right", caplog, tiny_tokenizer, f"wikitext:{tmp_path / 'wiki.txt'}")
    assert found == [] and sum(manifest.documents.values()) == 40


def test_single_sentences_do_not_matter_without_pairs(tmp_path, caplog, tiny_tokenizer):
    corpus = of([f"{sentences(i, 2).split('.')[0]}." for i in range(40)])
    [line], _ = said(tmp_path, caplog, tiny_tokenizer, corpus, max_seq_length=16)
    assert "100% of the documents have a single sentence" in line
    assert said(tmp_path / "mlm", caplog, tiny_tokenizer, corpus, max_seq_length=16, objective="mlm")[0] == []


def test_duplicates(tmp_path, caplog, tiny_tokenizer):
    found, _ = said(tmp_path, caplog, tiny_tokenizer, of([sentences(i % 30) for i in range(40)]))
    assert found == ["mine: 25% of documents have the text of an earlier one; --deduplicate leaves them out"]
    assert said(tmp_path / "few", caplog, tiny_tokenizer, of([sentences(i % 35) for i in range(40)]))[0] == []


def test_duplicates_are_counted_in_bounded_memory():
    parts = [Duplicates(100), Duplicates(300), Duplicates(100)]
    for i, document in enumerate(of([f"{i % 4000}" for i in range(12_000)])):
        parts[i % 2].add(document.number())
    for part in parts[:2]:
        parts[2].merge(part)
        assert len(part._counts) <= 300
    assert parts[2].share == pytest.approx(2 / 3)  # each text is counted each time, or never
    assert 20 < len(parts[2]._counts) <= 100


def test_unknown_tokens(tmp_path, caplog, tiny_tokenizer):
    corpus = of([sentences(i).replace(". The", ". \u0416\u0416\u0416\u0416") for i in range(40)])
    [line], _ = said(tmp_path, caplog, tiny_tokenizer, corpus)
    tokens = [len(tiny_tokenizer.encode(text.texts[0])) for text in corpus]
    unknown = 40 * 11  # sentences but the first begin with the unknown word
    assert f"mine: {unknown / sum(tokens):.0%} of the tokens are unknown" in line


def test_short_examples(tmp_path, caplog, tiny_tokenizer):
    corpus = of([sentences(i, 4) for i in range(400)])
    found, manifest = said(tmp_path, caplog, tiny_tokenizer, corpus, max_seq_length=(32, 256), objective="sop")
    train = manifest.sets[1]
    mean = f"mine: examples of up to 256 tokens have {train.tokens / train.examples:.0f} on average"
    assert (train.split, train.max_seq_length) == ("train", 256) and found[-1].startswith(mean)
    assert not [line for line in found if "up to 32" in line]
    packed, _ = said(
        tmp_path / "packed", caplog, tiny_tokenizer, corpus, max_seq_length=256, objective="sop", packed=True
    )
    assert not [line for line in packed if "on average" in line]


def test_a_vocabulary_without_an_unknown_token(tmp_path, caplog):
    letters = "abcdefghijklmnopqrstuvwxyzTD."
    pieces = ["[PAD]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{letter}" for letter in letters)]
    (tmp_path / "vocab.txt").write_text("\n".join(pieces))
    tokenizer = load_tokenizer(tmp_path / "vocab.txt", lowercase=True)
    corpus = str(write_corpus(tmp_path / "corpus.txt", documents=200))
    _, manifest = said(tmp_path, caplog, tokenizer, corpus, objective="mlm")
    assert sum(part.examples for part in manifest.sets) > 0
