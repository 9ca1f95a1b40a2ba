"""The packages: `bert_jax`, and configs/ as `bert_jax/configs`; the rest is in pyproject.toml."""

from setuptools import find_namespace_packages, setup

setup(
    packages=[*find_namespace_packages(include=["bert_jax*"]), "bert_jax.configs"],
    package_dir={"bert_jax.configs": "configs"},
)
