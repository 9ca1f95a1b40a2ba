"""Adapters for the package `mteb` 2, the benchmark of embeddings (Muennighoff et al. 2022, arXiv:2210.07316).

Example:

    import mteb
    from bert_jax.tasks.embedding.mteb_models import MtebEncoder

    mteb.evaluate(MtebEncoder("runs/retrieval/model"), mteb.get_tasks(["NFCorpus"]))
    mteb.evaluate(MtebSearch("runs/colbert/model"), mteb.get_tasks(["NFCorpus"]))
"""

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from bert_jax.conversion.text_settings import CORPUS_PROMPTS, QUERY_PROMPTS
from bert_jax.extras import import_extra
from bert_jax.inference import pipeline
from bert_jax.inference.similarity import pair_similarities, similarities

# Similarity -> mteb's function for all pairs, and for corresponding vectors. For others, ours are used.
_FUNCTIONS = {
    "cosine": ("cos_sim", "pairwise_cos_sim"),
    "dot": ("dot_score", "pairwise_dot_score"),
    "euclidean": ("euclidean_sim", "pairwise_euclidean_sim"),
}
_MODEL_TYPES = {"sentence_embedding": "dense", "sparse_embedding": "sparse", "multi_vector": "late-interaction",
                "sequence_classification": "cross-encoder"}  # fmt: skip
_BatchedTexts = Iterable[Mapping[str, Any]]  # batches of texts, `{"text": [...]}`: a DataLoader of mteb


class _MtebModel:
    """The base class of encoders and cross-encoders.

    Args:
        model_name: a model directory.
        revision: name that mteb records beside the results; None = the directory.
        device: not used: JAX chooses.
        prompts: prompt name -> text; overrides those of the model's files. mteb's rule chooses among the names
            `TASK-query`, `TASK-document`, `TASK`, `TYPE-query`, `TYPE-document`, `TYPE`, `query` and `document`, where
            TASK is the name of a task, such as NFCorpus, and TYPE its type, such as Retrieval.
        options: options of `bert_jax.pipeline`, such as `dtype` and `batch_size`.

    Raises:
        InputError: the directory holds no such model.
    """

    _pipeline = ""

    def __init__(
        self,
        model_name: str,
        revision: str | None = None,
        *,
        device: str | None = None,
        prompts: Mapping[str, str] | None = None,
        **options: Any,
    ):
        self._directory, self._revision = str(model_name).rstrip("/"), revision
        self._pipe: Any = pipeline(self._pipeline, self._directory, **options)
        self._prompts: dict[str, str] = dict(self._pipe.model.settings.prompts) | dict(prompts or {})

    @functools.cached_property
    def mteb_model_meta(self) -> Any:
        """Return mteb's description of the model. Raises InputError when mteb is not installed."""
        meta, config = import_extra("mteb.models", "mteb").ModelMeta, self._pipe.model.config
        described = {
            "name": f"bert_jax/{self._directory.split('/')[-1]}",
            "revision": self._revision or self._directory.replace("/", "__"),
            "max_tokens": self._pipe.model.max_length,
            "framework": [],
            "model_type": [_MODEL_TYPES[self._pipe.head]],
        }
        if self._pipe.head == "sentence_embedding":
            described["embed_dim"] = self._pipe.model.settings.dimension() or config.sentence_embedding_size
            described["similarity_fn_name"] = self._pipe.model.settings.similarity
        return meta.model_validate(meta.create_empty().model_dump() | described)

    def _prompt(self, task_metadata: Any, prompt_type: Any) -> str | None:
        """Return the prompt of a task, or None for the model's default."""
        kind = getattr(prompt_type, "value", prompt_type)
        names = [name for of in (task_metadata.name, task_metadata.type) for name in ((f"{of}-{kind}", of))]
        for name in (*names, kind):
            if name in self._prompts:
                return self._prompts[name]
        if kind is None:
            return None
        prompt: str | None = self._pipe.model.settings.prompt_for(QUERY_PROMPTS if kind == "query" else CORPUS_PROMPTS)
        return prompt


class MtebEncoder(_MtebModel):
    """An mteb encoder that is a sentence-embedding model (`mteb.models.EncoderProtocol`)."""

    _pipeline = "sentence-embedding"

    def encode(
        self,
        inputs: _BatchedTexts,
        *,
        task_metadata: Any,
        hf_split: str = "",
        hf_subset: str = "",
        prompt_type: Any = None,
        **kwargs: Any,
    ) -> np.ndarray:
        """Return the embeddings of texts, float32 `[N, D]`.

        Args:
            inputs: batches of texts.
            task_metadata: mteb's description of the task.
            hf_split: not used.
            hf_subset: not used.
            prompt_type: mteb's PromptType: queries or documents; None = neither.
            kwargs: not used; the batch size is an option of the constructor.
        """
        vectors: np.ndarray = self._pipe(_texts(inputs), prompt=self._prompt(task_metadata, prompt_type))
        return vectors

    def similarity(self, embeddings1: Any, embeddings2: Any) -> Any:
        """Return the similarities `[N, M]` of vectors `[N, D]` and `[M, D]`, by the model's similarity function."""
        return self._compare(0, similarities, embeddings1, embeddings2)

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> Any:
        """Return the similarities `[N]` of corresponding vectors of two arrays `[N, D]`."""
        return self._compare(1, pair_similarities, embeddings1, embeddings2)

    def _compare(self, column: int, ours: Callable[..., np.ndarray], first: Any, second: Any) -> Any:
        """Compare vectors by mteb's function in a column of `_FUNCTIONS`, or by `ours` if it has none."""
        name = self._pipe.model.settings.similarity
        if name in _FUNCTIONS:
            return getattr(import_extra("mteb.similarity_functions", "mteb"), _FUNCTIONS[name][column])(first, second)
        return ours(name, np.asarray(first), np.asarray(second))


class MtebCrossEncoder(_MtebModel):
    """An mteb cross-encoder (`mteb.models.CrossEncoderProtocol`)."""

    _pipeline = "rerank"

    def predict(
        self,
        inputs1: _BatchedTexts,
        inputs2: _BatchedTexts,
        *,
        task_metadata: Any,
        hf_split: str = "",
        hf_subset: str = "",
        prompt_type: Any = None,
        **kwargs: Any,
    ) -> np.ndarray:
        """Return the scores of pairs of a query and a document, float64 `[N]`; arguments as for `MtebEncoder.encode`.

        Args:
            inputs1: batches of N queries.
            inputs2: batches of N documents.
            task_metadata, hf_split, hf_subset, prompt_type, kwargs: as for `MtebEncoder.encode`; the prompt is that of
                queries.
        """
        pairs = list(zip(_texts(inputs1), _texts(inputs2), strict=True))
        scores: np.ndarray = self._pipe.predict(pairs, prompt=self._prompt(task_metadata, "query"))
        return scores


class MtebSearch(_MtebModel):
    """An mteb search model (`mteb.models.SearchProtocol`): embeddings of any kind, for retrieval and reranking tasks.

    The kind is that of the model's files. Documents are embedded in parts, and the best of each query are kept.
    """

    _pipeline = "search"
    _corpus: Any = None

    def index(
        self,
        corpus: Any,
        *,
        task_metadata: Any,
        hf_split: str = "",
        hf_subset: str = "",
        encode_kwargs: Any = None,
        num_proc: int | None = None,
        **kwargs: Any,
    ) -> None:
        """Take the documents that later calls of `search` search.

        Args:
            corpus: rows with `id`, `text` and perhaps `title`, which is put before the text.
            task_metadata, hf_split, hf_subset, encode_kwargs, num_proc, kwargs: not used.
        """
        self._corpus = corpus

    def search(
        self,
        queries: Any,
        *,
        task_metadata: Any,
        hf_split: str = "",
        hf_subset: str = "",
        top_k: int,
        encode_kwargs: Any = None,
        top_ranked: Mapping[str, list[str]] | None = None,
        num_proc: int | None = None,
        **kwargs: Any,
    ) -> dict[str, dict[str, float]]:
        """Return id of a query -> id of a document -> its score, for the best documents.

        Args:
            queries: rows with `id` and `text`.
            task_metadata: mteb's description of the task, which chooses the prompts.
            top_k: number of documents per query.
            top_ranked: id of a query -> ids of the documents to rank; None = the whole corpus.
            hf_split, hf_subset, encode_kwargs, num_proc, kwargs: not used.
        """
        prompts = {
            "prompt": self._prompt(task_metadata, "query"),
            "corpus_prompt": self._prompt(task_metadata, "document"),
        }
        names, texts = list(queries["id"]), list(queries["text"])
        if top_ranked is None:
            ids = list(self._corpus["id"])
            scores, numbers = self._pipe.nearest(texts, map(_document, self._corpus), top_k, **prompts)
            rows = zip(scores.tolist(), numbers.tolist(), strict=True)
            return {
                name: {ids[number]: score for score, number in zip(*row, strict=True)}
                for name, row in zip(names, rows, strict=True)
            }
        documents = {row["id"]: _document(row) for row in self._corpus}
        found = {}
        for name, text in zip(names, texts, strict=True):
            ids = list(top_ranked.get(name, ()))
            if ids:
                candidates = [documents[each] for each in ids]
                scores, numbers = self._pipe.nearest([text], candidates, top_k, **prompts)
                found[name] = {ids[i]: score for i, score in zip(numbers[0].tolist(), scores[0].tolist(), strict=True)}
        return found


def _document(row: Mapping[str, Any]) -> str:
    return f"{row.get('title') or ''} {row['text']}".strip()


def _texts(inputs: _BatchedTexts) -> list[str]:
    return [text for batch in inputs for text in batch["text"]]
