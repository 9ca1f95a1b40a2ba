"""Data sets saved by `save_to_disk` of datasets as corpora; the files here have the same form."""

import json

import pyarrow
import pytest

from bert_jax.data.corpora.sources import open_corpus
from bert_jax.errors import InputError


def save(folder, files, column="text", **more):
    """Write a data set of some files, each a list of texts."""
    folder.mkdir(parents=True)
    names = [f"data-{i:05}-of-{len(files):05}.arrow" for i in range(len(files))]
    for name, texts in zip(names, files, strict=True):
        table = pyarrow.table({"id": list(range(len(texts))), column: texts})
        with pyarrow.ipc.new_stream(folder / name, table.schema) as file:
            file.write_table(table, max_chunksize=3)
    state = {"_data_files": [{"filename": name} for name in names], "_split": None, **more}
    (folder / "state.json").write_text(json.dumps(state))


def test_rows_in_order(tmp_path):
    texts = [f"Row {i}.\nIts second line." for i in range(10)]
    save(tmp_path / "set", [texts[:7], texts[7:]])
    corpus = open_corpus(f"datasets:{tmp_path / 'set'}")
    assert [document.texts for document in corpus] == [tuple(text.split("\n")) for text in texts]
    assert [len(list(part.read())) for part in corpus.parts(10)] == [7, 3]
    assert corpus.parts(10)[1].num_bytes == (tmp_path / "set" / "data-00001-of-00002.arrow").stat().st_size


def test_another_column(tmp_path):
    save(tmp_path / "set", [["One."]], "body")
    assert [document.texts for document in open_corpus(f"datasets:{tmp_path / 'set'}:body")] == [("One.",)]
    with pytest.raises(InputError, match=r"arrow: expected a column 'text'"):
        list(open_corpus(f"datasets:{tmp_path / 'set'}"))


def test_invalid_rows(tmp_path):
    save(tmp_path / "set", [["One.", None, "Three."]])
    corpus = open_corpus(f"datasets:{tmp_path / 'set'}")
    with pytest.raises(InputError, match=r"00001\.arrow: row 2: 'text': expected text, found NoneType"):
        list(corpus)
    skipped = []
    assert [document.texts for document in corpus.parts(10)[0].readable(skipped)] == [("One.",), ("Three.",)]
    assert len(skipped) == 1


def test_what_is_not_one(tmp_path):
    with pytest.raises(InputError, match=r"expected a folder that `save_to_disk` of datasets wrote, found no state"):
        open_corpus(f"datasets:{tmp_path}")
    (tmp_path / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    with pytest.raises(InputError, match=r"expected one split, found 2: .*/train, .*/test"):
        open_corpus(f"datasets:{tmp_path}")
    save(tmp_path / "chosen", [["One."]], _indices_data_files=[{"filename": "indices.arrow"}])
    with pytest.raises(InputError, match="expected all rows of its files, found a selection"):
        open_corpus(f"datasets:{tmp_path / 'chosen'}")
    (tmp_path / "chosen" / "state.json").write_text('{"_data_files": [3]}')
    with pytest.raises(InputError, match=r"state\.json: expected names"):
        open_corpus(f"datasets:{tmp_path / 'chosen'}")


@pytest.mark.parametrize("content", [b"no Arrow at all", b"", None])
def test_damaged_files(tmp_path, content):
    save(tmp_path / "set", [[f"Row {i}." for i in range(50)]])
    path = tmp_path / "set" / "data-00000-of-00001.arrow"
    path.write_bytes(path.read_bytes()[:-700] if content is None else content)
    with pytest.raises(InputError, match=r"arrow: expected (an Arrow|text)"):
        list(open_corpus(f"datasets:{tmp_path / 'set'}"))
