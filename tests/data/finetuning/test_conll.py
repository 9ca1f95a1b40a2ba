"""CoNLL-U, comments, and files without blank lines; CoNLL of other shapes is in test_tagged.py."""

import pytest

from bert_jax.data.finetuning import conll
from bert_jax.data.finetuning.conll import Sentence
from bert_jax.data.finetuning.tables import Columns
from bert_jax.data.finetuning.tagged import read_sentences
from bert_jax.data.invalid_rows import InvalidRows
from bert_jax.errors import InputError
from bert_jax.tasks.token_classification.data import encode_tagged, word_pieces
from bert_jax.tokenization import train_bpe

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


# A sentence of English EWT: "I don't know (yet)." with a multiword token, and marks without spaces around them.
SPACES = """# text = I don't know (yet).
1 I I PRON _ _ 4 nsubj _ _
2-3 don't _ _ _ _ _ _ _ _
2 do do AUX _ _ 4 aux _ _
3 n't not PART _ _ 4 advmod _ _
4 know know VERB _ _ 0 root _ _
5 ( ( PUNCT _ _ 6 punct _ Gloss=x|SpaceAfter=No
6 yet yet ADV _ _ 4 advmod _ SpaceAfter=No
7 ) ) PUNCT _ _ 6 punct _ SpaceAfter=No
8 . . PUNCT _ _ 4 punct _ SpaceAfter=No

""".replace(" ", "\t").replace("#\t", "# ")


def test_words_without_a_space_before_them(tmp_path):
    (found,) = read(tmp_path / "a.conllu", SPACES)
    text = "".join(("" if i in (0, *found.joined) else " ") + word for i, word in enumerate(found.words))
    assert text == "I don't know (yet)."
    (apart,) = read(tmp_path / "a.conllu", SPACES.replace("don't", "dont"))  # not its words in a row
    assert 2 in found.joined and 2 not in apart.joined
    (after,) = read(tmp_path / "a.conllu", SPACES.replace("don't" + "\t_" * 8, "don't" + "\t_" * 7 + "\tSpaceAfter=No"))
    assert after.joined == (2, 3, 5, 6, 7)  # MISC of the multiword token is that of its end
    (lemmas,) = read(tmp_path / "a.conllu", SPACES, Columns("LEMMA"))
    assert lemmas.joined == ()


def test_pieces_of_words_without_a_space_before_them(tmp_path):
    (found,) = read(tmp_path / "a.conllu", SPACES)
    tokenizer = train_bpe(["I don't know (yet)."] * 9, 300)
    (pieces,) = word_pieces(tokenizer, [found.words], [found.joined])
    assert [tokenizer.pieces[ids[0]][:1] for ids in pieces] == ["I", "Ġ", "n", "Ġ", "Ġ", "y", ")", "."]
    assert tokenizer.decode([i for ids in pieces for i in ids]) == "I don't know (yet)."
    encoded = encode_tagged(tokenizer, [found], sorted(set(found.tags)), 64)
    assert encoded.tokens[1:-1].tolist() == [i for ids in pieces for i in ids]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("4\tknow", "5\tknow", r"line 6: expected the number 4, which is the next word's, found '5'"),
        ("2-3\tdon't", "3-4\tdon't", r"line 3: expected the number 2, which is the next word's, found '3-4'"),
        ("know\tVERB", "know\t_", r"line 6: expected a part of speech in UPOS, found '_', which means none"),
        ("8\t.", "1\t.", r"line 10: expected the number 8, which is the next word's, found '1'"),
        ("8\t.", "9" * 5000 + "\t.", r"line 10: expected the number 8"),
    ],
)
def test_lines_of_conll_u_that_do_not_fit(tmp_path, old, new, message):
    assert old in SPACES
    with pytest.raises(InputError, match=message):
        read(tmp_path / "a.conllu", SPACES.replace(old, new))


@pytest.mark.parametrize("last", ["\n\n# the end\n", "\n\n# the end", ""])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_column_is_filled_and_all_else_stays(tmp_path, end, last):
    content = ("\n# newdoc\n" + SPACES + CONLL_U.rstrip("\n") + last).replace("\n", end)
    sentences = read(tmp_path / "a.conllu", content, tagged=True, keep_lines=True)
    same = "".join(conll.fill_column(sentence.source, "UPOS", sentence.tags) for sentence in sentences)
    assert same == content
    filled = "".join(conll.fill_column(s.source, "MISC", map(str.lower, s.words)) for s in sentences)
    (tmp_path / "b.conllu").write_bytes(filled.encode())
    again = list(read_sentences(str(tmp_path / "b.conllu"), Columns("", "", "misc")))
    assert [s.tags for s in again] == [tuple(map(str.lower, s.words)) for s in sentences]
    assert filled.count(end) == content.count(end) and "1-2" in filled and "2.1" in filled


def test_only_lines_of_conll_u_are_kept(tmp_path):
    with pytest.raises(InputError, match="line 1: expected the ten columns of CoNLL-U, found 2"):
        read(tmp_path / "a.conll", "the O\n", keep_lines=True)
    with pytest.raises(InputError, match="expected CoNLL-U, as its lines are kept"):
        read(tmp_path / "a.jsonl", '{"tokens": ["a"], "tags": ["O"]}\n', keep_lines=True)
