"""Rows of a source and a target: what is read, and the arrays of a batch."""

import numpy as np
import pytest

from bert_jax.data.finetuning.columns import Columns
from bert_jax.errors import InputError
from bert_jax.tasks.sequence_to_sequence.data import NO_LABEL, encode_source_targets, read_source_targets

COLUMNS = Columns("source", "", "target")


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.csv", "rows.tsv"])
def test_tables_of_every_format_are_read(name, tmp_path):
    lines = {
        "rows.jsonl": '{"target": "b c", "source": "a"}\n{"source": "d", "target": "e", "id": 1}\n',
        "rows.csv": "id,source,target\n1,a,b c\n2,d,e\n",
        "rows.tsv": "target\tsource\nb c\ta\ne\td\n",
    }
    (tmp_path / name).write_text(lines[name])
    rows = read_source_targets(str(tmp_path / name), COLUMNS)
    assert [(row.text, row.label) for row in rows] == [("a", "b c"), ("d", "e")]


def test_empty_texts_and_tables_are_errors():
    for row in ({"source": "a", "target": " "}, {"source": "", "target": "b"}):
        with pytest.raises(InputError, match="row 1: expected a text"):
            read_source_targets([{"source": "a", "target": "b"}, row], COLUMNS)
    with pytest.raises(InputError, match="at least one row"):
        read_source_targets([], COLUMNS)


def test_a_batch_by_hand(tiny_tokenizer):
    pairs = (("the cat sat on a tree", "a dog"), ("a", "the old cat sat"))
    rows = read_source_targets([{"source": source, "target": target} for source, target in pairs], COLUMNS)
    features = encode_source_targets(tiny_tokenizer, rows, 7, 5)
    assert features.lengths.tolist() == [7, 5] and features.target_length == 8
    batch = features.pad(np.array([1, 0, -1]), 10, tiny_tokenizer.pad_id)
    assert batch["input_ids"].shape == (3, 10) and batch["labels"].shape == (3, 7)
    cls, sep = tiny_tokenizer.cls_id, tiny_tokenizer.sep_id
    words = tiny_tokenizer.encode("the old cat")  # and no more than 5 tokens with [CLS] and [SEP]
    assert batch["decoder_input_ids"][0].tolist()[:4] == [cls, *words]
    assert batch["labels"].tolist()[0] == [*words, sep, *[NO_LABEL] * 3]
    assert batch["labels"].tolist()[1] == [*tiny_tokenizer.encode("a dog"), sep, *[NO_LABEL] * 4]
    assert (batch["labels"][2] == NO_LABEL).all() and batch["example_weights"].tolist() == [1, 1, 0]
    assert batch["attention_mask"].sum(axis=1).tolist() == [3, 7, 0]
    assert features.pad(np.array([1]), 6, 0)["labels"].shape == (1, 5)
