"""A finished tagger over sentences: `evaluate` scores it, `predict` writes its tags beside the words."""

import json
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from bert_jax import files
from bert_jax.data.examples import Columns
from bert_jax.data.tagged import read_sentences
from bert_jax.errors import InputError
from bert_jax.modeling import Bert
from bert_jax.tasks import entities
from bert_jax.tasks.classification_data import EvalSource, few_buckets
from bert_jax.tasks.finished import Finished, open_finished
from bert_jax.tasks.job import Batch
from bert_jax.tasks.token_classification import HEAD, TokenClassificationTask
from bert_jax.tasks.token_classification_data import UNTAGGED, TaggedFeatures, encode, in_order, load

OUT_FORMATS = (".jsonl", ".conll", ".txt", ".tsv")
_CHUNK = 4096  # sentences that `predict` holds at a time: enough to find rows of one length, few enough for memory


class Tagger(NamedTuple):
    """A tagger, ready to be run on all devices of this machine.

    Attributes:
        task: the model and what it does.
        finished: its tokenizer, and the limits within which it runs.
        run: a batch -> its predictions.
    """

    task: TokenClassificationTask
    finished: Finished
    run: Callable[[Batch], dict[str, np.ndarray]]

    def answers(
        self, features: TaggedFeatures, buckets: Sequence[int]
    ) -> tuple[list[dict[str, np.ndarray]], list[Batch]]:
        """The predictions for all rows, and the batches that they are of."""
        source = EvalSource(features, self.finished.batch_size, buckets, self.finished.tokenizer.pad_id)
        batches = [source.batch(i) for i in range(source.num_batches)]
        return [self.run(batch) for batch in batches], batches


def open_tagger(model_dir: files.PathLike, **options: Any) -> Tagger:
    """Opens a model directory whose head tags tokens.

    Args:
        model_dir: a directory in the Hugging Face layout.
        options: of `bert_jax.tasks.finished.open_finished`.

    Raises:
        InputError: the directory holds no tagger, or an option does not fit it.
    """
    finished = open_finished(model_dir, HEAD, **options)
    config = finished.config
    names = config.id2label or tuple(f"LABEL_{i}" for i in range(config.num_labels))
    task = TokenClassificationTask(Bert(config, HEAD, finished.compute), names, ())
    return Tagger(task, finished, finished.runner(task.predict))


def evaluate(
    model_dir: files.PathLike,
    data: str,
    columns: Columns,
    *,
    metric_names: Sequence[str] = (),
    **options: Any,
) -> dict[str, float]:
    """Scores a tagger on tagged sentences.

    Args:
        model_dir: a directory in the Hugging Face layout.
        data: what `bert_jax.data.tagged.read_sentences` takes.
        columns: its columns, where they are not the usual ones there.
        metric_names: of `bert_jax.tasks.entities.METRICS`; empty for all that fit.
        options: of `bert_jax.tasks.finished.open_finished`.

    Returns:
        The metrics, and the numbers of sentences (`examples`) and `words`.

    Raises:
        InputError: the model or the data do not fit; among others, a tag that the model does not know.
    """
    model = open_tagger(model_dir, **options)
    finished, names = model.finished, model.task.names
    chosen = entities.choose(metric_names, names)
    if not metric_names and chosen != ("accuracy",):
        chosen = entities.METRICS
    features, _ = load(data, columns, finished.tokenizer, finished.max_length, names)
    predictions, batches = model.answers(features, few_buckets(features.lengths, finished.max_length))
    task = TokenClassificationTask(model.task.model, names, chosen)
    words = in_order([batch["labels"] for batch in batches], batches) != UNTAGGED  # false between two sentences
    return task.score(predictions, batches) | {"examples": int((~words).sum()) + 1, "words": int(words.sum())}


def predict(
    model_dir: files.PathLike,
    data: str,
    out: files.PathLike,
    columns: Columns,
    **options: Any,
) -> int:
    """Writes a tagger's answers for every sentence, in the order of the sentences, in constant memory.

    A `.jsonl` file gets an object a sentence: `tokens`, `tags` and `scores` (of each tag, its probability). The others
    are CoNLL: a word and its tag in a line, a tab between them, and a blank line after a sentence.

    Args:
        model_dir: a directory in the Hugging Face layout.
        data: what `bert_jax.data.tagged.read_sentences` takes.
        out: the file to write, one of `OUT_FORMATS`; there when all is done, or not at all.
        columns: of `data`, as in `evaluate`; tags are not needed and not looked at.
        options: of `bert_jax.tasks.finished.open_finished`.

    Returns:
        The number of sentences.

    Raises:
        InputError: the model or the data do not fit.
    """
    if not str(out).endswith(OUT_FORMATS):
        raise InputError(f"{out}: expected a file named {' or '.join(OUT_FORMATS)} to write to")
    as_json = str(out).endswith(".jsonl")
    model = open_tagger(model_dir, **options)
    finished = model.finished
    rows = ((row.line, row.words) for row in read_sentences(data, columns, tagged=False))
    buckets: tuple[int, ...] | None = None
    count = 0
    with files.open_atomically(out) as file:
        while chunk := list(islice(rows, _CHUNK)):
            sentences = [words for _, words in chunk]
            nothing = [np.zeros(len(words), np.int32) for words in sentences]
            features = encode(finished.tokenizer, sentences, nothing, finished.max_length)
            # Shapes are settled by the first rows, so that a long file does not compile new ones again and again.
            buckets = buckets or _shapes(features.lengths, finished.max_length)
            predictions, batches = model.answers(features, buckets)
            tags, scores = (in_order([p[name] for p in predictions], batches) for name in ("tags", "scores"))
            lines = _json_lines if as_json else _conll_lines
            file.writelines(lines(data, chunk, [model.task.names[tag] for tag in tags], scores))
            count += len(chunk)
    return count


def _shapes(lengths: np.ndarray, limit: int) -> tuple[int, ...]:
    buckets = few_buckets(lengths, limit)
    return buckets if buckets[-1] == limit else (*buckets, limit)


Chunk = Sequence[tuple[int, tuple[str, ...]]]  # lines and words of sentences


def _json_lines(data: str, chunk: Chunk, tags: list[str], scores: np.ndarray) -> Iterator[str]:
    """An object a sentence; `tags` and `scores` are by the number of the word, with one left out between sentences."""
    place = 0
    for _, words in chunk:
        mine = slice(place, place + len(words))
        shares = [float(f"{score:.6g}") for score in scores[mine]]
        yield json.dumps({"tokens": words, "tags": tags[mine], "scores": shares}, ensure_ascii=False) + "\n"
        place += len(words) + 1


def _conll_lines(data: str, chunk: Chunk, tags: list[str], scores: np.ndarray) -> Iterator[str]:
    """As `_json_lines`, a word a line."""
    place = 0
    for line, words in chunk:
        for word, tag in zip(words, tags[place : place + len(words)], strict=True):
            if any(mark in word for mark in "\t\r\n"):
                raise InputError(f"{data}: line {line}: expected words that fit a line of CoNLL, found {word!r}")
            yield f"{word}\t{tag}\n"
        yield "\n"
        place += len(words) + 1
