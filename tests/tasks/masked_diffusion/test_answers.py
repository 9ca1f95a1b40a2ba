"""Rows of prompts and answers: reading them, their tokens, the fill behind an answer, and noise by step."""

import dataclasses
import json

import numpy as np
import pytest

from bert_jax.data.diffusion import Noise
from bert_jax.data.finetuning.batching import TrainSource
from bert_jax.data.finetuning.columns import Columns
from bert_jax.data.finetuning.packing import PackedSource
from bert_jax.data.invalid_rows import InvalidRows
from bert_jax.errors import InputError
from bert_jax.tasks.masked_diffusion.data import (
    AnswerRegion,
    NoisyBatches,
    PromptAnswer,
    encode_answers,
    encode_prompts,
    evaluation_features,
    read_answers,
)

CHAT = [
    {"role": "system", "content": "be good"},
    {"role": "user", "content": "the cat"},
    {"role": "assistant", "content": "sat"},
    {"role": "user", "content": "on"},
    {"role": "assistant", "content": "the tree"},
]


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def test_prompts_and_answers_of_a_table(tmp_path):
    spec = write(tmp_path / "rows.jsonl", [{"q": "the cat", "a": "sat"}, {"q": "a dog", "a": "sees"}])
    columns = Columns("q", label="a")
    assert list(read_answers(spec, columns)) == [
        PromptAnswer(1, ("the cat",), "sat"),
        PromptAnswer(2, ("a dog",), "sees"),
    ]
    assert [row.prompt for row in read_answers(spec, Columns(label="a"))] == [(), ()]
    assert [row.answer for row in read_answers(spec, Columns("q"))] == [None, None]
    with pytest.raises(InputError, match=r"line 1: expected a text in 'a', found none"):
        list(read_answers(write(tmp_path / "no.jsonl", [{"q": "the", "a": ""}]), columns))


def test_every_message_of_the_assistant_is_an_answer(tmp_path):
    spec = write(tmp_path / "chats.jsonl", [{"messages": CHAT}])
    rows = list(read_answers(spec, Columns(texts="messages")))
    assert rows == [
        PromptAnswer(1, ("be good", "the cat"), "sat"),
        PromptAnswer(1, ("be good", "the cat", "sat", "on"), "the tree"),
    ]
    (asked,) = read_answers(spec, Columns(texts="messages"), answered=False)
    assert asked == PromptAnswer(1, ("be good", "the cat", "sat", "on"), None)


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        ("the cat", r"expected a list of \{\"role\": TEXT, \"content\": TEXT\} in 'messages', found 'the cat'"),
        ([{"role": "user"}], "expected a list of"),
        (CHAT[:2], "expected a message of the role 'assistant', found none"),
    ],
)
def test_other_conversations_are_invalid_rows(tmp_path, messages, message):
    spec = write(tmp_path / "chats.jsonl", [{"messages": CHAT}, {"messages": messages}])
    with pytest.raises(InputError, match=f"line 2: {message}"):
        list(read_answers(spec, Columns(texts="messages")))
    bad = InvalidRows(spec, "skip")
    assert len(list(bad.fitting(read_answers(spec, Columns(texts="messages"), bad)))) == 2


def test_the_tokens_of_a_row(tiny_tokenizer):
    layout, decode = tiny_tokenizer.layout, tiny_tokenizer.id_to_token
    rows = [PromptAnswer(1, ("the cat",), "sat on"), PromptAnswer(2, (), "a dog"), PromptAnswer(3, ("a", "the"), "it")]
    features = encode_answers(tiny_tokenizer, rows, 32, AnswerRegion(6, "full"))
    batch = features.pad(np.arange(3), 12, tiny_tokenizer.pad_id)
    shown = [" ".join(decode(token) for token in ids) for ids in batch["input_ids"]]
    end = decode(layout.end[-1])
    assert shown[0].startswith(f"[CLS] the cat {end} sat on {end} {end} {end} {end} [PAD]")
    assert shown[1].startswith(f"[CLS] a dog {end} {end} {end} {end} [PAD]")
    assert shown[2].startswith(f"[CLS] a {end} the {end} it {end}")
    assert batch["answer_mask"].sum(axis=1).tolist() == [6, 6, 6]
    assert batch["answer_mask"][0].tolist() == [0] * 4 + [1] * 6 + [0] * 2
    assert batch["token_type_ids"].sum(axis=1).tolist() == [6, 0, 6]


def test_the_fill_behind_an_answer(tiny_tokenizer):
    sizes = np.full(2000, 3)
    assert set(AnswerRegion(6, "none").sizes(sizes)) == {4}
    assert set(AnswerRegion(6, "full").sizes(sizes)) == {6}
    drawn = AnswerRegion(6, "random").sizes(sizes)
    assert np.bincount(drawn)[4:] / 2000 == pytest.approx(np.full(3, 1 / 3), abs=0.05)
    assert (drawn != AnswerRegion(6, "random", seed=1).sizes(sizes)).any()
    long = encode_answers(tiny_tokenizer, [PromptAnswer(1, (), "the cat sat on the tree")], 16, AnswerRegion(4, "none"))
    assert long.lengths.tolist() == [5] and long.tokens[-1] == tiny_tokenizer.sep_id  # cut, and ended
    for region, message in (((1, "none"), "at least 2 tokens, found 1"), ((4, "some"), "random, full, none, found")):
        with pytest.raises(InputError, match=message):
            AnswerRegion(*region)
    with pytest.raises(InputError, match="expected less than the 8 tokens of a row"):
        encode_answers(tiny_tokenizer, [PromptAnswer(1, ("the",), "cat")], 8, AnswerRegion(7))


def test_long_prompts_are_cut_at_their_end_and_conversations_at_their_beginning(tiny_tokenizer):
    words = ["the", "cat", "sat", "on", "a", "tree"]
    (single,) = encode_prompts(tiny_tokenizer, [(" ".join(words),)], 5)
    (several,) = encode_prompts(tiny_tokenizer, [tuple(words)], 5)
    assert [tiny_tokenizer.id_to_token(i) for i in single] == ["[CLS]", "the", "cat", "sat", "[SEP]"]
    assert [tiny_tokenizer.id_to_token(i) for i in several] == ["[CLS]", "a", "[SEP]", "tree", "[SEP]"]


def source(tokenizer, packed, seed=0):
    rng = np.random.default_rng(0)
    words = ["the", "cat", "sat", "on", "a", "tree"]
    rows = [
        PromptAnswer(i, (" ".join(rng.choice(words, rng.integers(1, 5))),), " ".join(rng.choice(words, 3)))
        for i in range(40)
    ]
    features = encode_answers(tokenizer, rows, 16, AnswerRegion(6))
    if packed:
        inner, slots = PackedSource(features, 4, 32, tokenizer.pad_id, seed), 32
    else:
        inner, slots = TrainSource(features, 8, (16,), tokenizer.pad_id, seed), 6
    return features, NoisyBatches(inner, Noise(tokenizer.mask_id), slots, seed)


@pytest.mark.parametrize("packed", [False, True])
def test_a_batch_depends_on_seed_and_step_alone(tiny_tokenizer, packed):
    (_, batches), (_, same), (_, other) = (source(tiny_tokenizer, packed, seed) for seed in (0, 0, 1))
    for step in (0, 7):
        batch = batches.batch(step)
        assert "answer_mask" not in batch and "labels" not in batch
        half = same.batch(step, slice(2, 4))
        assert all(np.array_equal(array[2:4], half[name]) for name, array in batch.items())
        assert (other.batch(step)["input_ids"] != batch["input_ids"]).any()
        masked = batch["input_ids"] == tiny_tokenizer.mask_id
        assert (masked.sum(axis=1) == (batch["masked_weights"] > 0).sum(axis=1)).all()
        if packed:  # each example of a row has masks of its own
            for row, segments in zip(masked, batch["segment_ids"], strict=True):
                assert set(segments[row]) == set(segments) - {0}
    first, later = (batches.batch(step)["masked_positions"] for step in (0, 5))
    assert (first != later).any()


def test_evaluation_has_the_same_noise_in_any_batch(tiny_tokenizer):
    features, _ = source(tiny_tokenizer, packed=False)
    noisy = evaluation_features(features, tiny_tokenizer.mask_id, 6)
    whole = noisy.pad(np.arange(40), 16, 0)
    part = noisy.pad(np.array([7, 3, -1]), 16, 0)
    for name in ("input_ids", "masked_positions", "masked_weights"):
        assert np.array_equal(part[name][:2], whole[name][[7, 3]])
    assert part["target_counts"][2] == 0 and not part["masked_weights"][2].any()
    assert {field.name for field in dataclasses.fields(noisy)} > {field.name for field in dataclasses.fields(features)}
