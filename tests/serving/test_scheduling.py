"""The queue of a model and the scheduler of several: which rows run next, and in which shape."""

import asyncio
import time
from types import SimpleNamespace

import numpy as np
import pytest
from served import SHAPES, StandIn

from bert_jax.serving.batching import PATIENCE, Queue, Row, Shape, Submission, static_shapes
from bert_jax.serving.scheduler import Scheduler


def row(size):
    ids = np.full(size, 7, np.int32)
    return Row(ids, np.zeros_like(ids))


def submission(*sizes, at=0.0):
    return Submission([row(size) for size in sizes], SimpleNamespace(), at)


def test_shapes_are_few_and_cover_every_length():
    shapes = static_shapes(256, 512)
    assert Shape(32, 16) in shapes and Shape(2, 256) in shapes and Shape(1, 256) in shapes
    assert max(shape.rows * shape.length for shape in shapes) == 512
    assert len(shapes) == 18 and max(shape.length for shape in shapes) == 256
    assert static_shapes(10, 512) == (Shape(1, 10), Shape(51, 10)) and static_shapes(10, 9) == (Shape(1, 10),)
    brief = set(static_shapes(256, 512, brief_tokens=64)) - set(shapes)
    assert brief == {Shape(4, 16), Shape(2, 24), Shape(2, 32)}
    assert set(static_shapes(256, 512, True, 64)) == {shape for shape in shapes if shape.rows > 1}


def test_a_batch_has_the_rows_of_one_length_and_is_filled_with_shorter_ones():
    queue = Queue(SHAPES)
    for size in (20, 4, 30, 5, 6):
        queue.add(submission(size))
    batch = queue.take(0.0)
    assert batch.shape == Shape(4, 32) and batch.tokens == 20 + 30 + 4 + 5
    assert [item.submission.rows[0].size for item in batch.rows] == [20, 30, 4, 5]
    assert queue.tokens == 6
    assert queue.take(0.0).shape == Shape(1, 16)
    assert queue.take(0.0) is None and not queue


def test_an_invariant_batch_has_rows_of_its_own_length_only():
    queue = Queue((Shape(4, 16), Shape(4, 32)), batch_invariant=True)
    for size in (20, 4, 30, 5):
        queue.add(submission(size))
    batches = [queue.take(0.0), queue.take(0.0)]
    sizes = {b.shape: sorted(item.submission.rows[0].size for item in b.rows) for b in batches}
    assert sizes == {Shape(4, 32): [20, 30], Shape(4, 16): [4, 5]}
    shapes = static_shapes(256, 512, batch_invariant=True)
    assert len({shape.length for shape in shapes}) == len(shapes) and Shape(32, 16) in shapes


def test_the_fullest_shape_runs_first_but_no_row_waits_for_ever():
    def filled(now):
        queue = Queue(SHAPES)
        queue.add(submission(20, at=0.0))
        queue.add(submission(10, 11, 12, 13, at=0.01))
        return queue.take(now)

    assert filled(0.02).shape == Shape(4, 16)
    assert filled(PATIENCE * 2).shape.length == 32


def test_measured_times_choose_the_shape():
    queue = Queue(SHAPES)
    queue.add(submission(10, 10, 10))
    queue.measured(Shape(4, 16), 40, 1.0)
    queue.measured(Shape(1, 16), 10, 0.01)
    assert queue.take(0.0).shape == Shape(1, 16)
    assert queue.clock == pytest.approx(1.01)


def test_the_first_measured_time_scales_the_times_of_the_other_shapes():
    queue = Queue((Shape(1, 16), Shape(32, 16)))
    queue.measured(Shape(1, 16), 10, 0.01)
    queue.add(submission(10))
    queue.add(submission(10))
    assert queue.take(0.0).shape == Shape(1, 16)  # the full batch was assumed to take 0.03 s, which is too good


def test_short_requests_wait_for_brief_batches_of_long_ones_only():
    queue = Queue(static_shapes(32, 512, brief_tokens=64), brief_tokens=64)
    queue.add(long := submission(*[10] * 100, at=0.0))
    queue.add(short := submission(10, at=0.01))
    assert queue.has_long
    first, second = queue.take(0.02, brief=True), queue.take(0.02, brief=True)
    assert first.shape == Shape(1, 16) and first.rows[0].submission is short
    assert second.shape == Shape(4, 16) and {item.submission for item in second.rows} == {long}
    assert queue.take(0.02).shape == Shape(32, 16)
    for _ in range(20):  # short requests without end do not keep the long one waiting for ever
        queue.add(submission(10, at=1.0))
        queue.take(1.0, brief=True)
    assert long.waiting < 100 - 4 - 32 - 4 * 3
    queue.drop(long)
    assert not queue.has_long


def test_no_batch_of_a_long_request_is_dispatched_ahead_of_a_short_one():
    class Ahead(StandIn):
        ahead = 1
        running, most = 0, 0

        def begin(self, rows, shape):
            fetch = super().begin(rows, shape)
            self.running += 1
            self.most = max(self.most, self.running)

            def counted():
                self.running -= 1
                return fetch()

            return counted

    def most_running(short):
        backend = Ahead(0.01)

        async def body(scheduler):
            long = scheduler.submit("a", [row(10)] * 200)
            if short:
                await scheduler.submit("a", [row(10)]).future
                backend.most = backend.running
            await asyncio.sleep(0.2)
            scheduler.drop("a", long)

        run({"a": [backend]}, body)
        return backend.most

    assert most_running(short=False) == 2
    assert most_running(short=True) == 1


def test_rows_of_a_client_that_is_gone_are_left_out():
    queue = Queue(SHAPES)
    gone, stays = submission(10, 11, 12, 13, 14), submission(9)
    queue.add(gone)
    queue.add(stays)
    assert len(queue.take(0.0).rows) == 4
    queue.drop(gone)
    queue.drop(gone)
    assert queue.tokens == 9
    assert [item.submission for item in queue.take(0.0).rows] == [stays]
    assert queue.take(0.0) is None and queue.tokens == 0


def run(backends, body):
    """Runs a coroutine with a scheduler, which is stopped after it."""
    scheduler = Scheduler(backends)
    scheduler.start()

    async def main():
        while not scheduler.ready:
            await asyncio.sleep(0.01)
        try:
            return await asyncio.wait_for(body(scheduler), 30)
        finally:
            await asyncio.get_running_loop().run_in_executor(None, scheduler.stop)

    return asyncio.run(main())


def test_outputs_are_in_the_order_of_the_rows():
    backend = StandIn()

    async def body(scheduler):
        found = [scheduler.submit("a", [row(size) for size in sizes]) for sizes in ((5, 30, 12), (20,), (3, 4))]
        return [(await one.future) for one in found]

    outputs = run({"a": [backend]}, body)
    assert [[int(output[0]) for output in found] for found in outputs] == [[5, 30, 12], [20], [3, 4]]


def test_a_busy_model_does_not_starve_another():
    """A thousand rows of one model wait; eight requests of the other, one after another, take eight turns each."""
    busy, other = StandIn(0.005), StandIn(0.005)

    async def body(scheduler):
        flood = scheduler.submit("busy", [row(10)] * 1000)
        await asyncio.sleep(0.05)
        waits = []
        for _ in range(8):
            started = time.monotonic()
            await scheduler.submit("other", [row(10)]).future
            waits.append(time.monotonic() - started)
        assert not flood.future.done()
        scheduler.drop("busy", flood)
        return waits

    waits = run({"busy": [busy], "other": [other]}, body)
    assert sorted(waits)[4] < 0.1  # of 250 batches of the other model, which take 1.25 s


def test_several_devices_share_the_rows():
    backends = [StandIn(0.01), StandIn(0.01)]

    async def body(scheduler):
        await scheduler.submit("a", [row(10)] * 80).future

    run({"a": backends}, body)
    counts = [len(backend.batches) for backend in backends]
    assert sum(counts) == 20 and min(counts) >= 5


def test_an_error_of_a_batch_is_that_of_its_requests_only():
    backend = StandIn()

    async def body(scheduler):
        backend.error = RuntimeError("out of memory")
        with pytest.raises(RuntimeError, match="out of memory"):
            await scheduler.submit("a", [row(10)] * 9).future
        backend.error = None
        return await scheduler.submit("a", [row(11)]).future

    assert run({"a": [backend]}, body)[0][0] == 11


def test_stopping_runs_what_waits():
    backend = StandIn(0.01)

    async def body(scheduler):
        return scheduler.submit("a", [row(10)] * 40)

    assert len(backend.batches) == 0
    assert run({"a": [backend]}, body).left == 0


def test_a_failed_warm_up_is_reported():
    backend = StandIn()
    backend.error = RuntimeError("no memory")
    scheduler = Scheduler({"a": [backend]})
    scheduler.start()
    deadline = time.monotonic() + 30
    while scheduler.failed is None and time.monotonic() < deadline:  # a warm-up that is stopped at once may not begin
        time.sleep(0.01)
    scheduler.stop()
    assert not scheduler.ready and "no memory" in str(scheduler.failed)
