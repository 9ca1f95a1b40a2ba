"""The pages themselves: nothing of the data is taken for HTML, and nothing is too large for them."""

import functools
import warnings

import numpy as np
import pytest
from html_pages import Page, check_alone, numbers

from bert_jax.config import BertConfig
from bert_jax.data.finetuning.features import encode_texts
from bert_jax.data.finetuning.tables import Example
from bert_jax.errors import InputError
from bert_jax.evaluation import model_runner
from bert_jax.modeling import Compute
from bert_jax.reports import classes, figures, page, values
from bert_jax.reports.attention import Attention, sections
from bert_jax.sharding import make_mesh
from bert_jax.tasks.multiple_choice import report as choices
from bert_jax.tasks.question_answering import report as passages
from bert_jax.tasks.question_answering.data import Answer, Question
from bert_jax.tasks.token_classification import report as tags

HOSTILE = "</td><script>alert('x')</script><img src=x onerror=alert(1)> \"quoted\" & $\\frac{1}$ \x00\x1b \ud83d"
HEADING = page.Heading("model/<b>", "data/&amp;.tsv", {"accuracy": 0.5, "examples": 1234})


def written(tmp_path, sections):
    page.write_page(tmp_path / "page.html", HEADING, sections)
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]
    read = Page(tmp_path / "page.html")
    check_alone(read)
    return read


def attend(number):
    """Maps of 7 x 6 heads, which are too many to be all shown, over more tokens than are."""
    maps = np.random.default_rng(number).random((7, 6, 60, 60)).astype(np.float32)
    return Attention([HOSTILE[:30], *["word"] * 59], maps / maps.sum(-1, keepdims=True))


def test_maps_that_are_too_large(tmp_path, monkeypatch, tiny_tokenizer):
    config = BertConfig(vocab_size=tiny_tokenizer.vocab_size, num_hidden_layers=2, num_attention_heads=12)
    opened = model_runner.ModelRunner(config, {}, tiny_tokenizer, Compute(), 512, 8, make_mesh())
    features = encode_texts(tiny_tokenizer, [Example(1, "the cat " * 100, None, None)], np.zeros(1), 512)
    monkeypatch.setattr(model_runner, "_LARGEST_MAPS", 2 * 12 * 202**2 - 1)
    read = written(tmp_path, sections([("Line 1", 0)], functools.partial(opened.attention, "encoder", features)))
    assert "Left out: the maps of this many tokens" in read.text


def of_classes(names, count=60, certain=False):
    rng = np.random.default_rng(0)
    labels, logits = rng.integers(0, len(names), count), rng.normal(size=(count, len(names)))
    if certain:
        logits = 9 * np.eye(len(names))[labels]

    def row(i):
        return i + 2, {HOSTILE: f"{HOSTILE} {i}", "pair": "x" * 5000}

    return labels, logits, classes.one_label(names, labels, logits, row, attend)


@pytest.mark.filterwarnings("error")
def test_hostile_names_and_texts_are_shown_and_not_obeyed(tmp_path):
    labels, logits, parts = of_classes((HOSTILE, "b", "c"))
    read = written(tmp_path, parts)
    assert "<script>alert('x')</script>" in read.text and "\ufffd" in read.text and "\x00" not in read.text
    assert read.tables["classes"][1][0].startswith("</td><script>")
    wrong = labels != logits.argmax(-1)
    losses = np.log(np.exp(logits).sum(-1)) - logits[np.arange(60), labels]
    worst = int(np.where(wrong, losses, -1).argmax())
    line, text, pair, *_, loss = read.tables["worst"][1]
    assert line == str(worst + 2) and text.startswith("</td><script>") and text.endswith(f" {worst}")
    assert pair == "x" * page.LONGEST_TEXT + "… (5,000 characters)"
    assert float(loss) == pytest.approx(losses[worst], abs=1e-4)
    assert len(read.tables["worst"]) == 1 + min(20, wrong.sum())
    assert "model/<b> on data/&amp;.tsv" in read.text and read.column("scores", "value") == ["0.5000", "1,234"]
    assert read.text.count("The first 48 of 60 tokens.") == 3 and "The mean over the 6 heads of each layer" in read.text
    assert len(read.tables[""]) == 3 * 49  # three maps


def test_no_mistakes_need_no_table(tmp_path):
    read = written(tmp_path, of_classes(("a", "b"), certain=True)[2])
    assert "None: every prediction is right." in read.text and "worst" not in read.tables


def test_seventy_seven_classes_are_readable(tmp_path):
    names = [f"intent {i}" for i in range(77)]
    labels, logits, parts = of_classes(names, 3000)
    read = written(tmp_path, parts)
    assert "confusion" not in read.tables and len(read.tables["classes"]) == 1 + 77 + 1
    header, *rows = read.tables["confusions"]
    assert header == ["class", "predicted as", "rows", "share of the class"] and len(rows) == 30
    label, answer = (names.index(name) for name in rows[0][:2])
    assert int(rows[0][2]) == ((labels == label) & (logits.argmax(-1) == answer)).sum()
    assert sum(tag == "img" for tag, _ in read.tags) == 2 + 3  # the matrix, calibration, three rows' attention
    assert len(read.source) < 2e6


def test_what_is_left_out_is_said(tmp_path):
    read = written(tmp_path, of_classes([f"c{i}" for i in range(400)])[2])
    assert "The 300 of 400 with the lowest F1" in read.text and len(read.tables["classes"]) == 1 + 300 + 1
    assert "it would have 400 rows and columns" in read.text


def test_numbers_that_are_none(tmp_path):
    rng = np.random.default_rng(0)
    targets, answers = rng.normal(size=50), rng.normal(size=50)
    answers[3] = np.nan
    rows = [(i, {"text": "a"}) for i in range(50)]
    read = written(tmp_path, values.regression(targets, answers, rows.__getitem__, attend))
    assert "Left out: 1 predictions that are not finite." in read.text
    assert "3" not in read.column("worst", "line")
    assert "Left out: 1 predictions" in written(tmp_path, values.pairs(targets, answers, rows.__getitem__, attend)).text


def test_many_points_are_drawn_as_cells():
    rng = np.random.default_rng(0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        drawn = page.picture(figures.scatter(*rng.normal(size=(2, 20000)), "x", "y", True), "points")
    assert len(drawn) < 300_000


def test_long_sentences_are_cut(tmp_path):
    words, labels = ["<b>"] * 400, np.zeros(400, np.int32)
    labels[5] = labels[380] = 1
    sentence = tags.Sentence(7, tuple(words), None)
    parts = tags.tagger(("x", "<y>"), labels, np.zeros(400, np.int32), np.full(400, 0.9), None, [sentence], attend)
    read = written(tmp_path, parts)
    line, text, wrong, probability = read.tables["worst"][1]
    assert (line, wrong, float(probability)) == ("7", "2", 1.8)
    assert "<b><y>, not x ✗" in text and text.count("<b>") == 150 and text.endswith("… (400 words)")


def test_answers_of_questions(tmp_path):
    questions = [
        Question("<q1>", "who?", "context", tuple(Answer(name, 0) for name in ("a", "b", "c", "d")), False),
        Question("q2", "where?", "context", (), True),
        Question("q3", "when?", "context", (Answer("now", 0),), False),
    ]
    f1 = np.array([0.0, 0.0, 1.0])
    answered = passages.Answered(["", "<i>there", "now"], np.array([3.0, -2.8, 1e9]), 0.5, f1, f1)
    read = written(tmp_path, passages.passages(questions, answered, attend))
    assert read.tables["answerable"][1:] == [
        ["all", "3", "33.3333", "33.3333", "66.6667"],
        ["with an answer", "2", "50.0000", "50.0000", "50.0000"],
        ["without an answer", "1", "0.0000", "0.0000", "100.0000"],
    ]
    assert [row[1:5] for row in read.tables["worst"][1:]] == [
        ["q2", "where?", "no answer", "<i>there"],  # 3.3 beyond the threshold, the other 2.5
        ["<q1>", "who?", "abcand 1 more", "no answer"],
    ]
    assert numbers(read.column("spread", "questions")) == [2, 0, 1]


def test_choices_without_a_question(tmp_path):
    logits = np.float32([[0, 1, 2], [3, 0, 0]])
    rows = [choices.Choices(5, HOSTILE, "", ["<x>", "y", "z"]), choices.Choices(6, "c", "", ["x", "y", "z"])]
    read = written(tmp_path, choices.choices(np.array([0, 0]), logits, rows, attend))
    assert read.tables["worst"][0] == ["line", "context", "choices", "loss"]
    assert read.tables["worst"][1][0] == "5" and "<x> 0.0900 (gold)" in read.tables["worst"][1][2]
    assert read.tables["worst"][1][2].endswith("z 0.6652 (answer)") and len(read.tables["worst"]) == 2


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("page.txt", r"page\.txt: expected a file named \.html"),
        ("nowhere/page.html", r"expected a directory to write into, found no .*nowhere"),
        ("folder.html", r"folder\.html: expected a file to write to, found a directory"),
    ],
)
def test_places_that_take_no_page(tmp_path, name, message):
    (tmp_path / "folder.html").mkdir()
    with pytest.raises(InputError, match=message):
        page.check_path(tmp_path / name)
    page.check_path(None)
    page.check_path(tmp_path / "page.html")
