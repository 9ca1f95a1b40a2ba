"""How many lines of this package a fresh process has imported after its work.

A reader who follows that work has as many lines before them.
"""

import json
import os
import subprocess
import sys

import pytest

from bert_jax.data.pretraining.prepare import prepare

# Work -> its task, and the most lines.
BUDGETS = {
    "sentence-embedding": ("embedding", 12_000),
    "fill-mask": ("pretraining", 11_500),
    "classification": ("classification", 22_000),
    "pretraining": ("pretraining", 20_000),
}
# Modules of machinery for other models, formats and work, which none of these may import.
OTHERS = (
    "bert_jax.compression", "bert_jax.conversion.adapters", "bert_jax.conversion.bare_files",
    "bert_jax.conversion.convert", "bert_jax.conversion.cross_encoders", "bert_jax.conversion.embedding_layers",
    "bert_jax.conversion.encoder_decoder", "bert_jax.conversion.family_signs",
    "bert_jax.conversion.formats.flax_msgpack", "bert_jax.conversion.formats.shards",
    "bert_jax.conversion.formats.tf1", "bert_jax.conversion.formats.tf1_files",
    "bert_jax.conversion.formats.torch_files", "bert_jax.conversion.gliner", "bert_jax.conversion.gliner_files",
    "bert_jax.conversion.multi_vector_encoders", "bert_jax.conversion.sentence_transformers_writing",
    "bert_jax.conversion.task_adapters", "bert_jax.conversion.torch_activations", "bert_jax.data.parquet_files",
    "bert_jax.export", "bert_jax.inference.devices", "bert_jax.inference.other_heads",
    "bert_jax.jobs.distillation", "bert_jax.jobs.lora", "bert_jax.model_files.multi_vector_encoders",
    "bert_jax.modeling.accelerators", "bert_jax.modeling.electra", "bert_jax.modeling.encoder_decoder",
    "bert_jax.modeling.kernels.fused", "bert_jax.modeling.kernels.local", "bert_jax.modeling.quantized",
    "bert_jax.planning", "bert_jax.reports", "bert_jax.serving", "bert_jax.storage.object_directories",
    "bert_jax.storage.object_reader", "bert_jax.storage.object_store", "bert_jax.storage.patterns",
    "bert_jax.tokenization.byte_level", "bert_jax.tokenization.families", "bert_jax.tokenization.sentencepiece",
    "bert_jax.tokenization.special_tokens", "bert_jax.tokenization.training",
)  # fmt: skip
# What inference may not import besides.
TRAINING = (
    "bert_jax.conversion.save_pretrained", "bert_jax.conversion.state_dict_writing",
    "bert_jax.conversion.write_checkpoint", "bert_jax.data", "bert_jax.evaluation", "bert_jax.jobs",
    "bert_jax.modeling.losses", "bert_jax.recipes", "bert_jax.storage.writing", "bert_jax.training",
)  # fmt: skip

INFERENCE = """
import bert_jax

task, model, text = arguments
bert_jax.pipeline(task, model)(text)
"""
TRAIN = """
import bert_jax
from bert_jax import recipes

task, *files = arguments
recipe = recipes.load_recipe(task)
recipe.update_from_flattened_dict({
    "model.size": "tiny", "model.hidden_size": 16, "model.num_hidden_layers": 1, "model.num_attention_heads": 2,
    "model.intermediate_size": 32, "model.max_position_embeddings": 32, "tokenizer": "tokenizer", "num_steps": 2,
    "global_batch_size": 8,
})
if task == "pretraining":
    recipe.update_from_flattened_dict({
        "data.prepared": "prepared", "data.sequence_length": 16, "optimizer.warmup_steps": 1})
else:
    recipe.update_from_flattened_dict({
        "num_epochs": 0.0, "data.train": "films.csv", "data.dev": "films.csv", "data.max_seq_length": 16})
bert_jax.train(recipe, "run", progress=False)
if task != "pretraining":
    from bert_jax.evaluation import evaluate

    assert evaluate("run/model", "films.csv")["examples"] == 16
"""
COUNT = """
import json
import sys

arguments = sys.argv[1:]
WORK
files = {name: getattr(module, "__file__", None) for name, module in sys.modules.items()}
lines = {}
for name, file in files.items():
    if file and name.split(".")[0] == "bert_jax":
        with open(file, "rb") as source:
            lines[name] = sum(1 for _ in source)
print(json.dumps(lines))
"""


def lines_after(work: str, folder, *arguments) -> dict[str, int]:
    """Returns the lines of each module that a process in `folder` has imported after its work."""
    package = os.path.dirname(os.path.dirname(sys.modules["bert_jax"].__file__))
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "JAX_COMPILATION_CACHE_DIR": "", "PYTHONPATH": package}
    command = [sys.executable, "-c", COUNT.replace("WORK", work), *arguments]
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def check(work: str, lines: dict[str, int], others: tuple[str, ...]) -> None:
    own, budget = BUDGETS[work]
    of_tasks = {name.split(".")[2] for name in lines if name.startswith("bert_jax.tasks.") and name.count(".") > 2}
    assert of_tasks <= {own}, of_tasks - {own}
    assert "bert_jax.modeling.forward" in lines
    assert not [name for name in others if name in lines]
    count = sum(lines.values())
    assert count <= budget, (
        f"{work} imports {count:,} lines, and its budget is {budget:,}; the longest modules: "
        f"{sorted(lines.items(), key=lambda item: -item[1])[:20]}"
    )


@pytest.mark.parametrize(
    ("pipeline", "head", "text"),
    [("sentence-embedding", "sentence_embedding", "a cat sat on the house"),
     ("fill-mask", "masked_lm", "a cat [MASK] on the house")],
)  # fmt: skip
def test_inference_imports_what_it_needs(pipeline, head, text, write_small, tmp_path):
    model = write_small(tmp_path / "model", head)
    check(pipeline, lines_after(INFERENCE, tmp_path, pipeline, str(model), text), OTHERS + TRAINING)


@pytest.mark.parametrize("task", ["classification", "pretraining"])
def test_training_imports_what_it_needs(task, tiny_tokenizer, tmp_path):
    tiny_tokenizer.save(tmp_path / "tokenizer")
    (tmp_path / "films.csv").write_text("sentence,label\n" + "a cat sat,up\nthe dog ran,down\n" * 8)
    if task == "pretraining":
        (tmp_path / "corpus.txt").write_text("\n\n".join(["\n".join(["a cat sat on the house."] * 5)] * 16))
        prepare(str(tmp_path / "corpus.txt"), tiny_tokenizer, tmp_path / "prepared", max_seq_length=16, dupe_factor=1,
                validation_fraction=0.2, num_workers=1)  # fmt: skip
    check(task, lines_after(TRAIN, tmp_path, task), OTHERS)
