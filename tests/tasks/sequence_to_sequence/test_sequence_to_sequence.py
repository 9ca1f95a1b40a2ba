"""Sequence to sequence: a toy translation that is learned, the loss, resuming, evaluation, and what is refused."""

import dataclasses
import json
import pathlib

import jax
import numpy as np
import pytest
from random_models import write_model
from small_tasks import SmallTask

from bert_jax import evaluation, jobs, recipes
from bert_jax.cli import main
from bert_jax.config import BertConfig
from bert_jax.conversion.encoder_decoder import load_encoder_decoder
from bert_jax.conversion.huggingface import load_pretrained
from bert_jax.errors import InputError
from bert_jax.inference import pipeline
from bert_jax.modeling import EncoderDecoder
from bert_jax.tasks.sequence_to_sequence.evaluation import SequenceToSequenceEvaluator
from bert_jax.tasks.sequence_to_sequence.task import SequenceToSequenceTask
from bert_jax.tokenization import word_piece
from bert_jax.training.flops import encoder_decoder_flops, step_flops, train_flops
from bert_jax.training.loop import train

NOUNS = ["cat", "dog", "bird", "tree", "house", "river", "stone", "king"]
ADJECTIVES = ["old", "red", "big", "wet", "sad", "new"]
VERBS = ["sees", "eats", "holds", "likes", "finds", "paints"]
WORDS = {word: f"x{word[::-1]}" for word in (*NOUNS, *ADJECTIVES, *VERBS)}  # the dictionary of the language
SIZE = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128,
        "max_position_embeddings": 16}  # fmt: skip


def sentences(count, seed):
    """Different sentences of 3 to 8 words, translated: adjectives follow their noun in reverse, the verb comes last."""
    rng = np.random.default_rng(seed)
    found = {}
    while len(found) < count:
        parts = [(list(rng.choice(ADJECTIVES, rng.integers(4), replace=False)), rng.choice(NOUNS)) for _ in "ab"]
        (first, subject), (second, thing), verb = *parts, rng.choice(VERBS)
        source = [*first, subject, verb, *second, thing]
        if len(source) <= 8:
            target = [subject, *first[::-1], thing, *second[::-1], verb]
            found[" ".join(source)] = " ".join(WORDS[word] for word in target)
    return [{"source": source, "target": target} for source, target in found.items()]


def write_rows(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    root = tmp_path_factory.mktemp("translation")
    rows = sentences(6200, 0)
    write_rows(root / "train.jsonl", rows[200:])
    write_rows(root / "few.jsonl", rows[200:500])
    write_rows(root / "dev.jsonl", rows[:200])
    tokenizer = word_piece(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, *WORDS.values()], lowercase=True)
    for name, seed in (("encoder", 1), ("other", 2)):
        config = BertConfig(vocab_size=tokenizer.vocab_size, **SIZE)
        write_model(root / name, config, "masked_lm", tokenizer, seed)
    return root


SMALL = SmallTask("sequence_to_sequence", {
    "tokenizer": "{place}/encoder", "data.train": "{place}/train.jsonl", "data.dev": "{place}/dev.jsonl",
    "data.max_seq_length": 12, "data.max_target_length": 12, "data.length_buckets": (12,),
    **{f"model.{name}": value for name, value in SIZE.items()},
    "model.hidden_dropout_prob": 0.0, "model.attention_probs_dropout_prob": 0.0, "generation.num_beams": 1,
    "global_batch_size": 64, "eval_batch_size": 50, "num_epochs": 0.0,
    "optimizer.learning_rate": 2e-3, "optimizer.bias_correction": True,
})  # fmt: skip
recipe, job = SMALL.recipe, SMALL.job
FEW = {"num_steps": 200, "accumulation_steps": 2, "global_batch_size": 32, "optimizer.learning_rate": 4e-3}


@pytest.mark.slow
def test_a_toy_translation_is_learned(place, tmp_path):
    train(recipe(place, num_steps=600), tmp_path / "run", progress=False)
    scores = evaluation.evaluate(tmp_path / "run" / "model", str(place / "dev.jsonl"))
    assert scores["exact_match"] >= 0.95 and scores["accuracy"] > 0.99


@pytest.fixture(scope="module")
def tuned(place):
    """What a short training in micro-batches returned, and the finished model."""
    return SMALL.train(place, **FEW)


@pytest.mark.slow
def test_most_of_it_is_learned_soon(tuned, place, capsys):
    results, model = tuned
    assert results["eval/accuracy"] > 0.95
    assert results["eval/perplexity"] == pytest.approx(np.exp(results["eval/cross_entropy"]), rel=1e-5)
    assert evaluation.evaluator_class(model) is SequenceToSequenceEvaluator
    scores = evaluation.evaluate(model, str(place / "dev.jsonl"))
    assert scores["exact_match"] > 0.5 and scores["examples"] == 200
    assert scores["accuracy"] == pytest.approx(results["eval/accuracy"], rel=1e-5)
    rows = [json.loads(line) for line in (place / "dev.jsonl").read_text().splitlines()]
    written = pipeline("translation", model)([row["source"] for row in rows])
    matches = [answer["generated_text"] == row["target"] for answer, row in zip(written, rows, strict=True)]
    assert np.mean(matches) == pytest.approx(scores["exact_match"])
    assert (
        main(["evaluate", "--model", str(model), "--data", str(place / "dev.jsonl"), "--metrics", "exact_match"]) == 0
    )
    assert "exact_match" in capsys.readouterr().out
    readme = (model / "README.md").read_text()
    assert (
        'pipeline("text2text-generation", folder)' in readme and "import AutoTokenizer, EncoderDecoderModel" in readme
    )


@pytest.mark.slow
def test_texts_of_a_table_are_written(tuned, place, tmp_path):
    _, model = tuned
    rows = [json.loads(line) for line in (place / "dev.jsonl").read_text().splitlines()][:5]
    write_rows(
        tmp_path / "rows.jsonl", [{"id": i, "source": row["source"]} for i, row in enumerate(rows)] + [{"source": ""}]
    )
    arguments = ["--model", str(model), "--data", str(tmp_path / "rows.jsonl"), "--skip"]
    assert main(["predict", *arguments, "--out", str(tmp_path / "texts.jsonl")]) == 0
    found = [json.loads(line) for line in (tmp_path / "texts.jsonl").read_text().splitlines()]
    expected = [answer["generated_text"] for answer in pipeline("translation", model)([row["source"] for row in rows])]
    assert [row["generated_text"] for row in found] == [*expected, None]
    assert [row.get("id") for row in found[:5]] == list(range(5)) and "expected" in found[5]["error"]


@pytest.mark.slow
def test_another_decoder_is_another_run(place, tuned):
    with pytest.raises(InputError, match="decoder"):
        SMALL.train(place, **FEW, **{"model.decoder_layers": 1})


@pytest.mark.slow
def test_loss_by_hand(place):
    built = job(place, num_steps=1, label_smoothing=0.1, **{"data.train": str(place / "few.jsonl")})
    task, params = built.task, built.init_params(jax.random.key(0))
    batch = built.train_source.batch(0)
    assert batch["decoder_input_ids"].shape == batch["labels"].shape == (64, 11)
    real = batch["labels"] >= 0
    ids = batch["decoder_input_ids"]
    assert (ids[:, 0] == 2).all()  # [CLS], and then the labels one place later
    assert (np.where(real, batch["labels"], 0)[:, :-1] == ids[:, 1:])[real[:, 1:]].all()
    assert (batch["labels"].max(axis=1) >= 5).all() and ((batch["labels"] == 3).sum(axis=1) == 1).all()  # [SEP] once
    logits = task.model.apply(params, batch["input_ids"], batch["attention_mask"], ids).logits
    log_probs = np.asarray(jax.nn.log_softmax(logits))
    plain = -np.take_along_axis(log_probs, np.maximum(batch["labels"], 0)[..., None], axis=-1)[..., 0]
    expected = ((0.9 * plain - 0.1 * log_probs.mean(axis=-1)) * real).sum() / real.sum()
    loss, metrics = task.loss(params, batch, None, task.weights(batch))
    assert float(loss) == pytest.approx(expected, rel=1e-5)
    total, count = metrics["cross_entropy"]
    assert float(total / count) == pytest.approx((plain * real).sum() / real.sum(), rel=1e-5)
    halves = [{name: array[rows] for name, array in batch.items()} for rows in (slice(0, 20), slice(20, 64))]
    parts = [task.loss(params, half, None, task.weights(batch))[0] for half in halves]
    assert float(sum(parts)) == pytest.approx(float(loss), rel=1e-5)


@pytest.mark.slow
def test_training_starts_from_one_or_two_encoders(place, tmp_path):
    encoder, other = (load_pretrained(place / name, "masked_lm").params for name in ("encoder", "other"))
    few = {"num_steps": 1, "data.train": str(place / "few.jsonl"), "init_from": str(place / "encoder")}
    both = job(place, **few)
    two = job(place, **few, decoder_init_from=str(place / "other"))
    for built, decoder in ((both, encoder), (two, other)):
        words = [
            built.pretrained[part]["embeddings"]["word_embeddings"]["embedding"] for part in ("encoder", "decoder")
        ]
        assert np.array_equal(words[0], encoder["embeddings"]["word_embeddings"]["embedding"])
        assert np.array_equal(words[1], decoder["embeddings"]["word_embeddings"]["embedding"])
        assert np.array_equal(built.pretrained["decoder"]["mlm"]["bias"], decoder["mlm"]["bias"])
        assert "cross_attention" not in built.pretrained["decoder"] and "pooler" not in built.pretrained["encoder"]
    train(recipe(place, **few), tmp_path / "first", progress=False)
    further = recipe(place, **few | {"init_from": str(tmp_path / "first" / "model"), "optimizer.layer_decay": 0.9,
                                     "optimizer.frozen_embeddings": True})  # fmt: skip
    train(further, tmp_path / "second", progress=False)
    before, after = (load_encoder_decoder(tmp_path / run / "model").params for run in ("first", "second"))
    kernel = ("encoder", "layers", "mlp", "up", "kernel")

    def leaf(tree, *path):
        return leaf(tree[path[0]], *path[1:]) if path else tree

    for part in ("encoder", "decoder"):
        assert np.array_equal(
            *(leaf(tree, part, "embeddings", "word_embeddings", "embedding") for tree in (before, after))
        )
        assert not np.array_equal(*(leaf(tree, part, *kernel) for tree in (before, after)))


REFUSED = [
    ({"lora.rank": 2}, "lora.rank: expected none"),
    ({"data.max_target_length": 14, "data.max_seq_length": 13}, "max_target_length: expected at most max_seq_length"),
    ({"data.max_seq_length": 17}, "at most the model's 16 positions"),
    ({"decoder_init_from": "x"}, "decoder_init_from: expected an encoder in init_from too, found nothing"),
    ({"init_from": "encoder", "model.decoder_layers": 1}, "decoder_layers: expected 0 with init_from"),
    ({"model.family": "electra"}, "decoder: expected one of the families"),
    ({"data.target_column": "aim"}, "aim"),
    ({"data.train": ""}, "config.data.train: expected a file"),
]


@pytest.mark.parametrize(("changes", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_recipes_that_do_not_fit(changes, message, place):
    if "init_from" in changes:
        changes = changes | {"init_from": str(place / "encoder")}
    with pytest.raises(InputError, match=message):
        job(place, **{"num_steps": 1, "data.train": str(place / "few.jsonl")} | changes)


def test_empty_texts_are_named(place, tmp_path):
    (tmp_path / "rows.csv").write_text("source,target\na cat,xtac\nold,\n,xdlo\n")
    with pytest.raises(InputError, match="line 3"):
        job(place, num_steps=1, **{"data.train": str(tmp_path / "rows.csv")})
    built = job(place, num_steps=1, **{"data.train": str(tmp_path / "rows.csv"), "data.invalid_rows": "skip"})
    assert built.train_source.num_examples == 1


def test_a_recipe_without_data_is_planned():
    c = recipes.load_recipe("encoder_decoder")
    c.data.train, c.num_steps, c.global_batch_size = "", 10, 8
    c.model.size, c.model.decoder_layers = "tiny", 3
    c.data.max_seq_length, c.data.max_target_length = 32, 16
    abstract = jobs.abstract_task(recipes.resolve(c, platform="tpu"))
    assert abstract.stages[0].batch["input_ids"].shape == (8, 32)
    assert abstract.stages[0].batch["labels"].shape == (8, 15)
    assert isinstance(abstract.task, SequenceToSequenceTask)
    assert (
        jax.eval_shape(abstract.init_params, jax.random.key(0))["decoder"]["cross_attention"]["key"]["bias"].shape[0]
        == 3
    )


@pytest.mark.slow  # test_embedding_losses.py has a quick one
@pytest.mark.parametrize("ways", ["last", "all"])
def test_a_batch_has_one_loss_on_any_mesh_and_in_any_number_of_parts(on_eight_devices, ways):
    values, apart = on_eight_devices(pathlib.Path(__file__).with_name("sequence_to_sequence_meshes.py"), ways)
    assert values == pytest.approx([values[0]] * len(values), rel=1e-5)
    assert max(apart) < 1e-4


def test_flops_are_those_of_both_parts_and_of_cross_attention():
    config = BertConfig(vocab_size=50, **SIZE)
    model = EncoderDecoder(config, config.replace(num_hidden_layers=3))
    batch = {"input_ids": np.zeros((5, 12)), "decoder_input_ids": np.zeros((5, 7))}
    own = train_flops(config, "encoder", 5, 12) + train_flops(model.decoder_config, "masked_lm", 5, 7)
    cross = 3 * 5 * 3 * (4 * 64 * 64 * (7 + 12) + 4 * 7 * 12 * 64)
    assert step_flops(model, batch) == encoder_decoder_flops(model, 5, 12, 7) == own + cross
    narrow = dataclasses.replace(model, decoder_config=config.replace(hidden_size=32))
    assert step_flops(narrow, batch) > 3 * 5 * 2 * 12 * 64 * 32
