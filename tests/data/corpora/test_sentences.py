"""Where the sentence splitter cuts."""

import pytest

from bert_jax.data.corpora.sentences import split_sentences


@pytest.mark.parametrize(
    "sentences",
    [
        ["The cat sat.", "The dog ran!", "Did it?", "Yes."],
        ['He said "Stop."', "She did not."],
        ['"Why?" "Because."'[:6], '"Because."'],
        ["Mr. Smith met Dr. J. K. Jones at 3 p.m. on Main St. for tea.", "They left."],
        ["See e.g. the U.S. edition, vol. 3, pp. 4 to 6.", "It costs 3.50 now."],
        ["It uses numpy.array and so on... and goes on.", "Done."],
        ["Wait\u2026", "What?!", "(It was so.)", "42 came."],
        ["\u4eca\u5929\u5929\u6c14\u5f88\u597d\u3002", "\u6211\u4eec\u8d70\u5427\uff01", "\u597d\u3002"],
        ["No stop at the end"],
        ["He can't.", "She didn't.", "It was James's.", "Plan (see vol. 2) stands."],
    ],
)
def test_sentences_are_found(sentences):
    assert split_sentences(" ".join(sentences)) == sentences


def test_chinese_needs_no_space_and_nothing_gives_nothing():
    assert split_sentences("\u597d\u3002\u201c\u8d70\uff01\u201d\u884c\u3002") == [
        "\u597d\u3002",
        "\u201c\u8d70\uff01\u201d",
        "\u884c\u3002",
    ]
    assert split_sentences("   ") == []


def test_long_texts_take_time_in_proportion():
    assert len(split_sentences("A stop. " * 50_000)) == 50_000
