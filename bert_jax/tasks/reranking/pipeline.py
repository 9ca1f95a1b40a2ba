"""The pipeline that sorts documents by their relevance to a query (Nogueira and Cho 2019, arXiv:1901.04085)."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from bert_jax.errors import InputError
from bert_jax.inference.base import Pipeline, as_texts, positive
from bert_jax.inference.corpus_chunks import corpus_chunks
from bert_jax.inference.scoring import activate, match_output, score_activation, scores_of
from bert_jax.tasks.reranking.relevance import match_logits


class Rerank(Pipeline):
    """Reranking: sort documents by their relevance to a query, predicted by a cross-encoder."""

    head = "sequence_classification"

    def __call__(
        self,
        query: str,
        documents: Iterable[str],
        top_k: int | None = None,
        *,
        prompt_name: str | None = None,
        prompt: str | None = None,
    ) -> list[dict[str, Any]]:
        """Score each document with the query and sort by score; pairs over the model's limit are cut.

        Args:
            query: a text.
            documents: texts; if `top_k` is given, only the best are kept in memory.
            top_k: number of documents to return; None means all.
            prompt_name: name of the model's prompt to put before the query; None = the default prompt, "" = none.
            prompt: text to put before the query, instead of a named prompt.

        Returns:
            A list, the best first (ties in the order of the documents), of dicts of `corpus_id` (the document's number
            from 0), `score` and `text`. The score is the probability of a match, if the model has two classes
            (`bert_jax.inference.scoring.match_output`), or the activation of its only output (`score_activation`).

        Raises:
            InputError: an item is no text, or the model has more than two outputs.
        """
        self._check_outputs()
        (query,) = as_texts([query])
        count = None if top_k is None else positive("top_k", top_k)
        text = self.model.settings.prompt(prompt_name, prompt)
        best: list[dict[str, Any]] = []
        start = 0
        for texts in corpus_chunks(documents):
            scores = self._relevance([query] * len(texts), texts, text)
            answers = [
                {"corpus_id": start + i, "score": float(scores[i]), "text": texts[i]}
                for i in np.argsort(-scores, kind="stable")[:count].tolist()
            ]
            best = merge(best, answers, count)
            start += len(texts)
        return best

    def predict(
        self, pairs: Iterable[tuple[str, str]], *, prompt_name: str | None = None, prompt: str | None = None
    ) -> np.ndarray:
        """Score pairs of texts, like `CrossEncoder.predict` of sentence-transformers.

        Args:
            pairs: N pairs; pairs over the model's limit are cut.
            prompt_name: as for a call; put before the first text of each pair.
            prompt: text to put before the first text of each pair, instead of a named prompt.

        Returns:
            float64 `[N]`, with the model's activation applied; for a model with C > 1 outputs `[N, C]`, which are
            logits unless the model's files name an activation.

        Raises:
            InputError: an item is no pair of texts.
        """
        text_pairs = [tuple(pair) for pair in pairs]
        if any(len(pair) != 2 for pair in text_pairs):
            raise InputError("pairs: expected two texts each")
        first, second = (as_texts([pair[i] for pair in text_pairs]) for i in range(2))
        config, named = self.model.config, self.model.settings.activation
        logits = self._logits(first, second, self.model.settings.prompt(prompt_name, prompt))
        scores = activate(score_activation(config, named) if config.num_labels == 1 else named or "identity", logits)
        return scores[:, 0] if config.num_labels == 1 else scores

    def relevance(self, queries: Sequence[str], documents: Sequence[str]) -> np.ndarray:
        """Score N pairs of a query and a document as a call does, float64 `[N]`.

        Raises:
            InputError: as a call.
        """
        return self.relevance_and_logits(queries, documents)[0]

    def logits(self, queries: Sequence[str], documents: Sequence[str]) -> np.ndarray:
        """Score N pairs of a query and a document without the activation, float64 `[N]`.

        The logit of a model with two classes is that of a match minus the other one.

        Raises:
            InputError: as a call.
        """
        return self.relevance_and_logits(queries, documents)[1]

    def relevance_and_logits(self, queries: Sequence[str], documents: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Return `relevance` and `logits` of N pairs from one forward pass.

        Raises:
            InputError: as a call.
        """
        self._check_outputs()
        logits = self._logits(as_texts(queries), as_texts(documents), self.model.settings.prompt())
        return self._scores(logits), match_logits(logits, match_output(self.model.config))

    def _check_outputs(self) -> None:
        if (outputs := self.model.config.num_labels) > 2:
            names = ", ".join(self.model.config.label_names[:10])
            raise InputError(
                f"rerank: expected a model with one output or two, found {outputs} ({names}), which have no order; "
                "`classify` and `predict` give a score for each"
            )

    def _relevance(self, first: list[str], second: list[str], prompt: str) -> np.ndarray:
        return self._scores(self._logits(first, second, prompt))

    def _scores(self, logits: np.ndarray) -> np.ndarray:
        """Return the scores `[n]` of a match from logits `[n, C]`."""
        config = self.model.config
        return scores_of(config, logits, self.model.settings.activation)[:, match_output(config)]

    def _logits(self, first: list[str], second: list[str], prompt: str) -> np.ndarray:
        """Return the float64 logits `[n, C]` of pairs, with the prompt before each first text."""
        logits = np.zeros((len(first), self.model.config.num_labels))
        for window, inputs in self._windows(first, second, True, prompt):
            for rows, _, output in self._batches(inputs, ("logits",)):
                logits[rows + window.start] = output.logits
        return logits


def merge(best: list[dict[str, Any]], more: list[dict[str, Any]], top_k: int | None) -> list[dict[str, Any]]:
    """Merge two sorted lists of answers and keep the best `top_k`; at equal scores, `best` comes first."""
    return sorted(best + more, key=lambda answer: -answer["score"])[:top_k]
