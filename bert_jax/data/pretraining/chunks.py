"""Cut documents into chunks, and record the chunks that are done."""

import dataclasses
import hashlib
import itertools
import json
from collections.abc import Iterable, Iterator

from bert_jax import program_cache, storage
from bert_jax.data.corpora.readers import Document
from bert_jax.data.invalid_rows import RULES
from bert_jax.data.pretraining.corpus_checks import TextCounts
from bert_jax.data.pretraining.filters import Filters
from bert_jax.data.pretraining.instances import OBJECTIVES
from bert_jax.data.pretraining.manifest import InstanceSet
from bert_jax.errors import InputError, did_you_mean, logger
from bert_jax.tokenization import Tokenizer

DUPLICATES = ("", "exact", "near")  # kinds of duplicates that are removed
RECORDS_DIR = "done_chunks"  # subdirectory that exists until the prepared directory is complete
_logger = logger(__name__)


@dataclasses.dataclass(frozen=True)
class PrepareSettings:
    """The settings by which a corpus is cut into instances; the fields are arguments of `prepare`."""

    objective: str
    packed: bool
    max_seq_lengths: tuple[int, ...]
    dupe_factor: int
    short_seq_prob: float
    validation_fraction: float
    seed: int
    shard_bytes: int
    deduplicate: str
    similarity: float
    invalid: str
    filters: Filters

    def __post_init__(self) -> None:
        if self.objective not in OBJECTIVES:
            raise InputError(f"objective {self.objective!r} is not known{did_you_mean(self.objective, OBJECTIVES)}")
        for name, holds, expected in (
            ("dupe_factor", self.dupe_factor >= 1, "at least 1"),
            ("short_seq_prob", 0 <= self.short_seq_prob <= 1, "0 to 1"),
            ("validation_fraction", 0 <= self.validation_fraction < 1, "0 to less than 1"),
            ("shard_bytes", self.shard_bytes >= 1, "at least 1"),
            ("deduplicate", self.deduplicate in DUPLICATES, f"one of {', '.join(map(repr, DUPLICATES))}"),
            ("invalid", self.invalid in RULES, f"one of {', '.join(map(repr, RULES))}"),
            ("similarity", 0 < self.similarity <= 1, "above 0 and at most 1"),
        ):  # fmt: skip
            if not holds:
                raise InputError(f"{name}: expected {expected}, found {getattr(self, name)!r}")


@dataclasses.dataclass(frozen=True)
class Chunk:
    """Documents of one split whose examples are made together.

    Attributes:
        split: one of SPLITS.
        name: its name within the split: the number of its unit, and its number within the unit.
        documents: the documents.
    """

    split: str
    name: str
    documents: list[Document]

    @property
    def unit(self) -> str:
        """The name of the chunk's unit, or of its group of held-out documents."""
        return unit_of(self.name)

    def fingerprint(self, settings: PrepareSettings, tokenizer: Tokenizer) -> str:
        """Return a digest of everything that the shards of this chunk depend on."""
        sources = program_cache.fingerprint_of_sources()
        made_by = (sources, dataclasses.astuple(settings), tokenizer.fingerprint, self.split, self.name)
        digest = hashlib.sha256(repr(made_by).encode())
        for document in self.documents:
            digest.update(repr((document.texts, document.are_sentences)).encode())
        return digest.hexdigest()

    def record(self, directory: storage.Path) -> storage.Path:
        """Return the path of the file that records that this chunk is done."""
        return directory / RECORDS_DIR / f"{self.split}-{self.name}.json"


@dataclasses.dataclass(frozen=True)
class ChunkResult:
    """The result of preparing a chunk: its shards, and counts of its text."""

    split: str
    name: str
    documents: int
    sentences: int
    characters: int
    sets: list[InstanceSet]  # each set has one shard
    counts: TextCounts

    @property
    def unit(self) -> str:
        """The name of the chunk's unit, or of its group of held-out documents."""
        return unit_of(self.name)

    @property
    def place(self) -> tuple[int, ...]:
        """The numbers in its name, which sort chunks in the order of the corpus."""
        return tuple(map(int, self.name.split("-")))

    @classmethod
    def read(cls, path: storage.Path, fingerprint: str) -> "ChunkResult | None":
        """Read the result of an earlier run; None where it is missing, damaged, or made with other settings."""
        try:
            content = json.loads(path.read_bytes())
            if content.pop("fingerprint") != fingerprint:
                return None
            sets, counts = map(InstanceSet.parse, content["sets"]), TextCounts(**content["counts"])
            return cls(**{**content, "sets": list(sets), "counts": counts})
        except FileNotFoundError:
            return None
        except (ValueError, LookupError, TypeError, AttributeError, InputError) as error:
            _logger.warning("%s is damaged (%s); its chunk is prepared again", path, error)
            return None

    def write(self, path: storage.Path, fingerprint: str) -> None:
        """Write the result for `read` in a resumed run."""
        storage.write_atomically(path, json.dumps({"fingerprint": fingerprint, **dataclasses.asdict(self)}))


def unit_of(name: str) -> str:
    """Return the name of a chunk's unit from the chunk's name."""
    return name.partition("-")[0]


def cut_chunks(documents: Iterable[Document], split: str, name: str, shard_bytes: int) -> Iterator[Chunk]:
    """Yield chunks of at least `shard_bytes`; a remainder of less than half a chunk joins the last one."""
    full: list[Document] = []  # the last full chunk, which a small remainder may still join
    partial: list[Document] = []
    size, numbers = 0, itertools.count()
    for document in documents:
        partial.append(document)
        size += document.characters
        if size >= shard_bytes:
            if full:
                yield Chunk(split, f"{name}-{next(numbers):03d}", full)
            full, partial, size = partial, [], 0
    if full and size < shard_bytes // 2:
        full, partial = full + partial, []
    for rest in filter(None, (full, partial)):
        yield Chunk(split, f"{name}-{next(numbers):03d}", rest)
