"""The readers of files that only some models have, by the names of their modules; each is imported on first use."""

from typing import TYPE_CHECKING

from bert_jax.lazy import LazyModule

if TYPE_CHECKING:
    from bert_jax.conversion import (
        adapters,
        bare_files,
        bge_m3,
        cross_encoders,
        foreign_kinds,
        generated,
        gliner,
        multi_vector_encoders,
        relation_settings,
        sentence_transformers,
        sparse_encoders,
        task_adapters,
    )
else:
    adapters = LazyModule("bert_jax.conversion.adapters")
    bare_files = LazyModule("bert_jax.conversion.bare_files")
    bge_m3 = LazyModule("bert_jax.conversion.bge_m3")
    cross_encoders = LazyModule("bert_jax.conversion.cross_encoders")
    foreign_kinds = LazyModule("bert_jax.conversion.foreign_kinds")
    generated = LazyModule("bert_jax.conversion.generated")
    gliner = LazyModule("bert_jax.conversion.gliner")
    multi_vector_encoders = LazyModule("bert_jax.conversion.multi_vector_encoders")
    relation_settings = LazyModule("bert_jax.conversion.relation_settings")
    sentence_transformers = LazyModule("bert_jax.conversion.sentence_transformers")
    sparse_encoders = LazyModule("bert_jax.conversion.sparse_encoders")
    task_adapters = LazyModule("bert_jax.conversion.task_adapters")

__all__ = [
    "adapters",
    "bare_files",
    "bge_m3",
    "cross_encoders",
    "foreign_kinds",
    "generated",
    "gliner",
    "multi_vector_encoders",
    "relation_settings",
    "sentence_transformers",
    "sparse_encoders",
    "task_adapters",
]
