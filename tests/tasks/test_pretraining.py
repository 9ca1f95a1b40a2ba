"""The pretraining task from prepared text to a finished model, through the training loop."""

import json

import jax
import numpy as np
import pytest

from bert_jax import recipes, tasks
from bert_jax.conversion.huggingface import load_pretrained, save_pretrained
from bert_jax.data.pretraining.prepare import prepare
from bert_jax.errors import InputError
from bert_jax.modeling import Bert
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
    return tasks.build(recipes.resolve(small_recipe(prepared, **changes)))


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
    model = Bert(made.task.model.config.replace(vocab_size=30), "pretraining")
    params = jax.jit(model.init)(jax.random.key(0))
    save_pretrained(tmp_path / "model", model.config, "pretraining", params, made.tokenizer)
    assert load_tokenizer(tmp_path / "model").vocab_size > 30
    with pytest.raises(InputError, match="for the 30 rows of the model's word"):
        job(prepared, init_from=str(tmp_path / "model"))
    with pytest.raises(InputError, match=r"config\.model\.vocab_size: expected 30, .* found 200"):
        job(prepared, init_from=str(tmp_path / "model"), **{"model.vocab_size": 200})


def test_the_outline_of_a_recipe_has_the_batches_that_the_data_give(prepared):
    recipe = recipes.resolve(small_recipe(prepared))
    source = job(prepared).train_source
    real = [{name: (a.shape, a.dtype) for name, a in source.batch(step).items()} for step in (0, 20)]
    for abstract_task in (tasks.abstract_task(recipe), tasks.abstract_task(recipes.resolve(small_recipe("")))):
        shapes = [{name: (a.shape, a.dtype) for name, a in stage.batch.items()} for stage in abstract_task.stages]
        assert shapes == real
        assert [stage.num_steps for stage in abstract_task.stages] == [20, 2]
