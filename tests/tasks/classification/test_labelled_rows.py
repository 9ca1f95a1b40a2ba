"""Rows of a labelled table whose labels cannot be used."""

import pytest

from bert_jax.data.finetuning.labelled_rows import read_labelled
from bert_jax.data.finetuning.tables import Columns
from bert_jax.errors import InputError

COLUMNS = Columns(text="text", pair="", label="label")


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("a\tx\nb\tz\n", {"names": ("x", "y")}, r"a\.tsv: line 3: expected a label of 'x', 'y', found 'z'"),
        ("a\tx\nb\t\n", {}, r"a\.tsv: line 3: expected a label, found an empty column"),
        ("a\tx\nb\tx\n", {}, r"a\.tsv: expected at least two labels, found only 'x'"),
        ("a\t1\nb\tgood\n", {"regression": True}, r"a\.tsv: line 3: expected a number as label, found 'good'"),
        ("a\tx\n\ty\n", {}, r"a\.tsv: line 3: expected a text in 'text', found none"),
        ("a\tx\n \ty\n", {}, r"a\.tsv: line 3: expected a text in 'text', found spaces"),
        ("a\tnan\n", {"regression": True}, r"a\.tsv: line 2: expected a number as label, found 'nan'"),
    ],
)
def test_labels_that_do_not_fit(tmp_path, text, options, message):
    path = tmp_path / "a.tsv"
    path.write_text("text\tlabel\n" + text)
    with pytest.raises(InputError, match=message):
        read_labelled(str(path), COLUMNS, **{"names": None, "regression": False} | options)
