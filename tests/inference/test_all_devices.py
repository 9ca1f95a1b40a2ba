"""A batch that is split among all devices has the answers of one device."""

import pathlib


def test_answers_of_eight_devices_are_those_of_one(write_small, tmp_path, on_eight_devices):
    models = (write_small(tmp_path / "vectors", "sentence_embedding", pooling="mean"),
              write_small(tmp_path / "classes", "sequence_classification", num_labels=2))  # fmt: skip
    found = on_eight_devices(pathlib.Path(__file__).with_name("all_devices.py"), *map(str, models))
    assert {name: size for name, (_, size) in found.items()} == {
        "vectors": [75, 32], "one text": [1, 32], "odd batches": [75, 32], "invariant": [75, 32], "classes": 75,
    }  # fmt: skip
    assert max(difference for difference, _ in found.values()) < 1e-5
