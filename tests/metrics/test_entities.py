"""Entities and their scores beside seqeval's, on tags of every scheme, well-formed or not."""

import warnings

import numpy as np
import pytest

from bert_jax.data.finetuning.tags import read_scheme
from bert_jax.errors import InputError
from bert_jax.metrics import entities

LETTERS = {"IOB2": "BI", "IOBES": "BIES", "BILOU": "BILU"}
TYPES = ("LOC", "PER", "A-B")


def names_of(letters, types=TYPES):
    return ("O", *(f"{letter}-{kind}" for kind in types for letter in letters))


def join(sentences):
    """Classes of sentences, with a -1 between two."""
    return np.concatenate([part for sentence in sentences for part in (sentence, [-1])][:-1]).astype(np.int64)


def spans(names, tags, strict=False):
    scheme = read_scheme(names)
    classes = np.array([names.index(tag) if tag else -1 for tag in tags])
    return [(a, b, scheme.type_names[kind]) for a, b, kind in entities.entities(scheme, classes, strict)]


def test_what_the_tags_of_a_scheme_say():
    iob, iobes, bilou = (names_of(letters) for letters in LETTERS.values())
    assert spans(iob, ["B-PER", "I-PER", "O", "B-LOC", "B-LOC"]) == [(0, 2, "PER"), (3, 4, "LOC"), (4, 5, "LOC")]
    assert spans(iob, ["I-PER", "I-PER", "B-PER", "I-LOC"]) == [(0, 2, "PER"), (2, 3, "PER"), (3, 4, "LOC")]  # IOB1
    assert spans(iob, ["I-PER", "I-PER", "B-PER", "I-LOC"], strict=True) == [(2, 3, "PER")]
    assert spans(iob, ["B-PER", "", "I-PER"]) == [(0, 1, "PER"), (2, 3, "PER")]  # the border of two sentences
    assert spans(iobes, ["S-PER", "B-LOC", "I-LOC", "E-LOC"], strict=True) == [(0, 1, "PER"), (1, 4, "LOC")]
    assert spans(bilou, ["U-PER", "B-LOC", "L-LOC", "B-PER", "O"]) == [(0, 1, "PER"), (1, 3, "LOC"), (3, 4, "PER")]
    assert spans(bilou, ["U-PER", "B-LOC", "L-LOC", "B-PER", "O"], strict=True) == [(0, 1, "PER"), (1, 3, "LOC")]


@pytest.mark.parametrize(
    ("names", "scheme"),
    [
        (("O", "B-PER", "I-PER"), "IOB"),
        (("B-NP", "I-NP"), "IOB"),
        (("O", "I-PER"), "IOB"),
        (("O", "B", "I"), "IOB"),
        (("O", "S-PER", "B-PER", "E-PER"), "IOBES"),
        (("O", "U-PER", "B-PER", "L-PER"), "BILOU"),
        (("B-PER", "L-PER", "S-PER"), None),  # letters of two schemes
        (("NN", "VB", "."), None),
        (("O", "B", "N"), None),
        (("B", "E"), None),
        (("B-PER", "I"), None),
        (("S-BAR", "U-TURN"), None),
    ],
)
def test_schemes_are_told_from_other_tags(names, scheme):
    found = read_scheme(names)
    assert (found.name if found else None) == scheme


@pytest.mark.parametrize("letters", LETTERS.values(), ids=LETTERS)
@pytest.mark.parametrize("strict", [False, True], ids=["as conlleval", "strict"])
def test_scores_are_those_of_seqeval(letters, strict):
    metrics = pytest.importorskip("seqeval.metrics", reason="seqeval is the oracle")
    import seqeval.scheme

    names = names_of(letters)
    scheme = next(name for name, known in LETTERS.items() if known == letters)
    options = {"mode": "strict", "scheme": getattr(seqeval.scheme, scheme)} if strict else {}
    # What seqeval reads without a scheme are the letters of IOBES.
    theirs = [name if strict else name.replace("L-", "E-", 1).replace("U-", "S-", 1) for name in names]
    assert theirs[1:] == list(names[1:]) or letters == "BILU"
    rng = np.random.default_rng(0)
    for _ in range(60):
        lengths = rng.integers(1, 12, rng.integers(1, 6))
        true = [rng.integers(0, len(names), n) for n in lengths]
        guessed = [np.where(rng.random(len(t)) < 0.7, t, rng.integers(0, len(names), len(t))) for t in true]
        ours = entities.tagging_scores(entities.TAGGING_METRICS, names, join(true), join(guessed), strict)
        sides = [[[theirs[tag] for tag in tags] for tags in side] for side in (true, guessed)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert ours["accuracy"] == pytest.approx(metrics.accuracy_score(*sides))
            for name in entities.ENTITY_METRICS:
                score = getattr(metrics, f"{name}_score")
                assert ours[name] == pytest.approx(score(*sides, **options))
            report = metrics.classification_report(*sides, output_dict=True, **options)
        for kind in TYPES:
            for name, key in zip(entities.ENTITY_METRICS, ("f1-score", "precision", "recall"), strict=True):
                assert ours[f"{name}_{kind}"] == pytest.approx(report.get(kind, {}).get(key, 0.0))


def test_parts_of_speech_have_an_accuracy_alone():
    names = ("NN", "VB")
    tags, predicted = np.array([0, 1, -1, 1, 0]), np.array([0, 0, -1, 1, 0])
    assert entities.choose_tagging_metrics((), names) == ("accuracy",)
    assert entities.tagging_scores(("accuracy",), names, tags, predicted) == {"accuracy": 0.75}
    with pytest.raises(InputError, match=r"data\.metrics: 'f1' is not a metric of these tags, which mark no ent"):
        entities.choose_tagging_metrics(("f1",), names)
    with pytest.raises(InputError, match="'acuracy' is not a metric of tagging; did you mean 'accuracy'"):
        entities.choose_tagging_metrics(("acuracy",), names_of("BI"))


def test_nothing_true_and_nothing_found():
    nothing = np.zeros(4, int)
    found = entities.tagging_scores(entities.TAGGING_METRICS, names_of("BI"), nothing, nothing)
    assert found.pop("accuracy") == 1
    assert set(found.values()) == {0.0} and len(found) == 3 + 3 * len(TYPES)


@pytest.mark.parametrize(
    "names", [("O", "B_PER", "I_PER"), ("O", "PER-B", "PER-I"), ("O", "PERSON", "PLACE"), ("O", "B-PER", "X-LOC")]
)
def test_tags_of_no_scheme_are_named(caplog, names):
    assert entities.choose_tagging_metrics((), names) == ("accuracy",)
    wrong = next(name for name in names[1:] if name != "B-PER")
    assert "no F1 of entities: expected tags B-TYPE, I-TYPE and O, found" in caplog.text and wrong in caplog.text
