"""Run by tests: works with copies of the package, each without the folder of one task.

Usage: without_a_task.py FOLDER TASK... In a process of its own for each copy, forked after the imports of other
libraries: imports every module, fine-tunes a classifier and evaluates it, and asks for what is gone. The folder of
`package_copies` is on PYTHONPATH.
"""

import functools
import sys
from pathlib import Path

import pytest
from package_copies import import_all, try_without

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad", "film"]


def check(task: str, recipes_gone: list[str], pipelines_gone: list[str], copy: Path, modules: list[str]) -> None:
    """The copy fine-tunes and evaluates a classifier, and says in one line what it lacks."""
    import bert_jax
    from bert_jax import evaluation, recipes

    assert not [name for name in modules if name.startswith(f"bert_jax.tasks.{task}")]
    assert task not in recipes.RECIPES
    for name in recipes_gone:
        (copy / "config.json").write_text(f'{{"task": "{name}"}}')
        for spec in (name, str(copy / "config.json")):
            with pytest.raises(
                bert_jax.InputError, match=r"no recipe|no task has that name|expected the config.json of a run"
            ) as error:
                recipes.load_recipe(spec)
            assert "\n" not in str(error.value)
    for name in pipelines_gone:
        with pytest.raises(bert_jax.InputError, match=f"task {name!r} is not known"):
            bert_jax.pipeline(name, copy)

    (copy / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    (copy / "films.csv").write_text("sentence,label\n" + "good film,up\nbad film,down\n" * 8)
    recipe = recipes.classification()
    recipe.update_from_flattened_dict({
        "tokenizer": str(copy / "vocab.txt"), "data.train": str(copy / "films.csv"),
        "data.dev": str(copy / "films.csv"), "data.max_seq_length": 16, "num_steps": 2, "num_epochs": 0.0,
        "global_batch_size": 8, "model.size": "mini", "model.num_hidden_layers": 1, "model.hidden_size": 32,
        "model.num_attention_heads": 2, "model.intermediate_size": 32,
    })  # fmt: skip
    bert_jax.train(recipe, copy / "run", progress=False)
    scores = evaluation.evaluate(copy / "run" / "model", str(copy / "films.csv"))
    assert scores["examples"] == 16


def main(folder: Path, names: list[str]) -> int:
    import_all()
    from bert_jax.tasks import TASKS

    checks = (
        (name, functools.partial(check, name, list(TASKS[name].recipes), list(TASKS[name].pipelines))) for name in names
    )
    return int(not all(try_without(f"tasks/{name}", folder, each) for name, each in checks))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
