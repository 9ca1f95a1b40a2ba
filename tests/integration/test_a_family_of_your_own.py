"""The family of docs/extend.md, a file outside of the package: read, trained, resumed, exported and planned."""

import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from random_models import write_model
from safetensors.numpy import load_file, save_file
from small import assert_alike, recipe, train_in_processes

import bert_jax
from bert_jax import families
from bert_jax.config import BertConfig
from bert_jax.conversion.huggingface import save_pretrained
from bert_jax.errors import InputError
from bert_jax.families.base import Family

PAGE = (Path(__file__).parents[2] / "docs" / "extend.md").read_text().partition("\n## A loss of your own\n")[0]
MOSAIC_BERT, USE, _, _, _, COMMANDS = re.findall(r"```\w+\n(.*?)```", PAGE, re.DOTALL)
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
ENTRY_POINTS = "[bert_jax.families]\nmosaic-bert = mosaic_bert:MOSAIC_BERT\n"


def install(folder, code, entry_points=ENTRY_POINTS):
    """Writes what `pip install` of a package of the family would write."""
    (folder / "mosaic_bert.py").write_text(code)
    info = folder / "mosaic_bert-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mosaic-bert\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(entry_points)


@pytest.fixture
def forgotten():
    """Before and after, only the families of the package are known."""

    def forget():
        families._of_entry_points.cache_clear()
        families.FAMILIES._added.clear()
        sys.modules.pop("mosaic_bert", None)

    forget()
    yield
    forget()


@pytest.fixture
def installed(tmp_path, monkeypatch, forgotten):
    site = tmp_path / "site"
    site.mkdir()
    install(site, MOSAIC_BERT)
    monkeypatch.syspath_prepend(site)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])]))


@pytest.fixture(scope="module")
def theirs(tmp_path_factory, tiny_tokenizer):
    """A model in the authors' layout: its directory, and a function that computes it in PyTorch."""
    torch = pytest.importorskip("torch", reason="PyTorch is the oracle; it is installed on Python 3.11 only")
    width, inner, vocabulary = SIZES["hidden_size"], SIZES["intermediate_size"], tiny_tokenizer.vocab_size
    shapes = {"embeddings.word_embeddings.weight": (vocabulary, width),
              "embeddings.token_type_embeddings.weight": (2, width)}  # fmt: skip
    norms = ["embeddings.LayerNorm"]
    for number in range(SIZES["num_hidden_layers"]):
        layer = f"encoder.layer.{number}"
        shapes |= {f"{layer}.attention.self.Wqkv.weight": (3 * width, width),
                   f"{layer}.attention.self.Wqkv.bias": (3 * width,),
                   f"{layer}.attention.output.dense.weight": (width, width),
                   f"{layer}.attention.output.dense.bias": (width,),
                   f"{layer}.mlp.gated_layers.weight": (2 * inner, width),
                   f"{layer}.mlp.wo.weight": (width, inner), f"{layer}.mlp.wo.bias": (width,)}  # fmt: skip
        norms += [f"{layer}.attention.output.LayerNorm", f"{layer}.mlp.layernorm"]
    shapes |= {f"{name}.{part}": (width,) for name in norms for part in ("weight", "bias")}
    random = np.random.default_rng(0)
    arrays = {f"bert.{name}": random.normal(0, 0.2, shape).astype("f4") for name, shape in shapes.items()}
    head = {"cls.predictions.transform.dense.weight": (width, width), "cls.predictions.bias": (vocabulary,)}
    head |= {
        f"cls.predictions.transform.{name}": (width,) for name in ("dense.bias", "LayerNorm.weight", "LayerNorm.bias")
    }
    arrays |= {name: random.normal(0, 0.2, shape).astype("f4") for name, shape in head.items()}
    directory = tmp_path_factory.mktemp("mosaic-bert")
    save_file(arrays, directory / "model.safetensors")
    keys = {"model_type": "bert", "architectures": ["BertForMaskedLM"], "vocab_size": vocabulary, "hidden_act": "gelu",
            "alibi_starting_size": 64, "max_position_embeddings": 64, "position_embedding_type": "absolute",
            "auto_map": {"AutoModelForMaskedLM": "bert_layers.BertForMaskedLM"}}  # fmt: skip
    (directory / "config.json").write_text(json.dumps(keys | SIZES))
    tiny_tokenizer.save(directory)
    return directory, lambda ids, mask: mosaic_bert({name: torch.tensor(a) for name, a in arrays.items()}, ids, mask)


def mosaic_bert(tensors, ids, mask):
    """The paper's masked-LM logits and last hidden state, in PyTorch, of arrays of ids and of an attention mask."""
    import torch
    from torch.nn import functional as F

    def norm(x, name):
        return F.layer_norm(x, x.shape[-1:], tensors[f"{name}.weight"], tensors[f"{name}.bias"], 1e-12)

    def dense(x, name):
        return F.linear(x, tensors[f"{name}.weight"], tensors.get(f"{name}.bias"))

    heads, length = SIZES["num_attention_heads"], ids.shape[1]
    words, types = (tensors[f"bert.embeddings.{name}_embeddings.weight"] for name in ("word", "token_type"))
    x = norm(words[torch.tensor(ids)] + types[0], "bert.embeddings.LayerNorm")
    slopes = torch.tensor([2.0 ** (-8 * (head + 1) / heads) for head in range(heads)])
    distances = abs(torch.arange(length)[:, None] - torch.arange(length))
    bias = -slopes[:, None, None] * distances + torch.where(torch.tensor(mask) > 0, 0.0, -1e9)[:, None, None]
    for number in range(SIZES["num_hidden_layers"]):
        layer = f"bert.encoder.layer.{number}"
        parts = dense(x, f"{layer}.attention.self.Wqkv").chunk(3, dim=-1)
        q, k, v = (part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in parts)
        scores = q @ k.transpose(2, 3) / q.shape[-1] ** 0.5 + bias
        mixed = (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)
        x = norm(x + dense(mixed, f"{layer}.attention.output.dense"), f"{layer}.attention.output.LayerNorm")
        gate, up = dense(x, f"{layer}.mlp.gated_layers").chunk(2, dim=-1)
        x = norm(x + dense(F.gelu(gate) * up, f"{layer}.mlp.wo"), f"{layer}.mlp.layernorm")
    y = norm(F.gelu(dense(x, "cls.predictions.transform.dense")), "cls.predictions.transform.LayerNorm")
    return (y @ words.T + tensors["cls.predictions.bias"]).numpy(), x.numpy()


def test_the_file_is_short():
    assert len(MOSAIC_BERT.splitlines()) <= 150


def test_its_values_are_those_of_pytorch(theirs, installed):
    directory, compute = theirs
    ids = np.random.default_rng(1).integers(5, 20, (3, 24))
    mask = np.arange(24) < np.array([[24], [17], [9]])
    logits, last = compute(ids, mask)
    model = bert_jax.from_pretrained(directory)
    assert (model.config.family, model.head, model.missing) == ("mosaic-bert", "masked_lm", ())
    found = model(input_ids=ids, attention_mask=mask.astype("i4"))
    assert abs(np.asarray(found.last_hidden_state) - last)[mask].max() < 1e-5
    assert abs(np.asarray(found.logits) - logits)[mask].max() < 1e-4 * abs(logits).max()


def test_it_is_written_as_it_was_read(theirs, installed, tmp_path):
    directory, _ = theirs
    model = bert_jax.from_pretrained(directory)
    save_pretrained(tmp_path / "again", model.config, model.head, model.params, model.tokenizer)
    before, after = (load_file(folder / "model.safetensors") for folder in (directory, tmp_path / "again"))
    assert before.keys() == after.keys() and all((before[name] == after[name]).all() for name in before)
    keys = json.loads((tmp_path / "again" / "config.json").read_text())
    assert (keys["model_type"], keys["alibi_starting_size"]) == ("bert", 64)
    assert bert_jax.from_pretrained(tmp_path / "again").config == model.config


def test_the_tensors_tell_it_too(theirs, installed, tmp_path):
    """Without the key of the config, as the sign of the family says."""
    directory, _ = theirs
    keys = json.loads((directory / "config.json").read_text())
    for name in ("alibi_starting_size", "auto_map"):
        del keys[name]
    save_file(load_file(directory / "model.safetensors"), tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(keys))
    assert bert_jax.from_pretrained(tmp_path).config.family == "mosaic-bert"


def test_without_the_file_it_is_refused(theirs, forgotten):
    with pytest.raises(InputError, match="architecture 'BertForMaskedLM' is not known") as caught:
        bert_jax.from_pretrained(theirs[0])
    assert "\n" not in str(caught.value)


def test_an_import_registers_it(theirs, tmp_path, monkeypatch, forgotten):
    (tmp_path / "mosaic_bert.py").write_text(MOSAIC_BERT)
    monkeypatch.syspath_prepend(tmp_path)
    exec(USE.replace("path/to/mosaic-bert", str(theirs[0])), {})


def test_a_name_that_a_family_has_is_refused(forgotten):
    bert = families.FAMILIES["bert"]
    with pytest.raises(InputError, match="expected a new name, found 'bert'"):
        bert_jax.register_family(bert)


def test_an_entry_point_must_be_a_family(tmp_path, monkeypatch, forgotten):
    install(tmp_path, "MOSAIC_BERT = 3\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InputError, match="entry point 'mosaic-bert': expected the Family of that name, found 3"):
        list(families.FAMILIES)
    assert isinstance(families.FAMILIES["bert"], Family)  # which asks nobody else


def small_model(directory, tokenizer):
    config = BertConfig.named("tiny", "mosaic-bert", **SIZES, vocab_size=tokenizer.vocab_size)
    write_model(directory, config, "masked_lm", tokenizer)


@pytest.mark.slow
def test_a_killed_run_ends_as_one_that_was_not(tmp_path, data, tiny_tokenizer, installed):
    small_model(tmp_path / "model", tiny_tokenizer)
    changes = {"init_from": str(tmp_path / "model"), "tokenizer": "", "num_steps": 6, "checkpoint_every": 2,
               "eval_every": 3}  # fmt: skip
    c = recipe(data, "classification", **changes)
    c.model.update(dict.fromkeys(("hidden_size", "intermediate_size", "max_position_embeddings")))
    train_in_processes(c, tmp_path / "whole", [{}])
    train_in_processes(c, tmp_path / "killed", [{"kill_at": 3}, {}])
    assert_alike(tmp_path / "whole", tmp_path / "killed")
    assert bert_jax.from_pretrained(tmp_path / "killed" / "model").config.family == "mosaic-bert"


@pytest.mark.slow
def test_the_commands_of_the_page(tmp_path, data, tiny_tokenizer, installed):
    small_model(tmp_path / "path/to/mosaic-bert", tiny_tokenizer)
    (tmp_path / "reviews.csv").write_text((data / "train.tsv").read_text().replace("\t", ","))
    added = {"finetune": ["--config.num_steps=2", "--config.global_batch_size=4", "--quiet"],
             "export": [], "plan": [f"--config.model.{name}={size}" for name, size in SIZES.items()]}  # fmt: skip
    added["plan"] += ["--config.model.hidden_size=128", "--config.stages=((90,128,32),)",
                      "--config.optimizer.warmup_steps=1"]  # fmt: skip
    commands = {words[1]: words[1:] + added[words[1]] for words in map(shlex.split, COMMANDS.splitlines())}
    assert commands.keys() == added.keys()
    if importlib.util.find_spec("libtpu") is None:
        del commands["plan"]
    calls = "; ".join(f"assert not main({words!r})" for words in commands.values())
    code = f"from bert_jax.cli import main; {calls}"
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    run = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    assert bert_jax.from_pretrained(tmp_path / "runs/mosaic/model").config.family == "mosaic-bert"
    assert (tmp_path / "mosaic-onnx" / "onnx" / "model.onnx").exists()
    assert "plan" not in commands or "v5e" in run.stdout
