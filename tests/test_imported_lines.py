"""How many lines of this package a fresh process has imported after its work.

A reader who follows that work has as many lines before them. The goal is 12,000 for each.
"""

import json
import os
import subprocess
import sys

import pytest

# Task of a pipeline -> the head of its model, its input, and the most lines: those of today, rounded up.
BUDGETS = {
    "sentence-embedding": ("sentence_embedding", "a cat sat on the house", 12_000),
    "fill-mask": ("masked_lm", "a cat [MASK] on the house", 11_500),
}
# Modules of other tasks, formats and families, which this work must not import.
OTHERS = (
    "bert_jax.compression", "bert_jax.conversion.adapters", "bert_jax.conversion.bare_files",
    "bert_jax.conversion.convert", "bert_jax.conversion.cross_encoders", "bert_jax.conversion.embedding_layers",
    "bert_jax.conversion.encoder_decoder", "bert_jax.conversion.family_signs",
    "bert_jax.conversion.formats.flax_msgpack", "bert_jax.conversion.formats.safetensors_writing",
    "bert_jax.conversion.formats.shards", "bert_jax.conversion.formats.tf1",
    "bert_jax.conversion.formats.tf1_files", "bert_jax.conversion.formats.torch_files",
    "bert_jax.conversion.gliner", "bert_jax.conversion.gliner_files", "bert_jax.conversion.multi_vector_encoders",
    "bert_jax.conversion.save_pretrained", "bert_jax.conversion.sentence_transformers_writing",
    "bert_jax.conversion.state_dict_writing", "bert_jax.conversion.task_adapters",
    "bert_jax.conversion.torch_activations", "bert_jax.conversion.write_checkpoint", "bert_jax.data",
    "bert_jax.evaluation", "bert_jax.inference.answering", "bert_jax.inference.devices",
    "bert_jax.inference.generation", "bert_jax.inference.multi_vector", "bert_jax.inference.other_heads",
    "bert_jax.inference.search", "bert_jax.inference.similarity", "bert_jax.inference.sparse",
    "bert_jax.inference.tagging", "bert_jax.inference.text2text", "bert_jax.model_files.multi_vector_encoders",
    "bert_jax.modeling.accelerators", "bert_jax.modeling.classifier_heads", "bert_jax.modeling.electra",
    "bert_jax.modeling.encoder_decoder", "bert_jax.modeling.kernels.fused", "bert_jax.modeling.kernels.local",
    "bert_jax.modeling.losses", "bert_jax.modeling.quantized", "bert_jax.recipes",
    "bert_jax.storage.object_directories", "bert_jax.storage.object_reader", "bert_jax.storage.object_store",
    "bert_jax.storage.patterns", "bert_jax.storage.writing", "bert_jax.tasks", "bert_jax.tokenization.byte_level",
    "bert_jax.tokenization.families", "bert_jax.tokenization.saving", "bert_jax.tokenization.sentencepiece",
    "bert_jax.tokenization.special_tokens", "bert_jax.tokenization.training", "bert_jax.training",
)  # fmt: skip

WORK = """
import json, sys
import bert_jax

task, model, text = sys.argv[1:]
bert_jax.pipeline(task, model)(text)
files = {name: getattr(module, "__file__", None) for name, module in sys.modules.items()}
lines = {}
for name, file in files.items():
    if file and name.split(".")[0] == "bert_jax":
        with open(file, "rb") as source:
            lines[name] = sum(1 for _ in source)
print(json.dumps(lines))
"""


@pytest.mark.parametrize("task", BUDGETS)
def test_a_process_imports_what_its_work_needs(task, write_small, tmp_path):
    head, text, budget = BUDGETS[task]
    model = write_small(tmp_path / "model", head)
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "JAX_COMPILATION_CACHE_DIR": ""}  # the program is traced
    done = subprocess.run(
        [sys.executable, "-c", WORK, task, str(model), text], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    lines = json.loads(done.stdout.splitlines()[-1])
    assert "bert_jax.modeling.forward" in lines
    assert not [name for name in OTHERS if name in lines]
    count = sum(lines.values())
    assert count <= budget, (
        f"{task} imports {count:,} lines, and its budget is {budget:,}; the longest modules: "
        f"{sorted(lines.items(), key=lambda item: -item[1])[:20]}"
    )
