"""Kinds of runs that are killed: for each, the files it reads, its recipe, and its command."""

import dataclasses
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gliners import write_rows as write_gliner_rows
from relation_rows import rows_of, write_model
from set_tables import recipe as sets_recipe
from set_tables import write_tables
from small import recipe as small_recipe
from small import sentence

from bert_jax import recipes
from bert_jax.data.pretraining.prepare import prepare

STEPS = 24
# Saves every few steps, evaluations between them, and lines of metrics that end at neither.
_OFTEN = {"num_steps": STEPS, "num_epochs": 0.0, "checkpoint_every": 4, "eval_every": 6, "log_every": 5}
WORDS = ["cat", "dog", "bird", "fish", "house", "tree", "river", "stone"]
_TEACHER = {"hidden_size": 24, "num_hidden_layers": 2, "intermediate_size": 48, "initializer_range": 0.3}


@dataclasses.dataclass(frozen=True)
class Kind:
    """A command that trains.

    Attributes:
        verb: the verb of the command.
        write: writes the files that the command reads into a folder.
        recipe: the recipe of these files, given the folder (a path or a URL) and the folder of the run.
        words: further words of the command, given the same.
        outputs: names of the directories in the folder of the run that are compared whole, and those of its work
            directories.
    """

    verb: str
    write: Callable[["Makers", Path], None]
    recipe: Callable[[str, str], Any]
    words: Callable[[str, str], list[str]] = lambda at, run: ["--workdir", f"{run}/work"]
    outputs: tuple[str, ...] = ()
    workdirs: tuple[str, ...] = ("work",)


@dataclasses.dataclass(frozen=True)
class Makers:
    """The fixtures from which files are written.

    Attributes:
        data: the folder of the fixture `data`.
        tokenizer: the tokenizer of its texts.
        write_small: writes a small model.
    """

    data: Path
    tokenizer: Any
    write_small: Callable[..., Path]


def _lines(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def _changed(c: Any, at: str, **changes: Any) -> Any:
    files = {"init_from": f"{at}/encoder", "data.train": f"{at}/train.jsonl", "data.dev": f"{at}/dev.jsonl"}
    c.update_from_flattened_dict(_OFTEN | files | changes)
    return c


def _write_gliner(makers: Makers, at: Path) -> None:
    write_gliner_rows(at / "train.jsonl", 120, 0)
    write_gliner_rows(at / "dev.jsonl", 20, 1)
    makers.write_small(at / "encoder", max_position_embeddings=64)


def _gliner(at: str, run: str) -> Any:
    sizes = {"data.max_seq_length": 40, "data.length_buckets": (32,), "data.hidden_size": 16, "data.max_width": 2}
    keeps = {"best_metric": "f1", "keep_checkpoints": 1}
    rate = {"global_batch_size": 8, "optimizer.learning_rate": 3e-3}
    return _changed(recipes.zero_shot_ner(), at, **sizes, **keeps, **rate)


def _write_colbert(makers: Makers, at: Path) -> None:
    rng = random.Random(3)
    for name, count in (("train", 64), ("dev", 8)):
        words = rng.choices(WORDS, k=count)
        _lines(at / f"{name}.jsonl", [{"query": f"the {w}", "document": f"a big {w} sat on a {w}."} for w in words])
    makers.write_small(at / "encoder", "masked_lm")


def _colbert(at: str, run: str) -> Any:
    columns = {"data.text_column": "query", "data.pair_column": "document"}
    sizes = {"data.max_seq_length": 16, "data.length_buckets": (16,), "data.query_length": 8, "data.token_dim": 12}
    rate = {"global_batch_size": 8, "accumulation_steps": 2, "optimizer.learning_rate": 3e-3}
    return _changed(recipes.multi_vector(), at, **columns, **sizes, **rate)


def _write_sets(makers: Makers, at: Path) -> None:
    write_tables(at)
    makers.write_small(at / "encoder")


def _sets(at: str, run: str) -> Any:
    return sets_recipe(at, **_OFTEN, **{"data.sampling": "temperature", "data.sampling_temperature": 3.0})


def _write_relations(makers: Makers, at: Path) -> None:
    for name in ("train", "dev"):
        (at / f"{name}.json").write_text(json.dumps(rows_of(60, seed=len(name))))
    write_model(at / "encoder", "encoder")


def _relations(at: str, run: str) -> Any:
    files = {"data.train": f"{at}/train.json", "data.dev": f"{at}/dev.json", "data.max_seq_length": 24}
    rate = {"global_batch_size": 16, "optimizer.learning_rate": 4e-3}
    return _changed(recipes.load_recipe(f"relation_extraction:{at}"), at, **files, **rate)


def _write_translation(makers: Makers, at: Path) -> None:
    rng = random.Random(4)
    for name, count in (("train", 100), ("dev", 12)):
        texts = [rng.choices(WORDS, k=rng.randint(2, 6)) for _ in range(count)]
        _lines(at / f"{name}.jsonl", [{"source": " ".join(t), "target": " ".join(t[::-1])} for t in texts])
    makers.write_small(at / "encoder", "masked_lm")


def _translation(at: str, run: str) -> Any:
    sizes = {"data.max_seq_length": 12, "data.max_target_length": 12, "data.length_buckets": (12,)}
    rate = {"global_batch_size": 16, "eval_batch_size": 12, "optimizer.learning_rate": 2e-3, "generation.num_beams": 1}
    return _changed(recipes.sequence_to_sequence(), at, **sizes, **rate)


def _write_mixture(makers: Makers, at: Path) -> None:
    rng = random.Random(5)
    for number, count in enumerate((40, 12, 25)):
        text = "\n\n".join("\n".join(sentence(rng) for _ in range(6)) for _ in range(count))
        (at / f"{number}.txt").write_text(text)
        prepare(str(at / f"{number}.txt"), makers.tokenizer, at / str(number), max_seq_length=32, dupe_factor=1,
                validation_fraction=0.2, num_workers=1)  # fmt: skip
    (at / "tokenizer").mkdir()
    makers.tokenizer.save(at / "tokenizer")


def _mixture(at: str, run: str) -> Any:
    stages = ((14, 24, 16), (STEPS - 14, 32, 8))
    keys = {"tokenizer": f"{at}/tokenizer", "data.prepared": "", "data.mixture": tuple(f"{at}/{i}" for i in range(3))}
    keys |= {"data.mixture_weights": ((3, 1, 2), (1, 4, 1)), "stages": stages, "best_metric": ""}
    often = {name: value for name, value in _OFTEN.items() if name != "num_epochs"}
    return small_recipe(Path(), "pretraining", **often, **keys)


def _write_tables(makers: Makers, at: Path) -> None:
    for name in ("train", "dev"):
        (at / f"{name}.tsv").write_bytes((makers.data / f"{name}.tsv").read_bytes())
    sizes = {"id2label": ("no", "yes"), "num_attention_heads": 4}
    makers.write_small(at / "classifier", "sequence_classification", seed=1, **sizes | _TEACHER)
    (at / "tokenizer").mkdir()
    makers.tokenizer.save(at / "tokenizer")


def _classification(at: str, run: str, **changes: Any) -> Any:
    tables = {"data.train": f"{at}/train.tsv", "data.dev": f"{at}/dev.tsv", "init_from": ""}
    sizes = {"data.max_seq_length": 32, "data.length_buckets": (16,), "global_batch_size": 16}
    return _changed(recipes.classification(), at, **tables, **sizes, **changes)


def _pruning(at: str, run: str) -> Any:
    return _classification(at, run, num_steps=12, checkpoint_every=3)


def _pruning_words(at: str, run: str) -> list[str]:
    words = ["--out", f"{run}/out", "--workdir", f"{run}/work", "--rounds", "2", "--examples", "8"]
    return [f"{at}/classifier", *words, "--heads", "0.5", "--columns", "0.5"]


def _distillation(at: str, run: str) -> Any:
    """A student of a teacher whose outputs are cached in the folder of the run."""
    teacher = {"distillation.teacher": f"{at}/classifier", "distillation.cache": f"{run}/cache"}
    weights = {"distillation.weights.labels": 0.5, "distillation.weights.soft_labels": 1.0}
    sizes = {"model.size": "tiny", "model.hidden_size": 16, "model.intermediate_size": 32}
    sizes |= {"model.max_position_embeddings": 32, "model.num_hidden_layers": 1, "tokenizer": f"{at}/tokenizer"}
    return _classification(at, run, **teacher, **weights, **sizes, best_metric="accuracy", keep_checkpoints=1)


KINDS = {
    "zero-shot NER": Kind("finetune", _write_gliner, _gliner),
    "multi-vector": Kind("finetune", _write_colbert, _colbert),
    "several data sets": Kind("finetune", _write_sets, _sets),
    "relation extraction": Kind("finetune", _write_relations, _relations),
    "sequence to sequence": Kind("finetune", _write_translation, _translation),
    "mixture": Kind("pretrain", _write_mixture, _mixture),
    "prune": Kind(
        "prune", _write_tables, _pruning, _pruning_words,
        outputs=("out", "work/round-1/pruned", "work/round-2/pruned"),
        workdirs=("work/round-1/run", "work/round-2/run"),
    ),
    "distil": Kind("distill", _write_tables, _distillation),
}  # fmt: skip
