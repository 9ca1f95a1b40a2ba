"""Retrieval sets in `data.dev`: what a recipe says of them, and their place in a job."""

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from bert_jax import storage
from bert_jax.data.finetuning.features import Paddable
from bert_jax.data.retrieval_sets import RetrievalSet, SampledCorpus
from bert_jax.errors import InputError
from bert_jax.jobs import fingerprints
from bert_jax.jobs.base import Evaluation, Job
from bert_jax.jobs.fine_tuning import NOT_EVALUATED
from bert_jax.recipes import Recipe


class RetrievalDev(NamedTuple):
    """The retrieval sets that a recipe names in `data.dev`.

    Attributes:
        directories: name -> directory of each set.
        metric_names: the metrics of search to report; () = the default ones.
    """

    directories: Mapping[str, str]
    metric_names: tuple[str, ...]


def separate_retrieval_sets(recipe: Recipe) -> tuple[Any, RetrievalDev | None]:
    """Separate the retrieval sets of `data.dev`, which are directories, from a table.

    Returns:
        The recipe, whose `data.dev` and `data.metrics` are those of the table alone; and the retrieval sets, or None if
        there are none.

    Raises:
        InputError: there are several tables, two sets of one name, or a metric fits none of them.
    """
    data = recipe.data
    specs = comma_separated(data.dev)
    directories = [spec for spec in specs if _is_directory(spec)]
    tables = [spec for spec in specs if spec not in directories]
    if len(tables) > 1:
        raise InputError(f"config.data.dev: expected one table, and directories of retrieval sets, found {data.dev!r}")
    if not directories:
        without = not specs and not data.validation_split  # such as in a plan, or for examples to prune by
        return (_with(recipe, "", _of_tables(data)) if without and data.metrics else recipe), None
    named = {spec.rstrip("/").rpartition("/")[2]: spec for spec in directories}
    if len(named) < len(directories):
        raise InputError(f"config.data.dev: expected directories of different names, found {', '.join(directories)}")
    of_search = tuple(name for name in data.metrics if "@" in name)
    others = _of_tables(data)
    if others and not tables:
        expected = "metrics of search, such as ndcg@10, as data.dev has no table"
        raise InputError(f"config.data.metrics: expected {expected}, found {others[0]!r}")
    return _with(recipe, "".join(tables), others), RetrievalDev(named, of_search)


def _with(recipe: Recipe, dev: str, metrics: tuple[str, ...]) -> Any:
    """Return a copy of a recipe with other evaluation data and metrics."""
    changed = recipe.copy_and_resolve_references()
    with changed.unlocked():
        changed.data.dev, changed.data.metrics = dev, metrics
    return changed


def comma_separated(paths: Any) -> list[str]:
    """Return the paths of a recipe key that commas separate, unless a file or directory has the whole name."""
    if not isinstance(paths, str) or "," not in paths or storage.Path(paths).exists():
        return [paths] if paths else []
    return [part.strip() for part in paths.split(",") if part.strip()]


def _of_tables(data: Any) -> tuple[str, ...]:
    """Return the metrics that are not of search."""
    return tuple(name for name in data.metrics if "@" not in name)


def _is_directory(spec: Any) -> bool:
    return isinstance(spec, str) and not spec.startswith("tfds:") and storage.Path(spec).is_dir()


def notes_of(name: str, dataset: RetrievalSet, corpus: SampledCorpus) -> list[str]:
    """Return lines on what of a retrieval set is evaluated, and what in it cannot be found."""
    documents = f"{len(corpus.ids):,} documents"
    if len(corpus.ids) < corpus.total:
        documents += f" of {corpus.total:,} (all judged ones, and a sample of the others: data.dev_documents)"
    lines = [f"{name}: {len(dataset.queries):,} queries and {documents}"]
    present = set(corpus.ids)
    relevant = {name for row in dataset.judgements.values() for name, relevance in row.items() if relevance > 0}
    same = sum(query in present and row.get(query, 0) <= 0 for query, row in dataset.judgements.items())
    for count, what in (
        (same, "queries have the id of a document, which is left out of their rankings, as in BEIR"),
        (len(relevant - present), "relevant documents are not in the corpus; metrics count them as not found"),
        (sum(max(row.values()) <= 0 for row in dataset.judgements.values()),
         "queries have no relevant document, so their metrics are 0"),
    ):  # fmt: skip
        if count:
            lines.append(f"{name}: {count:,} {what}")
    return lines


def with_retrieval_evaluation(
    job: Job, evaluation: Evaluation, datasets: Sequence[RetrievalSet], rows: Sequence[Paddable], notes: Sequence[str]
) -> Job:
    """Return a job that is also evaluated on retrieval sets; the names of their metrics have no prefix.

    Args:
        job: the job, with or without other evaluation data.
        evaluation: the evaluation on all sets.
        datasets: the sets, whose judgements a resumed run compares.
        rows: the tokenized texts of all sets, which a resumed run compares too.
        notes: lines for the user.
    """

    def data() -> dict[str, Any]:
        record = job.data()
        parts = [fingerprints.of_rows(each, job.tokenizer.pad_id) for each in rows]
        parts += [record["dev"]] if record["dev"] else []
        judged = [[[query, sorted(row.items())] for query, row in each.judgements.items()] for each in datasets]
        labels = [part["labels"] for part in parts]
        return record | {
            "dev": {
                "rows": sum(part["rows"] for part in parts),
                "texts": _hash([part["texts"] for part in parts]),
                "labels": _hash([labels, judged]),
                "any_order": _hash([[part["any_order"] for part in parts], judged]),
            }
        }

    kept = tuple(note for note in job.notes if note != NOT_EVALUATED)
    more = (*job.more_evaluations, ("", evaluation))
    return dataclasses.replace(job, data=data, notes=(*kept, *notes), more_evaluations=more)


def _hash(value: Any) -> str:
    return hashlib.blake2b(json.dumps(value).encode(), digest_size=16).hexdigest()
