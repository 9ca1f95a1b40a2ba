"""The figures that matter most, from a few turns, to see whether a change has cost speed: `make benchmark-quick`."""

import tempfile
from pathlib import Path

from benchmarks import latency, pipelines, step
from benchmarks.tasks import quicker_dtype

TURNS = 2


def main(data: Path, model: Path, record: Path | None) -> None:
    """Print rows of the pretraining step, of embedding and of latency, in the dtype that is quicker here.

    Args:
        data: the directory of SST-2.
        model: all-MiniLM-L6-v2.
        record: JSON lines file to which each row is appended, or None.
    """
    dtype = quicker_dtype()
    step.main(TURNS, record, [dtype], ["eager"])
    with tempfile.TemporaryDirectory() as directory:
        embed = pipelines.contests(data, model, directory)[1]
        pipelines.hold(embed, TURNS, directory, record, (dtype,))
    latency.main(model, TURNS, record)
