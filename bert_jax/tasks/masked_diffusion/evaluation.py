"""Evaluate models of masked diffusion over tables of prompts and answers, and write the answers that they generate."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from bert_jax import storage
from bert_jax.conversion.text_settings import TextSettings
from bert_jax.data.finetuning.columns import Columns
from bert_jax.data.invalid_rows import InvalidRows
from bert_jax.errors import InputError
from bert_jax.evaluation.driver import Evaluated, Evaluator
from bert_jax.evaluation.writing import write_answers
from bert_jax.inference import PretrainedModel
from bert_jax.jobs.training_metadata import read_training_metadata
from bert_jax.metrics.generation import choose_text_metrics, text_scores
from bert_jax.modeling import Bert
from bert_jax.tasks.masked_diffusion.data import (
    AnswerRegion,
    PromptAnswer,
    encode_answers,
    evaluation_features,
    read_answers,
)
from bert_jax.tasks.masked_diffusion.generation import TextGeneration
from bert_jax.tasks.masked_diffusion.task import HEAD, MaskedDiffusionTask

_LENGTH = 64  # maximum number of tokens in an answer, for models that do not record it
BOUNDS = ("diffusion_loss", "diffusion_perplexity", "masked_accuracy")


class MaskedDiffusionEvaluator(Evaluator):
    """Evaluate a model of masked diffusion, or any masked LM, on answers to prompts.

    `diffusion_loss` is an upper bound of the negative log-likelihood per token of an answer, end of text included, in
    nats; `diffusion_perplexity` is exp of it. For answers to prompts, `bert_jax.metrics.generation.TEXT_METRICS`
    compare the answers in the data with answers that the model generates at temperature 0, in half as many forward
    passes as tokens. `predict` writes one object per row to a `.jsonl` file: `prompt` (the last message of a
    conversation), `generated_text` and `score`, the mean log-probability of its tokens. A table has the columns
    `generated_text` and `score`.
    """

    head = HEAD
    default_columns = Columns("prompt", label="answer")
    task: MaskedDiffusionTask

    def build_task(self, model: Bert) -> MaskedDiffusionTask:
        """Return the task of the model."""
        return MaskedDiffusionTask(model)

    @classmethod
    def columns(cls, model_dir: storage.PathLike, columns: Columns) -> Columns:
        """Complete the caller's columns with recorded or default ones; conversations replace prompts and answers."""
        metadata = read_training_metadata(model_dir).columns
        filled = columns.filled(metadata if metadata.wanted else cls.default_columns)
        return dataclasses.replace(filled, text="", label="") if filled.texts else filled

    def evaluate(self, data: Any, columns: Columns, metric_names: Sequence[str], invalid: InvalidRows) -> Evaluated:
        """Score the model by the loss bound of the answers in the data, and by the answers that it generates."""
        prompted = bool(columns.text or columns.texts)
        others = [name for name in metric_names if name not in BOUNDS]
        if others and not prompted:
            raise InputError(f"metrics: expected {', '.join(BOUNDS)} for texts without prompts, found {others[0]!r}")
        of_texts = choose_text_metrics(others) if others or (prompted and not metric_names) else ()
        names = tuple(metric_names) or (*BOUNDS, *of_texts)
        rows = list(invalid.fitting(read_answers(data, columns, invalid)))
        scores: dict[str, float] = {}
        if any(name in BOUNDS for name in names):
            features = encode_answers(self.runner.tokenizer, rows, self.runner.max_length, self._region())
            noisy = evaluation_features(features, self.runner.tokenizer.mask_id, self._region().length)
            batches, predictions = self.predictor.batches(noisy)
            scores |= self.task.score(predictions, batches)
        if of_texts:
            written = [answer["generated_text"] for answer in self._generated(rows)]
            scores |= text_scores(of_texts, written, [row.answer or "" for row in rows], self.runner.tokenizer)
        return Evaluated({name: scores[name] for name in names} | {"examples": len(rows)}, list)

    def predict(self, data: Any, out: storage.PathLike, columns: Columns, invalid: InvalidRows) -> int:
        """Write a generated answer for every row, as `Evaluator.predict` does."""

        def answers(chunk: list[PromptAnswer]) -> Iterator[tuple[dict[str, Any], list[Any]]]:
            for row, answer in zip(chunk, self._generated(chunk), strict=True):
                text, score = answer["generated_text"], answer["score"]
                yield (
                    {"prompt": row.prompt[-1] if row.prompt else "", "generated_text": text, "score": score},
                    [text, score],
                )

        rows = invalid.fitting(read_answers(data, columns, invalid, answered=False))
        return write_answers(out, ["generated_text", "score"], rows, answers, ("generated_text", "score"))

    def _generated(self, rows: Sequence[PromptAnswer]) -> list[dict[str, Any]]:
        """Generate an answer to each prompt."""
        runner = self.runner
        settings = TextSettings(records=runner.settings.records)
        model = PretrainedModel(
            runner.config, HEAD, runner.params, runner.tokenizer, runner.compute, runner.max_length, settings=settings
        )
        prompts = [[{"content": text} for text in row.prompt] if row.prompt else "" for row in rows]
        return [answers[0] for answers in TextGeneration(model)(prompts, truncation=True)]

    def _region(self) -> AnswerRegion:
        """Return the settings of answer regions for evaluation, with one end-of-text token behind each answer."""
        known = self.runner.settings.records.get("generated")
        length = known.length if known is not None else _LENGTH
        room = self.runner.max_length - self.runner.tokenizer.layout.num_special(True) - 1
        return AnswerRegion(min(length, room), "none")
