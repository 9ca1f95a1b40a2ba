"""The classes of pipelines by task, which are imported on first use."""

from typing import Any

from bert_jax.lazy import LazyRegistry

# Task -> the class of its pipeline.
PIPELINES: LazyRegistry[type[Any]] = LazyRegistry(
    {
        "fill-mask": "bert_jax.inference.fill_mask.FillMask",
        "pseudo-log-likelihood": "bert_jax.inference.likelihood.PseudoLogLikelihood",
        "text-classification": "bert_jax.inference.text_classification.TextClassification",
        "token-classification": "bert_jax.inference.tagging.TokenClassification",
        "feature-extraction": "bert_jax.inference.feature_extraction.FeatureExtraction",
        "sentence-embedding": "bert_jax.inference.dense.SentenceEmbedding",
        "zero-shot-classification": "bert_jax.inference.zero_shot.ZeroShotClassification",
        "zero-shot-ner": "bert_jax.inference.zero_shot_ner.ZeroShotNer",
        "relation-extraction": "bert_jax.inference.relations.RelationExtraction",
        "question-answering": "bert_jax.inference.answering.QuestionAnswering",
        "similarity": "bert_jax.inference.dense.Similarity",
        "search": "bert_jax.inference.search.Search",
        "rerank": "bert_jax.inference.reranking.Rerank",
        "sparse-embedding": "bert_jax.inference.sparse.SparseEmbedding",
        "sparse-search": "bert_jax.inference.search.SparseSearch",
        "multi-vector-embedding": "bert_jax.inference.multi_vector.MultiVectorEmbedding",
        "multi-vector-search": "bert_jax.inference.search.MultiVectorSearch",
        "text-generation": "bert_jax.inference.generation.TextGeneration",
        "fill-in": "bert_jax.inference.infilling.FillIn",
        "text2text-generation": "bert_jax.inference.text2text.Text2TextGeneration",
    }
)
# Saved head -> the pipelines that replace those of sentence embeddings.
PIPELINES_OF_HEAD: dict[str, LazyRegistry[type[Any]]] = {
    "sparse_embedding": LazyRegistry(
        {
            "sentence-embedding": "bert_jax.inference.sparse.SparseEmbedding",
            "similarity": "bert_jax.inference.sparse.SparseSimilarity",
            "search": "bert_jax.inference.search.SparseSearch",
        }
    ),
    "multi_vector": LazyRegistry(
        {
            "sentence-embedding": "bert_jax.inference.multi_vector.MultiVectorEmbedding",
            "similarity": "bert_jax.inference.multi_vector.MultiVectorSimilarity",
            "search": "bert_jax.inference.search.MultiVectorSearch",
        }
    ),
}


def pipeline_class(task: str, head: str | None) -> type[Any]:
    """Return the class of a task of sentence embeddings, one of `PIPELINES`, for a model that was saved with a head."""
    of_head = PIPELINES_OF_HEAD.get(head or "", PIPELINES)
    return of_head[task] if task in of_head else PIPELINES[task]
