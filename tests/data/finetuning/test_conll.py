"""CoNLL-U, comments, and files without blank lines; CoNLL of other shapes is in test_tagged.py."""

import pytest

from bert_jax.data.finetuning import conll
from bert_jax.data.finetuning.conll import Sentence
from bert_jax.data.finetuning.tables import Columns
from bert_jax.data.finetuning.tagged import read_sentences
from bert_jax.data.invalid_rows import InvalidRows
from bert_jax.errors import InputError

# The example of https://universaldependencies.org/format.html#words-tokens-and-empty-nodes, and one of an ellipsis.
CONLL_U = """# newdoc id = mf920901-001
# sent_id = 1
# text = v\u00e1monos al mar
1-2 v\u00e1monos _ _ _ _ _ _ _ _
1 vamos ir VERB _ _ 0 root _ _
2 nos nosotros PRON _ _ 1 obj _ _
3-4 al _ _ _ _ _ _ _ _
3 a a ADP _ _ 5 case _ _
4 el el DET _ _ 5 det _ _
5 mar mar NOUN _ _ 1 obl _ _

# text = Sue likes coffee and Bill tea
1 Sue Sue PROPN _ _ 2 nsubj _ _
2 likes like VERB _ _ 0 root _ _
2.1 likes like VERB _ _ _ _ _ _
3 ten\u00a0thousand ten NUM _ _ 2 obj _ _

""".replace(" ", "\t").replace("#\t", "# ")
SENTENCES = [
    Sentence(4, ("vamos", "nos", "a", "el", "mar"), ("VERB", "PRON", "ADP", "DET", "NOUN")),
    Sentence(13, ("Sue", "likes", "ten\u00a0thousand"), ("PROPN", "VERB", "NUM")),
]


def read(path, content, columns=Columns(), **options):  # noqa: B008
    path.write_bytes(content.encode())
    return list(read_sentences(str(path), columns, **options))


@pytest.mark.parametrize("name", ["a.conllu", "a.conll", "a.txt", "a.tsv"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_conll_u(tmp_path, name, end):
    assert read(tmp_path / name, CONLL_U.replace("\n", end)) == SENTENCES


def test_columns_of_conll_u_have_names(tmp_path):
    found = read(tmp_path / "a.conllu", CONLL_U, Columns("LEMMA", "", "deprel"))
    assert found[0].words == ("ir", "nosotros", "a", "el", "mar")
    assert found[0].tags == ("root", "obj", "case", "det", "obl")
    assert read(tmp_path / "a.conllu", CONLL_U, Columns("2", "", "7")) == found
    with pytest.raises(InputError, match="found 'UPO'; did you mean 'UPOS'"):
        read(tmp_path / "a.conllu", CONLL_U, Columns("", "", "UPO"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (CONLL_U.replace("\t", " "), "line 4: expected the 10 columns of CoNLL-U, found 1"),
        (CONLL_U.replace("2\tnos", "b\tnos"), "line 6: expected the number of a word, such as 1, found 'b'"),
        (CONLL_U.replace("el\tDET", "el"), "line 9: expected 10 columns as in line 4, found 9"),
        ("1-2\tal" + "\t_" * 8 + "\n", "line 1: expected words, found a sentence without any"),
        ("# text = nothing\n\n", "expected at least one sentence, found none|expected the 10 columns"),
    ],
)
def test_what_is_no_conll_u(tmp_path, content, message):
    with pytest.raises(InputError, match=message):
        read(tmp_path / "a.conllu", content)


def test_comments_stand_before_a_sentence(tmp_path):
    content = "# sent_id = 1\n#begin document (a);\n# n-tv.de 2005\nEU NNP B-ORG O\n# NN O O\n\n#\nPeter NNP B-PER O\n"
    found = read(tmp_path / "a.conll", content, Columns("0", "", "2"))
    assert [sentence.words for sentence in found] == [("EU", "#"), ("Peter",)]
    assert [sentence.line for sentence in found] == [4, 8]


def test_a_hash_is_a_word_where_its_line_has_as_many_columns(tmp_path):
    content = "# O\n#jax B-MISC\n1 O\n\n#1 O\n"
    assert [sentence.words for sentence in read(tmp_path / "a.bio", content)] == [("#", "#jax", "1"), ("#1",)]
    assert read(tmp_path / "b.tsv", "#\tO\n#b\tO\n")[0].words == ("#", "#b")  # nothing but such words


def test_a_word_without_its_tag_is_no_comment(tmp_path):
    with pytest.raises(InputError, match="line 3: expected 2 columns as in line 1, found 1"):
        read(tmp_path / "a.conll", "EU O\n\n#jax\n")


def test_lines_without_blank_ones_are_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(conll, "MAX_WORDS", 100)
    rows = "EU O\n" * 100
    assert len(read(tmp_path / "a.conll", rows)[0].words) == 100
    with pytest.raises(InputError, match="line 1: expected a blank line after each sentence, found 101 lines of"):
        read(tmp_path / "b.conll", rows + "EU O\n")


def test_an_array_of_sentences(tmp_path):
    rows = '[\n{"tokens": ["EU"], "tags": ["B-ORG"]},\n{"tokens": ["a", "b"], "tags": ["O", "O"]}, 7, {"tokens": []}]'
    bad = InvalidRows("a.json", "skip", "sentence")
    found = list(bad.fitting(read(tmp_path / "a.json", rows, bad=bad)))
    assert found == [Sentence(1, ("EU",), ("B-ORG",)), Sentence(2, ("a", "b"), ("O", "O"))]
    with pytest.raises(InputError, match=r"a\.json: row 3: expected a JSON object, found int \(and 1 more"):
        read(tmp_path / "a.json", rows)
