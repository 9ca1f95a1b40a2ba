"""A user's process is afterwards as it was before: by importing the package, and by calls of it, whole or failed."""

import ctypes
import importlib.util
import os
import subprocess
import sys

import pytest

from bert_jax import __main__, process

STATE = """
import csv, importlib.util, locale, logging, os, pkgutil, signal, sys, threading, warnings

def settings():
    loggers = [logging.root, *(l for l in logging.root.manager.loggerDict.values() if isinstance(l, logging.Logger))]
    found = {
        "environment": dict(os.environ),
        "folder": os.getcwd(),
        "signals": {int(n): signal.getsignal(n) for n in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}},
        "hooks": (sys.excepthook, sys.unraisablehook, sys.displayhook, sys.breakpointhook, threading.excepthook),
        "streams": (sys.stdout, sys.stderr),
        "warnings": (list(warnings.filters), warnings.formatwarning, warnings.showwarning),
        "logging": {l.name: (l.level, l.propagate, l.disabled, list(l.handlers), list(l.filters)) for l in loggers},
        "logging everywhere": (logging.root.manager.disable, logging.raiseExceptions, logging.getLoggerClass()),
        "csv": csv.field_size_limit(),
        "locale": locale.setlocale(locale.LC_ALL),
        "recursion": sys.getrecursionlimit(),
        "path": list(sys.path),
    }
    if "jax" in sys.modules:
        import jax
        found["jax"] = dict(jax.config.values)
    return found

def modules():
    import bert_jax
    for found in pkgutil.walk_packages(bert_jax.__path__, "bert_jax."):
        if not found.name.endswith("__main__") and (
            found.name != "bert_jax.data.pretraining.beam" or importlib.util.find_spec("apache_beam")
        ):
            yield found.name

class unchanged:
    def __init__(self, what):
        self.what = what
    def __enter__(self):
        self.before = settings()
    def __exit__(self, *error):
        after = settings()
        after["logging"] = {name: after["logging"][name] for name in self.before["logging"]}  # not those made since
        for name, value in self.before.items():
            now = after[name]
            if isinstance(value, dict):
                changed = {key for key in value.keys() | now.keys() if value.get(key) != now.get(key)}
                value, now = ({key: side.get(key) for key in changed} for side in (value, now))
            assert now == value, f"{self.what}: {name}: {value} became {now}"
"""
# What other libraries set as they are imported is theirs.
LIBRARIES = """
import jax, flax.nnx, optax, orbax.checkpoint, matplotlib.figure, tokenizers, sentencepiece, ml_collections
import safetensors.numpy, rich.console, fsspec, etils.epath
for name in ("sklearn.linear_model", "sklearn.feature_extraction.text", "sklearn.pipeline", "scipy.stats",
             "tensorstore", "tensorflow_datasets", "huggingface_hub", "gcsfs", "pyarrow",
             "apache_beam", "warcio", "resiliparse.extract.html2text", "sacrebleu", "rouge_score.rouge_scorer"):
    if importlib.util.find_spec(name.split(".")[0]):
        importlib.import_module(name)
"""
needs_compiler = pytest.mark.skipif(
    importlib.util.find_spec("libtpu") is None, reason="needs the TPU compiler: pip install 'bert-jax[tpu]'"
)


def run(*arguments: str, **environment: str) -> str:
    """Runs code in a process that finds JAX's platform by itself, as a user's does; returns what it says on stderr."""
    theirs = ("LIBTPU_INIT_ARGS", "JAX_PLATFORMS", "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "TPU_SKIP_MDS_QUERY")
    inherited = {name: value for name, value in os.environ.items() if name not in theirs}
    done = subprocess.run([sys.executable, *arguments], env=inherited | environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stderr


IMPORTS = """
with unchanged("import of all modules"):
    for name in modules():
        importlib.import_module(name)
"""


@pytest.mark.slow
def test_importing_changes_nothing_of_the_process():
    run("-c", STATE + "with unchanged('import'): import bert_jax\n" + LIBRARIES + IMPORTS)


CALLS = """
import bert_jax
from bert_jax import recipes, training
from bert_jax.cli import main

folder = sys.argv[1]
recipe = recipes.classification()
recipe.update_from_flattened_dict({
    "tokenizer": folder, "data.train": f"{folder}/data.tsv", "data.dev": f"{folder}/data.tsv",
    "data.length_buckets": (12,), "data.max_seq_length": 12, "global_batch_size": 8, "num_steps": 2,
    "model.size": "tiny", "model.hidden_size": 16, "model.intermediate_size": 32, "model.num_hidden_layers": 1,
    "model.max_position_embeddings": 16, "checkpoint_every": 1, "best_metric": "accuracy",
})
with unchanged("a loop that is left"):
    run = training.steps(recipe, f"{folder}/run", progress=False)
    next(run)
    run.close()
with unchanged("train"):
    training.train(recipe, f"{folder}/run", progress=False)
with unchanged("train that fails"):
    recipe.seed = 1
    try:
        training.train(recipe, f"{folder}/run", progress=False)
    except bert_jax.InputError:
        pass
with unchanged("inference"):
    bert_jax.from_pretrained(f"{folder}/run/model")("a cat")
    bert_jax.pipeline("classify", f"{folder}/run/model")("a cat")
with unchanged("the command line, called from Python"):
    assert main(["classify", f"{folder}/run/model", "a cat", "--json"]) == 0
    assert main(["classify", f"{folder}/no model", "a cat"]) == 2
"""


@pytest.mark.slow
def test_calls_leave_the_process_as_it_was(tmp_path, tiny_tokenizer):
    tiny_tokenizer.save(tmp_path)
    texts = [("cat " if i % 3 else "dog ") * (1 + i % 5) for i in range(64)]
    (tmp_path / "data.tsv").write_text("sentence\tlabel\n" + "".join(f"{text}\t{text[:3]}\n" for text in texts))
    run("-c", STATE + LIBRARIES + CALLS, str(tmp_path))


PLAN = """
from bert_jax.cli import main
from bert_jax.planning.slices import find_slice

with unchanged("plan"):
    assert find_slice("v5e:2x2").chips == 4
with unchanged("the command line's plan"):
    assert main(["plan", "--config", "bert_base", "--topology", "v5e:2x2", "--config.x=1"]) == 2
"""


@pytest.mark.slow
@needs_compiler
def test_a_plan_leaves_the_process_as_it_was():
    run("-c", STATE + LIBRARIES + PLAN)


def test_a_verb_says_nothing_of_tpus_where_there_is_none(tmp_path, write_small):
    model = write_small(tmp_path / "model", "masked_lm")
    assert run("-m", "bert_jax", "fill-mask", str(model), "the [MASK]") == ""


@pytest.mark.parametrize(("verb", "kept"), [("pretrain", 1), ("finetune", 1), ("demo", 1), ("classify", 0)])
def test_the_process_of_a_training_verb_keeps_freed_memory(monkeypatch, verb, kept):
    calls = []
    monkeypatch.setattr(process, "keep_freed_memory", lambda: calls.append(verb))
    monkeypatch.setattr(sys, "argv", ["bert-jax", "--debug", verb, "demo"])
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    __main__._prepare_process()
    assert len(calls) == kept


GROWTH = """
import types
import numpy as np
from bert_jax import process

now = 0.0
process.time = types.SimpleNamespace(monotonic=lambda: now)
process.keep_freed_memory()
bound = process.MemoryBound()
bound.check()
large = np.ones(400 << 17)  # 400 MiB
small = np.ones(1000)
del large
before = process.resident_memory()
now = 0.5
print(bound.check())  # it has just looked
now = 1.5
print(bound.check(), before - process.resident_memory() > 350 << 20)
now = 3.0
print(bound.check())
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="glibc alone gives memory back on request")
def test_memory_that_was_freed_is_given_back_when_the_process_has_grown():
    done = subprocess.run([sys.executable, "-c", GROWTH], capture_output=True, text=True)
    assert done.stdout == "False\nTrue True\nFalse\n", done.stderr


def test_environment_is_restored(monkeypatch):
    monkeypatch.setenv("BERT_JAX_SET", "before")
    with pytest.raises(ZeroDivisionError), process.environment({"BERT_JAX_SET": "a", "BERT_JAX_NEW": "b"}):
        assert (os.environ["BERT_JAX_SET"], os.environ["BERT_JAX_NEW"]) == ("a", "b")
        with process.default_environment({"BERT_JAX_SET": "c", "BERT_JAX_OTHER": "d"}):
            assert (os.environ["BERT_JAX_SET"], os.environ["BERT_JAX_OTHER"]) == ("a", "d")
        1 / 0  # noqa: B018
    assert os.environ["BERT_JAX_SET"] == "before" and not {"BERT_JAX_NEW", "BERT_JAX_OTHER"} & os.environ.keys()


FORKED = """
import os, sys
import bert_jax
folder, in_child = sys.argv[1:]
embed = bert_jax.pipeline("sentence-embedding", folder)
embed(["the cat"])
calls = {
    "pipeline": lambda: embed(["the dog"]),
    "model": lambda: embed.model([[2, 5, 3]]),
    "from_pretrained": lambda: bert_jax.from_pretrained(folder),
    "train": lambda: bert_jax.training.train(bert_jax.recipes.load_recipe("classification"), folder + "/run"),
    "tokenizer": lambda: embed.tokenizer(["the dog"]),
}
child = os.fork()
if child == 0:
    try:
        calls[in_child]()
        print("answered", flush=True)
    except RuntimeError as error:
        print(error, flush=True)
    os._exit(0)
os.waitpid(child, 0)
print(embed(["the dog"]).shape)
"""


@pytest.mark.sampled(4)
@pytest.mark.parametrize("call", ["pipeline", "model", "from_pretrained", "train", "tokenizer"])
def test_a_forked_process_is_told_that_jax_would_hang(tmp_path, write_small, call):
    write_small(tmp_path)
    command = [sys.executable, "-c", FORKED, str(tmp_path), call]
    lines = subprocess.run(command, check=True, timeout=120, capture_output=True, text=True).stdout.splitlines()
    forked = "expected a spawned process, found one forked from a process that runs models"
    assert lines[0].startswith("answered" if call == "tokenizer" else forked)
    assert lines[1] == "(1, 32)"
