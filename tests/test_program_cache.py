"""The cache of programs: only its entries are removed, nothing stale is read, nothing is run that others wrote."""

import json
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from jax.experimental.compilation_cache import compilation_cache
from random_models import write_model

import bert_jax
from bert_jax import cache_limit, program_cache
from bert_jax.config import BertConfig
from bert_jax.inference import from_pretrained, programs

NAME = "0123456789abcdef" * 2
PACKAGE = Path(bert_jax.__file__).parent


def remove_oldest(folder, limit):
    of_jax = folder.parent == program_cache.default_directory()
    cache_limit.remove_oldest(folder, program_cache.MARKER, of_jax, limit)


@pytest.fixture(autouse=True)
def named(tmp_path):
    """The directory that `JAX_COMPILATION_CACHE_DIR` names."""
    before = jax.config.jax_compilation_cache_dir
    folder = tmp_path / "named"
    folder.mkdir(mode=0o755)
    jax.config.update("jax_compilation_cache_dir", str(folder))
    compilation_cache.reset_cache()  # else JAX stays with its folder
    program_cache.log._warned.clear()
    yield folder
    jax.config.update("jax_compilation_cache_dir", before)
    compilation_cache.reset_cache()


def entries_folder(named):
    (folder,) = named.glob("bert_jax-*")
    return folder


def fill(folder):
    """Write files that are not ours, old and large, with names close to ours; return their contents by path."""
    contents = {
        "thesis.txt": b"three years of work",
        "holiday.mp4": b"frames",
        "bert_jax-holiday": b"a name that earlier entries had",
        "jit_step-" + "ab" * 32 + "-cache": b"a program of another project",
        "jit_step-" + "ab" * 32 + "-atime": b"12345678",
        "f" * 32: b"a file that is named by its MD5",
        ".tmp4kd0z1xy": b"the temporary file of another program",
        f".{NAME}.partial": b"no name of ours",
        f".{NAME}.0123456789abcdef.partial": b"not what ours begin with",
        "notes/draft.txt": b"in a directory",
    }
    for name, content in contents.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
        os.utime(path, (1, 1))
    with open(folder / "holiday.mp4", "r+b") as video:
        video.truncate(3 << 30)  # sparse
    (folder / ("e" * 32)).symlink_to(folder / "thesis.txt")
    return {folder / name: content for name, content in contents.items()}


@pytest.mark.slow
@pytest.mark.parametrize("limit", [0, 2 << 30])
def test_files_that_are_not_ours_are_neither_counted_nor_removed(named, monkeypatch, limit):
    monkeypatch.setattr(cache_limit, "_LIMIT", limit)
    program_cache.write_entry("0" * 32, b"makes the folder")
    folder = entries_folder(named)
    files = fill(named) | fill(folder)
    program_cache.write_entry(NAME, b"first")
    for path, content in files.items():
        assert path.is_file() and path.read_bytes()[: len(content)] == content, path
    assert (program_cache.read_entry(NAME) == b"first") == bool(limit)


def test_the_entries_used_longest_ago_go_first(named):
    for number in range(4):
        program_cache.write_entry(f"{number}" * 32, bytes(1000))
        os.utime(entries_folder(named) / (f"{number}" * 32), (number, number))
    os.utime(entries_folder(named) / ("0" * 32), (9, 9))
    remove_oldest(entries_folder(named), 2500)
    assert [program_cache.read_entry(f"{number}" * 32) is not None for number in range(4)] == [True, False, False, True]


def test_temporary_files_of_killed_processes_go_when_they_are_old(named):
    program_cache.write_entry(NAME, b"entry")
    folder = entries_folder(named)
    partials = [folder / f".{NAME}.{number:016x}.partial" for number in range(3)]
    partials[0].write_bytes(b"")
    partials[1].write_bytes(program_cache.MARKER + b"half of it")
    partials[2].write_bytes(program_cache.MARKER)
    for path in partials[:2]:
        os.utime(path, (1, 1))
    program_cache.write_entry("1" * 32, b"another")
    assert [path.exists() for path in partials] == [False, False, True]


def test_in_the_users_cache_directory_the_entries_of_jax_are_bounded_too(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    jax.config.update("jax_compilation_cache_dir", None)
    program_cache.write_entry(NAME, b"entry")
    folder = program_cache.default_directory()
    of_jax, thesis = folder / ("jit_step-" + "ab" * 32 + "-cache"), folder / "thesis.txt"
    for path in (of_jax, thesis):
        path.write_bytes(bytes(1000))
        os.utime(path, (1, 1))
    remove_oldest(entries_folder(folder), 500)
    assert thesis.exists() and not of_jax.exists() and program_cache.read_entry(NAME) == b"entry"


def test_processors_of_different_kinds_share_no_entries(monkeypatch):
    program_cache.write_entry(NAME, b"with AVX-512")
    with monkeypatch.context() as other:
        other.setattr(program_cache, "_machine", lambda: "without")
        assert program_cache.read_entry(NAME) is None
        program_cache.write_entry(NAME, b"without")
    assert program_cache.read_entry(NAME) == b"with AVX-512"


def fingerprint(package):
    return program_cache.fingerprint_of_sources.__wrapped__(package)


@pytest.mark.slow
def test_a_change_of_any_source_file_changes_every_key(tmp_path):
    copy = Path(shutil.copytree(PACKAGE, tmp_path / "copy", ignore=shutil.ignore_patterns("__pycache__")))
    whole = fingerprint(copy)
    assert whole == program_cache.fingerprint_of_sources()
    known = {whole}
    for path in sorted(copy.rglob("*.py")):
        content = path.read_bytes()
        path.write_bytes(content + b"\n")
        known.add(fingerprint(copy))
        path.write_bytes(content)
    assert len(known) == 1 + len(list(copy.rglob("*.py")))
    assert fingerprint(copy) == whole
    (copy / "new.py").write_bytes(b"")
    assert fingerprint(copy) not in known
    (copy / "new.py").rename(copy / "newer.py")
    assert fingerprint(copy) not in known


ANSWER = """
import sys
import numpy as np
from bert_jax.inference import from_pretrained
output = from_pretrained(sys.argv[1])(np.array([[5, 6, 7, 8, 9, 10, 7, 6, 5, 8]]))
print(np.asarray(output.last_hidden_state).tobytes().hex())
"""


def test_a_changed_package_answers_by_no_program_from_before(tmp_path, named):
    config = BertConfig.named("tiny", "modernbert", num_hidden_layers=3, local_window=2, global_every=3)
    model = tmp_path / "model"
    write_model(model, config)
    package = Path(
        shutil.copytree(PACKAGE, tmp_path / "copy" / "bert_jax", ignore=shutil.ignore_patterns("__pycache__"))
    )

    def answer(**environment):
        environment = (
            os.environ | {"PYTHONPATH": str(package.parent), "JAX_COMPILATION_CACHE_DIR": str(named)} | environment
        )
        command = [sys.executable, "-c", ANSWER, str(model)]
        return subprocess.run(
            command, env=environment, stdout=subprocess.PIPE, text=True, check=True, cwd=tmp_path
        ).stdout

    before = answer()
    assert any(entries_folder(named).iterdir()) and answer() == before
    source = package / "config" / "attention.py"
    changed = source.read_text().replace("if i % self.global_every", "if i % self.global_every == 1")
    assert changed != source.read_text()
    source.write_text(changed)
    after = answer()
    assert after != before
    assert after == answer(JAX_ENABLE_COMPILATION_CACHE="false")


@pytest.mark.parametrize("package", ["jax", "jaxlib", "flax", "numpy", "ml_dtypes"])
def test_a_change_of_version_changes_every_key(monkeypatch, package):
    before = program_cache.fingerprint()
    real = program_cache.importlib.metadata.version
    program_cache._versions.cache_clear()
    with monkeypatch.context() as other:
        other.setattr("importlib.metadata.version", lambda name: "99" if name == package else real(name))
        assert program_cache.fingerprint() != before
    program_cache._versions.cache_clear()
    assert program_cache.fingerprint() == before


@pytest.mark.parametrize("option", ["jax_enable_x64", "jax_threefry_partitionable", "jax_softmax_custom_jvp"])
def test_an_option_of_jax_changes_every_key_and_one_of_its_cache_none(monkeypatch, option):
    before, value = program_cache.fingerprint(), getattr(jax.config, option)
    jax.config.update(option, not value)
    assert program_cache.fingerprint() != before
    jax.config.update(option, value)
    assert program_cache.fingerprint() == before
    jax.config.update(
        "jax_persistent_cache_min_compile_time_secs", jax.config.jax_persistent_cache_min_compile_time_secs + 1
    )
    assert program_cache.fingerprint() == before
    jax.config.update(
        "jax_persistent_cache_min_compile_time_secs", jax.config.jax_persistent_cache_min_compile_time_secs - 1
    )


class Command:
    """Runs a shell command when it is unpickled."""

    def __init__(self, command):
        self.command = command

    def __reduce__(self):
        return os.system, (self.command,)


def of_another_user(path):
    if os.geteuid():
        pytest.skip("only root can give a file to another user")
    os.chown(path, 65534, 65534)


PLANTS = {
    "nothing": lambda named, folder, entry: None,
    "named directory, others may write": lambda named, folder, entry: named.chmod(0o777),
    "named directory like /tmp": lambda named, folder, entry: named.chmod(0o1777),
    "named directory, a group may write": lambda named, folder, entry: (os.chown(named, -1, 1), named.chmod(0o775)),
    "named directory of another user": lambda named, folder, entry: of_another_user(named),
    "our directory, others may write": lambda named, folder, entry: folder.chmod(0o707),
    "our directory of another user": lambda named, folder, entry: of_another_user(folder),
    "our directory is a link to one that others may write": lambda named, folder, entry: (
        folder.rename(named / "elsewhere"), (named / "elsewhere").chmod(0o777), folder.symlink_to(named / "elsewhere")
    ),
    "entry that others may write": lambda named, folder, entry: entry.chmod(0o666),
    "entry of another user": lambda named, folder, entry: of_another_user(entry),
    "entry is a link": lambda named, folder, entry: (
        entry.rename(named / "elsewhere"), entry.symlink_to(named / "elsewhere")
    ),
    "entry is a pipe": lambda named, folder, entry: (entry.unlink(), os.mkfifo(entry)),
    "entry is a directory": lambda named, folder, entry: (entry.unlink(), entry.mkdir()),
}  # fmt: skip


@pytest.mark.sampled(9)
@pytest.mark.parametrize("plant", PLANTS)
def test_no_code_runs_that_others_may_have_written(tmp_path, named, write_small, monkeypatch, plant):
    """The first case shows that the planted entry would run its command."""
    monkeypatch.setattr(programs, "_programs", {})
    model = from_pretrained(write_small(tmp_path / "model"))
    expected, folder = outputs(model), entries_folder(named)
    entry = max(folder.iterdir(), key=lambda path: path.stat().st_size)
    proof = tmp_path / "proof"
    content = json.dumps({"last_hidden_state": 0}).encode() + b"\n" + pickle.dumps(Command(f"touch {proof}"))
    program_cache.write_entry(entry.name, content)
    PLANTS[plant](named, folder, entry)
    monkeypatch.setattr(programs, "_programs", {})
    np.testing.assert_array_equal(outputs(model), expected)
    assert proof.exists() == (plant == "nothing")


def outputs(model):
    return np.asarray(model(np.array([[5, 6, 7], [7, 6, 5]])).last_hidden_state)


def test_a_refused_directory_is_named_once(named, caplog):
    named.chmod(0o777)
    for _ in range(3):
        program_cache.write_entry(NAME, b"content")
        assert program_cache.read_entry(NAME) is None
    (line,) = [record.getMessage() for record in caplog.records]
    assert str(named) in line and "found mode 777" in line
    assert not any(named.iterdir())


def test_a_group_of_one_may_write(named, monkeypatch):
    import grp
    import pwd

    named.chmod(0o775)
    user = pwd.getpwuid(os.geteuid())
    for members, trusted in (([], True), ([user.pw_name], True), ([user.pw_name, "another"], False)):
        monkeypatch.setattr(
            grp, "getgrgid", lambda group, members=members: grp.struct_group(("name", "x", group, members))
        )
        assert program_cache.is_private(named) == trusted


def test_a_cache_that_may_only_be_read_is_read(named, monkeypatch):
    program_cache.write_entry(NAME, b"content")

    def read_only(*arguments, **options):
        raise PermissionError

    monkeypatch.setattr(os, "utime", read_only)
    assert program_cache.read_entry(NAME) == b"content"


def test_the_command_line_turns_the_cache_of_jax_off_where_others_may_write(named):
    script = "from bert_jax import cli\nwith cli.process_settings(): import jax; "
    script += "print(jax.config.jax_enable_compilation_cache)"
    for mode, enabled in ((0o755, "True"), (0o777, "False")):
        named.chmod(mode)
        environment = os.environ | {"JAX_COMPILATION_CACHE_DIR": str(named)}
        done = subprocess.run(
            [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == enabled
        assert ("compiled programs are code" in done.stderr) == (enabled == "False")
