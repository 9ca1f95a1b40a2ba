"""The tasks of docs/extend.md, files outside of the package: imported, or installed by pip and found by entry point."""

import importlib
import importlib.util
import json
import os
import random
import re
import shlex
import subprocess
import sys
from pathlib import Path

import httpx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.metrics import cohen_kappa_score, mean_absolute_error
from small import assert_alike, recipe, train_in_processes

import bert_jax
from bert_jax import evaluation, jobs, recipes
from bert_jax.cli import main
from bert_jax.errors import InputError
from bert_jax.metrics import lower_is_better
from bert_jax.tasks import TASKS, Record, TaskEntry
from bert_jax.tasks.entry_points import of_entry_points

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "extend.md").read_text().partition("\n## A loss of your own\n")[2]
FOCAL, USE_FOCAL, ORDINAL, USE_ORDINAL, PROJECT, COMMANDS = re.findall(r"```\w+\n(.*?)```", PAGE, re.DOTALL)[:6]
MODULES = {"focal_classification": FOCAL, "ordinal_regression": ORDINAL}
PACKAGES = ("recipes", "inference", "evaluation.driver", "training.loop")  # each asks for the tasks
STRICT = '''
import dataclasses, math

import bert_jax
from ordinal_regression import ORDINAL, OrdinalEvaluator


class Strict(OrdinalEvaluator):
    """Grades above a probability.

    Args:
        share: the probability that is high enough.
    """

    def __init__(self, model_dir, *, share: float = 0.5, **options):
        super().__init__(model_dir, **options)
        self.least = math.log(share / (1 - share)) if share < 1 else math.inf

    def answer(self, output):
        return super().answer(output - self.least)


bert_jax.register_task(dataclasses.replace(ORDINAL, evaluators={Strict.head: Strict}))
'''
GOOD = ("cat", "dog", "bird", "fish")  # the more of these, the higher the grade
OTHERS = ("the", "a", "house", "tree", "old", "young")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A folder with the package of the page, as pip installs it."""
    source, site = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("site")
    for name, code in MODULES.items():
        (source / f"{name}.py").write_text(code)
    (source / "pyproject.toml").write_text(PROJECT)
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check"]
    command = [sys.executable, "-m", "pip", "install", *options, "--target", site, source]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return site


@pytest.fixture
def forgotten():
    """Before and after, only the tasks of the package are known."""

    def forget():
        of_entry_points.cache_clear()
        TASKS.registered.clear()
        for name in MODULES:
            sys.modules.pop(name, None)

    forget()
    yield
    forget()


@pytest.fixture
def installed(site, monkeypatch, forgotten):
    monkeypatch.syspath_prepend(site)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])]))
    assert not MODULES.keys() & sys.modules.keys()


@pytest.fixture(scope="module")
def files(tmp_path_factory, write_small):
    """The files that the page takes to be there."""
    folder, rng = tmp_path_factory.mktemp("files"), random.Random(0)
    write_small(folder / "path/to/bert", max_position_embeddings=128)

    def rows(count):
        for _ in range(count):
            good = rng.choices(GOOD, k=rng.randrange(5))
            words = [*good, *rng.choices(OTHERS, k=6 - len(good))]
            rng.shuffle(words)
            yield " ".join(words), len(good) + 1

    for name, count in (("reviews", 320), ("held_out", 40)):
        lines = [f"{text},{stars}\n" for text, stars in rows(count)]
        (folder / f"{name}.csv").write_text("".join(["review,stars\n", *lines]))
    (folder / "train.tsv").write_text("sentence\tlabel\n" + "".join(f"{text}\t{n > 3}\n" for text, n in rows(64)))
    return folder


@pytest.fixture(scope="module")
def trained(files, site, tmp_path_factory):
    """A model of the task, which has learned its grades, and the scores that training found."""
    workdir = tmp_path_factory.mktemp("trained")
    words = ["--config", "ordinal_regression", "--workdir", str(workdir), "--quiet", *changes_of(files)]
    words += ["--config.num_steps=300", "--config.optimizer.learning_rate=2e-3", "--config.global_batch_size=16"]
    run_verbs(site, files, ["finetune", *words])
    lines = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]
    return workdir / "model", {name: value for line in lines for name, value in line.items() if "eval/" in name}


def changes_of(files):
    data = {"train": files / "reviews.csv", "dev": files / "held_out.csv", "text_column": "review",
            "label_column": "stars", "max_seq_length": 16}  # fmt: skip
    return [f"--config.init_from={files}/path/to/bert", *(f"--config.data.{key}={data[key]}" for key in data)]


def run_verbs(site, folder, *commands):
    """Runs commands in one process that finds the package; returns what they printed."""
    calls = "; ".join(f"assert not main({words!r})" for words in commands)
    paths = os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "PYTHONPATH": paths, "XDG_CACHE_HOME": str(site / "cache")}
    code = f"from bert_jax.cli import main; {calls}"
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_files_are_short():
    assert len(FOCAL.splitlines()) <= 30
    assert len(ORDINAL.splitlines()) <= 200


@pytest.mark.slow
@pytest.mark.parametrize(("code", "use"), [(FOCAL, USE_FOCAL), (ORDINAL, USE_ORDINAL)], ids=list(MODULES))
def test_an_import_registers_it(code, use, files, tmp_path, monkeypatch, forgotten):
    name = next(name for name, text in MODULES.items() if text == code)
    (tmp_path / f"{name}.py").write_text(code)
    for path in files.iterdir():
        (tmp_path / path.name).symlink_to(path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    exec(use.replace('["init_from', '["num_steps=3", "global_batch_size=8", "init_from'), {})
    [run] = (tmp_path / "runs").iterdir()
    assert recipes.load_recipe(str(run)).task == name


@pytest.mark.slow
def test_the_focal_loss_is_that_of_the_paper(files, installed):
    changes = [f"config.init_from={files}/path/to/bert", f"config.data.train={files}/train.tsv", "config.num_steps=2",
               "config.data.max_seq_length=16", "config.focal_gamma=3.0", "config.global_batch_size=8"]  # fmt: skip
    job = jobs.build(recipes.resolve(recipes.load_recipe("focal_classification", changes)))
    params, batch = job.init_params(jax.random.key(0)), job.train_source.batch(0)
    loss, _ = job.task.loss(params, batch, None, job.task.weights(batch))
    logits = np.asarray(job.task.predict(params, batch)["logits"], "f8")
    right = np.exp(logits - np.logaddexp.reduce(logits, -1, keepdims=True))[np.arange(8), batch["labels"]]
    np.testing.assert_allclose(loss, np.mean((1 - right) ** 3 * -np.log(right)), rtol=1e-5)
    without_data = recipes.resolve(recipes.load_recipe("focal_classification", ["model.size=tiny"]))
    assert jobs.abstract_task(without_data).task.gamma == 2.0  # of `bert-jax plan`
    with pytest.raises(InputError, match=r"config\.focal_gamma: expected at least 1, found 0\.5"):
        recipes.resolve(recipes.load_recipe("focal_classification", [*changes[:-2], "config.focal_gamma=0.5"]))


def test_the_ordinal_loss_and_metrics(installed):
    module = importlib.import_module("ordinal_regression")
    random_logits = np.random.default_rng(0).normal(size=(50, 4))
    labels = np.random.default_rng(1).integers(0, 5, 50)

    class Task(module.OrdinalTask):
        def _logits(self, params, batch, dropout_key=None):
            return jnp.asarray(random_logits)

    batch = {"labels": labels, "example_weights": np.arange(50) < 40}
    task = Task(None)
    loss, _ = task.loss(None, batch, None, task.weights(batch))
    shares = 1 / (1 + np.exp(-random_logits))
    expected = -np.log(np.where(labels[:, None] > np.arange(4), shares, 1 - shares)).sum(-1)[:40].mean()
    np.testing.assert_allclose(loss, expected, rtol=1e-5)
    found = task.score([{"logits": random_logits}], [batch])
    answers = (random_logits > 0).sum(-1)[:40]
    np.testing.assert_allclose(found["kappa"], cohen_kappa_score(labels[:40], answers, weights="quadratic"))
    np.testing.assert_allclose(found["mean_absolute_error"], mean_absolute_error(labels[:40], answers))
    assert [lower_is_better(name) for name in module.METRICS] == [False, True, False]


@pytest.mark.parametrize("task", ["ordinal_regression", pytest.param("focal_classification", marks=pytest.mark.slow)])
def test_a_killed_run_ends_as_one_that_was_not(task, tmp_path, data, installed):
    changes = {"num_steps": 6, "checkpoint_every": 2, "eval_every": 3}
    if task == "ordinal_regression":
        changes["data.grades"] = ("no", "yes")
    made = recipe(data, task, **changes)
    train_in_processes(made, tmp_path / "whole", [{}])
    train_in_processes(made, tmp_path / "killed", [{"kill_at": 3}, {}])
    assert_alike(tmp_path / "whole", tmp_path / "killed")


def test_it_learns_and_files_and_texts_are_answered_alike(trained, files, installed, tmp_path):
    model, scores = trained
    assert scores["eval/kappa"] > 0.8
    found = evaluation.evaluate(model, str(files / "held_out.csv"), report=tmp_path / "report.html")
    assert {f"eval/{name}": value for name, value in found.items() if name != "examples"} == pytest.approx(
        {name: scores[name] for name in scores if name.partition("/")[2] in found}
    )
    page = (tmp_path / "report.html").read_text()
    assert all(f"<h2>{title}</h2>" in page for title in ("Answers and targets", "Residuals"))
    rows = [line.rpartition(",") for line in (files / "held_out.csv").read_text().splitlines()[1:]]
    answers = evaluation.predict(model, str(files / "held_out.csv"))
    right = [answer["grade"] == stars for answer, (_, _, stars) in zip(answers, rows, strict=True)]
    assert np.mean(right) == pytest.approx(found["accuracy"])
    pipe = bert_jax.pipeline("ordinal-regression", model)
    assert [{"text": text} | answer for (text, _, _), answer in zip(rows, pipe([text for text, _, _ in rows]),
            strict=True)] == answers  # fmt: skip
    assert pipe(rows[0][0]) == pipe([rows[0][0]])[0]
    assert evaluation.evaluate(model, str(files / "held_out.csv"), metric_names=["kappa"]).keys() == {
        "kappa", "examples"
    }  # fmt: skip


@pytest.mark.slow
def test_the_commands_of_the_page(site, files, tmp_path, write_small):
    for path in files.iterdir():
        (tmp_path / path.name).symlink_to(path)
    commands = {words[1]: words[1:] for words in map(shlex.split, COMMANDS.replace("\\\n", " ").splitlines())}
    assert commands.keys() == {"finetune", "evaluate", "predict", "grade", "plan", "serve"}
    del commands["serve"]  # below
    commands["finetune"] += ["--config.num_steps=2", "--config.global_batch_size=4", "--quiet"]
    commands["plan"] += ["--config.model.size=tiny", "--config.num_steps=3"]
    if importlib.util.find_spec("libtpu") is None:
        del commands["plan"]
    (tmp_path / "texts.txt").write_text("the cat\nan old tree\n")
    over_files = ["grade", "runs/grades/model", "--shards", "texts.txt", "--out"]
    kinds = ["jsonl", *(["parquet"] if importlib.util.find_spec("pyarrow") else [])]
    printed = run_verbs(site, tmp_path, *commands.values(), *([*over_files, kind, "--format", kind] for kind in kinds))
    assert "kappa" in printed and "two hours lost" in printed and "expected" in printed
    assert "plan" not in commands or "v5e" in printed
    assert (tmp_path / "grades.tsv").read_text().splitlines()[0] == "grade\texpected"
    assert (tmp_path / "grades.html").exists()
    assert 'bert_jax.pipeline("ordinal-regression", folder)' in (tmp_path / "runs/grades/model/README.md").read_text()
    record = json.loads((tmp_path / "runs/grades/model/bert_jax.json").read_text())
    assert record["grades"] == {"names": ["1", "2", "3", "4", "5"]}
    lines = [json.loads(line) for line in (tmp_path / "jsonl/texts.jsonl").read_text().splitlines()]
    assert [line["text"] for line in lines] == ["the cat", "an old tree"]
    if "parquet" in kinds:
        from pyarrow import parquet

        assert parquet.read_table(tmp_path / "parquet/texts.parquet").to_pylist() == lines


@pytest.mark.slow
def test_it_is_served(trained, tmp_path, monkeypatch, installed):
    monkeypatch.syspath_prepend(ROOT / "tests" / "serving")
    served = importlib.import_module("served")
    texts = ["the cat and a dog", "an old tree"]
    with served.process(tmp_path / "log", str(trained[0])) as server:
        answer = httpx.post(f"{server.address}/predict", json={"inputs": [[text] for text in texts]})
    assert answer.status_code == 200, answer.text
    found = [{item["label"]: item["score"] for item in row} for row in answer.json()]
    assert found[0].keys() == {f"above {grade}" for grade in range(1, 5)}
    expected = bert_jax.pipeline("ordinal-regression", trained[0])(texts)
    sums = [1 + sum(row.values()) for row in found]
    np.testing.assert_allclose(sums, [row["expected"] for row in expected], rtol=1e-4)


@pytest.mark.slow
def test_a_package_may_be_imported_first(site):
    """No module asks for the tasks of others, whose files import it, while it is itself being imported."""
    code = """
import importlib, os, sys
for name in sys.argv[1:]:
    if (child := os.fork()) == 0:
        importlib.import_module(f"bert_jax.{name}")
        from bert_jax.tasks import TASKS
        TASKS["ordinal_regression"]
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0, name
"""
    done = subprocess.run([sys.executable, "-c", code, *PACKAGES], capture_output=True, text=True,
                          env=os.environ | {"PYTHONPATH": f"{site}{os.pathsep}{ROOT}"})  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_invalid_input_is_answered_in_one_line(trained, files, installed, capsys, tmp_path):
    (tmp_path / "rows.csv").write_text("review,stars\nthe cat,5\na dog,6\n")
    assert main(["evaluate", "--model", str(trained[0]), "--data", str(tmp_path / "rows.csv")]) == 2
    assert "rows.csv: line 3: expected one of 1, 2, 3, 4, 5, found '6'" in capsys.readouterr().err
    assert main(["evaluate", "--model", str(trained[0]), "--data", str(files / "held_out.csv"),
                 "--metrics", "kapa"]) == 2  # fmt: skip
    assert "metric 'kapa' is not known; did you mean 'kappa'?" in capsys.readouterr().err
    with pytest.raises(InputError, match=r"config\.data\.grades: expected at least two grades, found \('1',\)"):
        recipes.resolve(recipes.load_recipe("ordinal_regression", ["data.grades=('1',)"]))
    assert main(["prune", str(trained[0]), "--out", str(tmp_path / "pruned"), "--heads", "0.5", "--data",
                 str(files / "held_out.csv")]) == 2  # fmt: skip
    assert "found one for sequence_classification; name a recipe with --config" in capsys.readouterr().err
    assert main(["grade", str(files / "path/to/bert"), "a dog"]) == 2
    assert "needs a trained sequence_classification head" in capsys.readouterr().err


def test_arguments_of_an_evaluator_are_flags(trained, files, installed, capsys, tmp_path, monkeypatch):
    (tmp_path / "strict_grades.py").write_text(STRICT)
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("strict_grades")
    with pytest.raises(SystemExit):
        main(["predict", "--help"])
    assert "--share X the probability that is high enough (default: 0.5)" in " ".join(capsys.readouterr().out.split())
    grades = {}
    for share in ("0.5", "1"):
        out = str(tmp_path / f"{share}.jsonl")
        data = ["--data", str(files / "held_out.csv"), "--out", out]
        assert not main(["predict", "--model", str(trained[0]), *data, "--share", share])
        grades[share] = [json.loads(line)["grade"] for line in Path(out).read_text().splitlines()]
    assert set(grades["1"]) == {"1"} and len(set(grades["0.5"])) > 2
    assert main(["evaluate", "--model", str(trained[0]), *data[:2], "--null-threshold", "1"]) == 2
    expected = "--null-threshold: expected a model for question answering, found one for sequence_classification"
    assert expected in capsys.readouterr().err


def test_an_evaluator_of_a_script_is_evaluated(trained, files, tmp_path):
    code = (
        ORDINAL
        + f"""
from bert_jax.cli import main
assert not main(["evaluate", "--model", {str(trained[0])!r}, "--data", {str(files / "held_out.csv")!r}])
"""
    )
    (tmp_path / "script.py").write_text(code)
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, tmp_path / "script.py"], env=environment, capture_output=True, text=True)
    assert done.returncode == 0 and "kappa" in done.stdout, done.stderr


def test_without_the_file_it_is_refused(trained, forgotten):
    with pytest.raises(InputError, match="no recipe 'ordinal_regression'") as caught:
        recipes.load_recipe("ordinal_regression")
    assert "\n" not in str(caught.value)
    with pytest.raises(InputError, match=r"expected the config\.json of a run, with task one of pretraining,"):
        recipes.load_recipe(str(trained[0].parent))


@pytest.mark.parametrize(
    "entry", [TaskEntry("classification"), TaskEntry("mine", recipes={"classification": None}),
              TaskEntry("mine", pipelines={"classify": None}), TaskEntry("mine", aliases={"fill-mask": "x"}),
              TaskEntry("mine", record=Record("relations", "encoder", "", None))],
)  # fmt: skip
def test_a_name_that_a_task_has_is_refused(entry, forgotten):
    with pytest.raises(InputError, match=r"expected (a new name|new names), found '"):
        bert_jax.register_task(entry)
    assert "mine" not in TASKS


@pytest.mark.parametrize("field", ["evaluators", "examples"])
def test_a_head_that_a_task_has_needs_a_record(field, forgotten):
    expected = "expected a record, which decides between tasks of one head, found none; classification of bert_jax has"
    with pytest.raises(InputError, match=expected):
        bert_jax.register_task(TaskEntry("mine", **{field: {"sequence_classification": None}}))
    assert "mine" not in TASKS


def test_verbs_that_cannot_be_imported_are_one_line(forgotten, capsys):
    bert_jax.register_task(TaskEntry("mine", verbs=("no_such_module",)))
    assert main(["version"]) == 2
    assert capsys.readouterr().err == (
        "bert-jax: task 'mine': verbs of no_such_module: ModuleNotFoundError: No module named 'no_such_module'\n"
    )


@pytest.mark.parametrize(
    ("value", "message"),
    [("3", "expected the TaskEntry of that name, found 3"),
     ("tasks.TaskEntry('other')", "expected the TaskEntry of that name, found other"),
     ("1 / 0", "ZeroDivisionError: division by zero")],
)  # fmt: skip
def test_an_entry_point_must_be_a_task(value, message, tmp_path, monkeypatch, forgotten):
    (tmp_path / "ordinal_regression.py").write_text(f"from bert_jax import tasks\nORDINAL = {value}\n")
    info = tmp_path / "mine-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[bert_jax.tasks]\nordinal_regression = ordinal_regression:ORDINAL\n")
    monkeypatch.syspath_prepend(tmp_path)
    expected = f"entry point 'ordinal_regression': {message}"
    with pytest.raises(InputError, match=re.escape(expected)):
        list(TASKS)
