"""Stages of a run, as one source of batches."""

import pytest
from prepared_corpora import assert_equal

from bert_jax.data.pretraining.sources import PretrainingSource
from bert_jax.data.pretraining.stages import StagedSource
from bert_jax.errors import InputError


def test_stages_follow_one_another(prepared):
    short, long = PretrainingSource(prepared, "train", 48, 8), PretrainingSource(prepared, "train", 64, 4, seed=1)
    source = StagedSource([(3, short), (2, long)])
    assert source.num_steps == 5 and [source.stage(step) for step in range(5)] == [0, 0, 0, 1, 1]
    assert_equal(source.batch(2), short.batch(2))
    assert_equal(source.batch(3), long.batch(0))
    assert_equal(source.batch(4, slice(0, 2)), long.batch(1, slice(0, 2)))
    with pytest.raises(IndexError):
        source.batch(5)
    assert StagedSource([(3, short), (None, long)]).stage(10**6) == 1
    for stages in ([], [(0, short)], [(None, short), (3, long)]):
        with pytest.raises(InputError, match="stages"):
            StagedSource(stages)
