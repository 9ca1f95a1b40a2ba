"""Keys of the files of models with a vector for each token: those of sentence-transformers, PyLate and ColBERT."""

from bert_jax.model_files import sentence_transformers as tables
from bert_jax.model_files.keys import harmless, honoured, refused

# SENTENCE_BERT_CONFIG of a MultiVectorEncoder.
MULTI_VECTOR_TRANSFORMER = (
    *(
        key
        for key in tables.SENTENCE_BERT_CONFIG
        if key.name not in ("query_length", "document_length", "query_expansion")
    ),
    honoured("query_length", "maximum number of tokens in a query"),
    honoured("document_length", "maximum number of tokens in a document"),
    honoured("query_expansion", "tokens that are added to queries: strategy, length, attend and token"),
)
# Keys of a MultiVectorEncoder's modules, which change the token vectors.
_TOKENS = "token_embeddings"
TOKEN_NORMALIZE = (
    refused("module_input_name", "other inputs are not supported", _TOKENS),
    refused("module_output_name", "other outputs are not supported", _TOKENS),
)
TOKEN_DENSE = (*tables.DENSE[:5], *TOKEN_NORMALIZE)
MULTI_VECTOR_MASK = (
    honoured("skiplist_words", "tokens that are not scored"),
    honoured("skiplist_tasks", "tasks whose texts skip these tokens; default: document"),
    refused("keep_only_token_ids", "tokens of images are not supported", []),
)
# CONFIG_SENTENCE_TRANSFORMERS of a MultiVectorEncoder and of PyLate's models.
MULTI_VECTOR_CONFIG = (
    *(key for key in tables.CONFIG_SENTENCE_TRANSFORMERS
      if key.name not in ("similarity_fn_name", "truncate_dim", "activation_fn", "max_active_dims")),
    honoured("similarity_fn_name", "maxsim (default) or meanmaxsim"),
    honoured("query_prefix", "a token before each query (PyLate)"),
    honoured("document_prefix", "a token before each document (PyLate)"),
    honoured("query_length", "older place of the key in the Transformer's file"),
    honoured("document_length", "older place of the key in the Transformer's file"),
    honoured("query_expansion", "older place of the key in the Transformer's file"),
    honoured("do_query_expansion", "whether queries are expanded (PyLate); default: true"),
    honoured("attend_to_expansion_tokens", "whether tokens attend to the expansion (PyLate)"),
    honoured("attend_to_mask_tokens", "older name of attend_to_expansion_tokens"),
    honoured("skiplist_words", "tokens that are not scored (PyLate); default: punctuation"),
    refused("truncate_dim", "truncation of token vectors is not supported"),
)  # fmt: skip
# Keys of ColBERT models in their authors' layout; those of training and of the search index are ignored.
ARTIFACT_METADATA = (
    honoured("query_maxlen", "number of tokens to which queries are filled up; default: 32"),
    honoured("doc_maxlen", "maximum number of tokens in a document"),
    honoured("query_token_id", "token before each query; default: [unused0]"),
    honoured("doc_token_id", "token before each document; default: [unused1]"),
    honoured("mask_punctuation", "whether punctuation is not scored; default: true"),
    honoured("attend_to_mask_tokens", "whether tokens attend to the tokens that fill up a query"),
    refused("similarity", "other similarities of vectors are not supported", "cosine"),
    harmless("query_token", "text of query_token_id in other models; query_token_id is used"),
    harmless("doc_token", "text of doc_token_id in other models; doc_token_id is used"),
)

# Titles of the tables in docs/model_files.md.
FILES = {
    "MULTI_VECTOR_TRANSFORMER": "`sentence_bert_config.json` of a MultiVectorEncoder",
    "TOKEN_NORMALIZE": "`config.json` of a Normalize of a MultiVectorEncoder",
    "TOKEN_DENSE": "`config.json` of a Dense of a MultiVectorEncoder",
    "MULTI_VECTOR_MASK": "`config.json` of a MultiVectorMask",
    "MULTI_VECTOR_CONFIG": "`config_sentence_transformers.json` of a MultiVectorEncoder",
    "ARTIFACT_METADATA": "`artifact.metadata` of a ColBERT model in the layout of its authors",
}
