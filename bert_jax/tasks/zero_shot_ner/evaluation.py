"""Evaluate GLiNERs on texts with typed spans, and write the entities that they find."""

from collections.abc import Iterator, Sequence
from typing import Any

from bert_jax import storage
from bert_jax.data.finetuning.tables import Columns
from bert_jax.data.invalid_rows import InvalidRows
from bert_jax.errors import InputError, did_you_mean
from bert_jax.evaluation.driver import Evaluated, Evaluator
from bert_jax.evaluation.writing import write_answers
from bert_jax.metrics.entities import span_scores
from bert_jax.modeling import Bert
from bert_jax.tasks.zero_shot_ner.batches import GlinerFeatures, encode_span_texts
from bert_jax.tasks.zero_shot_ner.data import SpanText, iterate_span_texts, read_span_texts, type_counts
from bert_jax.tasks.zero_shot_ner.rows import RowMaker, check_types
from bert_jax.tasks.zero_shot_ner.task import HEAD, SPAN_METRICS, ZeroShotNerTask, chosen_spans, gold_spans


class ZeroShotNerEvaluator(Evaluator):
    """Evaluate a GLiNER, with all types of the data in its prompts.

    `predict` writes one object per text: `tokenized_text` and `ner`, as in the training data.

    Args:
        model_dir: a directory of a GLiNER.
        entity_types: the types to find; () = the types of the evaluation data. `predict` needs them.
        options: arguments of `bert_jax.evaluation.model_runner.open_runner`.
    """

    head = HEAD
    formats = (".jsonl",)
    noun = "text"
    task: ZeroShotNerTask

    def __init__(self, model_dir: storage.PathLike, *, entity_types: Sequence[str] = (), **options: Any):
        super().__init__(model_dir, **options)
        assert self.runner.config.gliner is not None
        self._maker = RowMaker(self.runner.tokenizer, self.runner.config.gliner)
        self._types = check_types(entity_types, "entity_types") if entity_types else ()

    def build_task(self, model: Bert) -> ZeroShotNerTask:
        """Return the task of the model."""
        return ZeroShotNerTask(model, ())

    @classmethod
    def check_predict(cls, out: storage.PathLike, invalid_rows: str, **options: Any) -> None:
        """Check the arguments as `Evaluator.check_predict` does; the types must be given."""
        super().check_predict(out, invalid_rows)
        if not options.get("entity_types"):
            raise InputError("entity_types: expected the types to find (--entity-types), found none")

    def evaluate(self, data: Any, columns: Columns, metric_names: Sequence[str], invalid: InvalidRows) -> Evaluated:
        """Score the model with `SPAN_METRICS`, at a threshold of 0.5."""
        for name in metric_names:
            if name not in SPAN_METRICS:
                raise InputError(f"metrics: {name!r} is not a metric of entities{did_you_mean(name, SPAN_METRICS)}")
        texts = read_span_texts(data, columns, {}, invalid)
        names = self._types or tuple(type_counts(texts))
        if not names:
            raise InputError(f"{data}: expected spans with types, found none")
        known = set(names)
        texts = [text._replace(spans=tuple(span for span in text.spans if span[2] in known)) for text in texts]
        batches, predictions = self.predictor.batches(self._features(texts, names))
        gold, predicted = gold_spans(batches), chosen_spans(predictions, batches)
        scores = span_scores(tuple(metric_names) or SPAN_METRICS, names, gold, predicted)
        return Evaluated(scores | {"examples": len(texts)}, list)

    def predict(self, data: Any, out: storage.PathLike, columns: Columns, invalid: InvalidRows) -> int:
        """Write the entities of every text, as `Evaluator.predict` does."""

        def answers(chunk: list[SpanText]) -> Iterator[tuple[dict[str, Any], list[Any]]]:
            features = self._features(chunk, self._types)
            batches, predictions = self.predictor.batches(features)
            spans: list[list[tuple[int, int, str]]] = [[] for _ in chunk]
            for document, start, stop, kind in chosen_spans(predictions, batches).tolist():
                kept = features.kept[document]
                spans[document].append((kept[start], kept[stop - 1], self._types[kind]))
            for text, text_spans in zip(chunk, spans, strict=True):
                yield {"tokenized_text": text.words, "ner": text_spans}, [text.words, text_spans]

        rows = invalid.fitting(iterate_span_texts(data, columns, {}, invalid, labelled=False))
        return write_answers(out, ["tokenized_text", "ner"], rows, answers, ("tokenized_text", "ner"))

    def _features(self, texts: Sequence[SpanText], names: Sequence[str]) -> GlinerFeatures:
        return encode_span_texts(self._maker, texts, names, self.runner.max_length, training=False)
