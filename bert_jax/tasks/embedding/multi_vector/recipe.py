"""The recipe of late interaction."""

from bert_jax.recipes.base import TWO_TEXTS, Key, ModelUse, TaskRecipe
from bert_jax.recipes.shared_keys import fine_tuning
from bert_jax.tasks.embedding.retrieval_keys import SEARCH_KEYS

KEYS = SEARCH_KEYS | {
    "data.token_dim": Key(int, "dimensions of a token's vector; not set = as in the model, else 128", least=1,
                          per_set=False),
    "data.query_length": Key(int, "maximum number of tokens in a query; not set = as in the model, else 32", least=3,
                             per_set=False),
    "data.query_expansion": Key(bool, "whether queries are filled up with mask tokens; not set = as in the model, else "
                                "True", per_set=False),
    "data.attend_to_expansion": Key(bool, "whether tokens attend to these mask tokens; not set = as in the model, else "
                                    "False", per_set=False),
    "data.skip_punctuation": Key(bool, "whether scoring skips punctuation in documents; not set = as in the model, "
                                 "else True", per_set=False),
    "data.query_prefix": Key(str, "text before queries, for example the token '[unused0] '; not set = as in the "
                             "model, else none"),
    "data.pool_factor": Key(float, "number of token vectors of a document that the finished model merges into one; not "
                            "set = as in the model", least=1, per_set=False),
    "data.document_prefix": Key(str, "text before documents; not set = as in the model, else none"),
}  # fmt: skip

RECIPE = TaskRecipe(
    "late interaction (ColBERT): a vector for each token of queries and documents",
    build="bert_jax.tasks.embedding.multi_vector.task.build",
    keys=KEYS,
    defaults=fine_tuning(batch_size=32, epochs=1.0, learning_rate=2e-5),
    teacher_cache=True,
    whole_batch_losses=("in_batch_negatives",),
    use=ModelUse("feature-extraction", "multi-vector-embedding", TWO_TEXTS),
    synthetic_rows="bert_jax.tasks.embedding.query_documents.synthetic_rows",
)
