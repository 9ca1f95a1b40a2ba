"""Keys of recipes that train on queries and documents."""

from bert_jax.metrics import metric_names
from bert_jax.modeling.score_losses import SCORE_LOSSES
from bert_jax.recipes.base import Key
from bert_jax.recipes.data_sets import SET_KEYS
from bert_jax.recipes.retrieval_dev_keys import RETRIEVAL_DEV_KEYS, SEARCH_METRICS_MEANING
from bert_jax.recipes.score_losses import SCORE_LOSS_KEYS
from bert_jax.recipes.shared_keys import (
    FINE_TUNING_KEYS,
    HAS_HEADER,
    TABLE_KEYS,
    column,
    label_column,
    pair_column,
    text_column,
)

PROMPT_KEYS = {
    "data.query_prefix": Key(str, "text before queries: the prompt `query` in the model's files; not set = the model's "
                             "own prompt", synonyms="query_prompt query_instruction"),
    "data.document_prefix": Key(str, "text before documents: the prompt `document` in the model's files; not set = the "
                                "model's own prompt",
                                synonyms="passage_prefix document_prompt passage_prompt corpus_prompt"),
}  # fmt: skip
SEARCH_LOSSES = ("in_batch_negatives", *SCORE_LOSSES)
SEARCH_KEYS = FINE_TUNING_KEYS | RETRIEVAL_DEV_KEYS | TABLE_KEYS | SCORE_LOSS_KEYS | SET_KEYS | {
    "data.has_header": HAS_HEADER,
    "data.loss": Key("in_batch_negatives", "in_batch_negatives, or a loss that learns a teacher's scores: mse, "
                     "margin_mse, kl_divergence (docs/retrieval.md)", SEARCH_LOSSES),
    "data.scale": Key(1.0, "in_batch_negatives: factor of the scores before the softmax", above=0),
    "data.text_column": text_column("sentence1", "column of the query"),
    "data.pair_column": pair_column("sentence2", "column of a document that answers the query"),
    "data.negative_column": column("", "column of a document that does not answer the query; empty = none"),
    "data.negative_columns": column((), "columns of several such documents, in place of negative_column"),
    "data.passages_column": column("", "column of lists of documents, the positive first, in place of pair_column; "
                                   "empty = none"),
    "data.label_column": label_column("", "mse, margin_mse, kl_divergence: column of lists of a teacher's scores for "
                                      "passages_column; with a negative column, of the margin"),
    "data.metrics": Key((), f"metrics of evaluation: any of {metric_names('ranks')}{SEARCH_METRICS_MEANING}; () = all "
                        "that apply"),
}  # fmt: skip
