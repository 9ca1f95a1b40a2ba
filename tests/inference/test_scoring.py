"""Scores from logits, in float64, and which output is meant."""

import numpy as np
import pytest

from bert_jax.config import BertConfig
from bert_jax.inference import pipeline
from bert_jax.inference.scoring import log_softmax, match_output


def test_logarithms_of_probabilities_far_apart():
    ours = log_softmax(np.float32([[0, 2000], [1, 1]]))
    np.testing.assert_allclose(ours, [[-2000, 0], np.log([0.5, 0.5])])


@pytest.mark.parametrize(
    ("match", "other"),
    [("relevant", "irrelevant"), ("Duplicate", "not_duplicate"), ("is_duplicate", "not duplicate"), ("yes", "no"),
     ("related", "unrelated"), ("True", "False"), ("entailment", "not_entailment"), ("entailment", "contradiction"),
     ("similar", "dissimilar"), ("correct", "incorrect"), ("1", "0"), ("relevant", "non-relevant")],
)  # fmt: skip
def test_names_say_which_of_two_outputs_is_a_match(match, other):
    assert match_output(BertConfig(num_labels=2, id2label=(match, other))) == 0
    assert match_output(BertConfig(num_labels=2, id2label=(other, match))) == 1


def test_without_such_names_the_last_output_is_a_match():
    for names in (("LABEL_0", "LABEL_1"), ("a", "b"), ("note", "e"), ("0", "1")):
        assert match_output(BertConfig(num_labels=2, id2label=names)) == 1
    assert match_output(BertConfig(num_labels=1)) == 0


def test_a_reranker_whose_first_class_is_the_match(tmp_path, write_small):
    """The same parameters, with classes named the other way around, sort documents the other way around."""
    documents = ["a cat sat", "the red house", "two birds", "he was young"]
    orders = {}
    for names in (("irrelevant", "relevant"), ("relevant", "irrelevant")):
        path = write_small(tmp_path / names[0], "sequence_classification", id2label=names, initializer_range=0.5)
        orders[names] = [answer["text"] for answer in pipeline("rerank", path)("how do cats sleep?", documents)]
    first, second = orders.values()
    assert first == second[::-1] and first != second
