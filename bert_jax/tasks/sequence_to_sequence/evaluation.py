"""Evaluate encoder-decoders on sources with targets, and write the texts that they generate."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from bert_jax import sharding, storage
from bert_jax.data.finetuning.columns import Columns
from bert_jax.data.finetuning.records import table_name
from bert_jax.data.finetuning.tables import Example, example_of, read_rows
from bert_jax.data.invalid_rows import InvalidRows, check_texts, place
from bert_jax.errors import InputError
from bert_jax.evaluation.driver import Evaluated, Evaluator
from bert_jax.evaluation.model_runner import ModelRunner
from bert_jax.evaluation.predictions import RowPredictor
from bert_jax.evaluation.writing import attach_columns, write_answers
from bert_jax.inference import pipeline
from bert_jax.jobs import setup
from bert_jax.metrics.generation import choose_text_metrics, text_scores
from bert_jax.modeling import EncoderDecoder
from bert_jax.tasks.sequence_to_sequence.data import encode_source_targets, read_source_targets
from bert_jax.tasks.sequence_to_sequence.pipeline import load_text2text
from bert_jax.tasks.sequence_to_sequence.task import SequenceToSequenceTask

_TOKEN_METRICS = ("cross_entropy", "perplexity", "accuracy")


class SequenceToSequenceEvaluator(Evaluator):
    """Evaluate an encoder-decoder.

    Texts are generated with the settings of the model's generation_config.json. `predict` writes one object per row to
    a `.jsonl` file, with `text` and `generated_text`, or a table with a column `generated_text`.

    Args:
        model_dir: the directory of an encoder-decoder.
        onnx: must be None.
        batch_size: rows of a batch; rounded up to a multiple of the number of devices.
        max_seq_length: maximum number of tokens in a source; 0 = the model's own limit.
        dtype: as for `bert_jax.evaluation.model_runner.open_runner`.

    Raises:
        InputError: the directory holds another model, or an option does not fit it.
    """

    head = EncoderDecoder.head
    default_columns = Columns("source", "", "target")
    task: SequenceToSequenceTask

    def __init__(
        self,
        model_dir: storage.PathLike,
        *,
        onnx: storage.PathLike | None = None,
        batch_size: int = 32,
        max_seq_length: int = 0,
        dtype: str = "auto",
    ):
        if onnx is not None:
            raise InputError(f"--onnx: expected none for an encoder-decoder, found {onnx}")
        model = load_text2text(model_dir, dtype)
        setup.check_length(max_seq_length, model.config, "max_seq_length")
        if max_seq_length and max_seq_length < 4:
            raise InputError(f"max_seq_length: expected at least 4 tokens (or 0), found {max_seq_length}")
        limit = max_seq_length or model.max_length
        model = dataclasses.replace(model, max_length=limit)
        self._write = pipeline("text2text-generation", model, batch_size=batch_size, device="all")
        mesh = sharding.make_mesh()
        parts = sharding.batch_parts(mesh)
        rows = -(-batch_size // parts) * parts
        self.runner = ModelRunner(model.config, model.params, model.tokenizer, model.compute, limit, rows, mesh)
        self.task = self.build_task(model.encoder_decoder)
        # The length of a row is that of its source or its target, whichever is longer.
        longest = max(limit, model.decoder_config.max_position_embeddings)
        self.predictor = RowPredictor(self.runner, self.task.predict, longest)

    def build_task(self, model: Any) -> SequenceToSequenceTask:
        """Return the task of the model."""
        return SequenceToSequenceTask(model)

    def evaluate(self, data: Any, columns: Columns, metric_names: Sequence[str], invalid: InvalidRows) -> Evaluated:
        """Score the model's next-token predictions for the targets, and the texts that it generates.

        Texts are generated only if a text metric or no metric is requested.
        """
        text_metrics = [name for name in metric_names if name not in _TOKEN_METRICS]
        of_texts = choose_text_metrics(text_metrics) if text_metrics or not metric_names else ()
        rows = read_source_targets(data, columns, invalid)
        limit = self.task.model.decoder_config.max_position_embeddings
        features = encode_source_targets(self.runner.tokenizer, rows, self.runner.max_length, limit)
        scores: dict[str, float] = {}
        if not metric_names or set(metric_names) & set(_TOKEN_METRICS):
            batches, predictions = self.predictor.batches(features)
            scores = self.task.score(predictions, batches)
        if of_texts:
            targets = [row.label or "" for row in rows]
            scores |= text_scores(of_texts, self._texts(rows), targets, self.runner.tokenizer)
        names = tuple(metric_names) or (*_TOKEN_METRICS, *of_texts)
        return Evaluated({name: scores[name] for name in names} | {"examples": len(rows)}, list)

    def predict(self, data: Any, out: storage.PathLike, columns: Columns, invalid: InvalidRows) -> int:
        """Write a generated text for every row, as `Evaluator.predict` does."""
        name = table_name(data)

        def checked(row: tuple[int, dict[str, Any]]) -> _Row:
            checked_row = _Row(example_of(row, columns), columns.carried(row[1]))
            with attach_columns(checked_row.kept):
                check_texts(place(name, row[0]), {columns.text: checked_row.example.text})
            return checked_row

        def answers(chunk: list[_Row]) -> Iterator[tuple[dict[str, Any], list[Any]]]:
            for row, text in zip(chunk, self._texts([row.example for row in chunk]), strict=True):
                yield {"text": row.example.text, "generated_text": text}, [text]

        rows = invalid.fitting(invalid.each(read_rows(data, columns, invalid), checked))
        return write_answers(out, ["generated_text"], rows, answers, ("generated_text",), lambda row: row.kept)

    def _texts(self, rows: Sequence[Example]) -> list[str]:
        """Return the text that the model generates for each source."""
        return [answer["generated_text"] for answer in self._write([row.text for row in rows])]


class _Row(NamedTuple):
    """A row to predict, and its columns to copy to the answer."""

    example: Example
    kept: dict[str, Any]
