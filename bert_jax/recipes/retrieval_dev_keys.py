"""Recipe keys of the tasks that retrieval sets may evaluate."""

import dataclasses

from bert_jax.recipes.base import CONTENT, Key
from bert_jax.recipes.shared_keys import FINE_TUNING_KEYS

RETRIEVAL_DEV_KEYS = {
    "data.dev": dataclasses.replace(
        FINE_TUNING_KEYS["data.dev"],
        meaning="evaluation data: a table, directories of retrieval sets (docs/sentence_embeddings.md), or both, "
        "separated by commas; empty = none",
    ),
    "data.dev_split": Key("test", "retrieval sets of data.dev: split of the judgements", may_change=CONTENT),
    "data.dev_documents": Key(0, "retrieval sets of data.dev: number of documents, all judged ones and a sample of the "
                              "others; 0 = all", least=0, may_change=CONTENT),
}  # fmt: skip
RERANKING_DEV_KEYS = {
    **{name: key for name, key in RETRIEVAL_DEV_KEYS.items() if name != "data.dev_documents"},
    "data.dev_run": Key("", "retrieval sets of data.dev: for each a TREC run with the candidates of its queries, "
                        "separated by commas", may_change=CONTENT),
    "data.dev_candidates": Key(100, "number of candidates of each query that are read", least=1, may_change=CONTENT),
}  # fmt: skip
SEARCH_METRICS_MEANING = "; for retrieval sets ndcg@K, mrr@K, map@K, recall@K, precision@K"
