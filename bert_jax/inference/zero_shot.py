"""The zero-shot-classification pipeline, by a model of natural language inference.

Yin et al. 2019 (arXiv:1909.00161): a model of natural language inference is asked for each class whether the text
entails, say, "This example is politics.".
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bert_jax.errors import InputError
from bert_jax.inference.base import Pipeline, as_texts
from bert_jax.inference.model import PretrainedModel
from bert_jax.inference.scoring import softmax


class ZeroShotClassification(Pipeline):
    """Which of any classes a text belongs to, by a classifier that tells entailment."""

    head = "sequence_classification"

    def __init__(self, model: PretrainedModel, batch_size: int | None = None, **options: Any):
        super().__init__(model, batch_size, **options)
        names = [name.lower() for name in model.config.id2label or ()]
        found = [i for i, name in enumerate(names) if name.startswith("entail")]
        if len(found) != 1 or len(names) < 2:
            raise InputError(
                f"expected a model of natural language inference, one class of which is entailment, found {names}"
            )
        self._entailment = found[0]
        contradicting = [i for i, name in enumerate(names) if name.startswith("contradict")]
        self._contradiction = contradicting[0] if contradicting else -1 if found[0] == 0 else 0

    def __call__(
        self,
        texts: str | Sequence[str],
        candidate_labels: str | Sequence[str],
        hypothesis_template: str = "This example is {}.",
        multi_label: bool = False,
    ) -> dict[str, Any] | list[dict[str, Any]]:
        """How likely each class is.

        Args:
            texts: one text or a list of them; those that are too long are cut.
            candidate_labels: the classes, as words, or as one text with commas between.
            hypothesis_template: the sentence of a class, with `{}` for its name.
            multi_label: whether each class is judged alone, entailment against contradiction; otherwise their
                probabilities add up to 1.

        Returns:
            For each text `sequence`, `labels` (the likeliest first) and `scores`; for one text that alone.

        Raises:
            InputError: no texts or classes, a class twice, or a template without a place for the name.
        """
        listed = as_texts(texts)
        labels = candidate_labels.split(",") if isinstance(candidate_labels, str) else as_texts(candidate_labels)
        labels = [label.strip() for label in labels if label.strip()]
        if not labels or len(set(labels)) < len(labels):
            raise InputError(f"candidate_labels: expected some, each once, found {candidate_labels!r}")
        if hypothesis_template.replace("{}", "") == hypothesis_template:
            raise InputError(f"hypothesis_template: expected {{}} for the class in it, found {hypothesis_template!r}")
        sentences = [hypothesis_template.replace("{}", label) for label in labels]
        pairs = [(text, sentence) for text in listed for sentence in sentences]
        logits = np.zeros((len(pairs), self.model.config.num_labels))
        for window, inputs in self._windows(
            [a for a, _ in pairs], [b for _, b in pairs], True, self.model.settings.prompt()
        ):
            for rows, _, output in self._batches(inputs, ("logits",)):
                logits[rows + window.start] = output.logits
        scores = self._scores(logits.reshape(len(listed), len(labels), -1), multi_label)
        answers = []
        for text, row in zip(listed, scores, strict=True):
            order = np.argsort(-row, kind="stable")
            answers.append(
                {"sequence": text, "labels": [labels[i] for i in order], "scores": [float(row[i]) for i in order]}
            )
        return answers[0] if isinstance(texts, str) else answers

    def _scores(self, logits: np.ndarray, multi_label: bool) -> np.ndarray:
        """`[texts, classes, C] -> [texts, classes]`."""
        if multi_label or logits.shape[1] == 1:
            return softmax(logits[..., [self._contradiction, self._entailment]])[..., 1]
        return softmax(logits[..., self._entailment])
