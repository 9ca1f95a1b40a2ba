"""Text embeddings (dense, sparse, or one vector per token), and search by them."""

from bert_jax.tasks.entry import TaskEntry

TASK = TaskEntry(
    "embedding",
    recipes={
        "sentence_embedding": f"{__name__}.dense.recipe.RECIPE",
        "sparse_embedding": f"{__name__}.sparse.recipe.RECIPE",
        "multi_vector": f"{__name__}.multi_vector.recipe.RECIPE",
    },
    pipelines={
        "sentence-embedding": f"{__name__}.embedder.SentenceEmbedding",
        "similarity": f"{__name__}.similarity.Similarity",
        "feature-extraction": f"{__name__}.feature_extraction.FeatureExtraction",
        "search": f"{__name__}.search.pipeline.Search",
        "sparse-embedding": f"{__name__}.sparse.embedder.SparseEmbedding",
        "sparse-similarity": f"{__name__}.similarity.SparseSimilarity",
        "sparse-search": f"{__name__}.search.pipeline.SparseSearch",
        "multi-vector-embedding": f"{__name__}.multi_vector.embedder.MultiVectorEmbedding",
        "multi-vector-similarity": f"{__name__}.similarity.MultiVectorSimilarity",
        "multi-vector-search": f"{__name__}.search.pipeline.MultiVectorSearch",
    },
    aliases={"embed": "sentence-embedding"},
    pipelines_of_head={"sparse_embedding": "sparse", "multi_vector": "multi-vector"},
    evaluators={"sentence_embedding": f"{__name__}.dense.evaluation.SentenceEmbeddingEvaluator"},
    examples={"sentence_embedding": f"{__name__}.dense.examples.examples_of_model"},
    verbs=tuple(f"{__name__}.{name}" for name in ("verb", "search.verb", "reranking_verb", "mine", "distill_static")),
)
