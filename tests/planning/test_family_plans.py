"""The training step of every family compiles for a TPU slice."""

import importlib.util

import pytest
from random_models import WITH_LAYERS

from bert_jax import recipes
from bert_jax.families import FAMILIES
from bert_jax.planning.plan import plan
from bert_jax.planning.slices import find_slice

pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("libtpu") is None, reason="needs the TPU compiler: pip install 'bert-jax[tpu]'"
    ),
    pytest.mark.slow,
    pytest.mark.usefixtures("compiled_quickly"),
]
# What a family needs besides its name, and what a small model of it may not lack.
CHANGES = {
    "albert": {"num_hidden_groups": 1},
    "deberta-v2": {"position_buckets": 64, "conv_kernel_size": 3},
    "eurobert": {"num_key_value_heads": 1},
    "longformer": {"type_vocab_size": 1, "attention_windows": (64, 64)},
    "big_bird": {"block_size": 32},
}


@pytest.mark.parametrize("family", [f for f in WITH_LAYERS if "masked_lm" in FAMILIES[f].names.architectures])
def test_a_step_of_pretraining(family, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    c = recipes.pretraining()
    sizes = {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 512}
    c.model.update({"family": family, "max_position_embeddings": 512} | sizes | CHANGES.get(family, {}))
    c.stages, c.optimizer.warmup_steps = ((90, 256, 32),), 10
    (stage,) = plan(c, find_slice("v5e:2x2")).stages
    assert 0 < stage.peak_bytes < 16 * 2**30 and 0 < stage.mfu < 1
