"""The clients of docs/serving.md, run as they are against a server."""

import json
import re
import shlex
import shutil
import subprocess

import pytest
from served import ROOT

PAGE = (ROOT / "docs" / "serving.md").read_text()
ADDRESS = "http://127.0.0.1:8080"


@pytest.fixture(scope="module")
def page(server):
    """The page with the address of the server, whose embedding model has another name."""
    return PAGE.replace(ADDRESS, server.address).replace("models/all-MiniLM-L6-v2", "models/embedder")


def blocks(page, language):
    return re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)


def test_python(page):
    (code,) = blocks(page, "python")
    names = {}
    exec(code.replace("all-MiniLM-L6-v2", "embedder"), names)
    assert len(names["vectors"]) == 2 and len(names["vectors"][0]) == 32


def test_curl(page):
    if shutil.which("curl") is None:
        pytest.skip("needs curl")
    commands = [line for block in blocks(page, "bash") for line in block.splitlines() if line.startswith("curl ")]
    assert len(commands) == 4
    for command in commands:
        done = subprocess.run([*shlex.split(command), "--silent", "--fail"], capture_output=True, text=True)
        assert done.returncode == 0, command
        assert json.loads(done.stdout)


def test_javascript(page, tmp_path):
    if shutil.which("node") is None:
        pytest.skip("needs Node.js")
    (code,) = blocks(page, "javascript")
    script = tmp_path / "client.mjs"
    script.write_text(code)
    done = subprocess.run(["node", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[:2] == ["2", "32"]


def test_the_table_of_limits_has_the_defaults():
    from bert_jax.serving.settings import ServerSettings

    rows = dict(re.findall(r"^\| `--([a-z-]+)`[^|]*\| ([^|]*) \|", PAGE, re.MULTILINE))
    numbers = {name: shown.split()[0].replace(",", "") for name, shown in rows.items()}
    assert len(numbers) == 7
    for name, number in numbers.items():
        scale = 1 << 20 if rows[name].endswith("MiB") else 1
        assert getattr(ServerSettings, name.replace("-", "_")) == float(number) * scale, name
