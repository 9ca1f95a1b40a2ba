"""The command that installs an extra names the place that the package came from."""

import importlib.metadata
import json

import pytest

from bert_jax.errors import InputError
from bert_jax.extras import how_to_install, import_extra


@pytest.mark.parametrize(
    ("came", "command"),
    [
        ({"url": "file:///home/me/bert_jax", "dir_info": {"editable": True}},
         "pip install --editable '/home/me/bert_jax[gcs]'"),
        ({"url": "file:///home/me/my%20wheels/bert_jax-0.1.0-py3-none-any.whl", "archive_info": {}},
         "pip install '/home/me/my wheels/bert_jax-0.1.0-py3-none-any.whl[gcs]'"),
        ({"url": "https://host.example/bert_jax.zip", "archive_info": {}},
         "pip install 'bert-jax[gcs] @ https://host.example/bert_jax.zip'"),
        ({"url": "https://host.example/a/b", "vcs_info": {"vcs": "git", "commit_id": "1f" * 20}},
         f"pip install 'bert-jax[gcs] @ git+https://host.example/a/b@{'1f' * 20}'"),
        (None, "pip install 'bert-jax[gcs]'"),
    ],
)  # fmt: skip
def test_an_extra_comes_from_where_the_package_came(monkeypatch, came, command):
    class Installed:
        def read_text(self, name):
            return json.dumps(came) if name == "direct_url.json" and came else None

    monkeypatch.setattr(importlib.metadata, "distribution", lambda name: Installed())
    assert how_to_install("gcs") == command


def test_a_package_that_is_missing_is_named():
    with pytest.raises(
        InputError, match=r"expected the package no_such_package: pip install .*; found No module named"
    ):
        import_extra("no_such_package.part", "gcs")
