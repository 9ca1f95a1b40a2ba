"""Distil a teacher into the model that a task trains, by wrapping the task.

The parameters are `{"student": tree of the model, "teacher": tree of the frozen teacher, "projections": ...}`. Only the
student is saved. Teacher and projections are missing where the loss does not need them. The maths is in
`bert_jax.jobs.distillation.objectives`.

By default, each example has one soft label: a distribution over classes, from each model's logits. A task with other
soft labels defines one or both of these methods:

    label_weights(batch)                                        the weight of each soft label
    label_divergence(batch, student, teacher, temperature)      the divergence of the two models' soft labels

A task may also define

    check_teacher(teacher)      raises InputError when the teacher's outputs are not such labels
    token_batch(batch)          the batch without the tokens that terms leave out
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.data.batches import Batch
from bert_jax.data.tokens import is_token
from bert_jax.jobs.base import Metrics, Task
from bert_jax.jobs.distillation import objectives
from bert_jax.jobs.distillation.settings import RELATIONS, Distillation, LayerPairs
from bert_jax.jobs.distillation.teacher_outputs import OUTPUTS
from bert_jax.modeling import Bert, BertOutput, Params
from bert_jax.modeling.losses import cross_entropy

_OWN = "labels/"  # prefix of the denominators of the task's own loss
_ARGUMENTS = ("position_ids", "masked_positions", "segment_ids", "cls_positions", "pooling_mask")


class Recorder:
    """A stand-in for a task's model that keeps the inputs and the output of the forward pass.

    Args:
        model: the model.
        outputs: further outputs to request from `Bert.apply`.
        logits: whether to request masked-LM logits where the task requests losses, and compute the losses from them.
    """

    def __init__(self, model: Bert, outputs: dict[str, bool], logits: bool):
        self._model, self._outputs, self._logits = model, outputs, logits
        self.inputs: dict[str, Any] = {}
        self.output = BertOutput(None)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def apply(
        self, params: Params, input_ids: Any, attention_mask: Any = None, token_type_ids: Any = None, **options: Any
    ) -> BertOutput:
        """Call `Bert.apply` with the same arguments, and keep them and the output."""
        self.inputs = {"input_ids": input_ids, "attention_mask": attention_mask, "token_type_ids": token_type_ids}
        self.inputs |= {name: options[name] for name in _ARGUMENTS if name in options}
        labels = options.pop("masked_labels", None) if self._logits else None
        self.output = self._model.apply(params, **self.inputs, **_without(options, _ARGUMENTS) | self._outputs)
        if labels is None:
            return self.output
        losses, right = cross_entropy(_logits(self.output), labels)
        return dataclasses.replace(self.output, masked_lm_losses=losses, masked_lm_correct=right)


def _without(options: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name not in names}


def _logits(output: BertOutput) -> jax.Array:
    """Return the logits `[..., C]` of classes, or of the vocabulary."""
    logits = output.prediction_logits if output.logits is None else output.logits
    assert logits is not None
    return logits


@dataclasses.dataclass(frozen=True, eq=False)
class DistillationTask:
    """A task whose model also learns from a teacher (see `bert_jax.jobs.base.Task`).

    Attributes:
        task: the task.
        settings: terms of the loss and their weights.
        teacher: the teacher, which runs in every step; None if its outputs are in the batch.
        layer_pairs: pairs of layers whose hidden states and attention scores are compared.
    """

    task: Task
    settings: Distillation
    teacher: Bert | None
    layer_pairs: LayerPairs = ()

    @property
    def model(self) -> Any:
        return self.task.model

    def weights(self, batch: Batch) -> dict[str, jax.Array]:
        """Return the denominators of the task's loss, and of each term of the distillation."""
        tokens = self._token_batch(batch)
        counts = {term: self._count(term, tokens) for term in self.settings.weights}
        return {f"{_OWN}{name}": weight for name, weight in self.task.weights(batch).items()} | {
            term: jnp.where(count > 0, count, 1.0) for term, count in counts.items()
        }

    def loss(
        self, params: Any, batch: Batch, dropout_key: jax.Array | None, weights: dict[str, jax.Array]
    ) -> tuple[jax.Array, Metrics]:
        """Return the weighted sum of the task's loss and of the terms, and the metrics.

        With `settings.labels` = 0, the labels may be missing, and the metrics that need them are left out.
        """
        recorder = Recorder(self.task.model, self._outputs(), "soft_labels" in self.settings.weights)
        task: Any = dataclasses.replace(self.task, model=recorder)  # type: ignore[type-var]
        task_weights = {name.removeprefix(_OWN): weight for name, weight in weights.items() if name.startswith(_OWN)}
        total, metrics = task.loss(params["student"], batch, dropout_key, task_weights)
        if self.settings.labels:
            total = self.settings.labels * total
        else:
            total, metrics = jnp.float32(0), {name: metrics[name] for name in ("packing",) if name in metrics}
        teacher_output = self._teach(params, batch, recorder.inputs)
        tokens = self._token_batch(batch)
        for term, weight in self.settings.weights.items():
            value = _SUMS[term](self, params, tokens, recorder.output, teacher_output)
            total += weight * value / weights[term]
            metrics[f"{term}_loss"] = (value, self._count(term, tokens))
        return total, metrics

    def predict(self, params: Any, batch: Batch) -> dict[str, jax.Array]:
        return self.task.predict(params["student"], batch)

    def score(self, predictions: list[dict[str, np.ndarray]], batches: list[Batch]) -> dict[str, float]:
        return self.task.score(predictions, batches)

    def _outputs(self) -> dict[str, bool]:
        """Return the outputs to request from student and teacher in addition to those of their heads."""
        terms = self.settings.weights.keys()
        requested = {
            "output_last_hidden_state": "last_hidden_state" in terms,
            "output_hidden_states": "hidden_states" in terms,
            "output_projections": bool({"attentions", "relations"} & terms),
        }
        return {name: True for name, needed in requested.items() if needed}

    def _teach(self, params: Any, batch: Batch, inputs: dict[str, Any]) -> BertOutput:
        """Return the teacher's output, without dropout, for the student's inputs without token dropout."""
        if self.teacher is None:
            cached = batch[OUTPUTS]
            if "embeddings" in self.settings.weights:
                return BertOutput(None, sentence_embedding=cached.reshape(-1, cached.shape[-1]))
            return BertOutput(None, logits=cached)
        inputs = inputs | {"input_ids": batch["input_ids"].reshape(inputs["input_ids"].shape)}
        if self.teacher.head != "multiple_choice":
            of_tokens = ("input_ids", "attention_mask", "token_type_ids", "position_ids", "pooling_mask")
            inputs |= {name: _flat(inputs[name]) for name in of_tokens if inputs.get(name) is not None}
        frozen, options = jax.lax.stop_gradient(params["teacher"]), {"output_last_hidden_state": False}
        return jax.lax.stop_gradient(self.teacher.apply(frozen, **inputs | options | self._outputs()))

    def _token_batch(self, batch: Batch) -> Batch:
        token_batch = getattr(self.task, "token_batch", None)
        return token_batch(batch) if token_batch else batch

    def _count(self, term: str, batch: Batch) -> jax.Array:
        """Return the denominator of a term: examples, words, masked tokens, tokens, or pairs of tokens."""
        match term:
            case "soft_labels":
                return self._label_weights(batch).sum()
            case "embeddings":
                return _text_weights(batch).sum()
            case "attentions":
                return _pairs(batch).sum(dtype=jnp.float32)
        return _flat(is_token(batch)).sum(dtype=jnp.float32)

    def soft_labels(self, params: Any, batch: Batch, student: BertOutput, teacher: BertOutput) -> jax.Array:
        """Return the sum of the divergence of predictions, or of the squared error of a regression."""
        diverge = getattr(self.task, "label_divergence", self._label_divergence)
        total: jax.Array = (
            diverge(batch, student, teacher, self.settings.temperature) * self._label_weights(batch)
        ).sum()
        return total

    def _label_weights(self, batch: Batch) -> jax.Array:
        weigh = getattr(self.task, "label_weights", None)
        label_weights: jax.Array = weigh(batch) if weigh else batch["example_weights"]
        return label_weights

    def _label_divergence(
        self, batch: Batch, student: BertOutput, teacher: BertOutput, temperature: float
    ) -> jax.Array:
        """Return the divergence of logits `[..., C]`, as the problem type of a sequence classifier defines it."""
        logits = _logits(student), _logits(teacher)
        problem = self.model.config.problem_type if self.model.head == "sequence_classification" else None
        if problem == "regression":
            return objectives.squared_distance(*logits)
        if problem == "multi_label_classification":
            return objectives.soft_binary_divergence(*logits, temperature)
        return objectives.soft_label_divergence(*logits, temperature)

    def hidden_states(self, params: Any, batch: Batch, student: BertOutput, teacher: BertOutput) -> jax.Array:
        """Return the sum of the error of hidden states over the tokens and over the pairs of layers."""
        assert student.hidden_states is not None and teacher.hidden_states is not None
        projections, total = params.get("projections", {}), jnp.float32(0)
        for ours, theirs in self.layer_pairs:
            kernel = projections.get("embedding_output" if ours < 0 else "hidden_states", {}).get("kernel")
            states = student.hidden_states[ours + 1], teacher.hidden_states[theirs + 1]
            total += (objectives.hidden_state_error(*states, kernel) * _flat(is_token(batch))).sum()
        return total

    def attentions(self, params: Any, batch: Batch, student: BertOutput, teacher: BertOutput) -> jax.Array:
        """Return the sum of the error of attention scores over pairs of tokens and over pairs of layers."""
        assert student.projections is not None and teacher.projections is not None
        heads, total = self.model.config.num_attention_heads, jnp.float32(0)
        for ours, theirs in self.layer_pairs:
            if min(ours, theirs) >= 0:
                (q, k, _), (teacher_q, teacher_k, _) = student.projections[ours], teacher.projections[theirs]
                total += objectives.attention_score_error((q, k), (teacher_q, teacher_k), heads, _pairs(batch)).sum()
        return total

    def relations(self, params: Any, batch: Batch, student: BertOutput, teacher: BertOutput) -> jax.Array:
        """Return the sum over tokens of the divergence of the relations of the student's last layer."""
        assert student.projections is not None and teacher.projections is not None and self.teacher is not None
        ours, theirs = student.projections[-1], teacher.projections[self.settings.relation_layer]
        heads, total = self.settings.heads_of_relations(self.teacher.config), jnp.float32(0)
        for name in self.settings.relations:
            a, b = RELATIONS[name]
            of_both = (ours[a], ours[b]), (theirs[a], theirs[b])
            divergence = objectives.relation_divergence(*of_both, heads, _pairs(batch))
            total += (divergence * _flat(is_token(batch))).sum()
        return total

    def last_hidden_state(self, params: Any, batch: Batch, student: BertOutput, teacher: BertOutput) -> jax.Array:
        """Return the sum over tokens of the cosine distance of the last hidden states."""
        assert student.last_hidden_state is not None and teacher.last_hidden_state is not None
        distance = objectives.cosine_distance(student.last_hidden_state, teacher.last_hidden_state)
        return (distance * _flat(is_token(batch))).sum()

    def embeddings(self, params: Any, batch: Batch, student: BertOutput, teacher: BertOutput) -> jax.Array:
        """Return the sum over texts of the distance of sentence embeddings."""
        ours, theirs = student.sentence_embedding, teacher.sentence_embedding
        assert ours is not None and theirs is not None
        weights = _text_weights(batch)
        if self.settings.embedding_distance == "similarities":
            return (objectives.similarity_error(ours, theirs, weights) * weights).sum()
        kernel = params.get("projections", {}).get("sentence_embedding", {}).get("kernel")
        distance = {"cosine": objectives.cosine_distance, "squared": objectives.squared_distance}
        return (distance[self.settings.embedding_distance](objectives.projected(ours, kernel), theirs) * weights).sum()


_SUMS: dict[str, Callable[..., jax.Array]] = {
    "soft_labels": DistillationTask.soft_labels,
    "hidden_states": DistillationTask.hidden_states,
    "attentions": DistillationTask.attentions,
    "relations": DistillationTask.relations,
    "last_hidden_state": DistillationTask.last_hidden_state,
    "embeddings": DistillationTask.embeddings,
}


def _flat(array: jax.Array) -> jax.Array:
    """Return an array of tokens with one row per sequence, `[..., S] -> [rows, S]`."""
    return array.reshape(-1, array.shape[-1])


def _pairs(batch: Batch) -> jax.Array:
    return objectives.pairs_of(_flat(batch["segment_ids" if "segment_ids" in batch else "attention_mask"]))


def _text_weights(batch: Batch) -> jax.Array:
    """Return the weight of each text, `[B * T]`; a row has T texts."""
    return jnp.repeat(batch["example_weights"], batch["input_ids"].shape[1])
