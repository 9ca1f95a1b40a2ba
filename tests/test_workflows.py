"""The workflows of .github/ call what the Makefile and the package have."""

import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from bert_jax.version import __version__

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def steps(path):
    jobs = yaml.safe_load(path.read_text())["jobs"]
    return [step for job in jobs.values() for step in job["steps"]]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_the_targets_of_make_exist(path):
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    called = [name for step in steps(path) for name in re.findall(r"^make (\S+)", step.get("run", ""), re.MULTILINE)]
    assert set(called) <= {*targets}
    assert called or path.stem == "release"


@pytest.mark.parametrize(("tag", "status"), [(f"v{__version__}", 0), (f"v{__version__}1", 1), (__version__, 1)])
def test_a_release_has_the_tag_of_its_version(tag, status):
    (line,) = [step["run"] for step in steps(ROOT / ".github/workflows/release.yml") if "GITHUB_REF_NAME" in str(step)]
    done = subprocess.run(["bash", "-e", "-c", line], cwd=ROOT, env=os.environ | {"GITHUB_REF_NAME": tag})
    assert done.returncode == status


def test_the_citation_has_the_version():
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == __version__
