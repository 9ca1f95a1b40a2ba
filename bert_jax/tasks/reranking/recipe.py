"""The recipe of rerankers."""

from bert_jax.recipes.base import TWO_TEXTS, Key, ModelUse, TaskRecipe
from bert_jax.recipes.data_sets import SET_KEYS
from bert_jax.recipes.retrieval_dev_keys import RERANKING_DEV_KEYS
from bert_jax.recipes.score_losses import SCORE_LOSS_KEYS
from bert_jax.recipes.shared_keys import (
    FINE_TUNING_KEYS,
    HAS_HEADER,
    TABLE_KEYS,
    column,
    fine_tuning,
    label_column,
    pair_column,
    text_column,
)
from bert_jax.tasks.reranking.losses import LAMBDA_WEIGHTINGS, RERANKING_LOSSES

KEYS = FINE_TUNING_KEYS | RERANKING_DEV_KEYS | TABLE_KEYS | SCORE_LOSS_KEYS | SET_KEYS | {
    "data.has_header": HAS_HEADER,
    "data.loss": Key("binary_cross_entropy", "binary_cross_entropy or mse of each passage, or a loss over the passages "
                     "of a query (docs/reranking.md)", tuple(RERANKING_LOSSES)),
    "data.weighting": Key(LAMBDA_WEIGHTINGS[0], "lambda: how a pair of passages is weighted", LAMBDA_WEIGHTINGS),
    "data.text_column": text_column("query", "column of the query"),
    "data.pair_column": pair_column("passage", "column of a passage; with negatives, of a relevant passage"),
    "data.negative_column": column("", "column of a passage that is not relevant; empty = none"),
    "data.negative_columns": column((), "columns of several passages that are not relevant, in place of "
                                        "negative_column"),
    "data.passages_column": column("", "column of lists of passages (JSON lines, Parquet), in place of pair_column; "
                                       "empty = none"),
    "data.label_column": label_column("label", "column of the relevance of a passage or, with passages_column, of "
                                      "lists of relevance; empty with negatives"),
    "data.query_prefix": Key(str, "text before queries, which becomes the default prompt of the model; not set = that "
                             "of the cross-encoder in init_from, else none",
                             synonyms="query_prompt prompt query_instruction"),
    "data.metrics": Key((), "mrr, ndcg, map, also as ndcg@K; for rows of one passage average_precision, accuracy, f1; "
                        "for retrieval sets as evaluate-search; () = all"),
}  # fmt: skip

RECIPE = TaskRecipe(
    "rerankers: cross-encoders that score the relevance of a passage to a query",
    build="bert_jax.tasks.reranking.task.build",
    keys=KEYS,
    defaults=fine_tuning(batch_size=32, epochs=1.0, learning_rate=2e-5),
    teacher_cache=True,
    use=ModelUse("text-ranking", "rerank", f'"A query.", {TWO_TEXTS}'),
    synthetic_rows="bert_jax.tasks.reranking.task.synthetic_rows",
)
