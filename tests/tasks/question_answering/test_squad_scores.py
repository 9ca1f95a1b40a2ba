"""SQuAD's figures against values worked out by hand, the scripts that came with the data, and all thresholds."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

from bert_jax.tasks.question_answering import metrics as scores
from bert_jax.tasks.question_answering.data import Answer, Question


def asked(name, *golds, impossible=None):
    return Question(name, "?", "", tuple(Answer(gold, 0) for gold in golds), impossible)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The  Cat, sat.", "cat sat"),
        ("a an the", ""),
        ("!?.,;'\"", ""),
        ("theatre antenna banana", "theatre antenna banana"),
        ("A-1", "a1"),  # punctuation goes first, so that this is no article
        ("U.S.A.", "usa"),
        ("the-cat", "thecat"),
        ("\u201cquoted\u201d \u2014 \u20ac5", "\u201cquoted\u201d \u2014 \u20ac5"),  # only ASCII's punctuation goes
        ("\u0130stanbul\u00a0\u3000\u00c9T\u00c9\n", "i\u0307stanbul \u00e9t\u00e9"),
        ("\ufb01x \u00df", "\ufb01x \u00df"),  # lower case is all that changes
        ("\u00e9the the\u00e9 the_cat", "\u00e9the the\u00e9 thecat"),  # words are Unicode's
        ("", ""),
    ],
)
def test_normalized(text, expected):
    assert scores.normalized(text) == expected


@pytest.mark.parametrize(
    ("gold", "predicted", "exact", "f1", "f1_or_none"),
    [
        ("the cat", "Cat!", 1, 1, 1),
        ("black cat", "cat", 0, 2 / 3, 2 / 3),
        ("cat cat", "cat", 0, 2 / 3, 2 / 3),
        ("cat", "cat cat cat", 0, 1 / 2, 1 / 2),
        ("a b c d", "d c b", 0, 1, 1),  # "a" is an article: the same words in another order
        ("cat", "dog", 0, 0, 0),
        ("", "", 1, 0, 1),
        ("the", "?", 1, 0, 1),  # both nothing once normalized
        ("the", "cat", 0, 0, 0),
        ("cat", "", 0, 0, 0),
    ],
)
def test_of_two_texts(gold, predicted, exact, f1, f1_or_none):
    assert scores.exact_match(gold, predicted) == exact
    assert scores.token_f1(gold, predicted) == pytest.approx(f1)
    assert scores.f1_or_none(gold, predicted) == pytest.approx(f1_or_none)


def test_version_1_by_hand():
    questions = [
        asked("a", "cat", "black cat"),
        asked("b", "dog"),
        asked("c", "x y"),
        asked("d", "the"),
        asked("e", "z"),
    ]
    predictions = {"a": "the black cat", "b": "dogs", "c": "y", "d": "an", "unknown": "z"}
    # a: as its second answer; b: nothing; c: half of it; d: both are nothing, which F1 does not count; e: missing.
    assert scores.squad_scores(questions, predictions) == {
        "exact_match": pytest.approx(100 * 2 / 5),
        "f1": pytest.approx(100 * (1 + 2 / 3) / 5),
    }


def test_version_2_by_hand():
    questions = [
        asked("a", "cat", "black cat", impossible=False),
        asked("b", "the", impossible=False),  # an answer of nothing: only "" or the like is right
        asked("c", "x y", impossible=False),
        asked("d", impossible=True),
        asked("e", impossible=True),
    ]
    predictions = {"a": "black cat", "b": "", "c": "y", "d": "", "e": "z"}
    found = scores.squad_scores(questions, predictions)
    f1 = (1 + 1 + 2 / 3 + 1 + 0) / 5
    assert found == pytest.approx({
        "exact": 60, "f1": 100 * f1, "total": 5, "HasAns_exact": 200 / 3, "HasAns_f1": 100 * (2 + 2 / 3) / 3,
        "HasAns_total": 3, "NoAns_exact": 50, "NoAns_f1": 50, "NoAns_total": 2,
    })  # fmt: skip
    odds = {"a": -3.0, "b": 2.0, "c": -1.0, "d": 5.0, "e": 0.5}
    cut = scores.squad_scores(questions, predictions, odds, threshold=0.0)
    # Silent on b, d and e: b is wrong by that, since it counts as having an answer, and e is right.
    assert (cut["exact"], cut["NoAns_exact"], cut["HasAns_exact"]) == pytest.approx((60, 100, 100 / 3))
    # Answers by rising odds: 2 for silence alone, then a +1, c +0 (F1 2/3), e -1, b +1, d +0.
    assert (cut["best_exact"], cut["best_exact_thresh"]) == (60.0, -3.0)
    assert (cut["best_f1"], cut["best_f1_thresh"]) == (pytest.approx(100 * (2 + 1 + 2 / 3) / 5), -1.0)
    # Odds that are no greater than the threshold are of an answered question.
    assert scores.squad_scores(questions, predictions, odds, threshold=-1.0)["f1"] == pytest.approx(cut["best_f1"])
    # Questions that nothing was predicted for are skipped.
    assert scores.squad_scores(questions, {"a": "cat"})["total"] == 1
    only_one_kind = scores.squad_scores(questions[3:], {"d": "", "e": ""})
    assert "HasAns_exact" not in only_one_kind and only_one_kind["exact"] == 100


def random_case(seed, impossible):
    """Questions, predictions and odds over a few words, many of which normalize to nothing."""
    random = np.random.default_rng(seed)
    words = [
        "the", "a", "cat", "Cat.", "dog", "!", "x", "", "\u00e9t\u00e9", "An", "(dog)", "a-cat", "U.S.",
        "\u201cdog\u201d", "e\u0301t\u00e9", "\u732b", "\u5e93a", "\u0130X", "\u00a0", "\u200bthe",
        "\ufb01x", "fix", "\U0001f408", "a\n", "the\tthe",
    ]  # fmt: skip

    def text(most=4):
        return " ".join(random.choice(words, random.integers(0, most)))

    questions, predictions, odds = [], {}, {}
    for i in range(40):
        none = impossible and random.random() < 0.4
        golds = [] if none else [text() for _ in range(random.integers(1, 4))]
        questions.append(asked(str(i), *golds, impossible=none if impossible else None))
        predictions[str(i)], odds[str(i)] = text(3), float(random.normal())
    return questions, predictions, odds


@pytest.mark.parametrize("seed", range(20))
def test_the_best_threshold_is_the_best_of_all(seed):
    questions, predictions, odds = random_case(seed, True)
    found = scores.squad_scores(questions, predictions, odds)
    for metric, score in (("exact", scores.exact_match), ("f1", scores.f1_or_none)):
        reached = []
        for threshold in (-np.inf, *sorted(odds.values())):
            total = 0.0
            for question in questions:
                text = predictions[question.id] if odds[question.id] <= threshold else ""
                golds = [a.text for a in question.answers if scores.normalized(a.text)] or [""]
                if not question.answers:  # who speaks is wrong, even if he says nothing but articles
                    total += text == ""
                elif odds[question.id] <= threshold:  # who is silent is wrong, even if all answers are but articles
                    total += max(score(gold, text) for gold in golds)
            reached.append((100 * total / len(questions), threshold))
        best, at = max(reached, key=lambda pair: (round(pair[0], 9), -pair[1]))
        assert found[f"best_{metric}"] == pytest.approx(best)
        assert found[f"best_{metric}_thresh"] == (at if np.isfinite(at) else 0.0)


def script(package, file):
    """An evaluation script that came with the data, out of a package that holds a copy; the package stays unopened."""
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None:
        pytest.skip(f"the script is in {package}, installed without what it depends on")
    spec = importlib.util.spec_from_file_location(f"squad_script_of_{package}", Path(found.origin).parent / file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def as_data(questions):
    """Questions as the scripts read them."""
    rows = [
        {"id": q.id, "question": q.question, "answers": [{"text": a.text, "answer_start": 0} for a in q.answers]}
        for q in questions
    ]
    return [{"title": "", "paragraphs": [{"context": "", "qas": rows}]}]


@pytest.mark.oracle
@pytest.mark.parametrize("seed", range(30))
def test_version_1_is_its_script(seed, capsys):
    theirs = script("allennlp", "tools/squad_eval.py")
    questions, predictions, _ = random_case(seed, False)
    for name in map(str, range(0, 40, 7)):  # is reported, and wrong
        del predictions[name]
    assert scores.squad_scores(questions, predictions) == theirs.evaluate(as_data(questions), predictions)
    assert capsys.readouterr().err.count("Unanswered question") == 6


@pytest.mark.parametrize("seed", range(30))
def test_version_2_is_its_script(seed, tmp_path, monkeypatch):
    theirs = script("farm", "evaluation/squad_evaluation.py")
    monkeypatch.chdir(tmp_path)  # this copy leaves a file
    questions, predictions, odds = random_case(seed, True)
    odds = {name: round(2 * value) / 2 for name, value in odds.items()}  # some alike, some on a threshold
    paths = [str(tmp_path / name) for name in ("data.json", "predictions.json", "odds.json")]
    for path, content in zip(paths, ({"data": as_data(questions)}, predictions, odds), strict=True):
        Path(path).write_text(json.dumps(content), encoding="utf-8")
    plain = theirs.main(theirs.EVAL_OPTS(*paths[:2], na_prob_file=""))
    assert scores.squad_scores(questions, predictions) == dict(plain)
    for threshold in (1.0, 0.0, -0.5):
        cut = theirs.main(theirs.EVAL_OPTS(*paths[:2], na_prob_file=paths[2], na_prob_thresh=threshold))
        assert scores.squad_scores(questions, predictions, odds, threshold) == dict(cut)
