"""Run by tests: trains by one recipe after another, in one process.

Usage: train_all.py RECIPE.json WORKDIR [RECIPE.json WORKDIR ...]
"""

import sys

from bert_jax import recipes
from bert_jax.training.loop import train

if __name__ == "__main__":
    for recipe, workdir in zip(sys.argv[1::2], sys.argv[2::2], strict=True):
        train(recipes.load_recipe(recipe), workdir, progress=False)
