# @title Install bert_jax: run this cell first
# @markdown A wheel, a zip or the address of a repository. Left empty, Colab shows a button that uploads the wheel.
import importlib
import importlib.util
import subprocess
import sys
from pathlib import Path

SOURCE = ""  # @param {type: "string"}

if importlib.util.find_spec("bert_jax") is None:
    folders = [Path.cwd(), *Path.cwd().parents]
    checkouts = [folder for folder in folders if (folder / "bert_jax").is_dir() and (folder / "setup.py").is_file()]
    source = SOURCE.strip() or next(map(str, [*checkouts, *Path.cwd().glob("bert_jax-*.whl")]), "")
    if not source and "google.colab" in sys.modules:
        from google.colab import files

        print("Choose the wheel of bert_jax, dist/bert_jax-VERSION-py3-none-any.whl:")
        source = next(iter(files.upload()), "")
    if not source:
        raise RuntimeError("expected a wheel, a zip or the address of a repository in SOURCE, found nothing")
    if source.startswith("https://") and not source.endswith((".whl", ".zip", ".tar.gz")):
        source = f"git+{source}"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    if subprocess.run([*pip, source]).returncode:
        raise RuntimeError(f"pip could not install {source!r}: write another wheel, zip or address into SOURCE")
    importlib.invalidate_caches()

importlib.import_module("bert_jax.notebook").setup("demo", "hub")
