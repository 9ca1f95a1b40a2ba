"""Distillation on SST-2, STS-B and CoNLL-2003: a teacher, its students, and the same students without a teacher.

Of each task there is one teacher, seed 0, and the same teacher cut to the layers LAYERS. Students have 3 layers and
start from these, or are narrow and start from a general distillation. Without a teacher, they start from the cut
teacher, from the same general distillation, or from random parameters. Students are of every seed.
"""

import dataclasses
import json
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.tasks import dtype_of
from benchmarks.turns import append
from bert_jax import storage
from bert_jax.compression.figures import figures_of
from bert_jax.compression.pruning import open_for_pruning
from bert_jax.data.corpora.sources import open_corpus
from bert_jax.data.finetuning.columns import Columns
from bert_jax.data.finetuning.tables import read_examples
from bert_jax.data.finetuning.tagged import read_sentences

LAYERS = (1, 3, 5)  # of the teacher, for the students that start from it
_NARROW = {"num_hidden_layers": 3, "hidden_size": 192, "num_attention_heads": 6, "intermediate_size": 768}
STUDENTS = ("distilled", "alone", "narrow distilled", "narrow from general", "narrow alone")


@dataclasses.dataclass(frozen=True)
class Subject:
    """A task of the comparison.

    Attributes:
        recipe: recipe that fine-tunes the teacher; with the data directory.
        distil: recipe of the students with a teacher.
        folder: folder in the data directory.
        dev: evaluation file in it.
        metric: metric of `bert-jax evaluate`.
        epochs: epochs of teacher and students.
        learning_rate: of teacher and students.
        keys: further keys of teacher and students.
        taught: further keys of students with a teacher.
        narrow: further keys of narrow students; those of distillation where there is a teacher.
    """

    recipe: str
    distil: str
    folder: str
    dev: str
    metric: str
    epochs: tuple[float, float]
    learning_rate: tuple[float, float]
    keys: dict[str, Any] = dataclasses.field(default_factory=dict)
    taught: dict[str, Any] = dataclasses.field(default_factory=dict)
    narrow: dict[str, Any] = dataclasses.field(default_factory=dict)


SUBJECTS = {
    "sst2": Subject("classification:sst2,{}", "distil_sst2:{}", "glue/SST-2", "dev.tsv", "accuracy", (1, 1),
                    (1e-4, 1e-4), {"global_batch_size": 32},
                    {"distillation.cache": "cache", "distillation.weights.hidden_states": 0.0}),
    "stsb": Subject("stsb_embedding:{}", "distil_stsb:{}", "glue/STS-B", "dev.tsv", "spearman", (4, 4), (2e-5, 1e-4),
                    {"best_metric": "", "eval_every": 0}, {"distillation.cache": "cache"},
                    {"distillation.embedding_distance": "similarities"}),
    "conll2003": Subject("conll2003:{}", "distil_conll2003:{}", "conll2003", "valid.txt", "f1", (3, 3), (2e-4, 3e-4),
                         narrow={"num_epochs": 8, "optimizer.learning_rate": 1e-3}),
}  # fmt: skip
_GENERAL_EPOCHS = 0.6  # of 21 million words


@dataclasses.dataclass(frozen=True)
class Comparison:
    """The settings of a comparison.

    Attributes:
        data: data directory.
        model: all-MiniLM-L6-v2, from which teachers start.
        corpus: corpora of the general distillation of the narrow student.
        workdir: directory of the runs; finished runs are not repeated, interrupted ones resume.
        record: JSON lines file to which each result is appended; recorded results are not measured again.
        share: fraction of the epochs of each run.
    """

    data: Path
    model: Path
    corpus: Sequence[str]
    workdir: Path
    record: Path
    share: float

    def run(self, names: Sequence[str], seeds: int) -> None:
        """Measure what is not recorded, and print a table of the means over the seeds."""
        self.record.parent.mkdir(parents=True, exist_ok=True)
        done = self._recorded()
        for name in names:
            for seed in range(seeds):
                for student in (*("teacher", "truncated") * (seed == 0), *STUDENTS):
                    key = {"task": name, "student": student, "seed": seed, "share": self.share}
                    if not any(line.items() >= key.items() for line in done):
                        done.append(key | self._measure(name, student, seed))
                        append(self.record, done[-1])
                        print(json.dumps(done[-1]), flush=True)
        _print_table([line for line in done if line["share"] == self.share], names)

    def _recorded(self) -> list[dict[str, Any]]:
        lines = self.record.read_text(encoding="utf-8").splitlines() if self.record.exists() else []
        return [json.loads(line) for line in lines]

    def _measure(self, name: str, student: str, seed: int) -> dict[str, Any]:
        """Train a model, and return its score, its parameters, and its speed relative to the teacher's."""
        from bert_jax.evaluation import evaluate

        subject, start = SUBJECTS[name], time.monotonic()
        model = self._model(name, student, seed)
        seconds = time.monotonic() - start
        scores = evaluate(model, str(self.data / subject.folder / subject.dev), metric_names=(subject.metric,))
        teacher = self.workdir / name / "teacher_0" / "model"
        whole, own = figures_of([open_for_pruning(path)[0] for path in (teacher, model)])  # timed in alternation
        return {"score": scores[subject.metric], "training_seconds": round(seconds, 1), "parameters": own.parameters,
                "speed_up": whole.seconds / own.seconds}  # fmt: skip

    def _model(self, name: str, student: str, seed: int) -> Path:
        """Return the directory of a trained model."""
        subject, place = SUBJECTS[name], self.workdir / name / f"{student.replace(' ', '_')}_{seed}"
        teacher = self.workdir / name / "teacher_0" / "model"
        number = 0 if student == "teacher" else 1
        keys = {
            "num_epochs": subject.epochs[number] * self.share,
            "optimizer.learning_rate": subject.learning_rate[number],
            "optimizer.bias_correction": True,
            "dtype": dtype_of(self.workdir),
            "seed": seed,
            **subject.keys,
        }
        match student:
            case "teacher":
                return self._train("finetune", subject.recipe, subject, place, keys | {"init_from": self.model})
            case "truncated":
                return truncated(teacher, place)
            case "alone":
                begin = truncated(teacher, self.workdir / name / "truncated_0")
                return self._train("finetune", subject.recipe, subject, place, keys | {"init_from": begin})
            case "narrow from general":
                keys |= _untaught(subject.narrow) | {"init_from": self._general()}
                return self._train("finetune", subject.recipe, subject, place, keys)
            case "narrow alone":
                keys |= _untaught(subject.narrow) | _sizes() | {"tokenizer": teacher}
                return self._train("finetune", subject.recipe, subject, place, keys)
        keys |= {"distillation.teacher": teacher, "distillation.student_layers": LAYERS, **subject.taught}
        if "distillation.cache" in keys:
            keys["distillation.cache"] = self.workdir / name / "cache"
        if student == "narrow distilled":
            keys |= {"init_from": self._general(), "distillation.student_layers": "()", **subject.narrow}
        return self._train("distill", subject.distil, subject, place, keys)

    def _general(self) -> Path:
        """Return the narrow student after general distillation, of vectors and hidden states of plain text."""
        keys = {"distillation.teacher": self.model, "distillation.student_layers": "()",
                "distillation.student_embeddings": True, "distillation.weights.hidden_states": 1.0,
                "distillation.embedding_distance": "similarities", "num_epochs": _GENERAL_EPOCHS * self.share,
                "optimizer.learning_rate": 1e-3, "dtype": dtype_of(self.workdir), **_sizes()}  # fmt: skip
        return run_verb("distill", f"distil_text:{self._texts()},text", self.workdir / f"general_{self.share:g}", keys)

    def _texts(self) -> Path:
        """Return a table of the sentences of the corpora and of the training data, which lacks the labels."""
        place = self.workdir / "texts.jsonl"
        if not place.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            with storage.open_atomically(place) as file:
                for text in dict.fromkeys(self._sentences()):
                    file.write(json.dumps({"text": text}) + "\n")
        return place

    def _sentences(self) -> Iterator[str]:
        for corpus in self.corpus:
            for document in open_corpus(corpus):
                for text in document.texts:
                    yield from filter(None, re.split(r"(?<=[.!?]) +", text))
        glue = self.data / "glue"
        yield from (row.text for row in read_examples(str(glue / "SST-2" / "train.tsv"), Columns("sentence")))
        for row in read_examples(str(glue / "STS-B" / "train.tsv"), Columns("sentence1", "sentence2")):
            yield from filter(None, (row.text, row.pair))
        for sentence in read_sentences(str(self.data / "conll2003" / "train.txt"), Columns()):
            yield " ".join(sentence.words)

    def _train(self, verb: str, recipe: str, subject: Subject, place: Path, keys: dict[str, Any]) -> Path:
        return run_verb(verb, recipe.format(self.data / subject.folder), place, keys)


def _sizes() -> dict[str, Any]:
    """Return the recipe keys of the narrow student's architecture."""
    return {f"model.{name}": value for name, value in _NARROW.items()}


def _untaught(keys: dict[str, Any]) -> dict[str, Any]:
    """Return the keys that mean something without a teacher."""
    return {name: value for name, value in keys.items() if not name.startswith("distillation.")}


def run_verb(verb: str, recipe: str, workdir: Path, keys: dict[str, Any]) -> Path:
    """Run a training verb in a process of its own, and return the directory of the model."""
    command = [sys.executable, "-m", "bert_jax", verb, "--config", recipe, "--workdir", str(workdir), "--quiet"]
    subprocess.run([*command, *(f"--config.{key}={value}" for key, value in keys.items())], check=True)
    return workdir / "model"


def truncated(teacher: Path, place: Path) -> Path:
    """Write the teacher with only the layers LAYERS, and return its directory."""
    import jax

    from bert_jax.conversion.huggingface import load_pretrained, save_pretrained
    from bert_jax.inference.loading import open_tokenizer

    if not (place / "model" / "config.json").exists():
        loaded = load_pretrained(teacher)
        params = dict(loaded.params)
        chosen = jax.tree.map(lambda leaf: leaf[list(LAYERS)], params["encoder"]["layers"])
        params["encoder"] = params["encoder"] | {"layers": chosen}
        config = loaded.config.replace(num_hidden_layers=len(LAYERS))
        place.mkdir(parents=True, exist_ok=True)
        save_pretrained(place / "model", config, loaded.head, params, open_tokenizer(loaded), settings=loaded.settings)
        if (teacher / "bert_jax.json").exists():  # the columns that the teacher was trained on
            (place / "model" / "bert_jax.json").write_text((teacher / "bert_jax.json").read_text())
    return place / "model"


def _print_table(lines: Sequence[dict[str, Any]], names: Sequence[str]) -> None:
    """Print mean scores, their share of the teacher's, and speed-ups."""
    print(
        "| task | model | seeds | score | of the teacher's | M parameters | speed-up |\n|---|---|---|---|---|---|---|"
    )
    for name in names:
        of_task = [line for line in lines if line["task"] == name]
        by_student: dict[str, list[dict[str, Any]]] = {}
        for line in of_task:
            by_student.setdefault(line["student"], []).append(line)
        mean = {
            student: {key: statistics.mean(line[key] for line in found) for key in ("score", "speed_up")}
            for student, found in by_student.items()
        }
        for student, found in by_student.items():
            spread = statistics.stdev(line["score"] for line in found) if len(found) > 1 else 0.0
            share = mean[student]["score"] / mean["teacher"]["score"]
            print(
                f"| {name} | {student} | {len(found)} | {mean[student]['score']:.4f} ± {spread:.4f} | {share:.1%} | "
                f"{found[0]['parameters'] / 1e6:.1f} | {mean[student]['speed_up']:.2f} |"
            )
