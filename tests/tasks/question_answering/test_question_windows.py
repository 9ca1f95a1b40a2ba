"""Windows over long contexts: where they lie, which shows most around a token, and where answers are in their rows."""

import itertools
import json

import numpy as np
import pytest
import tokenizers
from tokenizers import models, pre_tokenizers, processors, trainers

from bert_jax.errors import InputError
from bert_jax.tasks.question_answering.windows import (
    ContextWindow,
    Limits,
    best_window,
    cut_windows,
    question_windows,
    tokenised,
)
from bert_jax.tokenization import load_tokenizer, word_piece


@pytest.fixture(scope="module")
def roberta(tmp_path_factory):
    """A byte-level BPE tokenizer whose rows are `<s> A </s></s> B </s>`."""
    backend = tokenizers.Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=special, initial_alphabet=alphabet)
    backend.train_from_iterator(["the cat sat by the river"] * 3, trainer)
    backend.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), trim_offsets=True)
    directory = tmp_path_factory.mktemp("roberta")
    backend.save(str(directory / "tokenizer.json"))
    names = zip(("bos", "cls", "pad", "sep", "eos", "unk", "mask"), (0, 0, 1, 2, 2, 3, 4), strict=True)
    settings = {f"{role}_token": special[i] for role, i in names}
    (directory / "tokenizer_config.json").write_text(json.dumps(settings | {"tokenizer_class": "RobertaTokenizer"}))
    return load_tokenizer(directory)


@pytest.fixture(scope="module")
def letters():
    """Every letter is a word, and so a token."""
    return word_piece(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz?"])


def windows_of(tokenizer, question, text, limits, answer=None):
    contexts = tokenised(tokenizer, [text])
    return question_windows(tokenizer, [question], [contexts[text]], limits, None if answer is None else [answer])


def test_windows_by_hand():
    assert cut_windows(10, 4, 2) == [(0, 4), (2, 4), (4, 4), (6, 4)]
    assert cut_windows(9, 4, 2) == [
        (0, 4),
        (2, 4),
        (4, 4),
        (6, 3),
    ]  # the last ends with the context, and may be shorter
    assert cut_windows(9, 4, 100) == [(0, 4), (4, 4), (8, 1)]  # no token is left out between windows
    assert cut_windows(4, 4, 2) == [(0, 4)]
    assert cut_windows(0, 4, 2) == [(0, 0)]


@pytest.mark.parametrize("seed", range(50))
def test_windows_cover_their_context(seed):
    random = np.random.default_rng(seed)
    length, room, stride = random.integers(0, 200), random.integers(1, 60), random.integers(1, 60)
    windows = cut_windows(int(length), int(room), int(stride))
    seen = [token for start, size in windows for token in range(start, start + size)]
    assert set(seen) == set(range(length)) and all(size <= room for _, size in windows)
    assert all(b.start - a.start == min(a.size, stride) for a, b in itertools.pairwise(windows))
    assert all(sum(window) < length for window in windows[:-1])


def test_the_best_window_by_hand():
    """A token seen by several windows is the one's where the lesser of what is on its two sides is greatest."""
    # Token 4 has one token to its right in the first window, and none to its left in the second; token 5 the reverse.
    windows = [ContextWindow(0, 6), ContextWindow(4, 6), ContextWindow(8, 4)]
    assert best_window(windows).tolist() == [0] * 5 + [1] * 4 + [2] * 3
    # Token 7: four to its left and none to its right in the second window, one and three in the third.
    assert best_window([ContextWindow(0, 5), ContextWindow(3, 5), ContextWindow(6, 5)])[7] == 2
    # With as many on both sides the longer window has it, and of equals the first.
    assert best_window([ContextWindow(0, 2), ContextWindow(1, 3)]).tolist() == [0, 1, 1, 1]
    assert best_window([ContextWindow(0, 3), ContextWindow(1, 5)]).tolist() == [0, 0, 1, 1, 1, 1]
    assert best_window([ContextWindow(0, 3), ContextWindow(2, 3)]).tolist() == [0, 0, 0, 1, 1]


@pytest.mark.parametrize("seed", range(30))
def test_the_best_window_one_by_one(seed):
    random = np.random.default_rng(seed)
    length, most = (400, 300) if seed % 3 == 0 else (100, 40)
    windows = cut_windows(length, int(random.integers(1, most)), int(random.integers(1, most)))
    for token, found in enumerate(best_window(windows)):
        best, chosen = None, None
        for i, (start, size) in enumerate(windows):
            end = start + size - 1
            if start <= token <= end:
                around = min(token - start, end - token) + 0.01 * size
                if best is None or around > best:
                    best, chosen = around, i
        assert found == chosen


def test_rows_of_bert(letters):
    context = "c d e f g h"
    windows = windows_of(letters, "a b ?", context, Limits(9, 2, 2), (3, 4))  # "f g"
    ids = {letter: letters.token_to_id(letter) for letter in "abcdefgh"}
    cls, sep = letters.cls_id, letters.sep_id
    batch = windows.pad(np.arange(-1, 2), 10, letters.pad_id)
    # A question of two tokens, and room for four of context: "c d e f", "e f g h".
    for row, part in ((1, "cdef"), (2, "efgh")):
        expected = [cls, ids["a"], ids["b"], sep, *(ids[c] for c in part), sep, letters.pad_id]
        assert batch["input_ids"][row].tolist() == expected
        assert batch["token_type_ids"][row].tolist() == [0] * 4 + [1] * 5 + [0]
        assert batch["attention_mask"][row].tolist() == [1] * 9 + [0]
    # The answer is whole in the second window; in the first, which has half of it, there is none.
    assert batch["start_positions"].tolist() == [0, 0, 5] and batch["end_positions"].tolist() == [0, 0, 6]
    assert batch["windows"].tolist() == [-1, 0, 1] and batch["example_weights"].tolist() == [0, 1, 1]
    assert (batch["input_ids"][0] == letters.pad_id).all() and not batch["attention_mask"][0].any()
    assert windows.lengths.tolist() == [9, 9] and windows.firsts.tolist() == [0, 2]


def test_rows_are_those_of_the_tokenizer(letters, roberta):
    """Also of RoBERTa, with two separators in the middle and no second segment."""
    for tokenizer in (letters, roberta):
        question, context = "the cat?", "the cat sat by the river"
        windows = windows_of(tokenizer, question, context, Limits())
        ours = windows.pad(np.array([0]), int(windows.lengths[0]), tokenizer.pad_id)
        theirs = tokenizer(question, context, return_offsets=True)
        for name in ("input_ids", "token_type_ids", "attention_mask"):
            np.testing.assert_array_equal(ours[name], theirs[name])
        place, size = windows.place(0), int(windows.sizes[0])
        ranges = theirs["offset_mapping"][0, place : place + size]
        cut_out = [context[a:b] for a, b in zip(windows.contexts[0].begins, windows.contexts[0].ends, strict=True)]
        assert cut_out == [context[a:b].strip() for a, b in ranges]


def test_characters_of_an_answer_become_its_tokens(roberta, tiny_tokenizer):
    text = " The  old\u00a0cats  sat\n by \u00e9t\u00e9 \U0001f600!"
    for tokenizer in (roberta, tiny_tokenizer):
        context = tokenised(tokenizer, [text])[text]
        for start in range(len(text)):
            for end in range(start + 1, len(text) + 1):
                tokens = context.tokens_of(start, end)
                if tokens is None:
                    assert not text[start:end].strip()
                    continue
                begin, stop = context.begins[tokens[0]], context.ends[tokens[1]]
                assert text[start:end].strip() in text[begin:stop]
                assert text[begin:stop] == text[begin:stop].strip() != ""
        word = text.index("cats")
        first, last = context.tokens_of(word, word + 4)
        assert text[context.begins[first] : context.ends[last]] == "cats"


def test_limits(letters):
    Limits(8, 1, 4).check(letters.layout)
    for limits, message in (
        (Limits(7, 1, 4), "data.max_seq_length: expected at least 8, for a question of 4 tokens .* found 7"),
        (Limits(8, 0, 4), "data.doc_stride: expected at least 1 token, found 0"),
    ):
        with pytest.raises(InputError, match=message):
            limits.check(letters.layout, "data.")
