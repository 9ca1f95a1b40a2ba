"""Losses of given embeddings, by `SentenceEmbeddingTask` and by sentence-transformers."""

import dataclasses

import jax
import numpy as np

from bert_jax.tasks.embedding.dense.task import SentenceEmbeddingTask


def random_embeddings(texts, rows=6, size=8):
    return np.random.default_rng(texts).normal(size=(rows, texts, size)).astype(np.float32)


@dataclasses.dataclass(frozen=True)
class Given:
    """A model whose embeddings are its parameters."""

    def apply(self, params, *inputs, **options):
        return type("Output", (), {"sentence_embedding": params.reshape(-1, params.shape[-1])})


def loss_and_gradients(vectors, real=None, labels=None, more=None, **options):
    """By the task, of embeddings [B, T, D]; `more` are further arrays of the batch."""
    rows, texts = vectors.shape[:2]
    batch = dict.fromkeys(("input_ids", "attention_mask", "token_type_ids"), np.zeros((rows, texts, 4), np.int32))
    batch["labels"] = np.zeros(rows, np.float32) if labels is None else labels
    batch["example_weights"] = np.ones(rows, np.float32) if real is None else real
    task = SentenceEmbeddingTask(Given(), **options)
    run = jax.jit(jax.value_and_grad(task.loss, has_aux=True))
    (loss, found), grads = run(vectors, batch | (more or {}), None, task.weights(batch))
    return float(loss), np.asarray(grads), {name: float(total / count) for name, (total, count) in found.items()}


def theirs(make, vectors, labels=None):
    """The loss and gradients of sentence-transformers' `make(model)`, for embeddings [B, T, D]."""
    import torch

    class Model(torch.nn.Module):
        def forward(self, features):
            return dict(features)

        def get_embedding_dimension(self):
            return vectors.shape[-1]

    leaf = torch.tensor(vectors, requires_grad=True)
    columns = [{"sentence_embedding": leaf[:, i]} for i in range(vectors.shape[1])]
    loss = make(Model())(columns, None if labels is None else torch.tensor(labels))
    loss.backward()
    return float(loss.detach()), leaf.grad.numpy()
