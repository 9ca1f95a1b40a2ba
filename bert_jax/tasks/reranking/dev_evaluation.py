"""Evaluation of rerankers on retrieval sets during training: the candidates of each query are sorted by the model."""

import dataclasses
import itertools
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from bert_jax.config import BertConfig
from bert_jax.data.batches import Batch
from bert_jax.data.finetuning.batching import EvalSource, few_buckets
from bert_jax.data.finetuning.groups import Groups, encode_groups
from bert_jax.data.retrieval_sets import RetrievalSet, read_retrieval_set, read_run
from bert_jax.errors import InputError
from bert_jax.inference.scoring import match_output, scores_of
from bert_jax.jobs.base import Evaluation, Job, Task
from bert_jax.jobs.retrieval_dev import RetrievalDev, comma_separated, with_retrieval_evaluation
from bert_jax.metrics.trec_eval import check_search_metrics, mean_over_sets, mean_scores
from bert_jax.recipes import Recipe


class RerankedSet(NamedTuple):
    """A retrieval set with candidates for each query.

    Attributes:
        dataset: its queries and judgements.
        pairs: the ids of the query and the document of each pair that the model reads.
        source: the batches of the pairs.
    """

    dataset: RetrievalSet
    pairs: list[tuple[str, str]]
    source: EvalSource


@dataclasses.dataclass(frozen=True)
class RerankedSets:
    """The batches of several retrieval sets, and their metrics.

    Attributes:
        sets: name -> set.
        metric_names: the metrics to report.
        config: the architecture, whose activation turns logits into scores.
    """

    sets: Mapping[str, RerankedSet]
    metric_names: tuple[str, ...]
    config: BertConfig

    @property
    def num_batches(self) -> int:
        """Return the number of batches of all sets."""
        return sum(each.source.num_batches for each in self.sets.values())

    def batch(self, step: int, rows: slice = slice(None)) -> dict[str, np.ndarray]:
        """Return the rows `rows` of batch `step`."""
        for each in self.sets.values():
            if step < each.source.num_batches:
                return each.source.batch(step, rows)
            step -= each.source.num_batches
        raise IndexError(step)

    def score(self, predicted: Iterator[tuple[Mapping[str, np.ndarray], Batch]]) -> dict[str, float]:
        """Return the metrics of each set as `NAME/METRIC`, and as `METRIC` their means; of one set only `METRIC`."""
        scores = {}
        for name, each in self.sets.items():
            parts = itertools.islice(predicted, each.source.num_batches)
            logits = each.source.restore([predictions["logits"][:, 0] for predictions, _ in parts])
            relevance = scores_of(self.config, logits[:, None].astype(np.float64))[:, match_output(self.config)]
            rankings: dict[str, dict[str, float]] = {query: {} for query in each.dataset.queries}
            for (query, document), score in zip(each.pairs, relevance.tolist(), strict=True):
                rankings[query][document] = score
            scores[name] = mean_scores(each.dataset.judgements, rankings, self.metric_names)
        return mean_over_sets(scores)


def with_reranking_evaluation(job: Job, recipe: Recipe, dev: RetrievalDev, task: Task, prompt: str) -> Job:
    """Return a job that is also evaluated on retrieval sets.

    Args:
        job: the job.
        recipe: its resolved recipe; `data.dev_run` names a run with the candidates of each query for each set.
        dev: the retrieval sets.
        task: the reranking task.
        prompt: text before each query.

    Raises:
        InputError: a set or a run is missing or damaged, or a metric or a package is missing.
    """
    names = check_search_metrics(dev.metric_names, "config.data.metrics")
    runs = comma_separated(recipe.data.dev_run)
    if len(runs) != len(dev.directories):
        expected = f"a run with candidates for each of the {len(dev.directories)} retrieval sets of data.dev"
        hint = "`bert-jax evaluate-search --run-file` writes one"
        raise InputError(f"config.data.dev_run: expected {expected}, found {len(runs)}; {hint}")
    sets: dict[str, RerankedSet] = {}
    rows: list[Groups] = []
    notes: list[str] = []
    for (name, directory), run in zip(dev.directories.items(), runs, strict=True):
        dataset = read_retrieval_set(directory, recipe.data.dev_split)
        pairs, texts = _candidates(dataset, run, recipe.data.dev_candidates)
        examples = [[(prompt + dataset.queries[query], texts[document])] for query, document in pairs]
        encoded = encode_groups(job.tokenizer, examples, np.zeros(len(pairs), np.float32), recipe.data.max_seq_length)
        buckets = few_buckets(encoded.lengths, recipe.data.max_seq_length)
        source = EvalSource(encoded, recipe.eval_batch_size, buckets, job.tokenizer.pad_id)
        sets[name] = RerankedSet(dataset, pairs, source)
        rows.append(encoded)
        notes += _notes(name, dataset, pairs)
    evaluated = RerankedSets(sets, names, task.model.config)
    evaluation = Evaluation(task, evaluated, evaluated.score)
    return with_retrieval_evaluation(job, evaluation, [each.dataset for each in sets.values()], rows, notes)


def _notes(name: str, dataset: RetrievalSet, pairs: list[tuple[str, str]]) -> Iterator[str]:
    """Yield lines on what of a retrieval set is evaluated."""
    found = sum(dataset.judgements[query].get(document, 0) > 0 for query, document in pairs)
    relevant = sum(value > 0 for row in dataset.judgements.values() for value in row.values())
    count = f"{name}: {len(dataset.queries):,} queries and {len(pairs):,} candidates"
    yield f"{count}, with {found:,} of {relevant:,} relevant documents"
    if without := len(dataset.queries.keys() - {query for query, _ in pairs}):
        yield f"{name}: {without:,} queries have no candidates, so their metrics are 0"


def _candidates(dataset: RetrievalSet, run: str, count: int) -> tuple[list[tuple[str, str]], dict[str, str]]:
    """Return the pairs of a query and one of its first `count` documents in a run, and the texts of the documents."""
    rankings = read_run(run)
    pairs = [(query, document) for query in dataset.queries for document in list(rankings.get(query, ()))[:count]]
    if not pairs:
        raise InputError(f"{run}: expected documents for the queries of {dataset.directory}, found none")
    named = {document for _, document in pairs}
    texts = {name: text for name, text in dataset.documents() if name in named}
    if missing := sorted(named - texts.keys()):
        raise InputError(f"{run}: expected documents of {dataset.directory}, found {missing[0]!r}")
    return pairs, texts
