"""The zero-shot-classification pipeline, with a model of natural language inference.

Yin et al. 2019 (arXiv:1909.00161): for each class, the model predicts whether the text entails a sentence such as
"This example is politics.".
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bert_jax.errors import InputError
from bert_jax.inference.base import Pipeline, as_texts, check_option
from bert_jax.inference.model import PretrainedModel
from bert_jax.inference.scoring import softmax


class ZeroShotClassification(Pipeline):
    """Classification of texts into classes that are chosen at call time, with an entailment model."""

    head = "sequence_classification"

    def __init__(self, model: PretrainedModel, batch_size: int | None = None, **options: Any):
        super().__init__(model, batch_size, **options)
        names = [name.lower() for name in model.config.id2label or ()]
        entailing = [i for i, name in enumerate(names) if name.startswith("entail")]
        if len(entailing) != 1 or len(names) < 2:
            raise InputError(f"expected a model of natural language inference, with a class entailment, found {names}")
        self._entailment = entailing[0]
        contradicting = [i for i, name in enumerate(names) if name.startswith("contradict")]
        self._contradiction = contradicting[0] if contradicting else -1 if entailing[0] == 0 else 0

    def __call__(
        self,
        texts: str | Sequence[str],
        candidate_labels: str | Sequence[str],
        hypothesis_template: str = "This example is {}.",
        multi_label: bool = False,
    ) -> dict[str, Any] | list[dict[str, Any]]:
        """Return the probability of each class.

        Args:
            texts: one text or a list of texts; texts over the model's limit are cut.
            candidate_labels: the classes, as a list or as one string with commas between them.
            hypothesis_template: the hypothesis of a class, with `{}` for its name.
            multi_label: whether to score each class separately, by entailment against contradiction. Otherwise the
                probabilities of all classes sum to 1.

        Returns:
            For one text a dict of `sequence`, `labels` (the most likely first) and `scores`; for a list, a list.

        Raises:
            InputError: there are no texts or classes, a class occurs twice, or the template has no `{}`.
        """
        text_list = as_texts(texts)
        labels = candidate_labels.split(",") if isinstance(candidate_labels, str) else as_texts(candidate_labels)
        labels = [label.strip() for label in labels if label.strip()]
        if not labels or len(set(labels)) < len(labels):
            raise InputError(f"candidate_labels: expected at least one class, each once, found {candidate_labels!r}")
        if hypothesis_template.replace("{}", "") == hypothesis_template:
            raise InputError(f"hypothesis_template: expected {{}} in place of the class, found {hypothesis_template!r}")
        check_option("candidate_labels", *labels)
        check_option("hypothesis_template", hypothesis_template)
        sentences = [hypothesis_template.replace("{}", label) for label in labels]
        pairs = [(text, sentence) for text in text_list for sentence in sentences]
        logits = np.zeros((len(pairs), self.model.config.num_labels))
        for window, inputs in self._windows(
            [a for a, _ in pairs], [b for _, b in pairs], True, self.model.settings.prompt()
        ):
            for rows, _, output in self._batches(inputs, ("logits",)):
                logits[rows + window.start] = output.logits
        scores = self._scores(logits.reshape(len(text_list), len(labels), -1), multi_label)
        answers = []
        for text, row in zip(text_list, scores, strict=True):
            order = np.argsort(-row, kind="stable")
            answers.append(
                {"sequence": text, "labels": [labels[i] for i in order], "scores": [float(row[i]) for i in order]}
            )
        return answers[0] if isinstance(texts, str) else answers

    def _scores(self, logits: np.ndarray, multi_label: bool) -> np.ndarray:
        """Return the probabilities `[texts, classes]` from NLI logits `[texts, classes, C]`."""
        if multi_label or logits.shape[1] == 1:
            return softmax(logits[..., [self._contradiction, self._entailment]])[..., 1]
        return softmax(logits[..., self._entailment])
