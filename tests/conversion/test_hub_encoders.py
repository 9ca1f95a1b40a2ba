"""The encoders of docs/hub_encoders.md, by the values of the `config.json` that their authors publish."""

import json
import math
from pathlib import Path

import jax
import pytest

from bert_jax.config import BertConfig
from bert_jax.modeling.models import Bert

_DATA = json.loads((Path(__file__).parent / "hub_encoders.json").read_text(encoding="utf-8"))
ENCODERS = _DATA["encoders"]
PAGE = Path(__file__).parents[2] / "docs" / "hub_encoders.md"


def published(name: str) -> dict:
    """Return the `config.json` of an encoder: the values of its base, and those that differ from it."""
    return _DATA["bases"][ENCODERS[name]["base"]] | ENCODERS[name]["differs"]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", ENCODERS)
def test_an_encoder_of_the_hub_opens(name, caplog):
    config = BertConfig.from_hf(published(name), name)
    assert not caplog.records  # each key is honoured or known to be harmless
    shapes = jax.tree.leaves(Bert(config, "encoder").abstract_params())
    assert sum(math.prod(leaf.shape) for leaf in shapes) / 1e6 == pytest.approx(ENCODERS[name]["millions"], abs=0.051)


def test_the_page_lists_these_encoders():
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    expected = [
        f"| `{name}` | `{published(name)['model_type']}` | {entry['millions']} |" for name, entry in ENCODERS.items()
    ]
    assert rows == expected
    assert len(rows) >= 100
