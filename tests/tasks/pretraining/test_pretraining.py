"""The pretraining task from prepared text to a finished model, through the training loop."""

import json
import re

import numpy as np
import pytest
from random_models import write_model

from bert_jax import jobs, recipes
from bert_jax.conversion.huggingface import load_pretrained
from bert_jax.data.pretraining.prepare import prepare
from bert_jax.errors import InputError
from bert_jax.tokenization import load_tokenizer, word_piece
from bert_jax.training.loop import train

WORDS = ["the", "cat", "dog", "bird", "fish", "sat", "ran", "under", "over", "house", "tree", "river", "red", "old"]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory, tiny_tokenizer):
    """Examples of at most 16 and 32 tokens from random sentences, every one with two "the" and a "."."""
    root = tmp_path_factory.mktemp("prepared")
    rng = np.random.default_rng(0)

    def sentence():
        words = rng.choice(WORDS[1:], 4)
        return f"the {words[0]} {words[1]} the {words[2]} {words[3]} ."

    documents = ["\n".join(sentence() for _ in range(6)) for _ in range(40)]
    (root / "corpus.txt").write_text("\n\n".join(documents))
    prepare(f"sentences:{root}/corpus.txt", tiny_tokenizer, root / "data", max_seq_length=(16, 32),
            validation_fraction=0.2, num_workers=1)  # fmt: skip
    return root / "data"


def small_recipe(prepared, **changes):
    c = recipes.pretraining()
    c.model.size = "tiny"
    c.model.hidden_size, c.model.intermediate_size, c.model.num_attention_heads = 16, 32, 2
    c.model.max_position_embeddings = 32
    c.data.prepared = str(prepared)
    c.stages = ((20, 16, 16), (2, 32, 8))
    c.optimizer.learning_rate, c.optimizer.warmup_steps = 5e-3, 2
    c.data.eval_batches, c.eval_batch_size = 2, 16
    c.update_from_flattened_dict(changes)
    return c


def job(prepared, **changes):
    return jobs.build(recipes.resolve(small_recipe(prepared, **changes)))


def test_stages_and_evaluation(prepared):
    made = job(prepared)
    assert made.num_steps == 22
    shapes = [made.train_source.batch(step)["input_ids"].shape for step in (0, 19, 20, 21)]
    assert shapes == [(16, 16), (16, 16), (8, 32), (8, 32)]
    assert made.eval_source.num_batches == 2
    assert made.eval_source.batch(0)["input_ids"].shape == (16, 16)  # the length of most steps
    assert job(prepared, **{"data.eval_sequence_length": 32}).eval_source.batch(0)["input_ids"].shape == (16, 32)
    assert made.task.model.config.vocab_size == made.tokenizer.vocab_size
    assert made.tokenizer.id_to_token(made.task.majority_id) == "the"


def test_one_stage_by_epochs(prepared):
    made = job(prepared, stages=(), num_steps=0, num_epochs=1.5, global_batch_size=16, **{"data.sequence_length": 16})
    examples = made.train_source.stages[0][1].num_examples
    assert made.num_steps == -(-3 * examples // 32)
    assert made.train_source.batch(10_000)["input_ids"].shape == (16, 16)


@pytest.fixture(scope="module")
def other(prepared, tiny_tokenizer):
    """Examples of other text, fewer, with the same lengths."""
    text = "\n\n".join("\n".join(f"a dog ran over the {w} house ." for _ in range(4)) for w in WORDS)
    (prepared.parent / "other.txt").write_text(text)
    prepare(f"sentences:{prepared.parent}/other.txt", tiny_tokenizer, prepared.parent / "other",
            max_seq_length=(16, 32), validation_fraction=0.2, num_workers=1)  # fmt: skip
    return prepared.parent / "other"


def test_a_mixture_changes_over_stages_and_is_evaluated_on_all(prepared, other):
    both = {"data.prepared": "", "data.mixture": (str(prepared), str(other))}
    made = job(prepared, **both, **{"data.mixture_weights": ((1.0, 0.0), (0.25, 0.75)), "data.eval_batches": 0})
    shares = [source.mixture.shares.tolist() for _, source in made.train_source.stages]
    assert shares == [[1, 0], [0.25, 0.75]]
    alone = job(prepared)
    np.testing.assert_array_equal(made.train_source.batch(5)["input_ids"], alone.train_source.batch(5)["input_ids"])
    assert made.train_source.batch(20)["input_ids"].shape == (8, 32)
    held_out = [job(each, **{"data.eval_batches": 0}).eval_source.num_examples for each in (prepared, other)]
    assert made.eval_source.num_examples == sum(held_out)


def test_weights_of_a_mixture_follow_its_sizes_or_epochs(prepared, other):
    both = {"data.prepared": "", "data.mixture": (str(prepared), str(other)), "stages": (), "num_steps": 0,
            "num_epochs": 2.0, "global_batch_size": 16, "data.sequence_length": 16}  # fmt: skip
    sizes = [job(each).train_source.first().num_examples for each in (prepared, other)]
    for changes, weights, epoch in (
        ({}, sizes, sum(sizes)),
        ({"data.mixture_temperature": 2.0}, np.sqrt(sizes), sum(sizes)),
        ({"data.mixture_epochs": (1.0, 3.0)}, (sizes[0], 3 * sizes[1]), sizes[0] + 3 * sizes[1]),
    ):
        made = job(prepared, **both, **changes)
        source = made.train_source.first()
        np.testing.assert_allclose(source.mixture.shares, np.array(weights) / np.sum(weights), atol=1e-4)
        assert made.num_steps == -(-2 * epoch // 16)
    np.testing.assert_allclose(source.epochs(made.num_steps), [2, 6], rtol=0.01)


@pytest.mark.slow
def test_a_mixture_is_trained_and_resumed_with_the_same_data_only(prepared, other, tmp_path, capsys):
    recipe = small_recipe("", stages=(), num_steps=4, global_batch_size=8, eval_every=0, best_metric="")
    recipe.data.sequence_length, recipe.data.mixture = 16, (str(prepared), str(other))
    recipe.data.mixture_weights = (1.0, 2.0)
    train(recipe, tmp_path / "run", progress=True)
    assert re.search(r"mixture of stage 1: \S+data 33\.3% \(0\.\d+ epochs\), \S+other 66\.7% ", capsys.readouterr().err)
    recipe.num_steps = 8
    for changes, message in (
        ({"data.mixture": (str(other), str(prepared))}, "the data are not those that the run began with"),
        ({"data.mixture": (str(prepared),), "data.mixture_weights": (1.0,)}, "data.mixture now has [0-9,]+;"),
        ({"data.mixture_weights": (1.0, 3.0)}, "the run has done 4 steps, whose weights must not change"),
        ({"data.mixture_temperature": 2.0}, "data.mixture_temperature was 1.0, is now 2.0"),
    ):
        changed = recipe.copy_and_resolve_references()
        changed.update_from_flattened_dict(changes)
        with pytest.raises(InputError, match=message):
            train(changed, tmp_path / "run", progress=False)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data.prepared": "a"}, "config.data: expected prepared or mixture, found both"),
        (
            {"data.mixture": (), "data.mixture_epochs": (1.0,)},
            "config.data.mixture_epochs: expected .. without data.mix",
        ),
        ({"data.mixture": ("a", "a")}, "config.data.mixture: expected different directories"),
        ({"data.mixture": ("a", 3)}, "config.data.mixture: expected names of directories"),
        ({"data.mixture_weights": (1.0,)}, "config.data.mixture_weights: expected 2 numbers of at least 0"),
        ({"data.mixture_weights": (0.0, 0.0)}, "not all 0, found"),
        ({"data.mixture_epochs": (-1.0, 2.0)}, "config.data.mixture_epochs: expected 2 numbers of at least 0"),
        ({"data.mixture_weights": ((1.0, 2.0),)}, "expected weights for each of the 2 stages, found 1"),
        (
            {"data.mixture_weights": (1.0, 2.0), "data.mixture_epochs": (1.0, 1.0)},
            "expected mixture_weights or mixture_ep",
        ),
        ({"data.mixture_temperature": 0.0}, "config.data.mixture_temperature: expected more than 0"),
        ({"data.mixture": tuple(map(str, range(1001)))}, "expected at most 1000 directories, found 1001"),
    ],
)
def test_mixtures_that_do_not_fit(changes, message):
    recipe = small_recipe("", **{"data.mixture": ("a", "b")} | changes)
    with pytest.raises(InputError, match=message):
        recipes.resolve(recipe)


def test_no_held_out_text_is_no_evaluation(prepared, tmp_path, tiny_tokenizer):
    prepare(f"sentences:{prepared.parent}/corpus.txt", tiny_tokenizer, tmp_path / "data", max_seq_length=32,
            validation_fraction=0.0, num_workers=1)  # fmt: skip
    assert job(tmp_path / "data").eval_source is None


def test_pretraining_learns_and_its_model_is_gone_on_with(prepared, tmp_path):
    one_length = {"stages": (), "num_steps": 20, "global_batch_size": 16, "data.sequence_length": 16}
    results = train(small_recipe(prepared, **one_length), tmp_path / "run", progress=False)
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert any("eval/mlm_majority_accuracy" in line for line in lines)
    assert results["eval/mlm_loss"] < 0.9 * np.log(150)
    assert 0.15 < results["eval/mlm_majority_accuracy"] < 0.5  # two of eight tokens
    model = tmp_path / "run" / "model"
    made = job(prepared, init_from=str(model))
    loaded = load_pretrained(model, "pretraining")
    assert made.task.model.config == loaded.config
    np.testing.assert_array_equal(made.pretrained["mlm"]["bias"], loaded.params["mlm"]["bias"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model.max_position_embeddings": 24}, "config.stages: expected at most the model's 24 positions.*found 32"),
        ({"model.vocab_size": 100}, "expected 1 to 100 pieces, for the 100 rows of the model's word"),
        ({"stages": ((5, 64, 8),), "model.max_position_embeddings": 64}, "was prepared for at most 32 tokens"),
        ({"data.prepared": ""}, "config.data.prepared: expected a directory"),
        ({"data.prepared": "/no/such/place"}, "found no manifest.json"),
        ({"data.eval_sequence_length": 40}, "config.data.eval_sequence_length: expected at most"),
    ],
)
def test_what_does_not_fit(prepared, changes, message):
    with pytest.raises(InputError, match=message):
        job(prepared, **changes)


def test_another_vocabulary(prepared, tmp_path):
    other = word_piece(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS])
    other.save(tmp_path)
    with pytest.raises(InputError, match=r"in the vocabulary of config\.tokenizer"):
        job(prepared, tokenizer=str(tmp_path))


def test_a_model_of_another_size(prepared, tmp_path):
    made = job(prepared)
    config = made.task.model.config.replace(vocab_size=30)
    write_model(tmp_path / "model", config, "pretraining", made.tokenizer)
    assert load_tokenizer(tmp_path / "model").vocab_size > 30
    with pytest.raises(InputError, match="for the 30 rows of the model's word"):
        job(prepared, init_from=str(tmp_path / "model"))
    with pytest.raises(InputError, match=r"config\.model\.vocab_size: expected 30, .* found 200"):
        job(prepared, init_from=str(tmp_path / "model"), **{"model.vocab_size": 200})


def test_the_outline_of_a_recipe_has_the_batches_that_the_data_give(prepared):
    recipe = recipes.resolve(small_recipe(prepared))
    source = job(prepared).train_source
    real = [{name: (a.shape, a.dtype) for name, a in source.batch(step).items()} for step in (0, 20)]
    for abstract_task in (jobs.abstract_task(recipe), jobs.abstract_task(recipes.resolve(small_recipe("")))):
        shapes = [{name: (a.shape, a.dtype) for name, a in stage.batch.items()} for stage in abstract_task.stages]
        assert shapes == real
        assert [stage.num_steps for stage in abstract_task.stages] == [20, 2]
