"""From a corpus to batches in a bucket of the Cloud Storage emulator."""

import subprocess
import sys
import time

import numpy as np
import pytest
from prepared_corpora import write_corpus

from bert_jax.data.pretraining.prepare import prepare
from bert_jax.data.pretraining.sources import PretrainingSource


@pytest.mark.slow
def test_a_bucket_gives_the_batches_of_a_disk(tmp_path, tiny_tokenizer, bucket):
    corpus = str(write_corpus(tmp_path / "corpus.txt", documents=20))
    url, local = f"gs://{bucket.name}/prepared", tmp_path / "prepared"
    for out, workers in ((url, 2), (local, 1)):
        prepare(corpus, tiny_tokenizer, out, num_workers=workers, shard_bytes=4000)
    keys = {key.removeprefix("prepared/") for key in bucket.keys("prepared/") if "/.lease/" not in key}
    assert keys == {str(path.relative_to(local)) for path in local.rglob("*") if path.is_file()}
    for key in keys:
        assert bucket.read(f"prepared/{key}") == (local / key).read_bytes()

    ours, theirs = (PretrainingSource(out, "train", 128, 8) for out in (url, local))
    bucket.faults(fail=0.5, cut=0.5, limit=4, match=r"\.npy")
    for step in (0, ours.steps_per_epoch, 3):
        found, expected = ours.batch(step), theirs.batch(step)
        for name in expected:
            np.testing.assert_array_equal(found[name], expected[name])
    assert sum(bucket.counts()["faults"].values()) == 4


def test_a_process_ends_while_blocks_are_fetched(tmp_path, tiny_tokenizer, bucket):
    url = f"gs://{bucket.name}/prepared"
    prepare(str(write_corpus(tmp_path / "corpus.txt", documents=20)), tiny_tokenizer, url, num_workers=1)
    bucket.faults(delay=1.0, delay_seconds=60.0, match=r"\.npy.*alt=media")
    script = f"""
import time, threading, numpy as np
from bert_jax.data.pretraining.sources import PretrainingSource
source = PretrainingSource({url!r}, "train", 128, 8)
threading.Thread(target=source.batch, args=(0,), daemon=True).start()
time.sleep(0.5)
assert source.instances.reader._blocks
print(time.time())
"""
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=50)
    assert time.time() - float(found.stdout) < 10 and found.returncode == 0, found.stderr
