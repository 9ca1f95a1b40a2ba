"""The command that installs an extra names the place that the package came from."""

import importlib.metadata
import json
from email.message import Message

import pytest

from bert_jax.errors import InputError
from bert_jax.extras import how_to_install, import_extra


class Installed:
    """The metadata of an installed package."""

    def __init__(self, came, released):
        self.came, self.metadata = came, Message()
        if released:
            self.metadata["Project-URL"] = "Issues, https://host.example/a/b/issues"
            self.metadata["Project-URL"] = "Repository, https://host.example/a/b"

    def read_text(self, name):
        return json.dumps(self.came) if name == "direct_url.json" and self.came else None


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
    monkeypatch.setattr(importlib.metadata, "distribution", lambda name: Installed(came, released=False))
    assert how_to_install("gcs") == command


def test_an_extra_of_unknown_origin_comes_from_the_released_repository(monkeypatch):
    monkeypatch.setattr(importlib.metadata, "distribution", lambda name: Installed(None, released=True))
    assert how_to_install("gcs") == "pip install 'bert-jax[gcs] @ git+https://host.example/a/b'"
    wheel = Installed({"url": "file:///home/me/b.whl", "archive_info": {}}, released=True)
    monkeypatch.setattr(importlib.metadata, "distribution", lambda name: wheel)
    assert how_to_install("gcs") == "pip install '/home/me/b.whl[gcs]'"


def test_a_package_that_is_missing_is_named():
    with pytest.raises(
        InputError, match=r"expected the package no_such_package: pip install .*; found No module named"
    ):
        import_extra("no_such_package.part", "gcs")
