"""`bert-jax plan --forward`: forward passes in bfloat16 and int8, compiled for a TPU without a TPU."""

import importlib.util
import json

import pytest

from bert_jax.cli import main
from bert_jax.config import BertConfig
from bert_jax.errors import InputError
from bert_jax.planning.forward import plan_forward
from bert_jax.planning.slices import CHIPS, find_slice
from bert_jax.training.flops import forward_flops, train_flops

needs_compiler = pytest.mark.skipif(
    importlib.util.find_spec("libtpu") is None, reason="needs the TPU compiler: pip install 'bert-jax[tpu]'"
)
CONFIG = BertConfig(
    vocab_size=512, hidden_size=128, num_hidden_layers=2, num_attention_heads=2, intermediate_size=512,
    max_position_embeddings=64,
)  # fmt: skip


@pytest.fixture(autouse=True)
def no_memory_of_earlier_plans(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_a_forward_pass_is_a_third_of_a_step():
    assert train_flops(CONFIG, "encoder", 8, 64) == 3 * forward_flops(CONFIG, "encoder", 8, 64)


@pytest.mark.slow
@needs_compiler
@pytest.mark.usefixtures("compiled_quickly")
def test_products_of_int8_run_at_the_peak_of_int8():
    plain, dynamic = plan_forward(CONFIG, "encoder", find_slice("v5e:1x1"), 8, 64, ("bfloat16", "int8_dynamic"))
    assert plain.flops == dynamic.flops == forward_flops(CONFIG, "encoder", 8, 64)
    assert plain.compute == pytest.approx(plain.flops / 197e12)
    layer = 4 * 128 * 128 + 2 * 128 * 512  # weights of attention and feed-forward
    assert dynamic.int8_flops == 2 * 8 * 64 * 2 * layer
    rest = dynamic.flops - dynamic.int8_flops
    assert dynamic.compute == pytest.approx(rest / 197e12 + dynamic.int8_flops / 393e12)
    assert plain.memory == pytest.approx(plain.hbm_bytes / CHIPS["v5e"].hbm_bandwidth)
    assert dynamic.parameter_bytes < plain.parameter_bytes / 2.5
    assert plain.texts_per_second == 8 / max(plain.compute, plain.memory)


@needs_compiler
@pytest.mark.usefixtures("compiled_quickly")
def test_the_verb(write_small, tmp_path, capsys, monkeypatch):
    model = write_small(tmp_path / "model", "sequence_classification")
    monkeypatch.setattr(plan_forward, "__defaults__", (("bfloat16", "int8"), *plan_forward.__defaults__[1:]))
    words = ["plan", "--forward", str(model), "--topology", "v6e:1x1", "--batch-size", "4", "--length", "16"]
    assert main([*words, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert [plan["mode"] for plan in printed["plans"]] == ["bfloat16", "int8"]
    assert main(words) == 0
    assert "4 texts of 16 tokens, at the roofline" in capsys.readouterr().out


@needs_compiler
def test_batches_that_do_not_fit():
    place = find_slice("v5e:2x2")
    with pytest.raises(InputError, match="--batch-size: expected a multiple of the 4 devices of v5e:2x2, found 6"):
        plan_forward(CONFIG, "encoder", place, 6, 64)
    with pytest.raises(InputError, match="--length: expected 1 to 64 tokens, the model's positions, found 65"):
        plan_forward(CONFIG, "encoder", place, 8, 65)


def test_options_that_do_not_go_together(capsys):
    assert main(["plan", "--forward", "base", "--topology", "v5e:1x1", "--search"]) == 2
    assert "--forward: expected no recipe options, found --search" in capsys.readouterr().err
    assert main(["plan", "--forward", "base", "--config", "bert_base", "--topology", "v5e:1x1"]) == 2
    assert "not allowed with argument" in capsys.readouterr().err
