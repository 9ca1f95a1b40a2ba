"""Each key of config.json beside transformers: the same outputs, or a word about it."""

import json

import numpy as np
import pytest
from test_hf_families import batch, oracle, relative, run

from bert_jax import from_pretrained
from bert_jax.errors import InputError
from bert_jax.families import FAMILIES, config_keys

torch = pytest.importorskip("torch", reason="PyTorch is the oracle; it is installed on Python 3.11 only")
transformers = pytest.importorskip("transformers", reason="transformers is the oracle; installed on Python 3.11 only")

HEAD = "sequence_classification"
# Families without a class in transformers.
NOT_OF_TRANSFORMERS = ("jina-bert", "jina-bert-qk", "nomic-moe")
QUICK = {
    "layer_norm_eps": 0.25, "hidden_act": "quick_gelu", "num_attention_heads": 6, "is_decoder": True,
    "position_embedding_type": "relative_key_query", "chunk_size_feed_forward": 1, "problem_type": "regression",
    "id2label": {"0": "yes", "1": "no"}, "somebody_s_own": 5,
}  # fmt: skip


def others(key: str, usual) -> tuple:
    """Values that a key does not usually have."""
    if key in ("hidden_act", "activation", "hidden_activation", "classifier_activation"):
        return "relu", "gelu_new"
    if key == "id2label":
        return ({"0": "yes", "1": "no"},)
    match usual:
        case bool():
            return (not usual,)
        case int():
            return usual + 1, 2 * usual
        case float():
            return (0.25 if usual != 0.25 else 0.5,)
        case str():
            return ("something",)
    return 1, "something", {"a": 1}


def difference(directory, model, key: str, value, caplog) -> float:
    """How far the logits of both sides are apart with one key changed; 0 where either side says something about it."""
    path = directory / "config.json"
    original = path.read_text()
    path.write_text(json.dumps(json.loads(original) | {key: value}))
    inputs = batch(model, HEAD)
    caplog.clear()
    try:
        ours = from_pretrained(directory)
        found = ours(**inputs).logits
    except InputError:
        return 0.0
    else:
        if any(key in record.getMessage() for record in caplog.records):
            return 0.0
        expected = theirs(type(model), directory, inputs)
        return 0.0 if expected is None else relative(found, expected)
    finally:
        path.write_text(original)


def theirs(kind, directory, inputs) -> np.ndarray | None:
    """The logits of transformers; None where it does not open the model."""
    try:
        model = kind.from_pretrained(directory, attn_implementation="eager").eval()
    except Exception:  # which of them depends on the key
        return None
    model.config.return_dict = True
    model.float()
    return run(model, inputs).logits.numpy()


@pytest.fixture
def saved(tmp_path, request):
    """A model of transformers and its directory."""
    model = oracle(request.param, HEAD)
    model.save_pretrained(tmp_path)
    return model, tmp_path


@pytest.mark.parametrize("saved", ["bert"], indirect=True)
def test_keys_of_each_kind(saved, caplog):
    model, directory = saved
    for key, value in QUICK.items():
        assert difference(directory, model, key, value, caplog) < 1e-4, key
    # The test can fail: a key that both sides follow makes a difference when only one of them sees it.
    before = theirs(type(model), directory, batch(model, HEAD))
    path = directory / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"layer_norm_eps": 0.25}))
    assert relative(from_pretrained(directory)(**batch(model, HEAD)).logits, before) > 1e-2


@pytest.mark.slow
@pytest.mark.parametrize("saved", [family for family in FAMILIES if family not in NOT_OF_TRANSFORMERS], indirect=True)
def test_every_key_of_every_family(saved, caplog):
    model, directory = saved
    usual = model.config.to_dict()
    wrong = []
    for key in {key.name for key in config_keys(model.config.model_type)} | usual.keys():
        for value in others(key, usual.get(key)):
            if not (found := difference(directory, model, key, value, caplog)) < 1e-4:
                wrong.append(f"{key}={value!r}: {found:.2g}")
    assert not wrong
