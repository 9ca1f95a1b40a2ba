"""Prepared data in an object store: the same batches, few requests, bounded memory, errors that say what is wrong."""

import gc
import os
import threading
import time

import numpy as np
import pytest
from object_stores import store  # noqa: F401 (a fixture)
from prepared_corpora import write_corpus

from bert_jax.data.pretraining import row_reader, shards, shuffling
from bert_jax.data.pretraining.manifest import Manifest
from bert_jax.data.pretraining.prepare import prepare
from bert_jax.data.pretraining.prepared import PreparedInstances
from bert_jax.data.pretraining.sources import PretrainingEvalSource, PretrainingSource
from bert_jax.errors import InputError

URL = "gs://bucket/prepared"
ROWS_PER_BLOCK, BATCH = 5, 8


@pytest.fixture(scope="module")
def local(tmp_path_factory, tiny_tokenizer):
    """A directory whose sets have several shards, not all of one width."""
    folder = tmp_path_factory.mktemp("prepared")
    long = write_corpus(folder / "long.txt", documents=40)
    short = folder / "short.txt"
    short.write_text("\n\n".join(f"The cat sat. A dog ran. It slept {n}." for n in range(200)))
    prepare([str(long), str(short)], tiny_tokenizer, folder / "out", max_seq_length=64, num_workers=1, dupe_factor=2,
            validation_fraction=0.3, shard_bytes=4000)  # fmt: skip
    return folder / "out"


@pytest.fixture
def remote(local, store, monkeypatch):  # noqa: F811
    """The same directory in a store; blocks and windows are so small that there are many of them."""
    monkeypatch.setattr(shards, "BLOCK_BYTES", ROWS_PER_BLOCK * 67 * 2)
    monkeypatch.setattr(shuffling, "WINDOW_BLOCKS", 8)
    store.copy(local, "bucket/prepared")
    return store


def source_of(directory, **options):
    return PretrainingSource(directory, "train", 64, BATCH, **options)


def assert_equal(ours, theirs):
    assert ours.keys() == theirs.keys()
    for name in ours:
        np.testing.assert_array_equal(ours[name], theirs[name], err_msg=name)


def settled(source):
    """The source's reader, when all that it fetches ahead is there."""
    reader = source.instances.reader
    for future in list(reader._blocks.values()):
        future.result()
    return reader


def test_batches_are_those_of_a_local_disk(local, remote):
    ours, theirs = source_of(URL), source_of(local)
    assert len(Manifest.read(local).sets[0].shards) > 3
    last = 2 * ours.steps_per_epoch
    for step in (0, 1, last, 2, last // 2, 2):
        assert_equal(ours.batch(step), theirs.batch(step))
        assert_equal(ours.batch(step, slice(2, 5)), theirs.batch(step, slice(2, 5)))
        assert_equal(ours.batch(step, np.array([7, 0])), theirs.batch(step, np.array([7, 0])))
    for most in (None, 13):
        evals = [PretrainingEvalSource(at, "validation", 64, 7, max_examples=most) for at in (URL, local)]
        for step in (evals[0].num_batches - 1, 0, 1):
            assert_equal(*(source.batch(step) for source in evals))


def test_shards_differ_in_width(local):
    widths = {np.load(path).shape[1] for path in local.glob("*.npy")}
    assert len(widths) > 1  # as of the rows that the tests of this file compare


def test_an_epoch_reads_every_block_once_and_whole(local, remote):
    source = source_of(URL)
    starts = source.instances.reader.block_starts
    assert len(starts) > 40
    requests = [len(remote.ranges)]
    for step in range(source.steps_per_epoch):
        source.batch(step)
        requests.append(len(remote.ranges))
    settled(source)
    reads = remote.ranges[: len(starts) - 1]
    assert len(set(reads)) == len(starts) - 1  # those of the epoch come before those of the next
    assert sum(np.diff(requests) == 0) > source.steps_per_epoch / 2  # no request while a window lasts
    sizes = {shard.name: shard for shard in Manifest.read(local).sets[0].shards}
    read = sum(stop - start for _, start, stop in reads)
    assert read == sum(shard.num_bytes - shard.header_bytes for shard in sizes.values())


def test_a_host_reads_only_its_share(remote):
    source = source_of(URL)
    num_blocks = len(source.instances.reader.block_starts) - 1
    windows = -(-num_blocks // 8) + 2
    for step in range(source.steps_per_epoch):
        source.batch(step, slice(2, 4))  # a quarter
    settled(source)
    assert num_blocks / 4 < len(remote.ranges) <= num_blocks / 4 + 2 * windows


def test_memory_is_that_of_two_windows(remote):
    source = source_of(URL)
    window = 8 * ROWS_PER_BLOCK * 67 * 2
    most = 0
    for step in range(2 * source.steps_per_epoch):
        source.batch(step)
        most = max(most, settled(source).cached_bytes)
    assert window < most <= 2 * window
    source.batch(0)  # far away: what was held is let go of
    assert settled(source).cached_bytes <= 2 * window


def test_slices_of_one_step_do_not_push_each_other_out(remote):
    source = source_of(URL)
    for step in range(source.steps_per_epoch // 2):
        for first in range(0, BATCH, 2):
            source.batch(step, slice(first, first + 2))
    settled(source)
    assert len(remote.ranges) == len(set(remote.ranges))


def test_the_next_window_is_fetched_while_this_one_is_used(remote):
    source = source_of(URL)
    source.batch(0)
    settled(source)
    remote.broken["bucket"] = OSError(5, "gone")
    step = 0
    with pytest.raises(InputError, match="gone"):  # of the window after the next
        while True:
            source.batch(step := step + 1)
    assert step * BATCH > 8 * ROWS_PER_BLOCK


def test_requests_are_made_at_the_same_time(remote):
    remote.latency = 0.05
    source = source_of(URL)
    began = time.monotonic()
    source.batch(0)
    assert remote.most_at_once > 4
    remote.most_at_once = 0
    PretrainingEvalSource(URL, "validation", 64, 12, max_examples=12).batch(0)
    assert remote.most_at_once > 4
    assert time.monotonic() - began < 5


def test_evaluation_reads_the_rows_that_it_needs_and_no_more(local, remote):
    source = PretrainingEvalSource(URL, "validation", 64, 12, max_examples=12)
    row_bytes = {path.name: np.load(path).strides[0] for path in local.glob("*.npy")}
    source.batch(0)
    assert 8 < len(remote.ranges) <= 12
    for name, start, stop in remote.ranges:
        assert (stop - start) // row_bytes[os.path.basename(name)] in (1, 2)  # one is alone in its block, or almost
    assert source._parts[0].reader.cached_bytes == 0


def test_a_large_directory_is_opened_by_few_requests(local, remote):
    Manifest.read(URL)
    assert len(remote.operations) < 10 < 2 * sum(len(s.shards) for s in Manifest.read(local).sets)


def damage(store, name, offset):  # noqa: F811
    data = bytearray(store.objects[name])
    data[offset] ^= 16
    store.objects[name] = bytes(data)


def test_damage_is_named(local, remote):
    shard = Manifest.read(local).sets[0].shards[1]
    name = f"bucket/prepared/{shard.name}"
    row_bytes = shard.width * 2
    before, rows = Manifest.read(local).sets[0].shards[0].rows, PreparedInstances(URL, "train", 64)
    damage(remote, name, shard.header_bytes + 3 * row_bytes + 20)
    rows.batch([before + 2, before + 4], [0, 0])  # the neighbours
    with pytest.raises(InputError, match=rf"cannot read train examples: gs://{name}: row 3 is damaged"):
        rows.batch([0, before + 3], [0, 0])
    whole = remote.objects[name]
    remote.objects[name] = whole[:-10]
    with pytest.raises(InputError, match=rf"{name}: expected {row_bytes} bytes from byte \d+, found {row_bytes - 10}"):
        rows.batch([before + shard.rows - 1], [0])
    with pytest.raises(InputError, match=rf"{name}: expected {len(whole)} bytes, found {len(whole) - 10}"):
        Manifest.read(URL)
    del remote.objects[name]
    with pytest.raises(InputError, match=rf"cannot read train examples: gs://{name}: no such file"):
        rows.batch([before], [0])
    with pytest.raises(InputError, match=rf"{name}: no such file, though manifest.json lists it"):
        Manifest.read(URL)


def test_a_failure_is_raised_by_the_batch_that_meets_it_and_is_not_for_ever(local, remote):
    source, expected = source_of(URL), source_of(local)
    remote.broken["bucket"] = OSError(5, "out of order")
    with pytest.raises(InputError, match=r"cannot read train examples: gs://.*npy: out of order"):
        source.batch(3)
    remote.broken.clear()
    assert_equal(source.batch(3), expected.batch(3))


def test_threads_end_with_the_source(remote):
    before = set(threading.enumerate())
    source = source_of(URL)
    source.batch(0)
    mine = [thread for thread in threading.enumerate() if thread not in before and thread.name == "fetch rows"]
    assert len(mine) == row_reader._THREADS
    remote.latency = 0.2
    source.batch(source.steps_per_epoch // 2)  # leaves some in flight
    gc.disable()
    try:
        del source
        deadline = time.monotonic() + 5
        for thread in mine:
            thread.join(max(0, deadline - time.monotonic()))
        assert not any(thread.is_alive() for thread in mine)
    finally:
        gc.enable()


@pytest.mark.filterwarnings("ignore:.*fork")
def test_a_forked_process_reads_on(local, remote):
    source = source_of(URL)
    far = source.steps_per_epoch // 2
    source.batch(0)
    expected = source_of(local).batch(far)
    child = os.fork()
    if not child:
        status = 1
        try:
            status = int(not np.array_equal(source.batch(far)["input_ids"], expected["input_ids"]))
        finally:
            os._exit(status)
    deadline = time.monotonic() + 20
    while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0) and time.monotonic() < deadline:
        time.sleep(0.01)
    if ended == (0, 0):
        os.kill(child, 9)
        os.waitpid(child, 0)
    assert ended == (child, 0)
