"""Run by test_query_weights.py in a process with 8 devices: loss and gradients with weights of queries."""

import dataclasses
import json

import embedding_meshes
import jax
import numpy as np
from embedding_meshes import CONFIG, LENGTH, ROWS, gradients

from bert_jax.modeling import Bert
from bert_jax.tasks.embedding.sparse.task import SparseEmbeddingTask


def batch():
    rng = np.random.default_rng(0)
    real = (np.arange(ROWS) < ROWS - 3).astype(np.float32)
    masks = [(np.arange(LENGTH) < rng.integers(2, LENGTH + 1, (ROWS, texts, 1))) * (real[:, None, None] > 0)
             for texts in (1, 2)]  # fmt: skip
    query_mask, mask = masks[0][:, 0].astype(np.int32), masks[1].astype(np.int32)
    return {
        "query_ids": rng.integers(5, 64, query_mask.shape).astype(np.int32) * query_mask,
        "query_mask": query_mask,
        "query_scored": query_mask,
        "input_ids": rng.integers(5, 64, mask.shape).astype(np.int32) * mask,
        "attention_mask": mask,
        "labels": np.tile(np.array([1, 0], np.float32), (ROWS, 1)),
        "example_weights": real,
    }


if __name__ == "__main__":
    embedding_meshes.batch = batch
    config = CONFIG.replace(pooling="splade_max", query_weights="trainable")
    task = SparseEmbeddingTask(Bert(config, "sparse_embedding"), query_flops=0.01, document_flops=0.01)
    expected, loss = gradients(task, 1)
    others = [gradients(task, 8), gradients(dataclasses.replace(task, parts=2), 8)]
    apart = [jax.tree.map(lambda a, b: float((abs(a - b) / (abs(b) + 0.01)).max()), x, expected) for x, _ in others]
    reads = float(np.abs(expected["query_weights"]["weight"]).max())
    print(json.dumps([loss, reads, [other for _, other in others], [float(np.max(jax.tree.leaves(x))) for x in apart]]))
