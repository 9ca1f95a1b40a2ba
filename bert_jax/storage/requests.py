"""Count the requests of this process to object stores."""

import dataclasses
import sys

RETRIED = frozenset({401, 408, 429, *range(500, 505)})  # HTTP statuses that are retried


@dataclasses.dataclass
class Counts:
    """The number of requests of this process to object stores.

    Attributes:
        requests: number of HTTP requests; for stores other than gs://, number of operations.
        retries: number of requests that failed and were repeated.
    """

    requests: int = 0
    retries: int = 0


counts = Counts()


def request_counts() -> Counts:
    """Return the number of requests so far, including those of TensorStore, which writes the arrays of checkpoints."""
    total = dataclasses.replace(counts)
    if "tensorstore" in sys.modules:
        import tensorstore

        for metric in tensorstore.experimental_collect_matching_metrics("/tensorstore/http/response_codes"):
            for status in metric["values"]:
                total.requests += status["value"]
                total.retries += status["value"] * (int(status["code"]) in RETRIED)
    return total
