"""README.md of a finished model: its data, recipe and scores, and code that runs it in JAX and PyTorch.

The front matter is that of the Hugging Face hub's model cards: https://huggingface.co/docs/hub/model-cards.
"""

import math
import re
from collections.abc import Mapping
from typing import Any

from bert_jax import storage
from bert_jax.config import BertConfig
from bert_jax.errors import escape_controls, one_line, printable_json
from bert_jax.families import FAMILIES
from bert_jax.jobs.base import Job
from bert_jax.recipes.base import TWO_TEXTS, ModelUse, Recipe
from bert_jax.recipes.describe import describe_keys, shown_value
from bert_jax.recipes.keys import TASK_RECIPES
from bert_jax.storage import PathLike
from bert_jax.training.data_record import DataRecord
from bert_jax.version import __version__

# Characters that Markdown or HTML interpret. They are written as entities, which all viewers show alike.
_MARKUP = re.compile(r"[\\`*\[\]<>&~$]")
_FOLDER = 'folder = "path/to/this/folder"'


def write_model_card(
    directory: PathLike, recipe: Recipe, job: Job, record: DataRecord, scores: Mapping[str, float]
) -> None:
    """Write `README.md` into the directory of a finished model, or of each model of several heads.

    Args:
        directory: the directory with the model's other files.
        recipe: the resolved recipe of the run.
        job: its training job.
        record: the record of its data.
        scores: the metrics of the finished model (`metrics.results_of`); those named `eval/...` are shown.
    """
    directory = storage.Path(directory)
    for name, (recipe_of_head, job_of_head) in job.heads.items():
        prefix = f"eval/{name}/"
        own = {f"eval/{key.removeprefix(prefix)}": value for key, value in scores.items() if key.startswith(prefix)}
        write_model_card(directory / name, recipe_of_head, job_of_head, record, own)
    if job.heads:
        return
    model = job.task.model.models[-1]
    title = f"{model.config.family} model for {recipe.task.replace('_', ' ')}"
    evaluated = {name.removeprefix("eval/"): value for name, value in scores.items() if name.startswith("eval/")}
    evaluated = {name: value for name, value in sorted(evaluated.items()) if math.isfinite(value)}
    use = TASK_RECIPES[recipe.task].use
    theirs = _pytorch(directory, model.config, use)
    library = theirs[0].split()[1].replace("_", "-") if theirs else "bert_jax"
    dev = _last_part(recipe.data.get("dev") or "") or ", ".join(recipe.data.get("sets") or ())
    lines = _front_matter(recipe, title, library, use.tag, evaluated, dev)
    lines += [f"# {title}", "", f"Trained by bert_jax {__version__} in {job.num_steps:,} steps.", ""]
    lines += ["## Use", "", *_code(["import bert_jax", "", *_call(use, job.tokenizer)])]
    lines += ["With PyTorch:", "", *_code(theirs)] if theirs else []
    if evaluated:
        lines += ["## Scores", "", f"On the evaluation data{f' {_code_span(dev)}' if dev else ''}:", ""]
        lines += _table(("metric", "value"), {_plain(name): f"{value:.4g}" for name, value in evaluated.items()})
    lines += ["## Data", "", *_data(job, record.data or {})]
    lines += ["## Training", "", "Keys of the recipe that differ from the defaults of its task:", ""]
    lines += _table(
        ("key", "value"), {_code_span(name): _code_span(value) for name, value in _settings(recipe).items()}
    )
    lines += ["## Licence", "", "The front matter says `unknown`: set it to a licence that the training data"
              f"{' and the base model' if recipe.init_from else ''} allow.", ""]  # fmt: skip
    storage.write_atomically(directory / "README.md", "\n".join(lines))


def _front_matter(
    recipe: Recipe, title: str, library: str, tag: str, scores: Mapping[str, float], dev: str
) -> list[str]:
    """Return the metadata as YAML; values are written as JSON, which is valid YAML."""
    metadata: dict[str, Any] = {"license": "unknown", "library_name": library, "tags": ["bert_jax", "jax"]}
    if tag:
        metadata["pipeline_tag"] = tag
    if recipe.init_from.startswith("hf://"):
        metadata["base_model"] = recipe.init_from.removeprefix("hf://")
    if scores:
        dataset = dev or "held-out part of the training data"
        metrics = [{"type": name, "value": round(value, 6)} for name, value in scores.items()]
        result = {"task": {"type": tag or recipe.task}, "dataset": {"name": dataset, "type": dataset}}
        metadata["model-index"] = [{"name": title, "results": [result | {"metrics": metrics}]}]
    return ["---", *(f"{key}: {printable_json(value)}" for key, value in metadata.items()), "---", ""]


def _code(lines: list[str]) -> list[str]:
    return ["```python", *lines, "```", ""]


def _call(use: ModelUse, tokenizer: Any) -> list[str]:
    """Return the lines of code that run the model with bert_jax."""
    if not use.pipeline:
        call = f"print(model(**{_inputs(use, 'model.tokenizer')}))"
        return [_FOLDER, "model = bert_jax.from_pretrained(folder)", call]
    mask = printable_json(tokenizer.id_to_token(tokenizer.mask_id))[1:-1] if "{mask}" in use.arguments else ""
    return [_FOLDER, f'print(bert_jax.pipeline("{use.pipeline}", folder)({use.arguments.replace("{mask}", mask)}))']


def _pytorch(directory: storage.Path, config: BertConfig, use: ModelUse) -> list[str]:
    """Return code that runs the model with sentence-transformers, gliner or transformers; [] if none of them can."""
    settings, name = directory / "config_sentence_transformers.json", ""
    if settings.exists():
        kind = storage.read_json(settings)["model_type"]
        single = f"predict({use.arguments})" if use.tag == "text-classification" else ""
        call = single or 'predict([("A query.", "A document.")])' if kind == "CrossEncoder" else f"encode({TWO_TEXTS})"
        return [f"from sentence_transformers import {kind}", "", _FOLDER, f"print({kind}(folder).{call})"]
    if "{class}" in use.torch_import:
        if FAMILIES[config.family].has_own_code:  # transformers has no class for this family
            return []
        (name,) = storage.read_json(directory / "config.json")["architectures"]
    inputs = _inputs(use, "tokenizer", ', padding=True, return_tensors="pt"')
    lines = (use.torch_import, "", _FOLDER, *use.torch_lines)
    return [line.replace("{class}", name).replace("{inputs}", inputs) for line in lines]


def _inputs(use: ModelUse, tokenizer: str, options: str = "") -> str:
    """Return the expression that makes a model's inputs."""
    return use.inputs.replace("{tokenizer}", tokenizer).replace("{options}", options)


def _data(job: Job, data: Mapping[str, Any]) -> list[str]:
    """Return what the model was trained on, from the record of a run's data."""
    tables = [name for name in data if name.rpartition("/")[2] in ("train", "dev") and data[name]]
    rows = {name: f"{data[name]['rows']:,} rows" for name in tables}
    for number, prepared in enumerate(data.get("prepared") or (), 1):
        rows[f"prepared directory {number}"] = f"{prepared['examples']:,} examples"
    lines = _table(("data", "size"), rows)
    if job.classes:
        lines += _table(("class", "training rows"), {_plain(name): f"{count:,}" for name, count in job.classes.items()})
    return lines


def _settings(recipe: Recipe) -> dict[str, str]:
    """Return the keys that differ from the defaults of the task, with paths cut to their last part."""
    changed = (item for item in describe_keys(recipe) if item.value != item.default)
    shown = {item.name: item.value if item.name == "best_metric" else _without_folders(item.value) for item in changed}
    return {name: shown_value(value) for name, value in shown.items()}


def _without_folders(value: Any) -> Any:
    """Cut a path, or each path of a tuple, to its last part."""
    if isinstance(value, tuple):
        return tuple(map(_without_folders, value))
    return _last_part(value) if isinstance(value, str) else value


def _last_part(text: str) -> str:
    """Return the last part of a path, as a machine's folders mean nothing elsewhere; return other text unchanged."""
    return text if text.startswith("hf://") else text.rstrip("/").rpartition("/")[2]


def _table(header: tuple[str, str], rows: Mapping[str, str]) -> list[str]:
    """Return the lines of a Markdown table, whose cells are Markdown too; [] if there are no rows."""
    if not rows:
        return []
    return [f"| {' | '.join(row)} |" for row in (header, ("---", "---"), *rows.items())] + [""]


def _plain(text: str) -> str:
    """Escape user text for one line of Markdown, or for a cell of a table."""
    line = escape_controls(one_line(text))
    return _MARKUP.sub(lambda match: f"&#{ord(match.group())};", line).replace("|", r"\|")


def _code_span(text: str) -> str:
    """Return user text as a code span, or as plain text if it has characters that would end the span or a cell."""
    return _plain(text) if re.search(r"[`|\\]", text) else f"`{escape_controls(one_line(text))}`"
