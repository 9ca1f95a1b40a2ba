"""Scores of written texts: by hand, beside their libraries, and without them."""

import sys

import pytest

from bert_jax.errors import InputError
from bert_jax.metrics.generation import TEXT_METRICS, choose_text_metrics, text_scores

WRITTEN = ["the cat sat on the mat", "a dog runs ", "two birds were singing"]
REFERENCES = ["the cat sat on the mat", "a dog runs", "three birds sing in the tree"]


def test_exact_matches_do_not_count_spaces_at_the_ends():
    assert text_scores(("exact_match",), WRITTEN, REFERENCES) == {"exact_match": pytest.approx(2 / 3)}


def test_what_the_tokenizer_does_not_keep_is_not_compared(tiny_tokenizer):
    shouted = [text.upper() for text in REFERENCES]
    assert text_scores(("exact_match",), WRITTEN, shouted) == {"exact_match": 0.0}
    assert text_scores(("exact_match",), WRITTEN, shouted, tiny_tokenizer) == {"exact_match": pytest.approx(2 / 3)}


def test_distinct_ngrams_by_hand():
    found = text_scores(("distinct2", "distinct1"), ["a b a b", "b a", ""], [""] * 3)
    assert found == {"distinct2": 2 / 4, "distinct1": 2 / 6} and list(found) == ["distinct2", "distinct1"]
    assert text_scores(("distinct2",), ["a"], ["a"]) == {"distinct2": 0.0}


def test_rouge_by_hand():
    pytest.importorskip("rouge_score", reason="needs rouge-score: pip install 'bert-jax[generation]'")
    found = text_scores(("rouge1", "rouge2", "rougeL"), WRITTEN, REFERENCES)
    # Of the last pair, "birds" and (by its stem) "sing" are shared: precision 2/4, recall 2/6.
    assert found["rouge1"] == pytest.approx((1 + 1 + 0.4) / 3)
    assert found["rouge2"] == pytest.approx(2 / 3) and found["rougeL"] == found["rouge1"]


def test_bleu_and_chrf_are_those_of_a_corpus():
    sacrebleu = pytest.importorskip("sacrebleu", reason="needs sacrebleu: pip install 'bert-jax[generation]'")
    found = text_scores(("chrf", "bleu"), WRITTEN, REFERENCES)
    assert list(found) == ["chrf", "bleu"] and 0 < found["bleu"] < 100
    assert found["bleu"] == sacrebleu.metrics.BLEU().corpus_score(WRITTEN, [REFERENCES]).score
    assert text_scores(("bleu", "chrf"), REFERENCES, REFERENCES) == pytest.approx({"bleu": 100, "chrf": 100})


def test_metrics_are_chosen_by_name_and_by_what_is_installed(monkeypatch):
    with pytest.raises(InputError, match="metrics: 'blue' is not a metric of texts; did you mean 'bleu'"):
        choose_text_metrics(["blue"])
    for name in ("sacrebleu", "rouge_score"):
        monkeypatch.setitem(sys.modules, name, None)
    assert choose_text_metrics(()) == ("exact_match", "distinct1", "distinct2")
    for name in set(TEXT_METRICS) - {"exact_match", "distinct1", "distinct2"}:
        with pytest.raises(InputError, match=r"pip install .*\[generation\]'"):
            choose_text_metrics([name])
