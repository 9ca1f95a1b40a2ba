"""Evaluate sentence embeddings over pairs of texts, and write the similarity of each pair."""

import dataclasses
import functools
from collections.abc import Iterator, Sequence
from typing import Any

from bert_jax import storage
from bert_jax.conversion.text_settings import SIMILARITIES
from bert_jax.data.finetuning.columns import Columns
from bert_jax.data.invalid_rows import InvalidRows
from bert_jax.errors import InputError, did_you_mean
from bert_jax.evaluation.driver import Evaluated, Evaluator
from bert_jax.evaluation.writing import write_answers
from bert_jax.inference.scoring import short
from bert_jax.jobs.training_metadata import read_training_metadata
from bert_jax.modeling import Bert
from bert_jax.reports import page, values
from bert_jax.tasks.embedding.dense.metrics import choose_embedding_metrics
from bert_jax.tasks.embedding.dense.task import HEAD, SentenceEmbeddingTask
from bert_jax.tasks.embedding.prompts import PromptedRows
from bert_jax.tasks.embedding.text_pairs import encode_pairs, read_pairs, stream_pairs


class SentenceEmbeddingEvaluator(Evaluator):
    """Evaluate a sentence-embedding model by the similarity of pairs of texts.

    The similarity function is the one in the model's files, by default cosine. Labels of 0 and 1 may be scored by
    metrics with a threshold (`bert_jax.metrics.pairs`). `predict` writes one object per row to a
    `.jsonl` file: `text`, `pair` and `score`. A table has a header and a column `score`. Columns copied from the data
    come first. If no prompt is named, pairs get the prompts of queries and documents where training put these before
    the texts.

    Args:
        model_dir: a directory in the Hugging Face layout.
        prompt_name: the name of the model's prompt to put before texts; None = the model's default; "" = no prompt.
        prompt: the text of the prompt, instead of a name.
        truncate_dim: the number of leading dimensions of each vector to keep; None = as in the model's files.
        similarity: cosine, dot, euclidean or manhattan, in place of the similarity in the model's files.
        negative_column: the column of a text that is less similar than the pair; such triplets have no label.
        options: arguments of `bert_jax.evaluation.model_runner.open_runner`.
    """

    head = HEAD
    default_columns = Columns("sentence1", "sentence2", "score")
    task: SentenceEmbeddingTask

    def __init__(
        self,
        model_dir: storage.PathLike,
        *,
        prompt_name: str | None = None,
        prompt: str | None = None,
        truncate_dim: int | None = None,
        similarity: str | None = None,
        negative_column: str | None = None,
        **options: Any,
    ):
        if similarity not in (None, *SIMILARITIES):
            raise InputError(f"similarity: {similarity!r} is not known{did_you_mean(str(similarity), SIMILARITIES)}")
        self._similarity, self._negative_column = similarity, negative_column
        super().__init__(model_dir, prompt_name=prompt_name, prompt=prompt, truncate_dim=truncate_dim, **options)
        self._by_role = prompt_name is None and prompt is None and read_training_metadata(model_dir).search_prompts

    def build_task(self, model: Bert) -> SentenceEmbeddingTask:
        """Return the task of the model."""
        similarity, dimension = self._similarity or self.runner.settings.similarity, self.runner.settings.truncate_dim
        return SentenceEmbeddingTask(model, "cosine", labelled=True, similarity=similarity, truncate_dim=dimension)

    @classmethod
    def columns(cls, model_dir: storage.PathLike, given: Columns) -> Columns:
        """Return the columns as `Evaluator.columns` does, without further text columns of the training."""
        metadata = dataclasses.replace(read_training_metadata(model_dir).columns, more=(), texts="")
        return given.filled(metadata).filled(cls.default_columns)

    def evaluate(self, data: Any, columns: Columns, metric_names: Sequence[str], invalid: InvalidRows) -> Evaluated:
        """Score the model by metrics of similarities: by default their correlations with numeric labels.

        With a negative column, rows are triplets, by default scored by the share whose match is more similar than the
        negative.
        """
        if self._negative_column:
            triplets = dataclasses.replace(columns, label="", more=(self._negative_column,))
            return self._evaluate_triplets(data, triplets, metric_names, invalid)
        task = dataclasses.replace(self.task, metrics=choose_embedding_metrics(metric_names, labelled=True))
        pairs = read_pairs(data, columns, bad=invalid)
        rows = self._encode(pairs, columns)
        batches, predictions = self.predictor.batches(rows)
        scores = task.score(predictions, batches) | {"examples": len(rows)}

        def sections() -> list[page.Section]:
            similarities = task.alike(self.predictor.in_order(rows, predictions, "embeddings"))

            def texts(i: int) -> tuple[int, dict[str, str]]:
                line, row = pairs[i]
                return line, {name: row[name] for name in (columns.text, columns.pair)}

            attend = functools.partial(self.runner.attention, HEAD, rows.sequences)
            return values.pairs(rows.labels, similarities, texts, attend)

        return Evaluated(scores, sections)

    def _evaluate_triplets(
        self, data: Any, columns: Columns, metric_names: Sequence[str], invalid: InvalidRows
    ) -> Evaluated:
        names = choose_embedding_metrics(metric_names or ("triplet_accuracy",), labelled=False, negatives=True)
        rows = self._encode(read_pairs(data, columns, bad=invalid), columns)
        batches, predictions = self.predictor.batches(rows)
        task = dataclasses.replace(self.task, metrics=names, labelled=False)
        return Evaluated(task.score(predictions, batches) | {"examples": len(rows)}, list)

    def predict(self, data: Any, out: storage.PathLike, columns: Columns, invalid: InvalidRows) -> int:
        """Write the similarity of every pair, as `Evaluator.predict` does."""

        def answers(chunk: list[tuple[int, dict[str, Any]]]) -> Iterator[tuple[dict[str, Any], list[float]]]:
            similarities = self.task.alike(self.predictor(self._encode(chunk, columns), "embeddings"))
            for (_, row), similarity in zip(chunk, similarities, strict=True):
                score = short(similarity)
                yield {"text": row[columns.text], "pair": row[columns.pair], "score": score}, [score]

        rows = invalid.fitting(stream_pairs(data, columns, invalid))
        return write_answers(out, ["score"], rows, answers, ("score",), lambda row: columns.carried(row[1]))

    def _encode(self, pairs: Sequence[tuple[int, dict[str, Any]]], columns: Columns) -> Any:
        runner = self.runner
        if not self._by_role:
            return encode_pairs(runner.tokenizer, pairs, columns, runner.max_length, prompt=runner.prompt)
        texts = PromptedRows(pairs, columns, by_role=True)
        return texts.encode(runner.tokenizer, runner.settings, runner.max_length, runner.config.pooling_skip)
