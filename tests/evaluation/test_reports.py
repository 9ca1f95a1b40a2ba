"""The report of an evaluation, for models of every task: its numbers beside scikit-learn's, its worst row by hand."""

import json
from pathlib import Path

import numpy as np
import pytest
from html_pages import Page, check_alone, numbers
from sklearn import metrics

from bert_jax import evaluation
from bert_jax.cli import main
from bert_jax.data.finetuning.tables import Columns
from bert_jax.errors import InputError
from bert_jax.reports import attention
from bert_jax.tasks.question_answering import metrics as squad_scores
from bert_jax.tasks.question_answering.data import read_questions

SCRIPT = "<script>alert(1)</script>"
WORDS = ["the", "cat", "sat", "on", "a", "tree", "good", "bad", "old", "stone", SCRIPT]
NAMES = ("<i>neg", "pos", "none")
ROWS = 40  # as many as a batch, so that there is one shape to compile, unless a test says otherwise
# So that random models do not answer the same to everything.
VARIED = {"initializer_range": 0.5}


def texts(count, seed):
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, rng.integers(2, 9))) for _ in range(count)]


def write_table(path, *columns):
    path.write_text("".join("\t".join(map(str, row)) + "\n" for row in zip(*columns, strict=True)))
    return str(path)


def evaluated(model, data, columns, path, batch_size=ROWS, **options):
    """The page that an evaluation writes, and its scores, after a look at what every page has."""
    scores = evaluation.evaluate(model, data, columns, report=path, batch_size=batch_size, **options)
    page = Page(path)
    check_alone(page)
    shown = dict(zip(page.column("scores", "score"), page.column("scores", "value"), strict=True))
    assert shown == {n: f"{v:,}" if isinstance(v, int) else page_number(v) for n, v in scores.items()}
    assert page.source.count("<script") == 0 and len(page.source) < 2_000_000
    return page, scores


def with_an_invalid_row(data, row, place=0):
    """A copy of a file with one row more, that does not fit: before it, or behind its header."""
    lines = Path(data).read_text().splitlines(keepends=True)
    copy = Path(data).with_stem("bad")
    copy.write_text("".join([*lines[:place], row, *lines[place:]]))
    return str(copy)


def page_number(value):
    return f"{value:.4f}" if abs(value) < 1000 else f"{value:.6g}"


def answers_of(model, data, path, columns):
    evaluation.predict(model, data, path, columns, batch_size=ROWS)
    return [json.loads(line) for line in path.read_text().splitlines()]


def check_attention(page, title, tokenizer, text, pair="", query=512):
    """That the first map is of these texts: of a question `query` tokens, of all what the model's length leaves."""
    assert page.titles[-1] == "Attention in the worst mistakes" and title in page.text
    first, second = tokenizer.encode_batch([text, pair])
    ids = [tokenizer.cls_id, *first[:query], tokenizer.sep_id, *second]
    *shown, last = page.tables[""][0][1:]
    assert len(shown) > 2 and shown == [tokenizer.pieces[i] for i in ids][: len(shown)]
    assert last == "[SEP]" or len(shown) == 47


@pytest.fixture(scope="module")
def classifier(tmp_path_factory, write_small):
    root = tmp_path_factory.mktemp("reported")
    model = write_small(root / "model", "sequence_classification", num_labels=3, id2label=NAMES, **VARIED)
    labels = np.random.default_rng(0).choice(NAMES, ROWS)
    return model, write_table(root / "dev.tsv", ["sentence", *texts(ROWS, 1)], ["label", *labels])


def test_the_page_of_a_classifier(classifier, tmp_path, tiny_tokenizer):
    model, data = classifier
    page, scores = evaluated(model, data, Columns(), tmp_path / "report.html", batch_size=16)
    answers = answers_of(model, data, tmp_path / "out.jsonl", Columns())
    labels = [line.rsplit("\t", 1)[1] for line in Path(data).read_text().splitlines()[1:]]
    found = [answer["label"] for answer in answers]
    assert scores["accuracy"] == np.mean(np.array(labels) == found)
    theirs = metrics.precision_recall_fscore_support(labels, found, labels=NAMES, zero_division=0)
    assert page.column("classes", "class") == [*NAMES, "mean of all"]
    for name, values in zip(("precision", "recall", "F1"), theirs, strict=False):
        assert numbers(page.column("classes", name)) == pytest.approx([*values, np.mean(values)], abs=1e-4)
    assert numbers(page.column("classes", "support")) == [*theirs[3], ROWS]
    matrix = [numbers(row[1:]) for row in page.tables["confusion"][1:]]
    assert matrix == metrics.confusion_matrix(labels, found, labels=NAMES).tolist()

    gold = np.array([answer["scores"][label] for answer, label in zip(answers, labels, strict=True)])
    wrong = [i for i in np.argsort(gold) if found[i] != labels[i]]
    lines = numbers(page.column("worst", "line"))
    assert lines == [i + 2 for i in wrong[:20]]  # line 1 is the header
    first = page.tables["worst"][1]
    assert first[1:4] == [answers[wrong[0]]["text"], labels[wrong[0]], found[wrong[0]]]
    assert numbers(first[4:]) == pytest.approx(
        [max(answers[wrong[0]]["scores"].values()), gold[wrong[0]], -np.log(gold[wrong[0]])], abs=2e-4
    )
    assert SCRIPT in page.text

    sure = np.array([max(answer["scores"].values()) for answer in answers])
    bins = np.ceil(sure * 15)
    right = np.array(found) == labels
    error = sum(abs(right[bins == b].sum() - sure[bins == b].sum()) for b in range(1, 16)) / ROWS
    assert f"Expected calibration error: {error:.4f}" in page.text
    assert sum(numbers(page.column("bins", "count"))) == ROWS
    check_attention(page, f"Line {wrong[0] + 2}", tiny_tokenizer, answers[wrong[0]]["text"])


def test_the_page_of_long_texts_in_windows(classifier, tmp_path, tiny_tokenizer, monkeypatch):
    monkeypatch.setattr(attention, "ROWS", 1)
    model, data = classifier
    windows = {"long_texts": "windows", "max_seq_length": 6, "batch_size": 16}
    page, _ = evaluated(model, data, Columns(), tmp_path / "report.html", **windows)
    evaluation.predict(model, data, tmp_path / "out.jsonl", Columns(), **windows)
    answers = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    labels = [line.rsplit("\t", 1)[1] for line in Path(data).read_text().splitlines()[1:]]
    wrong = [i for i in range(ROWS) if answers[i]["label"] != labels[i]]
    worst = min(wrong, key=lambda i: answers[i]["scores"][labels[i]])
    assert page.tables["worst"][1][:2] == [str(worst + 2), answers[worst]["text"]]
    assert sum(numbers(page.column("classes", "support")[:-1])) == ROWS
    check_attention(page, f"Line {worst + 2}", tiny_tokenizer, answers[worst]["text"], query=4)


def test_the_verb_writes_it(classifier, tmp_path, capsys):
    model, data = classifier
    assert main(["evaluate", "--model", str(model), "--data", data, "--report", str(tmp_path / "r.html")]) == 0
    assert capsys.readouterr().out.endswith(f"{tmp_path / 'r.html'}: report written\n")
    check_alone(Page(tmp_path / "r.html"))
    assert main(["evaluate", "--model", str(model), "--data", "nowhere.tsv", "--report", "r.txt"]) == 2
    assert "r.txt: expected a file named .html" in capsys.readouterr().err


def test_a_bad_name_is_answered_before_anything_is_opened(tmp_path):
    with pytest.raises(InputError, match=r"report\.pdf: expected a file named \.html"):
        evaluation.evaluate("no model", "no data", Columns(), report=tmp_path / "report.pdf")


def test_no_report_of_an_evaluation_that_failed(classifier, tmp_path):
    data = write_table(tmp_path / "dev.tsv", ["sentence", "good"], ["label", "unknown"])
    with pytest.raises(InputError, match="expected a label"):
        evaluation.evaluate(classifier[0], data, Columns(), report=tmp_path / "report.html")
    assert [path.name for path in tmp_path.iterdir()] == ["dev.tsv"]


def test_the_page_of_several_labels(tmp_path, write_small, monkeypatch):
    monkeypatch.setattr(attention, "ROWS", 1)
    model = write_small(tmp_path / "model", "sequence_classification", num_labels=3, id2label=NAMES,
                        problem_type="multi_label_classification", **VARIED)  # fmt: skip
    rng = np.random.default_rng(0)
    gold = rng.integers(0, 2, (ROWS, 3))
    labels = [",".join(name for name, yes in zip(NAMES, row, strict=True) if yes) for row in gold]
    data = write_table(tmp_path / "dev.tsv", ["sentence", *texts(ROWS, 2)], ["label", *labels])
    page, _ = evaluated(model, data, Columns(), tmp_path / "report.html")
    answers = answers_of(model, data, tmp_path / "out.jsonl", Columns())
    shares = np.array([[answer["scores"][name] for name in NAMES] for answer in answers])
    theirs = metrics.precision_recall_fscore_support(gold, shares > 0.5, zero_division=0)
    for name, values in zip(("precision", "recall", "F1"), theirs, strict=False):
        assert numbers(page.column("classes", name)[:-1]) == pytest.approx(values, abs=1e-4)
    losses = -np.log(np.where(gold, shares, 1 - shares)).mean(1) * ((shares > 0.5) != gold).any(1)
    assert numbers(page.tables["worst"][1][::5]) == pytest.approx([losses.argmax() + 2, losses.max()], abs=2e-4)
    assert sum(numbers(page.column("bins", "count"))) == ROWS * 3


def test_the_page_of_a_regression_over_pairs(tmp_path, write_small, monkeypatch):
    monkeypatch.setattr(attention, "ROWS", 1)
    model = write_small(tmp_path / "model", "sequence_classification", num_labels=1, **VARIED)
    targets = np.random.default_rng(0).normal(size=ROWS).round(3)
    data = write_table(tmp_path / "dev.tsv", ["a", *texts(ROWS, 3)], ["b", *texts(ROWS, 4)], ["n", *targets])
    bad = with_an_invalid_row(data, "a\t\t1\n", place=1)
    page, _ = evaluated(model, bad, Columns("a", "b", "n"), tmp_path / "report.html", invalid_rows="skip")
    answers = answers_of(model, data, tmp_path / "out.jsonl", Columns("a", "b"))
    residuals = np.array([answer["score"] for answer in answers]) - targets
    worst = int(np.abs(residuals).argmax())
    assert page.tables["worst"][0] == ["line", "a", "b", "target", "answer", "residual"]
    line, a, b, target, _, residual = page.tables["worst"][1]
    assert (line, a, b) == (str(worst + 3), answers[worst]["text"], answers[worst]["pair"])
    assert numbers([target, residual]) == pytest.approx([targets[worst], residuals[worst]], abs=1e-3)
    assert numbers(page.column("residuals", "residual")[:3]) == pytest.approx(
        [residuals.mean(), residuals.std(), np.abs(residuals).mean()], abs=1e-3
    )


@pytest.mark.parametrize("entities", [True, False])
def test_the_page_of_a_tagger(tmp_path, write_small, tiny_tokenizer, monkeypatch, entities):
    monkeypatch.setattr(attention, "ROWS", 1)
    names = ("O", "B-LOC", "I-LOC", "B-<PER>", "I-<PER>") if entities else ("DT", "NN", "VB")
    model = write_small(tmp_path / "model", "token_classification", num_labels=len(names), id2label=names, **VARIED)
    rng = np.random.default_rng(0)
    sentences = [[(word, rng.choice(names)) for word in text.split()] for text in texts(ROWS, 5)]
    (tmp_path / "dev.conll").write_text(
        "\n".join("".join(f"{word} {tag}\n" for word, tag in sentence) for sentence in sentences)
    )
    data = str(tmp_path / "dev.conll")
    bad = with_an_invalid_row(data, "the unknown\n\n")
    page, scores = evaluated(model, bad, Columns(), tmp_path / "report.html", invalid_rows="skip")
    answers = answers_of(model, data, tmp_path / "out.jsonl", Columns())
    gold = [[tag for _, tag in sentence] for sentence in sentences]
    found = [answer["tags"] for answer in answers]
    if entities:
        for row in page.tables["classes"][1:-1]:
            expected = [scores[f"{name}_{row[0]}"] for name in ("precision", "recall", "f1")]
            assert numbers(row[3:]) == pytest.approx(expected, abs=1e-4)
        seqeval = pytest.importorskip("seqeval.metrics")
        theirs = seqeval.classification_report(gold, found, output_dict=True, zero_division=0)
        assert numbers(page.column("classes", "support")[:-1]) == [theirs[name]["support"] for name in ("<PER>", "LOC")]
    kinds = [[tag.split("-")[-1] for tags in side for tag in tags] for side in (gold, found)]
    types = ("O", "<PER>", "LOC") if entities else names
    matrix = [numbers(row[1:]) for row in page.tables["confusion"][1:]]
    assert matrix == metrics.confusion_matrix(*kinds, labels=types).tolist()
    badness = [
        sum(score for score, tag, other in zip(answer["scores"], tags, answer["tags"], strict=True) if tag != other)
        for answer, tags in zip(answers, gold, strict=True)
    ]
    worst = int(np.argmax(badness))
    line, told, wrong, probability = page.tables["worst"][1]
    assert int(line) == 3 + sum(len(sentence) + 1 for sentence in sentences[:worst])
    assert float(probability) == pytest.approx(max(badness), abs=1e-3)
    assert int(wrong) == sum(a != b for a, b in zip(gold[worst], found[worst], strict=True))
    assert all(word in told for word, _ in sentences[worst])
    assert ("gold " in told and "answer " in told) if entities else ", not " in told
    check_attention(page, f"Line {line}", tiny_tokenizer, " ".join(word for word, _ in sentences[worst]))


@pytest.fixture(scope="module")
def answerer(tmp_path_factory, write_small):
    root = tmp_path_factory.mktemp("reported")
    return write_small(root / "model", "question_answering", max_position_embeddings=48, **VARIED)


@pytest.mark.parametrize("second", [True, False])
def test_the_page_of_questions(tmp_path, answerer, tiny_tokenizer, monkeypatch, second):
    monkeypatch.setattr(attention, "ROWS", 1)
    rng = np.random.default_rng(0)
    rows = []
    for i, context in enumerate(texts(ROWS, 6)):
        word = context.split()[0]
        impossible = second and rng.random() < 0.4
        answers = [] if impossible else [{"text": word, "answer_start": 0}]
        row = {"id": f"<q{i}>", "question": f"what is {SCRIPT}?", "answers": answers}
        rows.append({"context": context, "qas": [row | ({"is_impossible": impossible} if second else {})]})
    (tmp_path / "dev.json").write_text(json.dumps({"version": "2" if second else "1", "data": [{"paragraphs": rows}]}))
    data = str(tmp_path / "dev.json")
    page, scores = evaluated(answerer, data, Columns(), tmp_path / "report.html")
    evaluation.predict(answerer, data, tmp_path / "out.json", Columns(), batch_size=ROWS)
    texts_found = json.loads((tmp_path / "out.json").read_text())
    questions = list(read_questions(data))
    f1 = [squad_scores.squad_scores([question], texts_found)["f1"] for question in questions]
    whole = {"exact match": "exact" if second else "exact_match", "F1": "f1"}
    for column, name in whole.items():
        shown = numbers(page.column("answerable", column))
        assert shown[0] == pytest.approx(scores[name], abs=1e-4)
        if second:
            kinds = [f"{kind}_{name}" for kind in ("HasAns", "NoAns")]
            assert shown[1:] == pytest.approx([scores[kind] for kind in kinds], abs=1e-4)
    assert ("Odds of no answer" in page.titles) == second
    worst = [row[1] for row in page.tables["worst"][1:]]
    assert len(worst) == min(20, sum(value < 100 for value in f1))
    assert all(f1[[q.id for q in questions].index(name)] < 100 for name in worst)
    shown = numbers(page.column("worst", "F1"))
    assert shown == sorted(shown) and shown[0] == pytest.approx(min(f1) / 100, abs=1e-4)
    assert page.column("worst", "number")[0] == str([q.id for q in questions].index(worst[0]) + 1)
    assert SCRIPT in page.column("worst", "question")[0]
    question = next(q for q in questions if q.id == worst[0])
    place = page.column("worst", "number")[0]
    check_attention(page, f"Number {place}", tiny_tokenizer, question.question, question.context, query=24)


def test_the_page_of_multiple_choice(tmp_path, write_small, tiny_tokenizer, monkeypatch):
    monkeypatch.setattr(attention, "ROWS", 1)
    model = write_small(tmp_path / "model", "multiple_choice", **VARIED)
    labels = np.random.default_rng(0).integers(0, 3, ROWS)
    contexts, asked, *offered = (texts(ROWS, 7 + i) for i in range(5))
    rows = [
        {"context": context, "q": ask, "choices": list(choices), "label": int(label)}
        for context, ask, label, *choices in zip(contexts, asked, labels, *offered, strict=True)
    ]
    (tmp_path / "dev.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    data, columns = str(tmp_path / "dev.jsonl"), Columns(pair="q")
    bad = with_an_invalid_row(data, json.dumps(rows[0] | {"label": 3}) + "\n")
    page, _ = evaluated(model, bad, columns, tmp_path / "report.html", batch_size=16, invalid_rows="skip")
    answers = answers_of(model, data, tmp_path / "out.jsonl", columns)
    found = np.array([answer["label"] for answer in answers])
    assert numbers(page.column("classes", "recall")[:-1]) == pytest.approx(
        [(found == labels)[labels == place].mean() for place in range(3)], abs=1e-4
    )
    gold = np.array([answer["scores"][label] for answer, label in zip(answers, labels, strict=True)])
    worst = int(np.where(found == labels, 2, gold).argmin())
    header, first, *_ = page.tables["worst"]
    assert header == ["line", "context", "question", "choices", "loss"]
    assert first[:3] == [str(worst + 2), contexts[worst], asked[worst]]
    assert f"{rows[worst]['choices'][labels[worst]]} {gold[worst]:.4f} (gold)" in first[-2]
    assert float(first[-1]) == pytest.approx(-np.log(gold[worst]), abs=1e-3)
    choice = f"{asked[worst]} {rows[worst]['choices'][found[worst]]}"
    check_attention(page, f"Line {worst + 2}, choice {found[worst]}", tiny_tokenizer, contexts[worst], choice)


def test_the_page_of_sentence_embeddings(tmp_path, write_small, tiny_tokenizer, monkeypatch):
    monkeypatch.setattr(attention, "ROWS", 1)
    model = write_small(tmp_path / "model", "sentence_embedding", **VARIED)
    scores = np.random.default_rng(0).uniform(0, 5, ROWS).round(2)
    data = write_table(tmp_path / "dev.tsv", ["x", *texts(ROWS, 12)], ["y", *texts(ROWS, 13)], ["z", *scores])
    bad = with_an_invalid_row(data, "x\ty\tz\n", place=1)
    page, _ = evaluated(model, bad, Columns("x", "y", "z"), tmp_path / "report.html", invalid_rows="skip")
    answers = answers_of(model, data, tmp_path / "out.jsonl", Columns("x", "y"))
    cosines = np.array([answer["score"] for answer in answers])
    places = [(np.argsort(np.argsort(side)) + 0.5) / ROWS for side in (scores, cosines)]
    worst = int(np.abs(places[0] - places[1]).argmax())
    line, first, second, *shown = page.tables["worst"][1]
    assert (line, first, second) == (str(worst + 3), answers[worst]["text"], answers[worst]["pair"])
    assert numbers(shown) == pytest.approx([scores[worst], cosines[worst], *(p[worst] for p in places)], abs=1e-3)
    check_attention(page, f"Line {worst + 3}, x", tiny_tokenizer, answers[worst]["text"])
    assert f"Line {worst + 3}, y" in page.text
