"""The embeddings of ERNIE, with optional task embeddings."""

import dataclasses

from bert_jax.config.embeddings import EmbeddingsConfig
from bert_jax.config.fields import setting


@dataclasses.dataclass(frozen=True)
class TaskEmbeddingsConfig(EmbeddingsConfig):
    """Embeddings of tasks beside those of words, positions and token types (Sun et al. 2019, arXiv:1907.12412)."""

    task_type_vocab_size: int = setting(0, "number of an ERNIE's task ids; 0 = no task embedding", least=0, shapes=True)

    def builds(self) -> str:
        has_tasks = self.task_type_vocab_size > 0
        return "bert_jax.families.ernie.modules.TaskEmbeddings" if has_tasks else super().builds()
