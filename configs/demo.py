"""The pretraining step of `bert-jax demo` alone.

    bert-jax train-tokenizer python-docs --vocab-size 4000 --out demo/tokenizer
    bert-jax prepare python-docs --tokenizer demo/tokenizer --out demo/prepared --max-seq-length 32
    bert-jax pretrain --config demo:demo --workdir demo/pretraining

The argument is the directory that holds `prepared`.
"""

from ml_collections import ConfigDict

from bert_jax.demo import pretraining_recipe


def get_config(workdir: str = "demo_workdir") -> ConfigDict:
    """The recipe; see `bert_jax.demo.pretraining_recipe`."""
    return pretraining_recipe(workdir)
