"""Run by test_reranking_teacher.py in a process with 8 devices: losses and gradients whole and accumulated."""

import json
import sys
from pathlib import Path

import jax
import numpy as np

from bert_jax.jobs.distillation.task import DistillationTask
from bert_jax.modeling import Bert
from bert_jax.modeling.score_losses import SCORE_LOSSES
from bert_jax.tasks.reranking.task import RerankingTask

for folder in ("tasks/reranking", "jobs/distillation"):
    sys.path.append(str(Path(__file__).parents[2] / folder))
import distilling  # noqa: E402
import reranking_meshes  # noqa: E402

PAIRS = ((-1, -1), (0, 0))


def compare(name):
    config = reranking_meshes.CONFIG.replace(pooler=True, num_labels=1)
    model, teacher = (Bert(config, "sequence_classification") for _ in range(2))
    settings = distilling.settings({"soft_labels": 1.0, "hidden_states": 0.5}, labels=0.5, layer_map=PAIRS)
    task = DistillationTask(RerankingTask(model, "list_net", score_loss=name), settings, teacher, PAIRS)

    def init(key):
        return {"student": model.init(key), "teacher": teacher.init(jax.random.fold_in(key, 1))}

    expected, loss = reranking_meshes.gradients(task, 1, 1, init)
    others = [reranking_meshes.gradients(task, *split, init) for split in ((8, 1), (1, 4), (8, 2))]
    apart = [jax.tree.map(lambda a, b: float((abs(a - b) / (abs(b) + 0.01)).max()), x, expected) for x, _ in others]
    return [[loss, *(other for _, other in others)], [float(np.max(jax.tree.leaves(x))) for x in apart]]


if __name__ == "__main__":
    print(json.dumps({name: compare(name) for name in SCORE_LOSSES}))
