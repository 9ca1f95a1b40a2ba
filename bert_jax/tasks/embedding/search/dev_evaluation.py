"""Evaluation on retrieval sets during training: the metrics that `evaluate-search` gives the finished model."""

import dataclasses
import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.config import BertConfig
from bert_jax.conversion.multi_vector_settings import MultiVectorSettings
from bert_jax.conversion.text_settings import TextSettings
from bert_jax.data.batches import INPUTS, Batch
from bert_jax.data.finetuning.batching import EvalSource, few_buckets
from bert_jax.data.finetuning.features import Features, encode_texts, ragged_features
from bert_jax.data.finetuning.tables import Example
from bert_jax.data.retrieval_sets import RetrievalSet, SampledCorpus, read_retrieval_set, sampled_corpus
from bert_jax.inference.similarity import comparable, compare
from bert_jax.jobs.base import Evaluation, Job, Metrics
from bert_jax.jobs.retrieval_dev import RetrievalDev, notes_of, with_retrieval_evaluation
from bert_jax.metrics.trec_eval import check_search_metrics, mean_over_sets, mean_scores
from bert_jax.modeling import Bert
from bert_jax.recipes import Recipe
from bert_jax.tasks.embedding.multi_vector.embedder import encode_behind_markers
from bert_jax.tasks.embedding.prompts import role_prompts
from bert_jax.tasks.embedding.search.evaluation import named_rankings
from bert_jax.tokenization import Tokenizer

TOP_K = 1000  # number of documents that are ranked for each query, as in `evaluate_search`
_CHUNK = 8192  # texts that are tokenized at a time
_COMPARED = 4096  # queries and documents that are compared at once
_BYTES = 1 << 26  # bytes of vectors of documents that are held before they are compared
_ROLES = ("query", "document")
_Predicted = Iterator[tuple[Mapping[str, np.ndarray], Batch]]


@dataclasses.dataclass(frozen=True, eq=False)
class SearchTexts:
    """Tokenized queries, or tokenized documents, of a retrieval set.

    Attributes:
        features: the tokens of the n texts.
        role: `query` or `document`.
        filled_length: number of tokens to which texts are filled up; 0 = they are not.
        filling_id: id of the token that fills them up.
        filling_attended: whether other tokens attend to those that fill a text up.
    """

    features: Features
    role: str
    filled_length: int = 0
    filling_id: int = 0
    filling_attended: bool = False

    def __len__(self) -> int:
        return len(self.features)

    @functools.cached_property
    def lengths(self) -> np.ndarray:
        """The number of tokens of each text, with those that fill it up, int64 `[n]`."""
        lengths: np.ndarray = np.maximum(self.features.lengths, max(self.filled_length, 1))
        return lengths

    def pad(self, index: np.ndarray, length: int, pad_id: int) -> Batch:
        """Return the batch of the texts with numbers `index` [B]; -1 gives a padding row.

        Returns:
            The arrays `INPUTS`, and `query_scored` or `document_scored`, the tokens that are not padding,
            `[B, length]`; `example_weights` `[B]`.
        """
        batch = self.features.pad(index, length, pad_id)
        ids, mask = batch["input_ids"], batch["attention_mask"]
        added = (mask == 0) & (np.arange(length) < self.filled_length) & (index >= 0)[:, None]
        attended = mask | added if self.filling_attended else mask
        return {
            "input_ids": np.where(added, np.int32(self.filling_id), ids),
            "attention_mask": attended,
            "token_type_ids": np.where(attended > 0, batch["token_type_ids"], 0),
            f"{self.role}_scored": mask | added,
            "example_weights": batch["example_weights"],
        }


@dataclasses.dataclass(frozen=True)
class SearchVectorsTask:
    """The embeddings of queries and of documents by the model of a task, as `evaluate-search` computes them.

    Attributes:
        task: the task, of a head of dense, sparse or token vectors.
        pooling_skip: number of leading tokens of queries, and of documents, that pooling leaves out (dense vectors).
    """

    task: Any
    pooling_skip: tuple[int, int] = (0, 0)

    @property
    def model(self) -> Any:
        """Return the model of the task."""
        return self.task.model

    def weights(self, batch: Batch) -> dict[str, jax.Array]:
        """Return the task's weights; this task is not trained."""
        weights: dict[str, jax.Array] = self.task.weights(batch)
        return weights

    def loss(
        self, params: Any, batch: Batch, dropout_key: jax.Array | None, weights: dict[str, jax.Array]
    ) -> tuple[jax.Array, Metrics]:
        """Return the task's loss; this task is not trained."""
        loss: tuple[jax.Array, Metrics] = self.task.loss(params, batch, dropout_key, weights)
        return loss

    def predict(self, params: Any, batch: Batch) -> dict[str, jax.Array]:
        """Return `vectors` `[B, D]`; with a vector for each token, `[B, S, D]`, and `scored` `[B, S]`."""
        role = 0 if "query_scored" in batch else 1
        model, inputs = self.model, [batch[name] for name in INPUTS]
        if model.head == "sentence_embedding":
            model = Bert(model.config.replace(pooling_skip=self.pooling_skip[role]), model.head, model.compute)
            output = model.apply(params, *inputs, output_last_hidden_state=False)
            assert output.sentence_embedding is not None
            return {"vectors": output.sentence_embedding}
        embed = self.task.vectors if role else self.task.query_vectors
        vectors = embed(params, *inputs[:2], None)
        if model.head == "sparse_embedding":
            return {"vectors": vectors}
        skipped = (self.task.skipped_in_queries, self.task.skipped_in_documents)[role]
        scored = batch[f"{_ROLES[role]}_scored"] > 0
        return {"vectors": vectors, "scored": scored & ~jnp.isin(inputs[0], jnp.array(skipped, jnp.int32))}

    def score(self, predictions: list[dict[str, np.ndarray]], batches: list[Batch]) -> dict[str, float]:
        """Raise TypeError: `SearchSets.score` scores these predictions."""
        raise TypeError("expected Evaluation.score to score the vectors of a retrieval set")


class SearchSet(NamedTuple):
    """A retrieval set whose texts are tokenized.

    Attributes:
        dataset: its queries and judgements.
        ids: the ids of the documents.
        queries, documents: the batches of their texts.
    """

    dataset: RetrievalSet
    ids: list[str]
    queries: EvalSource
    documents: EvalSource


@dataclasses.dataclass(frozen=True)
class SearchSets:
    """The batches of several retrieval sets, and their metrics.

    Attributes:
        sets: name -> set.
        metric_names: the metrics to report.
        head: the kind of vectors.
        settings: the model's settings of texts and vectors.
        width: number of dimensions of a vector before truncation.
    """

    sets: Mapping[str, SearchSet]
    metric_names: tuple[str, ...]
    head: str
    settings: TextSettings
    width: int

    @property
    def _sources(self) -> list[EvalSource]:
        return [source for each in self.sets.values() for source in (each.queries, each.documents)]

    @property
    def num_batches(self) -> int:
        """Return the number of batches: for each set those of the queries, then those of the documents."""
        return sum(source.num_batches for source in self._sources)

    def batch(self, step: int, rows: slice = slice(None)) -> dict[str, np.ndarray]:
        """Return the rows `rows` of batch `step`."""
        for source in self._sources:
            if step < source.num_batches:
                return source.batch(step, rows)
            step -= source.num_batches
        raise IndexError(step)

    def score(self, predicted: _Predicted) -> dict[str, float]:
        """Return the metrics of each set as `NAME/METRIC`, and as `METRIC` their means; of one set only `METRIC`.

        Args:
            predicted: the predictions of `SearchVectorsTask` for each batch, and the batch. They are read one at a
                time, and of the documents only the best of each query are kept.
        """
        return mean_over_sets({name: self._scores_of(each, predicted) for name, each in self.sets.items()})

    def _scores_of(self, each: SearchSet, predicted: _Predicted) -> dict[str, float]:
        rows = list(self._rows(each.queries, predicted))
        vectors = [vectors for _, vectors in sorted(rows, key=lambda row: row[0])]
        best = _BestDocuments(self._comparable(vectors), len(vectors), self.settings.similarity, TOP_K + 1)
        held: list[tuple[int, Any]] = []
        size = 0
        for number, vector in self._rows(each.documents, predicted):
            held.append((number, vector))
            size += sum(array.nbytes for array in vector) if isinstance(vector, tuple) else vector.nbytes
            if size >= _BYTES or len(held) == _COMPARED:
                best.add(self._comparable([vector for _, vector in held]), [number for number, _ in held])
                held, size = [], 0
        if held:
            best.add(self._comparable([vector for _, vector in held]), [number for number, _ in held])
        rankings, _ = named_rankings(each.dataset, each.ids, *best.sorted(), TOP_K)
        return mean_scores(each.dataset.judgements, rankings, self.metric_names)

    def _rows(self, source: EvalSource, predicted: _Predicted) -> Iterator[tuple[int, Any]]:
        """Yield the number of each text of a source, and its vector, or vectors, or active dimensions and weights."""
        numbers = iter(source.order.tolist())
        for predictions, batch in itertools.islice(predicted, source.num_batches):
            for row in np.flatnonzero(batch["example_weights"] > 0):
                vector: Any = predictions["vectors"][row]
                if self.head == "sentence_embedding":
                    vector = vector[: self.settings.truncate_dim]
                elif self.head == "sparse_embedding":
                    from bert_jax.inference.sparse_vectors import active

                    vector = active(vector, self.settings.max_active_dims)
                else:
                    vector = self._pooled(vector[predictions["scored"][row]], "query_scored" in batch)
                yield next(numbers), vector

    def _pooled(self, vectors: np.ndarray, is_query: bool) -> np.ndarray:
        """Return the vectors of a text's tokens `[T, D]`, pooled as the finished model pools them."""
        pooling = self.settings.multi_vector.pooling if self.settings.multi_vector else None
        if pooling is None or not pooling.applies_to("query" if is_query else "document"):
            return vectors
        from bert_jax.tasks.embedding.multi_vector.token_pooling import pool_token_vectors

        return pool_token_vectors(vectors, pooling)

    def _comparable(self, vectors: Sequence[Any]) -> Any:
        """Return the vectors of several texts in the format that `compare` takes."""
        if self.head == "sparse_embedding":
            from bert_jax.tasks.embedding.sparse.embedder import as_csr

            dimensions, weights = zip(*vectors, strict=True)
            return comparable(self.settings.similarity, as_csr(dimensions, weights, self.width))
        stacked = np.stack(vectors) if self.head == "sentence_embedding" else list(vectors)
        return comparable(self.settings.similarity, stacked)


class _BestDocuments:
    """The most similar documents for Q queries among those seen so far.

    A score and the number of its document are one uint64, whose order is that of rankings: by descending score, then by
    ascending number. So the order in which documents come does not matter.

    Args:
        queries: the vectors of the queries, ready to be compared.
        count: their number Q.
        similarity: as for `compare`.
        top_k: number of documents per query.
    """

    def __init__(self, queries: Any, count: int, similarity: str, top_k: int):
        self._queries, self._count, self._similarity, self._top_k = queries, count, similarity, top_k
        self._keys = [np.zeros((0, 0), np.uint64)] * len(range(0, count, _COMPARED))

    def add(self, documents: Any, numbers: Sequence[int]) -> None:
        """Compare the queries with further documents, whose numbers are unique."""
        for part, start in enumerate(range(0, self._count, _COMPARED)):
            queries = self._queries[start : start + _COMPARED]
            keys = _keys(compare(self._similarity, queries, documents), np.array(numbers, np.uint64))
            if self._keys[part].size:
                keys = np.concatenate([self._keys[part], keys], axis=1)
            if keys.shape[1] > self._top_k:
                keys = np.partition(keys, self._top_k)[:, : self._top_k]
            self._keys[part] = keys

    def sorted(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the scores, float32 `[Q, up to top_k]`, and the numbers of the documents, the best first."""
        keys = np.sort(np.concatenate(self._keys), axis=1)
        bits = ~(keys >> np.uint64(32)).astype(np.uint32)
        sign = np.uint32(1 << 31)
        scores = np.where(bits & sign, bits ^ sign, ~bits).view(np.float32)
        return scores, (keys & np.uint64(0xFFFFFFFF)).astype(np.int64)


def _keys(scores: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """Return uint64 `[Q, n]` in which greater float32 scores `[Q, n]` and then smaller numbers `[n]` come first."""
    finite = np.where(np.isnan(scores), np.float32(-np.inf), scores.astype(np.float32)) + np.float32(0)  # no -0
    bits = np.ascontiguousarray(finite).view(np.uint32)
    sign = np.uint32(1 << 31)
    ascending = np.where(bits & sign, ~bits, bits | sign)
    keys: np.ndarray = (~ascending).astype(np.uint64) << np.uint64(32) | numbers
    return keys


def search_prompt(settings: TextSettings, head: str, role: str) -> str:
    """Return the prompt that search puts before queries or documents, as `CorpusSearch` chooses it."""
    if head == "sentence_embedding":
        return dict(zip(_ROLES, role_prompts(settings), strict=True))[role]
    return settings.prompt_of_task(role)


def encode_search_texts(
    tokenizer: Tokenizer, texts: Sequence[str], settings: TextSettings, config: BertConfig, head: str, role: str
) -> SearchTexts:
    """Tokenize queries or documents as search with a finished model of these settings does.

    Args:
        tokenizer: the tokenizer.
        texts: the texts.
        settings: the settings, with `max_length`.
        config: the model's architecture.
        head: the kind of vectors.
        role: `query` or `document`.
    """
    prompt, longest = search_prompt(settings, head, role), settings.max_length or 0
    if head == "sentence_embedding":
        rows = [Example(0, prompt + text, None, None) for text in texts]
        return SearchTexts(encode_texts(tokenizer, rows, np.zeros(len(rows), np.int32), longest), role)
    if config.query_weights and role == "query":
        from bert_jax.tasks.embedding.sparse.static_queries import tokenize_plain

        plain = tokenize_plain(tokenizer, [prompt + text for text in texts], settings.query_length)
        return SearchTexts(ragged_features(plain), role)
    of_tokens = (settings.multi_vector if head == "multi_vector" else None) or MultiVectorSettings()
    length = of_tokens.length_of(role, longest)
    chunks = (texts[start : start + _CHUNK] for start in range(0, len(texts), _CHUNK))
    encoded = (encode_behind_markers(tokenizer, of_tokens, chunk, prompt, length)[0] for chunk in chunks)
    features = ragged_features(itertools.chain.from_iterable(encoded))
    if role == "document" or of_tokens.expansion is None:
        return SearchTexts(features, role)
    expansion = of_tokens.expansion
    return SearchTexts(features, role, expansion.length, of_tokens.expansion_id(tokenizer), expansion.attended)


def with_search_evaluation(job: Job, recipe: Recipe, dev: RetrievalDev, settings: TextSettings, task: Any) -> Job:
    """Return a job that is also evaluated on retrieval sets.

    Args:
        job: the job.
        recipe: its resolved recipe.
        dev: the retrieval sets.
        settings: the text settings of the finished model.
        task: the task of dense, sparse or token vectors.

    Raises:
        InputError: a set is damaged, or a metric or a package is missing.
    """
    names = check_search_metrics(dev.metric_names, "config.data.metrics")
    model, tokenizer, data = task.model, job.tokenizer, recipe.data
    sets: dict[str, SearchSet] = {}
    rows: list[SearchTexts] = []
    notes: list[str] = []
    for name, directory in dev.directories.items():
        dataset = read_retrieval_set(directory, data.dev_split)
        corpus: SampledCorpus = sampled_corpus(dataset, data.dev_documents, recipe.seed)
        notes += notes_of(name, dataset, corpus)
        texts = {"query": list(dataset.queries.values()), "document": corpus.texts}
        encoded = [
            encode_search_texts(tokenizer, texts[role], settings, model.config, model.head, role) for role in _ROLES
        ]
        buckets = [few_buckets(each.lengths, settings.max_length or 0) for each in encoded]
        sources = [
            EvalSource(each, recipe.eval_batch_size, lengths, tokenizer.pad_id)
            for each, lengths in zip(encoded, buckets, strict=True)
        ]
        sets[name] = SearchSet(dataset, corpus.ids, *sources)
        rows += encoded
    skips = [
        settings.pooling_skip(tokenizer, search_prompt(settings, model.head, role), settings.max_length or 0)
        for role in _ROLES
    ]
    width = model.config.vocab_size if model.head == "sparse_embedding" else model.config.sentence_embedding_size
    searched = SearchSets(sets, names, model.head, settings, width)
    evaluation = Evaluation(SearchVectorsTask(task, (skips[0], skips[1])), searched, searched.score)
    return with_retrieval_evaluation(job, evaluation, [each.dataset for each in sets.values()], rows, notes)
