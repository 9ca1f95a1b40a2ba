"""The cache of a teacher's outputs: what it holds, when it is read, and when it is computed again."""

import json

import jax
import numpy as np
import pytest
from random_models import write_model

from bert_jax import from_pretrained, jobs, program_cache, recipes
from bert_jax.config import BertConfig
from bert_jax.errors import InputError
from bert_jax.jobs.distillation import teacher_outputs
from bert_jax.tokenization import load_tokenizer, word_piece

TEXTS = ["the cat sat", "a dog runs", "the bird eats on a red house", "a red house", "old fish"]


@pytest.fixture(scope="module")
def place(tmp_path_factory, tiny_vocab, tiny_tokenizer):
    """A classifier with another vocabulary than the student's, a tokenizer for the student, and a table of texts."""
    root = tmp_path_factory.mktemp("cached")
    other = word_piece(tuple(reversed(tiny_vocab)), lowercase=True)
    config = BertConfig(vocab_size=other.vocab_size, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
                        intermediate_size=32, max_position_embeddings=32, initializer_range=0.3,
                        pad_token_id=other.pad_id, id2label=("bad", "good"))  # fmt: skip
    write_model(root / "teacher", config, "sequence_classification", other)
    (root / "tokenizer").mkdir()
    tiny_tokenizer.save(root / "tokenizer")
    (root / "texts.tsv").write_text("text\n" + "".join(f"{text}\n" for text in TEXTS))
    return root


def recipe(place, cache, task="classification", **changes):
    c = recipes.RECIPES[task]()
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16,
             "max_position_embeddings": 32}  # fmt: skip
    c.update_from_flattened_dict({f"model.{name}": value for name, value in sizes.items()})
    c.tokenizer, c.data.train = str(place / "tokenizer"), str(place / "texts.tsv")
    c.data.text_column, c.data.max_seq_length, c.data.length_buckets = "text", 16, (16,)
    c.global_batch_size, c.num_steps, c.num_epochs = 4, 2, 0.0
    c.distillation.teacher, c.distillation.cache = str(place / "teacher"), str(cache)
    c.distillation.weights.labels = 0.0
    if task == "classification":
        c.distillation.weights.soft_labels = 1.0
    else:
        c.distillation.weights.embeddings, c.data.loss, c.data.train_columns = 1.0, "none", ("text",)
        c.data.text_column = "sentence1"
    c.update_from_flattened_dict(changes)
    return recipes.resolve(c)


def rows_of(source, steps=2):
    """The outputs of the teacher by the tokens of the student."""
    found = {}
    for step in range(steps):
        batch = source.batch(step)
        for ids, output, weight in zip(
            batch["input_ids"], batch["teacher_outputs"], batch["example_weights"], strict=True
        ):
            if weight:
                found[tuple(ids[ids > 0].tolist())] = output
    return found


def test_outputs_are_those_of_a_teacher_with_another_vocabulary(place, tmp_path, tiny_tokenizer):
    job = jobs.build(recipe(place, tmp_path / "cache"))
    found, teacher = rows_of(job.train_source), from_pretrained(place / "teacher")
    assert len(found) == len(TEXTS)
    for text in TEXTS:
        ids = tiny_tokenizer(text)["input_ids"].ravel()
        np.testing.assert_allclose(found[tuple(ids[ids > 0].tolist())], teacher([text]).logits[0], atol=1e-5)
    assert jax.eval_shape(job.init_params, jax.random.key(0)).keys() == {"student"}


def test_vectors_are_those_of_the_teacher(place, tmp_path, tiny_tokenizer):
    job = jobs.build(recipe(place, tmp_path / "cache", "sentence_embedding"))
    teacher = from_pretrained(place / "teacher", head="sentence_embedding")
    batch = job.train_source.batch(0)
    assert batch["teacher_outputs"].shape == (4, 1, 16)
    texts = {tuple(tiny_tokenizer(text)["input_ids"].ravel().tolist()): text for text in TEXTS}
    for ids, mask, output in zip(batch["input_ids"], batch["attention_mask"], batch["teacher_outputs"], strict=True):
        text = texts[tuple(ids[0][mask[0] > 0].tolist())]
        np.testing.assert_allclose(output[0], teacher([text]).sentence_embedding[0], atol=1e-5)
    shapes = jax.eval_shape(job.init_params, jax.random.key(0))
    assert shapes["projections"]["sentence_embedding"]["kernel"].shape == (8, 16)


def test_a_complete_cache_is_read_and_an_incomplete_one_completed(place, tmp_path, monkeypatch):
    monkeypatch.setattr(teacher_outputs, "_SHARD", 2)
    computed, forward = [], teacher_outputs._forward
    monkeypatch.setattr(teacher_outputs, "_forward", lambda *given: computed.append(1) or forward(*given))
    first = rows_of(jobs.build(recipe(place, tmp_path)).train_source)
    (home,) = tmp_path.iterdir()
    shards = [f"outputs-0000{i}.npy" for i in range(3)]
    assert sorted(path.name for path in home.iterdir()) == ["manifest.json", *shards]
    assert len(computed) == 3
    again = rows_of(jobs.build(recipe(place, tmp_path)).train_source)
    assert len(computed) == 3
    (home / "manifest.json").unlink()
    (home / "outputs-00001.npy").unlink()  # as after a kill
    third = rows_of(jobs.build(recipe(place, tmp_path)).train_source)
    assert len(computed) == 4
    for key, value in first.items():
        np.testing.assert_array_equal(again[key], value)
        np.testing.assert_array_equal(third[key], value)


def test_other_rows_are_another_cache(place, tmp_path):
    jobs.build(recipe(place, tmp_path / "cache"))
    (tmp_path / "more.tsv").write_text("text\n" + "".join(f"{text} dog\n" for text in TEXTS))
    jobs.build(recipe(place, tmp_path / "cache", **{"data.train": str(tmp_path / "more.tsv")}))
    assert len(list((tmp_path / "cache").iterdir())) == 2


def test_a_changed_package_reads_no_outputs_from_before(place, tmp_path, monkeypatch):
    jobs.build(recipe(place, tmp_path))
    monkeypatch.setattr(program_cache, "fingerprint_of_sources", lambda: "of another version")
    jobs.build(recipe(place, tmp_path))
    assert len(list(tmp_path.iterdir())) == 2


def test_a_damaged_cache_is_an_error(place, tmp_path):
    jobs.build(recipe(place, tmp_path))
    (home,) = tmp_path.iterdir()
    (home / "outputs-00000.npy").write_bytes(b"\x93NUMPY")
    with pytest.raises(InputError, match=r"outputs-00000.npy: expected an array of the teacher's outputs, found "):
        jobs.build(recipe(place, tmp_path))
    (home / "manifest.json").write_text(json.dumps({"rows": 5}))
    with pytest.raises(InputError, match=r"manifest.json: expected a list of shards, found none; remove "):
        jobs.build(recipe(place, tmp_path))


def test_packed_rows_have_the_outputs_of_each_example(place, tmp_path):
    packed = {"data.packing": 24, "data.length_buckets": (), "global_batch_size": 2}
    batch = jobs.build(recipe(place, tmp_path, **packed)).train_source.batch(0)
    assert batch["teacher_outputs"].shape == (*batch["example_weights"].shape, 2)
    assert (np.abs(batch["teacher_outputs"]).sum(-1) > 0).tolist() == (batch["example_weights"] > 0).tolist()


def test_a_plan_computes_no_outputs(place, tmp_path):
    abstract = jobs.abstract_task(recipe(place, tmp_path / "cache"))
    assert not (tmp_path / "cache").exists()
    assert abstract.stages[0].batch["teacher_outputs"].shape == (4, 2)
    without = jobs.abstract_task(recipe(place, tmp_path / "cache", **{"data.train": ""}))
    assert without.stages[0].batch["teacher_outputs"].shape == (4, 2)


def test_a_cache_on_a_bucket(place, tmp_path, bucket):
    found = [
        rows_of(jobs.build(recipe(place, where)).train_source) for where in (tmp_path, f"gs://{bucket.name}/cache")
    ]
    for key, value in found[0].items():
        np.testing.assert_array_equal(found[1][key], value)
    assert len([key for key in sorted(bucket.keys()) if key.endswith("manifest.json")]) == 1


def tag_recipe(place, tmp_path, cache, **changes):
    """A recipe of tags whose teacher, with the student's vocabulary, is written on the first call."""
    teacher, tags = tmp_path / "tagger", tmp_path / "tags.txt"
    if not teacher.exists():
        tokenizer = load_tokenizer(place / "tokenizer")
        config = BertConfig(vocab_size=tokenizer.vocab_size, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
                            intermediate_size=32, max_position_embeddings=32, initializer_range=0.3,
                            pad_token_id=tokenizer.pad_id, num_labels=3, id2label=("O", "X", "Y"))  # fmt: skip
        write_model(teacher, config, "token_classification", tokenizer, seed=1)
        rows = [
            f"{word} {'OXY'[(n + len(word)) % 3]}\n" for text in TEXTS for n, word in enumerate([*text.split(), ""])
        ]
        tags.write_text("".join("\n" if row.startswith(" ") else row for row in rows))
    c = recipes.RECIPES["token_classification"]()
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16,
             "max_position_embeddings": 32, "hidden_dropout_prob": 0.0,
             "attention_probs_dropout_prob": 0.0}  # fmt: skip
    c.update_from_flattened_dict({f"model.{name}": value for name, value in sizes.items()})
    c.tokenizer, c.data.train = str(place / "tokenizer"), str(tags)
    c.data.max_seq_length, c.data.length_buckets, c.global_batch_size, c.num_steps = 16, (6, 12), 2, 4
    c.num_epochs = 0.0
    c.distillation.teacher, c.distillation.cache = str(teacher), str(cache)
    c.distillation.weights.labels, c.distillation.weights.soft_labels = 0.5, 1.0
    c.update_from_flattened_dict(changes)
    return recipes.resolve(c)


@pytest.mark.slow
def test_cached_tags_are_those_of_the_teacher_in_every_step(place, tmp_path):
    cached, running = (jobs.build(tag_recipe(place, tmp_path, cache)) for cache in (tmp_path / "cache", ""))
    params = running.init_params(jax.random.key(0)) | {"teacher": running.pretrained["teacher"]}
    lengths = set()
    for step in range(6):
        batches = [job.train_source.batch(step) for job in (cached, running)]
        lengths.add(batches[0]["input_ids"].shape[1])
        assert batches[0]["teacher_outputs"].shape == (*batches[0]["input_ids"].shape, 3)
        losses = [
            float(job.task.loss(given, batch, None, job.task.weights(batch))[0])
            for job, given, batch in zip(
                (cached, running), ({"student": params["student"]}, params), batches, strict=True
            )
        ]
        assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    assert lengths == {6, 12}
    abstract = jobs.abstract_task(tag_recipe(place, tmp_path, tmp_path / "cache", **{"data.train": ""}))
    assert abstract.stages[0].batch["teacher_outputs"].shape == (2, 16, 3)


def test_cached_tags_need_the_teachers_tokens(place, tmp_path):
    with pytest.raises(InputError, match=r"data\.packing: expected 0 with config\.distillation\.cache in token"):
        changes = {"data.packing": 32, "data.length_buckets": ()}
        jobs.build(tag_recipe(place, tmp_path, tmp_path / "cache", **changes))
    with pytest.raises(InputError, match="expected the student's vocabulary of"):
        jobs.build(tag_recipe(place, tmp_path, tmp_path / "cache", tokenizer=str(place / "teacher")))
