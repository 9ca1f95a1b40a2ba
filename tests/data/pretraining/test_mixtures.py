"""Mixtures: shares at every step, each directory's epochs whole, hosts and stores that read alike."""

import collections

import numpy as np
import pytest
import scipy.stats
from object_stores import store  # noqa: F401 (a fixture)
from prepared_corpora import assert_equal, write_corpus

from bert_jax.data.pretraining import shards, shuffling
from bert_jax.data.pretraining.mixtures import MixedSource, Mixture
from bert_jax.data.pretraining.prepare import prepare
from bert_jax.data.pretraining.sources import PretrainingEvalSource, PretrainingSource
from bert_jax.errors import InputError

LENGTH, BATCH, WEIGHTS = 48, 8, (3, 1, 2)


@pytest.fixture(scope="module")
def folders(tmp_path_factory, tiny_tokenizer):
    """Three prepared directories of different sizes, and two with packed rows."""
    folder = tmp_path_factory.mktemp("mixtures")
    for number, documents in enumerate((40, 12, 25)):
        text = write_corpus(folder / f"{number}.txt", documents=documents)
        options = {"dupe_factor": 1, "num_workers": 1, "validation_fraction": 0.2, "shard_bytes": 3000}
        prepare(str(text), tiny_tokenizer, folder / str(number), max_seq_length=LENGTH, **options)
        prepare(str(text), tiny_tokenizer, folder / f"packed{number}", max_seq_length=LENGTH + 16 * number, packed=True,
                short_seq_prob=0.1 + 0.4 * number, objective="mlm", **options)  # fmt: skip
    return folder


def sources_of(folders, names=("0", "1", "2"), length=LENGTH, batch_size=BATCH):
    return {name: PretrainingSource(folders / name, "train", length, batch_size) for name in names}


def mixed(folders, weights=WEIGHTS, **options):
    return MixedSource(sources_of(folders, **options), weights)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("batch_size", [1, 7, 32, 256])
@pytest.mark.parametrize("weights", [(1, 1), (0.7, 0.2, 0.1), (0, 5, 1, 1e-3), tuple(range(1, 30))])
def test_shares_hold_in_every_batch_and_at_every_prefix(batch_size, weights):
    mixture, rows = Mixture(weights, batch_size), np.arange(batch_size)
    exact = np.array(weights) / sum(weights)
    assert np.abs(mixture.shares - exact).max() <= 1 / 65536
    drawn = np.zeros((len(weights), batch_size), int)
    for step in range(1000):
        owners = mixture.directories(step, rows)
        np.add.at(drawn, (owners, rows), 1)
        of_batch = np.bincount(owners, minlength=len(weights))
        assert np.abs(of_batch - mixture.shares * batch_size).max() < 1
        count = (step + 1) * batch_size
        least, most = scipy.stats.binom.interval(0.99, count, exact)  # of independent draws
        assert (least <= drawn.sum(1)).all() and (drawn.sum(1) <= np.maximum(most, 1)).all()
        if step in (0, 1, 500, 999):
            turns = [mixture.turns(directory, step + 1, rows) for directory in range(len(weights))]
            np.testing.assert_array_equal(turns, drawn)
    assert np.abs(drawn - mixture.shares[:, None] * 1000).max() < 7  # no row of the batch runs ahead


def test_turns_are_counted_beyond_the_circle():
    mixture, rows = Mixture((1, 2), 4), np.arange(4)
    for step in (65_535, 65_536, 200_000):
        before, after = (mixture.turns(1, s, rows) for s in (step, step + 1))
        np.testing.assert_array_equal(after - before, mixture.directories(step, rows) == 1)


def test_many_tiny_weights_leave_none_empty():
    shares = Mixture([1.0] * 100 + [1e-9] * 900, 8).shares
    assert shares.min() > 0 and shares.sum() == 1


def test_the_rows_of_a_directory_are_drawn_epoch_by_epoch(folders):
    source, drawn = mixed(folders), collections.defaultdict(list)
    for directory, part in enumerate(source._sources):
        order = part._order.rows

        def watched(positions, directory=directory, order=order):
            rows, epochs = order(positions)
            drawn[directory] += zip(epochs.tolist(), rows.tolist(), strict=True)
            return rows, epochs

        part._order.rows = watched
    steps = 3 * source.num_examples // BATCH
    for step in range(steps):
        source.batch(step)
    passes = source.epochs(steps)
    for directory, part in enumerate(source._sources):
        rows = drawn[directory]
        assert len(set(rows)) == len(rows)  # none twice in an epoch
        epochs = collections.Counter(epoch for epoch, _ in rows)
        assert len(rows) / len(part.instances) == pytest.approx(passes[directory], abs=8 / len(part.instances))
        whole = [epoch for epoch, count in epochs.items() if count == len(part.instances)]
        assert len(whole) >= int(passes[directory]) - 1 and max(epochs) <= passes[directory] + 1


def test_a_batch_holds_rows_of_each_directory_as_it_would_read_them(folders):
    source, alone = mixed(folders), sources_of(folders)
    for step in (0, 5, 70):
        batch, rows = source.batch(step), np.arange(BATCH)
        owners = source.mixture.directories(step, rows)
        for directory, name in enumerate(alone):
            for row in np.flatnonzero(owners == directory):
                turn = int(source.mixture.turns(directory, step, np.array([row]))[0])
                expected = alone[name].batch(turn, np.array([row]))
                assert_equal({key: array[[row]] for key, array in batch.items()}, expected)


def test_any_hosts_make_the_same_batch(folders):
    whole, hosts = mixed(folders), [mixed(folders) for _ in range(4)]
    for step in (3, 11, 12, 4):
        parts = [host.batch(step, slice(2 * i, 2 * i + 2)) for i, host in enumerate(hosts)]
        batch = whole.batch(step)
        assert_equal({name: np.concatenate([part[name] for part in parts]) for name in batch}, batch)


def test_a_mixture_of_one_is_the_directory(folders):
    ours, theirs = mixed(folders, (2,), names=("0",)), sources_of(folders)["0"]
    assert (ours.num_examples, ours.steps_per_epoch) == (theirs.num_examples, theirs.steps_per_epoch)
    for step in (0, 9, 100):
        assert_equal(ours.batch(step), theirs.batch(step))


def test_from_a_store_each_host_reads_its_share_once(folders, store, monkeypatch):  # noqa: F811
    monkeypatch.setattr(shards, "BLOCK_BYTES", 3 * (LENGTH + 3) * 2)
    monkeypatch.setattr(shuffling, "WINDOW_BLOCKS", 4)
    for name in "012":
        store.copy(folders / name, f"bucket/{name}")
    remote = {name: PretrainingSource(f"gs://bucket/{name}", "train", LENGTH, BATCH) for name in "012"}
    ours, theirs = MixedSource(remote, WEIGHTS), mixed(folders)
    steps = int(min(1 / ours.epochs(1)) / 2)  # the next window is of the same epoch
    for step in range(steps):
        for first in (0, 2):  # two devices of a host with half of the rows
            rows = slice(first, first + 2)
            assert_equal(ours.batch(step, rows), theirs.batch(step, rows))
    for part in ours._sources:
        for future in part.instances.reader._blocks.values():
            future.result()
    assert len(store.ranges) == len(set(store.ranges))  # nothing was fetched twice
    blocks = sum(len(part.instances.reader.block_starts) - 1 for part in ours._sources)
    assert len(set(store.ranges)) < blocks


def test_packed_rows_have_room_for_the_fullest(folders):
    sources = {
        name: PretrainingSource(folders / f"packed{name}", "train", LENGTH + 16 * int(name), BATCH) for name in "01"
    }
    most = [source.instances.most_per_row for source in sources.values()]
    with_one_length = {"packed0": sources["0"], "again": PretrainingSource(folders / "packed0", "train", LENGTH, BATCH)}
    with_one_length["again"].instances.most_per_row = most[0] + 3
    batch = MixedSource(with_one_length, (1, 1)).batch(0)
    assert batch["example_weights"].shape == (BATCH, most[0] + 3)
    with pytest.raises(
        InputError, match="0: expected packed rows, as in packed0 of the same mixture, found rows of one"
    ):
        MixedSource({"packed0": sources["0"], **sources_of(folders)}, (1, 1, 1, 1))


def test_evaluation_reads_the_held_out_examples_of_all(folders):
    each = [PretrainingEvalSource(folders / name, "validation", LENGTH, 1) for name in "01"]
    together = PretrainingEvalSource([folders / "0", folders / "1"], "validation", LENGTH, 5)
    assert together.num_examples == sum(source.num_examples for source in each)
    found = [together.batch(step) for step in range(together.num_batches)]
    joined = {name: np.concatenate([batch[name] for batch in found])[: together.num_examples] for name in found[0]}
    alone = [source.batch(step) for source in each for step in range(source.num_batches)]
    assert_equal(joined, {name: np.concatenate([batch[name] for batch in alone]) for name in alone[0]})
    few = PretrainingEvalSource([folders / "0", folders / "1"], "validation", LENGTH, 4, max_examples=4)
    assert few.batch(0)["example_weights"].tolist() == [1] * 4
