"""A task with a teacher: which terms its loss has, over what they are averaged, and what learns."""

import dataclasses
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from distilling import PAIRS, STUDENT, TEACHER, batch_of, distilled, settings

from bert_jax import parameter_sharding
from bert_jax.data.packing import pack_examples
from bert_jax.jobs.distillation import objectives
from bert_jax.jobs.distillation.task import DistillationTask, Recorder
from bert_jax.modeling import Bert
from bert_jax.tasks.multiple_choice.task import MultipleChoiceTask
from bert_jax.tasks.question_answering.spans import SpanSearch
from bert_jax.tasks.question_answering.task import QuestionAnsweringTask
from bert_jax.tasks.token_classification.task import TokenClassificationTask
from bert_jax.training.optimizers import make_optimizer


def loss_of(task, params, batch):
    """The loss and the mean of each metric, without dropout."""
    run = jax.jit(lambda params, batch: task.loss(params, batch, None, task.weights(batch)))
    loss, metrics = run(params, batch)
    return float(loss), {name: float(total / count) for name, (total, count) in metrics.items()}


def test_the_loss_is_the_weighted_sum_of_terms_over_rows_tokens_and_pairs():
    task, params = distilled("classification", labels=0.5)
    batch = batch_of("classification")
    loss, metrics = loss_of(task, params, batch)
    inputs = [batch[name] for name in ("input_ids", "attention_mask", "token_type_ids")]

    def outputs(model, params):
        return jax.jit(lambda p: model.apply(p, *inputs, output_hidden_states=True, output_projections=True))(params)

    ours, theirs = outputs(task.model, params["student"]), outputs(task.teacher, params["teacher"])
    real, tokens = batch["example_weights"], batch["attention_mask"]
    pairs = np.asarray(objectives.pairs_of(jnp.asarray(tokens)))
    kernels = {name: kernel["kernel"] for name, kernel in params["projections"].items()}

    def mean(values, weights):
        return float((np.asarray(values) * weights).sum() / weights.sum())

    hidden = [
        objectives.hidden_state_error(
            ours.hidden_states[s + 1], theirs.hidden_states[t + 1],
            kernels["embedding_output" if s < 0 else "hidden_states"],
        )
        for s, t in PAIRS
    ]  # fmt: skip
    scores = [
        objectives.attention_score_error(ours.projections[s][:2], theirs.projections[t][:2], 4, pairs)
        for s, t in PAIRS[1:]
    ]
    relations = [
        objectives.relation_divergence(
            (ours.projections[-1][a], ours.projections[-1][b]), (theirs.projections[-1][a], theirs.projections[-1][b]),
            8, pairs,
        )
        for a, b in ((0, 1), (2, 2))
    ]  # fmt: skip
    expected = {
        "soft_labels_loss": mean(objectives.soft_label_divergence(ours.logits, theirs.logits, 2.0), real),
        "hidden_states_loss": sum(mean(values, tokens) for values in hidden),
        "attentions_loss": sum(float(np.asarray(values).sum() / pairs.sum()) for values in scores),
        "relations_loss": sum(mean(values, tokens) for values in relations),
    }
    assert {name: metrics[name] for name in expected} == pytest.approx(expected, rel=1e-4)
    weights = {f"{term}_loss": weight for term, weight in task.settings.weights.items()}
    total = 0.5 * metrics["cross_entropy"] + sum(weights[name] * value for name, value in expected.items())
    assert loss == pytest.approx(total, rel=1e-4)


@pytest.fixture(scope="module")
def on_meshes(on_eight_devices):
    return on_eight_devices(pathlib.Path(__file__).with_name("distillation_meshes.py"))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["classification", "mlm", "embedding"])
def test_devices_and_micro_batches_do_not_change_the_gradient(on_meshes, kind):
    loss, other, apart = on_meshes[kind]
    assert other == pytest.approx(loss, rel=1e-5)
    assert apart < 1e-4


def test_the_teacher_has_no_gradient_and_no_moments_and_stays_to_the_bit():
    task, params = distilled("classification")
    batch = batch_of("classification")
    optimizer = make_optimizer(lambda step: 1e-2, frozen_teacher=True, layer_decay=0.9)

    @jax.jit
    def step(params, state):
        grads = jax.grad(lambda p: task.loss(p, batch, None, task.weights(batch))[0])(params)
        updates, state = optimizer.update(grads, state, params)
        return grads, optax.apply_updates(params, updates), state

    grads, after, state = step(params, optimizer.init(params))
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(grads["teacher"]))
    jax.tree.map(np.testing.assert_array_equal, after["teacher"], params["teacher"])
    moved = jax.tree.map(lambda a, b: bool(np.any(a != b)), after, params)
    assert moved["student"]["embeddings"]["word_embeddings"]["embedding"]
    assert moved["projections"]["hidden_states"]["kernel"]
    paths = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(state)]
    assert any("student" in path for path in paths) and not any("teacher" in path for path in paths)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["classification", "embedding"])
def test_padding_does_not_change_the_loss(kind):
    task, params = distilled(kind)
    found = [loss_of(task, params, batch_of(kind, padded=padded))[0] for padded in (12, 20)]
    assert found[0] == pytest.approx(found[1], rel=1e-5)


def test_packing_does_not_change_the_loss():
    task, params = distilled("classification")
    apart = {name: array[:12] for name, array in batch_of("classification").items()}
    packed = pack_examples(apart, np.repeat(np.arange(6), 2), 6, 26, 2, {"input_ids": 0, "token_type_ids": 0})
    losses = [loss_of(task, params, batch) for batch in (apart, packed)]
    assert losses[0][0] == pytest.approx(losses[1][0], rel=1e-5)
    for name in ("soft_labels_loss", "hidden_states_loss", "attentions_loss", "relations_loss"):
        assert losses[0][1][name] == pytest.approx(losses[1][1][name], rel=1e-5)


def test_a_student_that_is_the_teacher_has_nothing_to_learn():
    weights = {"soft_labels": 1.0, "attentions": 1.0, "relations": 1.0, "last_hidden_state": 1.0}
    task, params = distilled("classification", weights, student=TEACHER, labels=0.0)
    task = dataclasses.replace(task, layer_pairs=tuple((i, i) for i in range(4)))
    loss, metrics = loss_of(task, params | {"student": params["teacher"]}, batch_of("classification"))
    assert loss == pytest.approx(0, abs=1e-5)
    assert set(metrics) == {f"{term}_loss" for term in weights} | {"packing"}  # labels may be missing


def test_masked_lm_losses_from_logits_are_those_of_the_model():
    """Soft labels need logits, where the task alone computes losses without ever holding all logits."""
    task, params = distilled("mlm", {"soft_labels": 1.0})
    batch = batch_of("mlm")
    _, own = jax.jit(lambda p: task.task.loss(p, batch, None, task.task.weights(batch)))(params["student"])
    _, metrics = loss_of(task, params, batch)
    assert metrics["mlm_loss"] == pytest.approx(float(own["mlm_loss"][0] / own["mlm_loss"][1]), rel=1e-5)
    assert metrics["mlm_accuracy"] == pytest.approx(float(own["mlm_accuracy"][0] / own["mlm_accuracy"][1]))


def teach(own, head, weights):
    """Another task with a teacher."""
    model, teacher = own.model, Bert(TEACHER, head)
    init = jax.jit(lambda: {"student": model.init(jax.random.key(0)), "teacher": teacher.init(jax.random.key(1))})
    return DistillationTask(own, settings(weights), teacher), init()


@pytest.mark.slow
def test_soft_labels_of_tags_are_learned_at_the_first_token_of_a_word():
    task, params = teach(TokenClassificationTask(Bert(STUDENT, "token_classification"), (), ()),
                         "token_classification", {"soft_labels": 1.0})  # fmt: skip
    batch = batch_of("classification")
    tagged = (np.arange(12) % 3 == 1) & (batch["attention_mask"] > 0)
    batch["labels"] = np.where(tagged, 1, -1).astype(np.int32)
    _, metrics = loss_of(task, params, batch)
    inputs = [batch[name] for name in ("input_ids", "attention_mask", "token_type_ids")]
    ours, theirs = (
        jax.jit(model.apply)(params[name], *inputs).logits
        for name, model in (("student", task.model), ("teacher", task.teacher))
    )
    expected = np.asarray(objectives.soft_label_divergence(ours, theirs, 2.0))[tagged].mean()
    assert metrics["soft_labels_loss"] == pytest.approx(expected, rel=1e-5)


@pytest.mark.slow
def test_soft_labels_of_spans_do_not_depend_on_padding():
    model = Bert(STUDENT, "question_answering")
    task, params = teach(QuestionAnsweringTask(model, SpanSearch()), "question_answering", {"soft_labels": 1.0})
    found = []
    for padded in (12, 20):
        batch = batch_of("classification", padded=padded)
        places = dict.fromkeys(("start_positions", "end_positions"), np.ones(16, np.int32))
        found.append(loss_of(task, params, batch | places)[1]["soft_labels_loss"])
    assert found[0] == pytest.approx(found[1], rel=1e-5) and found[0] > 1e-4


@pytest.mark.slow
def test_soft_labels_and_relations_of_choices():
    """Choices are rows of the encoder: the teacher reads them as the student does."""
    weights = {"soft_labels": 1.0, "relations": 1.0}
    task, params = teach(MultipleChoiceTask(Bert(STUDENT, "multiple_choice")), "multiple_choice", weights)
    batch = batch_of("embedding")
    batch["labels"] = np.zeros(16, np.int32)
    both = loss_of(task, params, batch)[1]
    encoder = dataclasses.replace(task, teacher=Bert(TEACHER, "encoder"), settings=settings({"relations": 1.0}))
    teacher = {name: params["teacher"][name] for name in ("embeddings", "encoder", "pooler")}
    alone = loss_of(encoder, params | {"teacher": teacher}, batch)[1]
    assert alone["relations_loss"] == pytest.approx(both["relations_loss"], rel=1e-5)
    assert both["soft_labels_loss"] > 0


@pytest.mark.slow
def test_the_teacher_reads_tokens_that_token_dropout_hides_from_the_student():
    task, params = distilled("classification", {"soft_labels": 1.0})
    hiding = dataclasses.replace(task.task, token_dropout=0.999, mask_id=4)
    task, batch, seen = dataclasses.replace(task, task=hiding), batch_of("classification"), []

    class Watched:
        head = task.teacher.head

        def apply(self, params, **inputs):
            seen.append(inputs["input_ids"])
            return task.teacher.apply(params, **inputs)

    watching = dataclasses.replace(task, teacher=Watched())
    watching.loss(params, batch, jax.random.key(0), watching.weights(batch))
    np.testing.assert_array_equal(seen[0], batch["input_ids"])


def test_the_recorder_keeps_what_the_model_was_given():
    model = Bert(STUDENT, "sequence_classification")
    recorder = Recorder(model, {"output_projections": True}, logits=False)
    assert recorder.config is STUDENT and recorder.head == model.head
    params = jax.eval_shape(model.init, jax.random.key(0))
    ids = jax.ShapeDtypeStruct((2, 8), jnp.int32)
    jax.eval_shape(lambda p, i: recorder.apply(p, i, i, dropout_key=None, output_last_hidden_state=False), params, ids)
    assert set(recorder.inputs) == {"input_ids", "attention_mask", "token_type_ids"}
    assert [x.shape for x in recorder.output.projections[1]] == [(2, 8, 16)] * 3


def test_every_parameter_of_a_distillation_has_its_sharding():
    _, params = distilled("classification")
    specs = parameter_sharding.param_specs(params)
    assert specs["projections"]["hidden_states"]["kernel"] == jax.sharding.PartitionSpec(None, None)
    assert (
        specs["teacher"]["encoder"]["layers"]["mlp"]["up"]["kernel"]
        == (specs["student"]["encoder"]["layers"]["mlp"]["up"]["kernel"])
    )
