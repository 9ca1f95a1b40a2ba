"""Encoders of transformers that are refused, with the reason."""

import json
import re
from pathlib import Path

import pytest

from bert_jax.config import BertConfig
from bert_jax.errors import InputError
from bert_jax.families import FAMILIES
from bert_jax.model_files.refused_types import REFUSED_TYPES

PAGE = Path(__file__).parents[2] / "docs/families.md"


@pytest.mark.parametrize("model_type", REFUSED_TYPES)
def test_the_reason_is_given(model_type, tmp_path):
    config = pytest.importorskip("transformers").CONFIG_MAPPING[model_type]()
    (tmp_path / "config.json").write_text(json.dumps(config.to_dict()))
    message = f"config.json: model_type '{model_type}' is not supported: {REFUSED_TYPES[model_type]}"
    with pytest.raises(InputError, match=re.escape(message) + "$"):
        BertConfig.from_json_file(tmp_path / "config.json")


def test_none_of_them_is_a_family():
    known = {
        name for family in FAMILIES.values() for name in (family.name, family.model_type, *family.other_model_types)
    }
    assert not known & {*REFUSED_TYPES}


def test_the_page_names_them_all():
    section = PAGE.read_text().split("## Encoders that are refused")[1].split("\n## ")[0]
    assert dict(re.findall(r"^\| `([^`]+)` \| (.+) \|$", section, re.M)) == REFUSED_TYPES
