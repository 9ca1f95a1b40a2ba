"""The walls of the house (ARCHITECTURE.md): which way imports run, and what each recipe and file must be."""

import ast
import collections
import functools
import re
import sys
import tomllib
from pathlib import Path

import pytest

from bert_jax import recipes
from bert_jax.tasks import TASKS

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "bert_jax"
MODULES = sorted(PACKAGE.rglob("*.py"))
RECIPES = sorted((ROOT / "configs").glob("*.py"))
MOST_LINES = 400

# Each part imports only from the parts before it. A family's file is a part of its own, which the registry in
# `families/__init__.py` imports by name; a task's folder another, which that in `tasks/__init__.py` does.
ORDER = (
    "version", "lazy", "forks", "process", "compilers", "synonyms", "errors", "extras", "notebook", "cache_limit",
    "program_cache", "registry", "storage", "model_files", "head_names", "tasks", "families", "config", "sharding",
    "parameter_sharding", "modeling", "tokenization", "data", "conversion", "family", "recipes", "inference", "reports",
    "metrics", "jobs", "evaluation", "training", "compression", "export", "planning", "serving", "demo", "cli", "task",
    "__main__",
)  # fmt: skip


def within(path):
    return str(path.relative_to(PACKAGE))


def part_of(path):
    """`bert_jax/jobs/base.py` -> `jobs`; `bert_jax/sharding.py` -> `sharding`; a family's file -> `family`."""
    return part_of_module(".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts))


def part_of_module(name):
    """`bert_jax.jobs.base.Task` -> `jobs`; `bert_jax.families.roberta` -> `family`; a task's folder -> `task`."""
    part, *further = name.split(".")[1:]
    if part == "tasks" and {*further[:1]} & TASK_FOLDERS:
        return "task"
    return "family" if part == "families" and {*further[:1]} & FAMILY_FILES else part


# Families that are a file, or a folder, of `families/`.
FAMILY_FILES = {path.stem for path in (PACKAGE / "families").iterdir() if path.stem[:1] != "_"} - {
    "base", "names",
}  # fmt: skip

TASK_FOLDERS = {path.name for path in (PACKAGE / "tasks").iterdir() if (path / "__init__.py").exists()}
BASE_TASKS = {"pretraining", "classification"}  # others may build on these


@functools.cache
def tree_of(path):
    return ast.parse(path.read_text())


def imports(path, nodes=ast.walk):
    """Dotted names of all that a file imports, inside functions too, or in those `nodes` of its tree."""
    for node in nodes(tree_of(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def runs_one_way(path, name):
    """Whether a file may import a name of the package."""
    part, other = part_of(path), part_of_module(name)
    if other not in ORDER:
        return True
    if ORDER.index(other) > ORDER.index(part):
        return False
    if other in ("family", "task"):  # all others find it by name
        folder = name.split(".")[2]
        return other == part and (folder in {"family": {"bert"}, "task": BASE_TASKS}[part] or folder in path.parts)
    return True


def test_imports_run_one_way():
    # The public face names its parts, and imports none until one is asked for.
    files = [path for path in MODULES if path != PACKAGE / "__init__.py"]
    unplaced = {part_of(path) for path in files} - set(ORDER)
    assert not unplaced, "parts without a place in ORDER: decide what they may import"
    names = [(path, name) for path in files for name in imports(path) if name.startswith("bert_jax.")]
    assert not [f"{path} imports {name}" for path, name in names if not runs_one_way(path, name)]


_TASK_FILES = ("tasks/*/task.py", "tasks/*/*/task.py", "tasks/masked_diffusion/pretraining.py")
# Names that each module of a registry defines: name -> (the modules that may define it, the registry).
INTERFACES = {
    "HEAD": (_TASK_FILES, "tasks.TASKS"),
    "synthetic_rows": (("tasks/*/*.py", "tasks/*/*/task.py"), "recipes.RECIPES"),
    "build": ((*_TASK_FILES, "jobs/__init__.py"), "tasks.TASKS"),
    "KEYS": (("recipes/keys.py", "tasks/*/*recipe.py", "tasks/*/*/recipe.py"), "recipes.KEYS"),
    "RECIPE": (("tasks/*/*recipe.py", "tasks/*/*/recipe.py"), "recipes.RECIPES"),
    "check": (("tasks/*/recipe.py",), "recipes.RECIPES"),
    "examples_of_model": (("tasks/*/examples.py", "tasks/*/*/examples.py"), "tasks.TASKS"),
    "TASK": (("tasks/*/__init__.py",), "tasks.TASKS"),
    "add_verbs": (("cli/*.py", "tasks/*/*.py", "tasks/*/*/verb.py"), "cli"),
    **dict.fromkeys(
        ("open_tensors", "begins", "renamed", "write"),
        (("conversion/formats/*.py",), "conversion.weights.WEIGHT_FORMATS"),
    ),
    **dict.fromkeys(
        ("add_files", "merge_adapter", "add_settings"),
        (("conversion/*.py",), "conversion.model_kinds and conversion.side_files.SIDE_FILES"),
    ),
    "supports": (("modeling/kernels/*.py", "families/deberta/blocks.py"), "modeling.attention_plan"),
    "FILES": (("model_files/*.py",), "config.model_files_page"),
    "main": (("__main__.py", "cli/__init__.py", "demo.py"), "the entry points"),
}


def public_names(path):
    """The names that a file defines at its top level, without private names and loggers."""
    for node in tree_of(path).body:
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                names = [name]
            case ast.Assign(value=ast.Call(func=ast.Name(id="logger"))):
                names = []
            case ast.Assign(targets=targets):
                names = [target.id for target in targets if isinstance(target, ast.Name)]
            case ast.AnnAssign(target=ast.Name(id=name)):
                names = [name]
            case _:
                names = []
        yield from (name for name in names if not name.startswith("_"))


def test_a_public_name_is_defined_once():
    defined = {}
    for path in MODULES:
        for name in set(public_names(path)):
            defined.setdefault(name, []).append(path.relative_to(PACKAGE))
    for name, paths in defined.items():
        patterns, registry = INTERFACES.get(name, ((), ""))
        others = [str(path) for path in paths if not any(path.match(pattern) for pattern in patterns)]
        where = f", and elsewhere than in the modules of {registry}" if registry else ""
        assert len(paths) == 1 or not others, f"{name} is defined in {len(paths)} modules{where}: {others}"


def test_only_the_model_knows_flax():
    names = {(path, name) for path in MODULES for name in imports(path) if "flax.serialization" not in name}
    knowing = {part_of(path) for path, name in names if name.split(".")[0] == "flax"}
    assert knowing == {"modeling", "family"}


def test_the_library_needs_neither_torch_nor_tensorflow():
    for path in MODULES:
        others = {name.split(".")[0] for name in imports(path)} & {"torch", "tensorflow", "transformers"}
        assert not others, f"{path} imports {others}"


# Each opens what is not a user's path: files of this Python's own library, and the machine's devices.
READ_THEIR_OWN_FILES = {
    "notebook.py",
    "data/corpora/python_docs.py",
    "process.py",
    "program_cache.py",
    "cache_limit.py",
}  # of this machine
FILE_CALLS = {
    "listdir",
    "makedirs",
    "mkdir",
    "remove",
    "rename",
    "replace",
    "rmdir",
    "scandir",
    "stat",
    "unlink",
    "walk",
}


def direct_file_access(tree):
    """The expressions of a module that open or name a file without `bert_jax.storage`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            if {name.split(".")[0] for name in modules} & {"pathlib", "etils", "shutil", "glob", "fsspec", "gcsfs"}:
                yield node
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "os":
            if node.attr == "path" or node.attr in FILE_CALLS:
                yield node
        elif isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            opens = called in ("open", "os.open") and ast.unparse(node.args[0]) != "os.devnull"
            if opens or (called.endswith(".resolve") and called != "recipes.resolve"):
                yield node


def test_only_the_storage_layer_opens_paths():
    files = [path for path in MODULES if part_of(path) != "storage" and within(path) not in READ_THEIR_OWN_FILES]
    opened = [
        f"{path}:{node.lineno}: {ast.unparse(node)}" for path in files for node in direct_file_access(tree_of(path))
    ]
    assert not opened, "through bert_jax.storage, a path may be on a bucket too"


@pytest.mark.parametrize(
    "code",
    ["open(p)", "os.open(p, 0)", "os.path.exists(p)", "import pathlib", "from pathlib import Path", "import shutil",
     "from etils import epath", "Path(p).resolve()", "os.listdir(p)"],
)  # fmt: skip
def test_direct_file_access_is_seen(code):
    assert list(direct_file_access(ast.parse(code)))


# Modules that set something of the whole process: while a block runs, or, as an entry point, for good.
SET_THE_PROCESS = {
    "process.py", "__main__.py", "cli/__init__.py", "cli/plan.py", "cli/serve.py", "training/stopping.py",
    "data/finetuning/delimited.py", "data/corpora/python_docs.py", "metrics/scores.py", "export/stablehlo.py",
    "export/onnx/int8.py", "tokenization/worker_process.py",
}  # fmt: skip
IN_WORKER_PROCESSES = {"os.environ['TOKENIZERS_PARALLELISM']"}
PROCESS_VALUES = re.compile(r"os\.environ\[.*|sys\.(\w*hook|stdout|stderr|path)|warnings\.\w+|.*\.(propagate|disabled)")
PROCESS_CALLS = re.compile(
    r"os\.(putenv|unsetenv|umask|chdir)|os\.environ\.(setdefault|update|pop|clear)|sys\.set\w+|signal\.(signal|set_\w+)|"
    r"warnings\.(filterwarnings|simplefilter|resetwarnings)|logging\.(basicConfig|disable|captureWarnings)|"
    r".*\.(addFilter|addHandler|setLevel)|faulthandler\.(enable|register)|(jax\.)?config\.update|locale\.setlocale|"
    r"csv\.field_size_limit|resource\.setrlimit|(process\.)?keep_freed_memory"
)


def process_changes(tree):
    """The expressions of a module that set something of the whole process."""
    for node in ast.walk(tree):
        targets = node.targets if isinstance(node, ast.Assign | ast.Delete) else []
        yield from (target for target in targets if PROCESS_VALUES.fullmatch(ast.unparse(target)))
        if isinstance(node, ast.Call) and PROCESS_CALLS.fullmatch(ast.unparse(node.func)):
            yield node


def test_no_module_changes_the_process():
    """What a call leaves behind is tested in test_process.py; this is about new modules."""
    files = [path for path in MODULES if within(path) not in SET_THE_PROCESS]
    changes = [(path, ast.unparse(node)) for path in files for node in process_changes(tree_of(path))]
    changes = [f"{path}: {change}" for path, change in changes if change not in IN_WORKER_PROCESSES]
    assert not changes, "an entry point sets these, or a block that undoes it"


@pytest.mark.parametrize(
    "code",
    ["os.environ['A'] = ''", "del os.environ['A']", "os.environ.setdefault('A', '')", "sys.excepthook = f",
     "sys.setrecursionlimit(9)", "signal.signal(2, f)", "logging.getLogger('absl').addFilter(f)",
     "warnings.filterwarnings('ignore')", "warnings.formatwarning = f", "jax.config.update('a', 1)",
     "csv.field_size_limit(9)", "process.keep_freed_memory()"],
)  # fmt: skip
def test_a_change_of_the_process_is_seen(code):
    assert list(process_changes(ast.parse(code)))


# Import name -> the distributions that have it, where they are not called so too.
DISTRIBUTIONS = {
    "apache_beam": {"apache-beam"},
    "google": {"google-auth", "protobuf"}, "google_crc32c": {"google-crc32c"},
    "huggingface_hub": {"huggingface-hub"}, "ml_collections": {"ml-collections"},
    "ml_dtypes": {"ml-dtypes"}, "orbax": {"orbax-checkpoint"}, "prometheus_client": {"prometheus-client"},
    "sklearn": {"scikit-learn"},
}  # fmt: skip
# Declared and imported by nothing here: by another dependency (pyproject.toml says which), by name, or by fsspec.
IMPORTED_ELSEWHERE = {
    "array-record",
    "tensorflow-datasets",
    "pyarrow",
    "s3fs",
    "adlfs",
    "onnx",
    "tensorflow",
    "flatbuffers",
    "pytrec-eval-terrier",
    "rouge-score",
    "sacrebleu",
    "mteb",
    "usearch",
    "bm25s",
    "pystemmer",
}


def test_what_is_imported_is_declared_and_the_reverse():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [found for name, found in project["optional-dependencies"].items() if name not in ("dev", "docs", "torch")]
    written = [*project["dependencies"], *(word for found in extras for word in found)]
    declared = {re.match(r"[\w-]+", word)[0].lower().replace("_", "-") for word in written}
    roots = {name.split(".")[0] for path in MODULES for name in imports(path)} - sys.stdlib_module_names - {"bert_jax"}
    imported = set().union(*(DISTRIBUTIONS.get(name, {name}) for name in roots))
    assert imported - declared == set(), "imported and not declared"
    assert declared - imported == IMPORTED_ELSEWHERE, "declared and not imported"


def test_files_are_short_and_named_for_what_they_hold():
    sources = [*MODULES, *RECIPES, *(ROOT / "benchmarks").rglob("*.py")]
    long = {str(path): lines for path in sources if (lines := len(path.read_text().splitlines())) > MOST_LINES}
    assert not long
    assert not [path for path in sources if path.stem.rstrip("s") in ("util", "common", "helper", "misc")]


def test_there_are_recipes():
    assert RECIPES


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.name)
def test_a_recipe_resolves_and_says_its_command(path):
    recipe = recipes.load_recipe(str(path))
    recipes.resolve(recipe)
    verb = "pretrain" if recipes.is_pretraining(recipe) else "finetune"
    if any(weight for term, weight in recipe.distillation.weights.items() if term != "labels"):
        verb = "distill"
    docstring = ast.get_docstring(ast.parse(path.read_text())) or ""
    assert f"bert-jax {verb} --config {path.stem}" in docstring


def test_each_task_has_a_test_in_make_check():
    for task in TASKS:
        files = (ROOT / "tests" / "tasks" / task).glob("test_*.py")
        assert any("@pytest.mark.oracle" in file.read_text() for file in files), task


def test_files_of_tests_have_names_of_their_own():
    """As pytest imports them by these names alone."""
    names = collections.Counter(path.name for path in (ROOT / "tests").rglob("test_*.py"))
    assert not [name for name, number in names.items() if number > 1]


def test_tests_are_collected_without_the_oracles_of_one_python():
    for path in (ROOT / "tests").rglob("test_*.py"):
        at_once = imports(path, ast.iter_child_nodes)  # these fail before a test can be skipped
        others = {name.split(".")[0] for name in at_once} & {"torch", "transformers", "sentence_transformers"}
        assert not others, f"{path} imports {others}"


# Where a file, a directory or an object may be removed, renamed or moved: file -> functions. Each says in its comments
# or docstring why that is never a file of the user's. A new place is a decision: add it here, with its reason there.
REMOVAL = {
    "compression/recovery.py": {"_prune_once"},  # `remove_incomplete`
    "cli/shards.py": {"_written"},  # `remove_leftovers`
    "conversion/encoder_decoder.py": {"save_encoder_decoder"},  # what `place_of_new` has checked
    "conversion/save_pretrained.py": {"save_pretrained"},  # the same
    "data/pretraining/deduplication.py": {"write_keys"},  # a record within `RECORDS_DIR`
    "data/pretraining/own_files.py": {"_unlink_all", "_remove_empty"},  # noted names, and empty directories
    "data/pretraining/prepare.py": {"_remove_all"},
    "data/pretraining/steps.py": {"begin", "finish"},
    "export/onnx/files.py": {"write_onnx_files"},  # within a directory that is being written
    "export/onnx/int8.py": {"_with_int8_words"},  # the same
    "tasks/embedding/index_files.py": {"drop"},  # the same
    "tasks/embedding/index_updates.py": {"__init__", "_remove"},  # segments and arrays of an index that it has replaced
    "program_cache.py": {"write_entry"},
    "cache_limit.py": {"remove_oldest", "_entries"},
    "storage/claims.py": {"__enter__"},
    "storage/object_directories.py": {"remove_object", "remove_tree", "move"},  # behind those of `storage/paths.py`
    "storage/paths.py": {"unlink", "rmtree", "rmdir", "rename", "replace"},
    "storage/writing.py": {
        "_opened_beside", "directory_atomically", "directory_resumably", "new_directory", "remove_incomplete",
        "remove_leftovers", "_temporary", "_upload_directory", "replace_directory", "_move",
    },
    "training/checkpoints.py": {
        "delete_surplus", "_set_aside_what_others_wrote", "_set_aside_unreadable_notes", "_remove_partial_once",
        "_set_aside",
    },
    "training/workdir.py": {"begin", "_set_model_aside"},
}  # fmt: skip
_REMOVERS = {
    "unlink", "rmtree", "rmdir", "rename", "renames", "removedirs", "truncate", "ftruncate", "rm", "rm_file",
    "remove_leftovers", "remove_incomplete", "replace_directory", "remove_own_files", "remove_records",
    "remove_object", "remove_tree",
}  # fmt: skip


def removals(tree):
    """Yields the function and the call of each removal or renaming in a module."""

    def walk(node, function):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            function = node.name
        called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
        name, given = called.rpartition(".")[2], len(node.args) + len(node.keywords) if called else 0
        # Text and dataclasses are replaced too, by two arguments or by names; arrays are deleted, and from.
        is_path = name in ("replace", "move", "delete") and len(node.args) == given == 1
        is_path &= not called.startswith("dataclasses.")
        if name in _REMOVERS or is_path or called in ("os.replace", "os.remove") or called.startswith("shutil."):
            yield function, f"line {node.lineno}: {called}"
        for child in ast.iter_child_nodes(node):
            yield from walk(child, function)

    yield from walk(tree, "the module")


def test_what_removes_or_renames_is_listed():
    found = {str(path.relative_to(PACKAGE)): list(removals(ast.parse(path.read_text()))) for path in MODULES}
    for name, calls in found.items():
        for function, call in calls:
            assert function in REMOVAL.get(name, ()), f"{name}: {function}: {call}: decide why it is never the user's"
    for name, functions in REMOVAL.items():
        assert functions == {function for function, _ in found[name]}, f"{name}: REMOVAL lists what removes nothing"


@pytest.mark.parametrize(
    "call",
    [
        "path.unlink()", "path.rmtree(missing_ok=True)", "folder.rmdir()", "path.rename(other)", "path.replace(other)",
        "os.remove(path)", "os.replace(a, b)", "shutil.rmtree(path)", "shutil.move(a, b)", "store.rm(path)",
        "manager.delete(step)",
        "storage.remove_leftovers(path)",
    ],
)  # fmt: skip
def test_the_list_sees_each_way_to_remove(call):
    assert [function for function, _ in removals(ast.parse(f"def f():\n    with a:\n        {call}"))] == ["f"]


@pytest.mark.parametrize(
    "call", ["text.replace('a', 'b')", "config.replace(size=1)", "dataclasses.replace(a)", "np.delete(a, b)"]
)
def test_the_list_takes_no_other_replacement_for_a_removal(call):
    assert not list(removals(ast.parse(call)))
