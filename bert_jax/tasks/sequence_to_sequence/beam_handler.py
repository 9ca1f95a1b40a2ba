"""Run a pipeline in Apache Beam, with the transform `RunInference`; needs the extra `beam`.

    vectors = texts | RunInference(PipelineHandler("sentence-embedding", "gs://bucket/model"))

Elements of `texts` are texts, or tuples of the arguments of a call, such as a query and its documents for `rerank`.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from apache_beam.ml.inference.base import ModelHandler, PredictionResult

from bert_jax.inference.base import Pipeline
from bert_jax.inference.pipelines import pipeline
from bert_jax.storage import PathLike


class PipelineHandler(ModelHandler[str | tuple[Any, ...], PredictionResult, Pipeline]):
    """Handler that opens a pipeline once in each worker, and calls it for batches of texts.

    Beam decides which texts share a batch, so the last bits of an answer may differ from run to run unless
    `batch_invariant` is one of the options.

    Args:
        task: the task, as for `pipeline`.
        model: the model directory, which every worker can reach.
        most_texts: maximum number of texts per call.
        options: further arguments of `pipeline`, such as `batch_invariant` or `device="all"`.
    """

    def __init__(self, task: str, model: PathLike, *, most_texts: int = 1024, **options: Any):
        super().__init__(min_batch_size=min(32, most_texts), max_batch_size=most_texts)
        self._task, self._model, self._options = task, str(model), options

    def load_model(self) -> Pipeline:
        """Open the pipeline."""
        pipe: Pipeline = pipeline(self._task, self._model, **self._options)
        return pipe

    def run_inference(
        self,
        batch: Sequence[str | tuple[Any, ...]],
        model: Pipeline,
        inference_args: Mapping[str, Any] | None = None,
    ) -> Iterator[PredictionResult]:
        """Yield each element with its answer.

        Args:
            batch: texts, or tuples of the arguments of a call.
            model: the pipeline.
            inference_args: options of the pipeline's calls.
        """
        options = dict(inference_args or {})
        texts = [element for element in batch if isinstance(element, str)]
        answers = iter(_rows(model(texts, **options)) if texts else ())
        for element in batch:
            answer = next(answers) if isinstance(element, str) else model(*element, **options)
            yield PredictionResult(element, answer, self._model)

    def get_metrics_namespace(self) -> str:
        """Return the name under which Beam counts and times the calls."""
        return f"bert_jax {self._task}"


def _rows(answers: Any) -> Any:
    """Return one answer per text; sparse embeddings come as one array, which is split into rows."""
    return (answers[i : i + 1] for i in range(answers.shape[0])) if hasattr(answers, "indptr") else answers
