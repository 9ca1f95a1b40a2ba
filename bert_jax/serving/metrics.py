"""Prometheus metrics of a server."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from bert_jax.serving.batching import RowBatch

_SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class ServerMetrics:
    """Counters and histograms in a registry of their own, so that several servers fit in one process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "bert_jax_requests", "Requests by route and HTTP status", ("route", "status"), registry=self.registry
        )
        self._seconds = Histogram(
            "bert_jax_request_seconds",
            "Seconds from a request's headers to the end of its response",
            ("route",),
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._queued = Histogram("bert_jax_queue_seconds", "Seconds from tokenization to the first batch", ("model",),
                                 buckets=_SECONDS, registry=self.registry)  # fmt: skip
        self._texts = Counter("bert_jax_texts", "Texts (or pairs) of answered requests", ("model",),
                              registry=self.registry)  # fmt: skip
        self._tokens = Counter("bert_jax_tokens", "Tokens in batches", ("model",), registry=self.registry)
        self._padding = Counter("bert_jax_padding_tokens", "Padding in batches", ("model",), registry=self.registry)
        self._rows = Histogram("bert_jax_batch_rows", "Rows in a batch", ("model",), buckets=_ROWS,
                               registry=self.registry)  # fmt: skip
        self._batch_seconds = Histogram("bert_jax_batch_seconds", "Seconds of a forward pass", ("model",),
                                        buckets=_SECONDS, registry=self.registry)  # fmt: skip
        self.in_flight = Gauge("bert_jax_requests_in_flight", "Requests in flight", registry=self.registry)
        self.waiting = Gauge("bert_jax_waiting_tokens", "Waiting tokens", ("model",), registry=self.registry)
        self.ready = Gauge("bert_jax_ready", "1 once every shape of every model is compiled", registry=self.registry)

    def request(self, route: str, status: int, seconds: float) -> None:
        """Count a request. `route` is one of the server's routes, never a path that a client chose."""
        self._requests.labels(route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def answered(self, model: str, texts: int, queued: float | None) -> None:
        """Count the texts of an answered request, and record the seconds that it was queued; None = it was not."""
        self._texts.labels(model).inc(texts)
        if queued is not None:
            self._queued.labels(model).observe(queued)

    def batch(self, model: str, batch: RowBatch, padding: int, seconds: float) -> None:
        """Count a batch; called in the threads of devices."""
        self._tokens.labels(model).inc(batch.tokens)
        self._padding.labels(model).inc(padding)
        self._rows.labels(model).observe(len(batch.rows))
        self._batch_seconds.labels(model).observe(seconds)

    def text(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self.registry)
