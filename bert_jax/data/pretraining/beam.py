"""Run the steps of `prepare` as a graph of Apache Beam, on any of its runners.

Elements of the graph are numbers and counts. Text and shards stay in files, which every worker must reach under the
same names: on one machine's disk, or in an object store for several machines.
"""

import functools
import pickle
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.options.pipeline_options import PipelineOptions

from bert_jax import storage
from bert_jax.data.pretraining import steps
from bert_jax.data.pretraining.chunks import RECORDS_DIR, PrepareSettings
from bert_jax.data.pretraining.deduplication import KeyRange
from bert_jax.data.pretraining.grouped_rows import read_grouped, write_grouped
from bert_jax.data.pretraining.manifest import Manifest
from bert_jax.data.pretraining.removal import UnitTexts
from bert_jax.data.pretraining.steps import Preparation, Prepared
from bert_jax.data.pretraining.units import HeldOut, Unit
from bert_jax.errors import InputError

_BYTES = np.dtype("u1")
# An error of bert_jax in a worker's traceback, and the text that Beam appends to it.
_INPUT_ERROR = re.compile(r"^bert_jax\.[\w.]*\.(?:InputError|InvalidRow): (.*?)(?: \[while running .*)?$", re.MULTILINE)


def run_on_beam(job: Preparation, corpus: str, units: Sequence[Unit], options: Sequence[str]) -> Manifest:
    """Run all steps of a preparation, and wait for them.

    Args:
        job: the preparation.
        corpus: the name of the corpus.
        units: its units, which must be picklable.
        options: options of Beam and of its runner, such as `--runner=DataflowRunner`.

    Raises:
        InputError: a step raised an InputError.
    """
    pickled = [np.frombuffer(pickle.dumps(unit), _BYTES) for unit in units]
    write_grouped(_units_path(job), np.array([len(unit) for unit in pickled]), pickled)
    count = len(units)

    def step(work: Callable[..., Iterable[Any]], *options: Any) -> beam.PTransform:
        return beam.ParDo(_Step(functools.partial(work, *options), job.settings, job.directory.url))

    try:
        with beam.Pipeline(options=PipelineOptions(list(options))) as graph:
            numbers = graph | "numbers of units" >> beam.Create(range(count))
            if job.kinds:
                texts = numbers | "spread texts" >> beam.Reshuffle() | "texts" >> step(_texts, count)
                ranges = texts | "all texts" >> _together() | "ranges" >> step(_ranges)
                repeated = ranges | "spread ranges" >> beam.Reshuffle() | "repeated" >> step(_repeated)
                numbers = (
                    repeated | "all repeated" >> _together() | "numbers again" >> beam.FlatMap(lambda _: range(count))
                )
            prepared = numbers | "spread units" >> beam.Reshuffle() | "prepared" >> step(_prepared_unit, count)
            train = prepared | "all units" >> _together() | "train" >> beam.Map(Prepared.total)
            held_out = train | "held out" >> step(_held_out) | "spread held out" >> beam.Reshuffle()
            validation = held_out | "validation" >> step(_prepared)
            everything = (train, validation) | "train and validation" >> beam.Flatten()
            _ = everything | "everything" >> _together() | "finish" >> step(_finish, corpus)
    except Exception as error:
        if input_error := _INPUT_ERROR.search(f"{type(error).__module__}.{type(error).__name__}: {error}"):
            raise InputError(input_error[1]) from None
        raise
    return Manifest.read(job.directory)


class _Step(beam.DoFn):
    """Transform that runs `work(job, element)` for each element."""

    def __init__(self, work: Callable[..., Iterable[Any]], settings: PrepareSettings, directory: str):
        self._work, self._settings, self._directory = work, settings, directory

    def setup(self) -> None:
        """Open the preparation, once in each worker."""
        self._job = Preparation.opened(self._settings, self._directory)

    def process(self, element: Any) -> Iterable[Any]:
        """Yield the results for an element."""
        return self._work(job=self._job, element=element)


def _together() -> beam.PTransform:
    """Return a transform that gathers all elements in one list."""
    with_key = "with a key" >> beam.Map(lambda element: (0, element))
    return beam.ptransform_fn(
        lambda elements: elements | with_key | beam.GroupByKey() | "list" >> beam.Map(lambda pair: list(pair[1]))
    )()


def _units_path(job: Preparation) -> storage.Path:
    return job.directory / RECORDS_DIR / "units.bin"


def _unit(job: Preparation, count: int, number: int) -> Unit:
    """Read the unit `number` of `count` units."""
    return pickle.loads(read_grouped(_units_path(job), _BYTES, count, number, number + 1).tobytes())


def _texts(count: int, *, job: Preparation, element: int) -> Iterator[UnitTexts]:
    yield steps.compared_texts(job, _unit(job, count, element))


def _ranges(*, job: Preparation, element: list[UnitTexts]) -> list[KeyRange]:
    return steps.ranges_of_keys(job, element)


def _repeated(*, job: Preparation, element: KeyRange) -> Iterator[int]:
    steps.repeated(job, element)
    yield element.number


def _prepared_unit(count: int, *, job: Preparation, element: int) -> Iterator[Prepared]:
    yield steps.prepared(job, _unit(job, count, element))


def _prepared(*, job: Preparation, element: HeldOut) -> Iterator[Prepared]:
    yield steps.prepared(job, element)


def _held_out(*, job: Preparation, element: Prepared) -> list[HeldOut]:
    return steps.groups_of_held_out(job, element)


def _finish(corpus: str, *, job: Preparation, element: list[Prepared]) -> Iterator[Manifest]:
    yield steps.finish(job, corpus, Prepared.total(element))
