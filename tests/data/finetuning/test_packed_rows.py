"""Rows of several examples of fine-tuning: each is there once an epoch, and learned from as if it stood alone."""

import itertools
import json
from typing import ClassVar

import jax
import numpy as np
import pytest

from bert_jax import jobs, recipes
from bert_jax.config import BertConfig
from bert_jax.data.finetuning.packing import PackedSource
from bert_jax.errors import InputError
from bert_jax.modeling import Bert
from bert_jax.training.loop import train

WORDS = ["the", "cat", "sat", "on", "a", "tree", "and", "bird", "by", "river"]
LENGTH = 32
# The recipe of each kind of batch, and how it differs from that of one text with one of three classes.
KINDS = {
    "classes": ("classification", {"data.class_weights": "balanced", "label_smoothing": 0.1}),
    "pairs": ("classification", {"data.pair_column": "other"}),
    "several": ("classification", {"data.task_type": "multi_label", "data.label_column": "labels"}),
    "numbers": ("classification", {"data.task_type": "regression", "data.label_column": "number"}),
    "windows": ("classification", {"data.long_texts": "windows", "data.max_seq_length": 12}),
    "tags": ("token_classification", {"data.train": "train.conll"}),
    "questions": ("question_answering", {"data.train": "train.json", "data.doc_stride": 8, "data.max_query_length": 8}),
}


@pytest.fixture(scope="module")
def place(tmp_path_factory, write_small):
    """The same random words as a table, as tagged sentences and as contexts of questions; and an encoder."""
    root, random = tmp_path_factory.mktemp("packed"), np.random.default_rng(0)
    table, tagged, paragraphs = ["sentence\tother\tlabel\tlabels\tnumber"], [], []
    for row in range(90):
        words = random.choice(WORDS, random.integers(1, 17)).tolist()
        labels = ",".join(np.array(["x", "y"])[random.random(2) < 0.5])
        label = random.choice(["p", "q", "r"], p=[0.6, 0.3, 0.1])
        table.append(f"{' '.join(words)}\t{' '.join(words[:5])}\t{label}\t{labels}\t{random.random()}")
        tagged += [f"{word} {'B-X' if random.random() < 0.5 else 'O'}" for word in words] + [""]
        context = " ".join(words)
        place = context.index(words[-1])
        answer = [{"text": words[-1], "answer_start": place}] if row % 3 else []
        question = {"id": str(row), "question": "who sat", "answers": answer, "is_impossible": not answer}
        paragraphs.append({"context": context, "qas": [question]})
    (root / "train.tsv").write_text("\n".join(table))
    (root / "train.conll").write_text("\n".join(tagged))
    (root / "train.json").write_text(json.dumps({"version": "v2.0", "data": [{"paragraphs": paragraphs}]}))
    write_small(root / "encoder", initializer_range=0.2, num_hidden_layers=2)
    return root


def recipe(place, kind, **changes):
    task, differs = KINDS[kind]
    c = recipes.RECIPES[task]()
    c.init_from, c.data.train = str(place / "encoder"), "train.tsv"
    c.data.max_seq_length = c.data.packing = LENGTH
    c.global_batch_size, c.num_epochs = 8, 2.0
    c.update_from_flattened_dict(differs | changes)
    c.data.train = str(place / c.data.train)
    return c


def job(place, kind, **changes):
    return jobs.build(recipes.resolve(recipe(place, kind, **changes)))


def examples_of(batch):
    """The examples of a packed batch: (row, number from 0, which tokens of the row are its own)."""
    for row, ids in enumerate(batch["segment_ids"]):
        for number in range(ids.max()):
            yield row, number, ids == number + 1


def apart(batch):
    """The batch with each example in a row of its own."""
    length = batch["input_ids"].shape[1]
    rows = []
    for row, number, inside in examples_of(batch):
        example = {"attention_mask": np.arange(length) < inside.sum()}
        for name, array in batch.items():
            if array.shape == batch["input_ids"].shape:
                value = np.full(length, -1 if name == "labels" else 0, array.dtype)
                value[: inside.sum()] = array[row][inside]
                example[name] = value
            else:
                example[name] = array[row, number]
        rows.append(example)
    stacked = {name: np.stack([row[name] for row in rows]) for name in rows[0]}
    return {n: a for n, a in stacked.items() if n not in ("segment_ids", "position_ids", "cls_positions")}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_loss_and_gradient_are_those_of_the_examples_apart(place, kind):
    made = job(place, kind)
    task, params, packed = made.task, jax.jit(made.init_params)(jax.random.key(0)), made.train_source.batch(0)
    alone = apart(packed)
    assert len(alone["input_ids"]) > 1.5 * len(packed["input_ids"])
    step = jax.jit(jax.value_and_grad(task.loss, has_aux=True))
    (expected, metrics), expected_grads = step(params, alone, None, task.weights(alone))
    (loss, packed_metrics), grads = step(params, packed, None, task.weights(packed))
    assert float(loss) == pytest.approx(float(expected), rel=1e-5)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=1e-5 * np.abs(b).max() + 1e-7), grads, expected_grads
    )
    share = float(np.divide(*packed_metrics.pop("packing")))
    assert share == pytest.approx(alone["attention_mask"].sum() / packed["input_ids"].size)
    assert share > 0.85 and share > float(np.divide(*metrics.pop("packing")))
    for name, (total, count) in packed_metrics.items():
        assert [float(total), float(count)] == pytest.approx([*map(float, metrics[name])], rel=1e-5), name


@pytest.mark.sampled(9)
@pytest.mark.parametrize(
    ("family", "head", "output", "changes"),
    [
        pytest.param("distilbert", "sequence_classification", "logits", {}, marks=pytest.mark.slow),
        ("roberta", "sequence_classification", "logits", {"vocab_size": 160}),
        (
            "modernbert",
            "sequence_classification",
            "logits",
            {"classifier_pooling": "mean", "global_every": 2, "local_window": 4},
        ),
        ("eurobert", "sequence_classification", "logits", {"num_key_value_heads": 1, "classifier_pooling": "late"}),
        ("deberta-v2", "sequence_classification", "logits", {"position_buckets": 4, "conv_kernel_size": 3}),
        ("longformer", "sequence_classification", "logits", {"vocab_size": 160, "attention_windows": (2, 3)}),
        (
            "mobilebert",
            "sequence_classification",
            "logits",
            {"intra_bottleneck_size": 16, "embedding_size": 8, "num_feedforward_networks": 2},
        ),
        *(
            ("bert", "sentence_embedding", "sentence_embedding", {"pooling": pooling})
            for pooling in ("cls", "mean", "max")
        ),
    ],
)
def test_every_summary_and_pooling_is_of_the_example(place, family, head, output, changes):
    """And positions, however a family counts them."""
    batch = job(place, "classes").train_source.batch(0)
    sizes = {"vocab_size": int(batch["input_ids"].max()) + 1, "hidden_size": 32, "intermediate_size": 64}
    config = BertConfig.named("tiny", family, max_position_embeddings=LENGTH, initializer_range=0.2, **sizes | changes)
    model = Bert(config, head)
    params = jax.jit(model.init)(jax.random.key(0))
    of_rows = ("input_ids", "token_type_ids", "position_ids", "segment_ids", "cls_positions")
    alone = apart(batch)

    def outputs(batch, names):
        return np.asarray(getattr(jax.jit(model.apply)(params, **{name: batch[name] for name in names}), output))

    found = outputs(batch, of_rows)
    expected = outputs(alone, ("input_ids", "attention_mask", "token_type_ids"))
    found = [found[row, number] for row, number, _ in examples_of(batch)]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("kind", ["pairs", "tags", "questions"])
def test_an_epoch_holds_each_example_once(place, kind):
    """Beside the batches of one length that there are without packing."""
    lengths = {"data.packing": 0, "data.length_buckets": (LENGTH,)}
    packed, plain = job(place, kind).train_source, job(place, kind, **lengths).train_source
    assert packed.num_examples == plain.num_examples > packed.num_rows
    names = ["input_ids", "token_type_ids", *{"pairs": ["labels"], "tags": ["labels"], "questions": ["windows"]}[kind]]

    def epoch(source, number, prepare):
        steps = range(number * source.steps_per_epoch, (number + 1) * source.steps_per_epoch)
        rows = []
        for batch in map(prepare, map(source.batch, steps)):
            real = batch["example_weights"] > 0
            rows += zip(*(map(tuple, batch[name][real].reshape(real.sum(), -1)) for name in names), strict=True)
        return rows

    first, second = (epoch(packed, number, apart) for number in (0, 1))
    assert sorted(first) == sorted(second) == sorted(epoch(plain, 0, lambda batch: batch))
    assert first != second
    batches = [packed.batch(step) for step in range(2 * packed.steps_per_epoch)]
    assert len({tuple((name, array.shape) for name, array in batch.items()) for batch in batches}) == 1


def test_hosts_make_their_rows_alone(place):
    source = job(place, "tags").train_source
    last = source.steps_per_epoch - 1  # with rows of padding
    for step, rows in itertools.product((0, last), (slice(0, 3), slice(3, 8), slice(7, 8))):
        whole = source.batch(step)
        for name, array in source.batch(step, rows).items():
            np.testing.assert_array_equal(array, whole[name][rows], err_msg=name)
    assert not source.batch(last)["segment_ids"][-1].any()


def test_lengths_are_mixed_in_a_batch():
    class Lengths:
        lengths = np.random.default_rng(0).integers(3, 64, 4000)
        token_fills: ClassVar = {"token_type_ids": 0}

        def __len__(self):
            return len(self.lengths)

        def pad(self, index, length, pad_id):
            tokens = np.repeat(index[:, None], length, 1).astype(np.int32)
            mask = np.arange(length) < self.lengths[index][:, None]
            return {"input_ids": tokens, "token_type_ids": tokens, "attention_mask": mask}

    source = PackedSource(Lengths(), 32, 128, 0, seed=0)
    assert Lengths.lengths.sum() / (source.num_rows * 128) > 0.98
    means = []
    for step in range(source.steps_per_epoch - 1):
        batch = source.batch(step)
        means.append(np.mean([inside.sum() for _, _, inside in examples_of(batch)]))
    assert np.ptp(means) < 0.35 * np.mean(means)  # in batches of one length they would lie between 3 and 63


@pytest.mark.slow
def test_a_run_compiles_once_and_says_how_full_its_rows_are(place, tmp_path):
    results = train(recipe(place, "classes"), tmp_path / "run", progress=False)
    assert results["train/compilations"] == 1 and results["train/packing"] > 0.5
    assert results["step"] == 2 * job(place, "classes").train_source.steps_per_epoch


def test_planning_sees_the_rows(place):
    abstract_task = jobs.abstract_task(recipes.resolve(recipe(place, "questions")))
    (stage,) = abstract_task.stages
    made = job(place, "questions")
    assert stage.num_steps == made.num_steps
    assert {name: (array.shape, array.dtype) for name, array in stage.batch.items()} == {
        name: (array.shape, array.dtype) for name, array in made.train_source.batch(0).items()
    }


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data.length_buckets": (16,)}, r"config\.data: expected packing or length_buckets, found both"),
        (
            {"data.packing": 12},
            r"config\.data\.packing: expected at least the 18 tokens of the longest example, found 12",
        ),
        ({"data.packing": 64}, r"config\.data\.packing: expected at most the model's 32 positions .*, found 64"),
    ],
)
def test_what_packing_does_not_go_with(place, changes, message):
    with pytest.raises(InputError, match=message):
        job(place, "classes", **changes)
