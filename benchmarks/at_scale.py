"""What large corpora cost, from figures of one core, and whether the schedule holds when workers fail.

    python -m benchmarks at_scale

Prints the tables of docs/at_scale.md. Nothing is run but a simulation of `prepare`: workers take units in the order of
the corpus. Some workers are slow, each is lost from time to time and replaced, and some files are compressed, so that
one worker reads a whole one. A lost worker's unit is restarted; its finished chunks are only read again.
"""

import dataclasses
import heapq
import random
from collections.abc import Sequence

MB, GB, TB = 10**6, 10**9, 10**12
_HOUR = 3600.0

# Of one core, in bytes of text a second (benchmarks/RESULTS.md, "Text" and "Preparing").
READ = 30 * MB  # reading, decoding and hashing
NEAR = 3.9 * MB  # signatures of runs of words
LANGUAGE = 6 * MB  # the language of each document
HTML = 3.8 * MB  # of pages, to their main text
PREPARE = 2.9 * MB  # all of `prepare` for one length and dupe_factor 1: 0.67 M tokens of 4.3 bytes
BYTES_PER_TOKEN = 4.3
SHARD_BYTES_PER_TOKEN = 2.2  # 2 for the id, and the headers of rows
DOCUMENT = 3000  # bytes of a document
UNIT, CHUNK, RANGE = 64 * 2**20, 16 * 2**20, 64 * 2**20
READ_BYTES = 5 * MB  # of a request for text

# Of all-MiniLM-L6-v2, for texts of 128 tokens: forward FLOPs of a text, those of a v5e chip, and the share of them that
# is assumed to be reached. A core tokenizes 0.7 M tokens a second.
FLOPS = 128 * 2 * (6 * 12 * 384**2 + 6 * 2 * 128 * 384)
CHIP_FLOPS, REACHED = 197e12, 0.4
TOKENIZED = 0.7e6
CPU_TEXTS = 60  # a second on one core, float32
VECTOR = 384 * 2  # bytes, float16

# Dollars, to be replaced by those of the day: an hour of a core with 4 GB, one of a v5e chip, and a read of a bucket.
CORE_HOUR, CHIP_HOUR, REQUEST = 0.07, 1.2, 0.4e-6


@dataclasses.dataclass(frozen=True)
class Cluster:
    """Workers and what goes wrong with them.

    Attributes:
        workers: workers of one core.
        slow: the fraction of workers that are slow.
        slowness: how many times as long these take.
        lost_per_hour: how often a worker is lost, on average.
        replaced_after: seconds until there is another.
    """

    workers: int
    slow: float = 0.0
    slowness: float = 1.0
    lost_per_hour: float = 0.0
    replaced_after: float = 120.0


@dataclasses.dataclass(frozen=True)
class Outcome:
    """Hours of a run, the fraction of the workers' time that was of use, and the number of lost workers."""

    hours: float
    useful: float
    lost: int


def simulate(units: Sequence[float], cluster: Cluster, seed: int = 0) -> Outcome:
    """Let workers take units in order until all are done.

    Args:
        units: bytes of each unit.
        cluster: the workers.
        seed: of what goes wrong.
    """
    rng = random.Random(seed)
    speeds = [PREPARE / (cluster.slowness if rng.random() < cluster.slow else 1.0) for _ in range(cluster.workers)]
    free = [(0.0, worker) for worker in range(cluster.workers)]  # time from which a worker is free
    waiting = [(size, 0.0) for size in reversed(units)]  # (bytes, bytes that a lost worker has finished)
    end, lost = 0.0, 0
    while waiting:
        start, worker = heapq.heappop(free)
        size, done = waiting.pop()
        seconds = (size - done) / speeds[worker] + done / READ
        survives = rng.expovariate(cluster.lost_per_hour / _HOUR) if cluster.lost_per_hour else float("inf")
        if survives < seconds:
            lost += 1
            made = max(0.0, survives - done / READ) * speeds[worker]
            waiting.append((size, done + made // CHUNK * CHUNK))
            heapq.heappush(free, (start + survives + cluster.replaced_after, worker))
            continue
        end = max(end, start + seconds)
        heapq.heappush(free, (start + seconds, worker))
    useful = sum(units) / PREPARE / (end * cluster.workers)
    return Outcome(end / _HOUR, useful, lost)


def units_of(size: float, largest: Sequence[float] = ()) -> list[float]:
    """Return the sizes of the units of a corpus of `size` bytes that ends with compressed files of `largest` bytes."""
    return [UNIT] * round((size - sum(largest)) / UNIT) + list(largest)


def _compared(units: float, key_bytes: float) -> float:
    """Return the number of reads that compare keys: two for each unit in each range of keys."""
    return 2 * units * min(4096, max(1, key_bytes / RANGE))


def main() -> None:
    """Print the tables."""
    print("| corpus | step | core hours | dollars | workers | hours | read | written | requests, M |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name, size, workers in (("1 TB", TB, 100), ("100 TB", 100 * TB, 2000)):
        documents, units = size / DOCUMENT, size / UNIT
        for step, rate, written, requests in (
            ("examples", PREPARE, size / BYTES_PER_TOKEN * SHARD_BYTES_PER_TOKEN, size / READ_BYTES + 8 * units),
            ("language, in the same pass", LANGUAGE, 0, 0),
            ("pages of HTML, in the same pass", HTML, 0, 0),
            ("repeated documents", READ, documents * 20, size / READ_BYTES + _compared(units, documents * 20)),
            ("near documents", NEAR, documents * 18 * 76, size / READ_BYTES + _compared(units, documents * 18 * 76)),
        ):
            hours = size / rate / _HOUR
            read = size / TB if requests else 0
            cost = hours * CORE_HOUR + requests * REQUEST
            print(f"| {name} | {step} | {hours:,.0f} | {cost:,.0f} | {workers:,} | {hours / workers:.1f} | "
                  f"{read:,.0f} TB | {written / TB:,.2f} TB | {requests / 1e6:,.1f} |")  # fmt: skip
    print(
        "\n| 1 TB, 100 workers | hours | of the ideal | useful time of workers | workers lost |\n|---|---|---|---|---|"
    )
    ideal = TB / PREPARE / 100 / _HOUR
    slow, lost = {"slow": 0.1, "slowness": 3.0}, {"lost_per_hour": 0.5}
    for name, units, cluster in (
        ("nothing goes wrong", units_of(TB), Cluster(100)),
        ("a tenth of the workers 3 times as slow", units_of(TB), Cluster(100, **slow)),
        ("each worker lost every 2 hours", units_of(TB), Cluster(100, **lost)),
        ("both", units_of(TB), Cluster(100, **slow, **lost)),
        ("both, and at the end 20 compressed files of 5 GB", units_of(TB, [5 * GB] * 20), Cluster(100, **slow, **lost)),
        ("the same text in 200 of 0.5 GB", units_of(TB, [GB / 2] * 200), Cluster(100, **slow, **lost)),
    ):
        found = [simulate(units, cluster, seed) for seed in range(5)]
        hours, useful, gone = (sorted(getattr(f, key) for f in found)[2] for key in ("hours", "useful", "lost"))
        print(f"| {name} | {hours:.2f} | {hours / ideal:.2f} | {useful:.0%} | {gone} |")
    texts = 1e9
    chip = CHIP_FLOPS * REACHED / FLOPS
    print("\n| 1 billion texts of 128 tokens | texts/s | hours of it | dollars |\n|---|---|---|---|")
    for name, rate, price in (("a v5e chip", chip, CHIP_HOUR), ("a core", CPU_TEXTS, CORE_HOUR)):
        hours = texts / rate / _HOUR
        print(f"| {name} | {rate:,.0f} | {hours:,.0f} | {hours * price:,.0f} |")
    cores, written = chip * 128 / TOKENIZED, chip * VECTOR / MB
    print(f"\nA chip needs {cores:.1f} cores that tokenize, and writes {written:.0f} MB/s of vectors; in all these are "
          f"{texts * VECTOR / TB:.2f} TB.")  # fmt: skip
