"""Run by test_all_devices.py in a process with 8 devices: answers of one device and of all."""

import json
import sys

import jax
import numpy as np

from bert_jax.inference import pipeline

TEXTS = [f"the {word} sat {'on a red house ' * (i % 5)}" for i, word in enumerate(("cat", "dog", "bird") * 25)]


def apart(task, model, texts=TEXTS, **options):
    one, every = (pipeline(task, model, device=device, **options) for device in (None, "all"))
    devices = {len(leaf.sharding.device_set) for leaf in jax.tree.leaves(every.model.params)}
    assert devices == {8}, devices
    found, expected = every(texts), one(texts)
    if task == "embed":
        return float(np.abs(found - expected).max()), found.shape
    assert [[each["label"] for each in of_text] for of_text in found] == [
        [each["label"] for each in of_text] for of_text in expected
    ]
    scores = [[[each["score"] for each in of_text] for of_text in side] for side in (found, expected)]
    return float(np.abs(np.array(scores[0]) - np.array(scores[1])).max()), len(found)


if __name__ == "__main__":
    vectors, classes = sys.argv[1:]
    print(json.dumps({
        "vectors": apart("embed", vectors),
        "one text": apart("embed", vectors, TEXTS[:1]),
        "odd batches": apart("embed", vectors, batch_size=3),
        "invariant": apart("embed", vectors, batch_invariant=True),
        "classes": apart("classify", classes, top_k=None),
    }))  # fmt: skip
