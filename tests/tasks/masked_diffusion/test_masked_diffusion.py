"""Masked diffusion: its loss is the exact bound, training learns, resumes and packs; pretraining; what is refused."""

import itertools
import json
import math

import jax
import numpy as np
import pytest
from small_tasks import SmallTask

from bert_jax import jobs, recipes
from bert_jax.config import BertConfig
from bert_jax.conversion.huggingface import load_pretrained
from bert_jax.conversion.record import read_records
from bert_jax.data.diffusion import Noise, add_noise
from bert_jax.data.pretraining.masking import hash_counters
from bert_jax.data.pretraining.prepare import prepare
from bert_jax.errors import InputError
from bert_jax.inference import pipeline
from bert_jax.modeling import Bert
from bert_jax.tasks.masked_diffusion.data import NoisyBatches
from bert_jax.tasks.masked_diffusion.settings import Generated
from bert_jax.tasks.masked_diffusion.task import MaskedDiffusionTask
from bert_jax.training.loop import train

CONFIG = BertConfig(
    vocab_size=12, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
    max_position_embeddings=8, initializer_range=0.8,
)  # fmt: skip
MASK, TARGETS = 4, (2, 3, 5)  # the id of [MASK], and the positions of the tokens to generate
WORDS = ["cat", "dog", "house", "river", "stone", "tree"]


def log_probabilities(bert, params, ids):
    """log p(token) `[S, V]` of one row."""
    logits = bert.apply(params, np.asarray([ids], np.int32)).logits[0]
    return np.asarray(jax.nn.log_softmax(logits), np.float64)


@pytest.mark.oracle
def test_the_expected_loss_is_the_mean_over_all_orders_of_generation():
    """The bound is the negative log-likelihood of generating one token at a time, averaged over all orders."""
    bert = Bert(CONFIG, "masked_lm")
    params = bert.init(jax.random.key(0))
    ids = np.array([2, 7, 8, 9, 10, 11, 3], np.int32)
    exact = []
    for order in itertools.permutations(TARGETS):
        row, total = ids.copy(), 0.0
        row[list(TARGETS)] = MASK
        for place in order:
            total -= log_probabilities(bert, params, row)[place, ids[place]]
            row[place] = ids[place]
        exact.append(total)
    count = 4096
    examples = np.zeros((count, len(ids)), np.int32)
    examples[:, list(TARGETS)] = 1
    task = MaskedDiffusionTask(bert)
    for schedule in ("linear", "cosine"):
        batch = {"attention_mask": np.ones_like(examples), "token_type_ids": np.zeros_like(examples)}
        keys = hash_counters(0, np.arange(count))
        batch |= add_noise(Noise(MASK, schedule), np.tile(ids, (count, 1)), examples, keys, slots=3)
        assert task.weights(batch)["tokens"] == 3 * count
        loss, _ = jax.jit(task.loss)(params, batch, None, task.weights(batch))
        assert float(loss) == pytest.approx(np.mean(exact) / 3, rel=0.02)


def row(rng):
    words = [str(word) for word in rng.choice(WORDS, rng.integers(2, 5))]
    return {"prompt": " ".join(words), "answer": " ".join(reversed(words))}


@pytest.fixture(scope="module")
def place(tmp_path_factory, write_small):
    root, rng = tmp_path_factory.mktemp("diffusion"), np.random.default_rng(0)
    for name, count in (("train", 400), ("dev", 40)):
        (root / f"{name}.jsonl").write_text("".join(json.dumps(row(rng)) + "\n" for _ in range(count)))
    write_small(root / "bert", "masked_lm", max_position_embeddings=48)
    return root


SMALL = SmallTask("masked_diffusion:{place}/train.jsonl", {
    "init_from": "{place}/bert", "data.dev": "{place}/dev.jsonl", "data.max_seq_length": 20, "data.answer_length": 7,
    "num_steps": 4, "num_epochs": 0.0, "global_batch_size": 16, "optimizer.learning_rate": 3e-3,
})  # fmt: skip
recipe = SMALL.recipe


@pytest.fixture(scope="module")
def trained(place):
    keys = {"num_steps": 300, "model.hidden_dropout_prob": 0.0, "model.attention_probs_dropout_prob": 0.0}
    return SMALL.train(place, **keys)[0]


def test_training_learns_and_its_model_generates(place, trained):
    """The first word of an answer is the last one of its prompt, which is learned first."""
    assert trained["eval/diffusion_loss"] < 1.6 < math.log(len(WORDS)) + 0.2
    assert trained["eval/diffusion_perplexity"] == pytest.approx(math.exp(trained["eval/diffusion_loss"]))
    assert read_records(place / "run" / "model")["generated"] == Generated(7, "random", (0, 0, 0, *lengths(place)))
    rows = [json.loads(line) for line in (place / "dev.jsonl").read_text().splitlines()]
    answers = pipeline("text-generation", place / "run" / "model")([each["prompt"] for each in rows])
    written = [(len(found[0]["generated_text"].split()), len(each["answer"].split()))
               for found, each in zip(answers, rows, strict=True)]  # fmt: skip
    assert np.mean([words == wanted for words, wanted in written]) > 0.8


def lengths(place):
    rows = [json.loads(line) for line in (place / "train.jsonl").read_text().splitlines()]
    return np.bincount([len(each["answer"].split()) + 1 for each in rows])[3:].tolist()


@pytest.mark.slow  # integration/test_killed_runs.py has a quick one
def test_a_killed_run_ends_as_one_that_was_not(place, monkeypatch):
    few = {"num_steps": 4, "checkpoint_every": 2, "log_every": 1, "data.dev": ""}
    train(recipe(place, **few), place / "whole", progress=False)
    read_batch = NoisyBatches.batch

    def killed(self, step, rows=slice(None)):
        if step == 3:
            raise RuntimeError("killed")
        return read_batch(self, step, rows)

    with monkeypatch.context() as patch, pytest.raises(RuntimeError, match="killed"):
        patch.setattr(NoisyBatches, "batch", killed)
        train(recipe(place, **few), place / "killed", progress=False)
    train(recipe(place, **few), place / "killed", progress=False)
    first, second = (load_pretrained(place / name / "model").params for name in ("whole", "killed"))
    assert all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True))


@pytest.mark.slow
def test_micro_batches_and_packed_rows_have_the_loss_of_their_examples(place):
    job = SMALL.job(place, **{"data.packing": 40, "global_batch_size": 8})
    batch, params = job.train_source.batch(0), jax.jit(job.init_params)(jax.random.key(0))
    weights, loss = job.task.weights(batch), jax.jit(job.task.loss)
    whole, _ = loss(params, batch, None, weights)
    halves = [{name: array[rows] for name, array in batch.items()} for rows in (slice(0, 3), slice(3, 8))]
    parts = [loss(params, half, None, weights)[0] for half in halves]
    assert float(whole) == pytest.approx(float(sum(parts)), rel=1e-5)
    # The examples of the first row, each in a row of its own.
    segments, total = batch["segment_ids"][0], 0.0
    for segment in range(1, segments.max() + 1):
        inside = np.flatnonzero(segments == segment)
        masked = np.isin(batch["masked_positions"][0], inside) & (batch["masked_weights"][0] > 0)
        alone = {
            "input_ids": batch["input_ids"][:1, inside],
            "token_type_ids": batch["token_type_ids"][:1, inside],
            "attention_mask": np.ones((1, len(inside)), np.int32),
            "masked_positions": np.maximum(batch["masked_positions"][:1, masked] - inside[0], 0),
            "masked_labels": batch["masked_labels"][:1, masked],
            "masked_weights": batch["masked_weights"][:1, masked],
            "target_counts": batch["target_counts"][:1],
        }
        total += float(loss(params, alone, None, weights)[0])
    first = {name: array[:1] for name, array in batch.items()}
    assert float(loss(params, first, None, weights)[0]) == pytest.approx(total, rel=1e-4)


@pytest.mark.slow
def test_conversations_texts_and_lora(place, tmp_path):
    chat = [{"role": "user", "content": "the cat"}, {"role": "assistant", "content": "sat on it"}] * 2
    (tmp_path / "chats.jsonl").write_text(json.dumps({"messages": chat, "text": "the cat sat on the tree"}) + "\n")
    rows = {"data.train": str(tmp_path / "chats.jsonl"), "data.dev": "", "num_steps": 1, "global_batch_size": 2}
    columns = {"data.text_column": "", "data.answer_column": ""}
    messages = recipe(place, **rows, **columns, **{"data.messages_column": "messages", "lora.rank": 2})
    train(messages, tmp_path / "chat", progress=False)
    model = pipeline("text-generation", tmp_path / "chat" / "model")
    (answers,) = model([[{"role": "user", "content": "the cat"}]], max_new_tokens=5)
    assert answers[0]["num_tokens"] <= 5
    train(recipe(place, **rows, **columns | {"data.answer_column": "text"}), tmp_path / "text", progress=False)
    assert pipeline("text-generation", tmp_path / "text" / "model")("", num_return_sequences=2, temperature=1.0)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"data.answer_column": ""}, r"data\.answer_column: expected a column of answers, or data\.messages_column"),
        ({"data.messages_column": "chat"}, r"data\.messages_column: expected no other column of texts, found 'prompt'"),
        ({"data.answer_length": 19}, r"answer_length: expected less than the 20 tokens of a row"),
        ({"data.noise_schedule": "sine"}, r"data\.noise_schedule: 'sine' is not known"),
        ({"data.answer_column": "reply"}, r"expected a field 'reply'"),
    ],
)
def test_what_does_not_fit_is_an_error(place, keys, message):
    with pytest.raises(InputError, match=message):
        SMALL.job(place, **keys)


@pytest.mark.slow
@pytest.mark.parametrize("packed", [False, True])
def test_pretraining_on_prepared_data(tmp_path, tiny_tokenizer, packed):
    text = "\n\n".join("the cat sat on the tree\na dog sees the red house\nit is good" for _ in range(40))
    (tmp_path / "corpus.txt").write_text(text)
    prepare(f"sentences:{tmp_path}/corpus.txt", tiny_tokenizer, tmp_path / "data", objective="mlm", packed=packed,
            max_seq_length=16, validation_fraction=0.2, num_workers=1)  # fmt: skip
    found = recipes.load_recipe("diffusion_base")
    values = {"data.prepared": str(tmp_path / "data"), "data.sequence_length": 16, "model.size": "tiny", "num_steps": 3,
              "global_batch_size": 8, "optimizer.warmup_steps": 0, "checkpoint_every": 2, "eval_every": 0}  # fmt: skip
    found.update_from_flattened_dict(values)
    results = train(recipes.resolve(found), tmp_path / "run", progress=False)
    assert 0 < results["eval/diffusion_loss"] < 2 * math.log(tiny_tokenizer.vocab_size)
    job = jobs.build(recipes.resolve(found))
    batch = job.train_source.batch(0)
    assert batch["target_counts"].sum() > (batch["masked_weights"] > 0).sum() > 8
    abstract = jobs.abstract_task(recipes.resolve(found)).stages[0].batch
    assert {name: array.shape for name, array in batch.items()} == {name: a.shape for name, a in abstract.items()}


def test_the_abstract_task_has_the_shapes_of_batches(place):
    for keys in ({}, {"data.packing": 40}):
        batch, stage = SMALL.job(place, **keys).train_source.batch(0), SMALL.abstract_task(place, **keys).stages[0]
        expected = {name: (array.shape[0], *array.shape[2:]) for name, array in batch.items()}
        assert expected == {name: (array.shape[0], *array.shape[2:]) for name, array in stage.batch.items()}
    without = SMALL.abstract_task(place, **{"data.train": "", "data.dev": ""})
    assert without.stages[0].batch["masked_positions"].shape == (16, 7)
