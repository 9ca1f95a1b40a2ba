"""The embeddings of ERNIE (Sun et al. 2019, arXiv:1907.12412, section 3.2)."""

from collections.abc import Iterator

import jax
from flax import nnx

from bert_jax.config.part import expect
from bert_jax.families.ernie.parts import TaskEmbeddingsConfig
from bert_jax.modeling.embeddings import Embeddings, looked_up
from bert_jax.modeling.inputs import Inputs
from bert_jax.modeling.layers import Embedding


class TaskEmbeddings(Embeddings):
    """Embeddings of words, positions, token types and tasks."""

    def add_modules(self, rngs: nnx.Rngs) -> None:
        rows = expect(self.config.embeddings, TaskEmbeddingsConfig).task_type_vocab_size
        self.task_type_embeddings = Embedding(self.config, rows, self.config.hidden_size, rngs=rngs)

    def added_embeddings(self, inputs: Inputs) -> Iterator[jax.Array]:
        yield from super().added_embeddings(inputs)
        yield looked_up(self.task_type_embeddings, inputs.task_type_ids)
