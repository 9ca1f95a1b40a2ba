"""The recipe of sparse embeddings."""

from bert_jax.recipes.base import TWO_TEXTS, Key, ModelUse, TaskRecipe
from bert_jax.recipes.shared_keys import fine_tuning
from bert_jax.tasks.embedding.retrieval_keys import PROMPT_KEYS, SEARCH_KEYS

KEYS = SEARCH_KEYS | PROMPT_KEYS | {
    "data.query_flops": Key(3e-4, "weight of the FLOPS regulariser of query vectors", least=0),
    "data.document_flops": Key(1e-4, "weight of the FLOPS regulariser of document vectors", least=0),
    "data.flops_warmup": Key(0.0, "fraction of the steps over which query_flops and document_flops rise "
                             "quadratically from 0", least=0),
    "data.query_weights": Key("", "table of weights of tokens in place of the encoder for queries: trainable, frozen, "
                              "or encoder = none; '' = as init_from", ("", "encoder", "trainable", "frozen"),
                              synonyms="inference_free", per_set=False),
    "data.query_idf": Key("", "first query weights: documents = inverse frequencies in those of data.train; or a JSON "
                          "file of weights; '' = as init_from, or 1", per_set=False),
}  # fmt: skip

RECIPE = TaskRecipe(
    "sparse embeddings (SPLADE) from pairs of queries and documents",
    build="bert_jax.tasks.embedding.sparse.task.build",
    keys=KEYS,
    defaults=fine_tuning(batch_size=32, epochs=1.0, learning_rate=2e-5),
    teacher_cache=True,
    whole_batch_losses=("in_batch_negatives",),
    use=ModelUse("feature-extraction", "sparse-embedding", TWO_TEXTS),
    synthetic_rows="bert_jax.tasks.embedding.query_documents.synthetic_rows",
)
