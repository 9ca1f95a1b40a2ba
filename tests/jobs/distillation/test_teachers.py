"""Opening a teacher, taking a student from its layers, and every teacher that does not fit a recipe."""

import jax
import numpy as np
import pytest
from random_models import initial_params, write_model

from bert_jax import from_pretrained, jobs, recipes
from bert_jax.config import BertConfig
from bert_jax.conversion.huggingface import load_pretrained
from bert_jax.errors import InputError
from bert_jax.jobs.distillation.teachers import student_from_layers
from bert_jax.jobs.teaching import distillation_of
from bert_jax.modeling import Bert
from bert_jax.planning.plan import for_tpu
from bert_jax.tokenization import word_piece

SIZES = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 32, "max_position_embeddings": 32}


@pytest.fixture(scope="module")
def place(tmp_path_factory, tiny_tokenizer, write_small):
    """Teachers, and tables with and without labels."""
    root = tmp_path_factory.mktemp("teachers")
    fields = SIZES | {"num_hidden_layers": 4, "initializer_range": 0.3}
    write_small(root / "classifier", "sequence_classification", seed=3, id2label=("bad", "good"), **fields)
    write_small(root / "encoder", seed=4, **fields)
    write_small(root / "short", seed=4, **fields | {"max_position_embeddings": 8})
    for family in ("nomic_bert", "modernbert", "albert"):
        config = BertConfig.named("base", family, vocab_size=tiny_tokenizer.vocab_size, pad_token_id=0, **fields)
        write_model(root / family, config, "encoder", tiny_tokenizer)
    other = word_piece((*tiny_tokenizer.pieces[:-1], "another"), lowercase=True)
    config = BertConfig(vocab_size=other.vocab_size, id2label=("bad", "good"), **fields)
    write_model(root / "other_vocabulary", config, "sequence_classification", other)
    texts = ["the cat sat", "a dog runs", "the bird eats", "a red house"]
    (root / "labelled.tsv").write_text("sentence\tlabel\n" + "".join(f"{t}\tgood\n{t} not\tbad\n" for t in texts))
    (root / "texts.tsv").write_text("sentence\n" + "".join(f"{text}\n" for text in texts))
    return root


def recipe(place, task="classification", teacher="classifier", **changes):
    c = recipes.RECIPES[task]()
    c.distillation.teacher = str(place / teacher) if teacher else ""
    c.data.train, c.data.max_seq_length, c.num_steps, c.num_epochs = str(place / "labelled.tsv"), 16, 2, 0.0
    c.global_batch_size = 4
    if "distillation.student_layers" not in changes and "init_from" not in changes:
        c.update_from_flattened_dict({f"model.{name}": value for name, value in SIZES.items()})
        c.model.num_hidden_layers = 2
    c.update_from_flattened_dict(changes)
    return recipes.resolve(c)


SOFT = {"distillation.weights.soft_labels": 1.0}
LAYERS = {"distillation.student_layers": (0, 2)}


def test_a_student_from_layers_is_the_truncated_teacher(place):
    teacher = load_pretrained(place / "classifier")
    job = jobs.build(recipe(place, **SOFT, **LAYERS))
    student, expected = job.pretrained["student"], teacher.params
    assert job.task.model.config.num_hidden_layers == 2
    for name in ("embeddings", "pooler", "classifier"):
        jax.tree.map(np.testing.assert_array_equal, student[name], expected[name])
    for ours, theirs in zip(
        jax.tree.leaves(student["encoder"]["layers"]), jax.tree.leaves(expected["encoder"]["layers"]), strict=True
    ):
        np.testing.assert_array_equal(ours, theirs[[0, 2]])


def test_a_student_of_an_esm_has_the_contact_head_of_its_layers(tmp_path):
    config = BertConfig.named("tiny", "esm", num_hidden_layers=4, hidden_size=16, num_attention_heads=2, vocab_size=40)
    write_model(tmp_path / "esm", config)
    c = recipes.load_recipe("classification")
    c.distillation.teacher, c.distillation.student_layers = str(tmp_path / "esm"), (1, 3)
    c.distillation.weights.soft_labels = 1.0
    student = student_from_layers(distillation_of(c), "encoder")
    rows = np.asarray(initial_params(config)["contact_head"]["dense"]["kernel"]).reshape(4, 2)[[1, 3]].reshape(-1, 1)
    np.testing.assert_array_equal(student.params["contact_head"]["dense"]["kernel"], rows)
    assert jax.tree.map(np.shape, student.params) == jax.tree.map(np.shape, Bert(student.config).abstract_params())


@pytest.mark.parametrize(
    ("relations", "heads", "message"),
    [
        (
            ("qk", "vv"),
            2,
            "relations: expected qq, kk or vv, as keys that heads share .num_key_value_heads 1. are narr",
        ),
        (("qq",), 4, "relation_heads: expected a divisor of the width of keys, 6, found 4"),
    ],
)
def test_relations_of_shared_keys(relations, heads, message):
    teacher = BertConfig.named("tiny", "eurobert", hidden_size=24, num_attention_heads=4, num_key_value_heads=1)
    c = recipes.load_recipe("classification")
    c.distillation.teacher, c.distillation.relations, c.distillation.relation_heads = "teacher", relations, heads
    c.distillation.weights.relations = 1.0
    with pytest.raises(InputError, match=message):
        distillation_of(c).check(teacher, teacher)


def test_a_narrow_student_starts_from_the_principal_components_of_the_embeddings(place):
    narrow = {"distillation.student_embeddings": True, "model.hidden_size": 8}
    job = jobs.build(recipe(place, **SOFT, **narrow))
    teacher = load_pretrained(place / "classifier").params["embeddings"]
    student = job.pretrained["student"]["embeddings"]
    words = teacher["word_embeddings"]["embedding"].astype(np.float64)
    u, sizes, v = np.linalg.svd(words, full_matrices=False)
    nearest = (u[:, :8] * sizes[:8]) @ v[:8]  # of all matrices of rank 8
    found = student["word_embeddings"]["embedding"]
    np.testing.assert_allclose(found @ found.T, nearest @ nearest.T, atol=1e-4)
    positions = student["position_embeddings"]["embedding"]
    expected = words @ v[:8].T @ v[:8] @ teacher["position_embeddings"]["embedding"].T
    np.testing.assert_allclose(found @ positions.T, expected, atol=1e-4)  # the same components for every table
    assert student.keys() == {"word_embeddings", "position_embeddings", "token_type_embeddings"}


def test_a_head_of_other_classes_is_not_taken(place):
    """Without soft labels the student may have classes of its own."""
    hidden = {"distillation.weights.hidden_states": 1.0, "distillation.layer_map": ((1, 3),)}
    (place / "three.tsv").write_text("sentence\tlabel\nthe cat\ta\na dog\tb\nthe bird\tc\n")
    job = jobs.build(recipe(place, **hidden, **LAYERS, **{"data.train": str(place / "three.tsv")}))
    assert set(job.pretrained["student"]) == {"embeddings", "encoder", "pooler"}
    assert job.task.model.config.label_names == ("a", "b", "c")


def test_only_the_student_is_saved(place, tmp_path):
    job = jobs.build(recipe(place, **SOFT))
    params = jax.jit(job.init_params)(jax.random.key(0))
    job.save(tmp_path / "model", jax.tree.map(np.asarray, params))
    found = from_pretrained(tmp_path / "model")
    assert found.config.num_hidden_layers == 2 and found.config.label_names == ("bad", "good")
    kernel = found.params["encoder"]["layers"]["mlp"]["up"]["kernel"]
    np.testing.assert_array_equal(kernel, params["student"]["encoder"]["layers"]["mlp"]["up"]["kernel"])


def test_texts_without_labels_have_the_teachers_classes(place):
    changes = {"distillation.weights.labels": 0.0, "data.train": str(place / "texts.tsv")}
    job = jobs.build(recipe(place, **SOFT, **changes))
    assert job.task.model.config.label_names == ("bad", "good") and job.classes == {}
    assert len(job.train_source.batch(0)["input_ids"]) == 4


def test_the_abstract_task_has_the_steps_of_the_job(place):
    c = recipe(place, **SOFT, **{"data.length_buckets": (16,)})
    job, abstract = jobs.build(c), jobs.abstract_task(c)
    shapes = [jax.eval_shape(of.init_params, jax.random.key(0)) for of in (job, abstract)]
    assert jax.tree.all(jax.tree.map(lambda a, b: a.shape == b.shape, *shapes))
    batch = job.train_source.batch(0)
    assert {name: array.shape for name, array in abstract.stages[0].batch.items()} == {
        name: array.shape for name, array in batch.items()
    }


def test_a_plan_targets_tpu_with_student_and_teacher(place):
    task = for_tpu(jobs.abstract_task(recipe(place, **SOFT))).task
    assert task.model.compute.target == task.teacher.compute.target == "tpu"


WRONG = {
    "no teacher": (
        {"teacher": "", **SOFT},
        "expected a model directory, as config.distillation.weights sets soft_labels; found none",
    ),
    "nothing to learn": ({}, "config.distillation.weights: expected a weight above 0 for one of soft_labels, "),
    "vocabularies that differ": (
        {"teacher": "other_vocabulary", "tokenizer": "encoder", **SOFT},
        "expected the student's vocabulary of ",
    ),
    "a teacher without the head": (
        {"teacher": "encoder", **SOFT},
        "expected a model with a trained sequence_classification head, found ",
    ),
    "a layer that the teacher lacks": (
        {**SOFT, "distillation.student_layers": (0, 4)},
        "config.distillation.student_layers: expected layers of the teacher, 0 to 3, found 4",
    ),
    "a layer that is no number": (
        {**SOFT, "distillation.student_layers": ("last",)},
        "config.distillation.student_layers: expected layers of the teacher from 0, found ('last',)",
    ),
    "layers and a model to start from": (
        {**SOFT, **LAYERS, "init_from": "encoder"},
        "config.distillation.student_layers: expected none with init_from, found both",
    ),
    "components of embeddings that are not narrower": (
        {**SOFT, "distillation.student_embeddings": True},
        "config.distillation.student_embeddings: expected a student with embeddings narrower than the teacher's 16, "
        "found 16",
    ),
    "components of embeddings with fewer positions": (
        {**SOFT, "distillation.student_embeddings": True, "model.hidden_size": 8, "model.max_position_embeddings": 16},
        "config.distillation.student_embeddings: expected position_embeddings of shape (32, 8), as the teacher has, "
        "found (16, 8)",
    ),
    "components of embeddings and a model to start from": (
        {**SOFT, "distillation.student_embeddings": True, "init_from": "encoder"},
        "config.init_from: expected none with distillation.student_embeddings, found ",
    ),
    "layers whose windows differ": (
        {"teacher": "modernbert", "distillation.weights.hidden_states": 1.0, "distillation.student_layers": (0, 3)},
        "config.distillation.student_layers: expected layers whose local windows are those of a model of 2 layers",
    ),
    "layers that are tied": (
        {"teacher": "albert", "distillation.weights.hidden_states": 1.0, "distillation.student_layers": (0, 3)},
        "config.distillation.student_layers: expected a teacher whose layers have parameters of their own, found num_",
    ),
    "a layer map out of range": (
        {"distillation.weights.hidden_states": 1.0, "distillation.layer_map": ((0, 1), (1, 4))},
        "config.distillation.layer_map: expected (student layer, teacher layer) of -1 to 1 and -1 to 3, found (1, 4)",
    ),
    "a layer map of single layers": (
        {"distillation.weights.hidden_states": 1.0, "distillation.layer_map": (1, 3)},
        "config.distillation.layer_map: expected pairs (student layer, teacher layer), found 1",
    ),
    "numbers of layers without a map": (
        {"distillation.weights.hidden_states": 1.0, "model.num_hidden_layers": 3},
        "config.distillation.layer_map: expected pairs of layers, as the teacher's 4 layers are no multiple of the "
        "student's 3, found none",
    ),
    "relation heads that do not divide": (
        {"distillation.weights.relations": 1.0, "distillation.relation_heads": 5},
        "config.distillation.relation_heads: expected a divisor of the student's hidden_size 16 and of the teacher's "
        "16, found 5",
    ),
    "a relation layer out of range": (
        {"distillation.weights.relations": 1.0, "distillation.relation_layer": 4},
        "config.distillation.relation_layer: expected a layer of the teacher, -1 to 3, found 4",
    ),
    "an unknown relation": (
        {"distillation.weights.relations": 1.0, "distillation.relations": ("qv",)},
        "config.distillation.relations: 'qv' is not known",
    ),
    "another width": (
        {"distillation.weights.last_hidden_state": 1.0, "model.hidden_size": 8},
        "config.distillation.weights.last_hidden_state: expected a student with the teacher's hidden_size 16, found 8",
    ),
    "other heads": (
        {"distillation.weights.attentions": 1.0, "model.num_attention_heads": 4},
        "config.distillation.weights.attentions: expected a student with the teacher's 2 attention heads, found 4",
    ),
    "scores that are no products": (
        {"teacher": "nomic_bert", "distillation.weights.attentions": 1.0},
        "config.distillation.weights.attentions: expected families whose attention scores are products of queries",
    ),
    "a teacher with fewer positions": (
        {"teacher": "short", "distillation.weights.relations": 1.0},
        "config.data.max_seq_length: expected at most the teacher's 8 positions (max_position_embeddings), found 16",
    ),
    "embeddings of a classifier": (
        {"distillation.weights.embeddings": 1.0},
        "config.distillation.weights.embeddings: expected 0 for head 'sequence_classification', whose outputs are "
        "soft_labels, found 1",
    ),
    "a regression of classes": (
        {**SOFT, "data.task_type": "regression", "distillation.weights.labels": 0.0},
        "config.distillation.teacher: expected a teacher of regression, found one of single_label_classification",
    ),
    "low-rank adaptation": ({**SOFT, "lora.rank": 4}, "config.lora.rank: expected 0 with distillation, found 4"),
    "two passes": ({**SOFT, "r_drop": 1.0}, "config.r_drop: expected 0 with distillation, found 1"),
    "cached hidden states": (
        {"distillation.cache": "cache", "distillation.weights.hidden_states": 1.0},
        "config.distillation.cache: expected soft_labels (of classes or tags) or embeddings as the only term of "
        "the teacher, found hidden_states with head 'sequence_classification'",
    ),
    "rows to hold out without labels": (
        {**SOFT, "distillation.weights.labels": 0.0, "data.validation_split": 0.5},
        "config.data.validation_split: expected 0 where labels of data.train are not read "
        "(distillation.weights.labels=0), found 0.5; use data.dev",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_does_not_fit_is_said_in_one_line(place, case):
    changes, message = WRONG[case]
    paths = {name: str(place / changes[name]) for name in ("init_from", "tokenizer") if name in changes}
    with pytest.raises(InputError) as error:
        jobs.build(recipe(place, **(changes | paths)))
    assert message in str(error.value) and "\n" not in str(error.value)


def test_labels_that_the_teacher_does_not_know_are_invalid(place):
    (place / "unknown.tsv").write_text("sentence\tlabel\nthe cat\tgood\na dog\tugly\n")
    with pytest.raises(InputError, match=r"unknown.tsv: line 3: expected a label of 'bad', 'good', found 'ugly'"):
        jobs.build(recipe(place, **SOFT, **{"data.train": str(place / "unknown.tsv")}))


def test_a_teacher_of_electra_is_refused(place):
    c = recipes.electra()
    c.distillation.teacher = str(place / "encoder")
    with pytest.raises(InputError, match="expected a task that trains one model, found electra"):
        recipes.resolve(c)


def test_a_cache_needs_a_task_that_reads_it(place):
    c = recipe(place, "question_answering", **SOFT, **{"distillation.cache": str(place / "cache")})
    with pytest.raises(
        InputError, match=r"distillation.cache: expected a task that can .*classification, .*, found qu"
    ):
        distillation_of(c)


def test_a_pre_norm_student_begins_with_layer_0(place):
    c = recipe(place, teacher="modernbert", **{"distillation.weights.hidden_states": 1.0,
                                               "distillation.student_layers": (3,)})  # fmt: skip
    with pytest.raises(InputError, match="student_layers: expected layer 0 first, as only that layer of modernbert"):
        student_from_layers(distillation_of(c), "encoder")
