"""Keys of sentence-transformers' files: one table per file."""

from bert_jax.model_files.keys import harmless, honoured, refused

_VECTOR = "sentence_embedding"
_TASKS = {
    "feature-extraction": ("last_hidden_state", "token_embeddings"),
    "sequence-classification": ("logits", "scores"),
    "fill-mask": ("logits", "token_embeddings"),
}

# An entry of the list in modules.json.
MODULES = (
    honoured("type", "the class of the module: Transformer, Pooling, Dense, LayerNorm, Normalize, Dropout, "
             "MLMTransformer, SpladePooling or MultiVectorMask of sentence-transformers, or custom_st.Transformer in a "
             "Jina Embeddings v3; others are refused"),
    honoured("path", "directory of the module"),
    harmless("idx", "modules are in the order of the list"),
    harmless("name", "name of the module in PyTorch"),
    refused("kwargs", "arguments of each call of the module", [], {}, ["task"], ["task", "truncate_dim"]),
)  # fmt: skip
# In the directory of the Transformer; also named sentence_roberta_config.json and the like.
SENTENCE_BERT_CONFIG = (
    honoured("max_seq_length", "maximum number of tokens in an input; longer inputs are cut"),
    honoured("do_lower_case", "whether texts are lower-cased before tokenization"),
    refused("transformer_task", "other tasks are not supported", *_TASKS),
    refused("modality_config", "inputs other than texts are not supported",
            *({"text": {"method": "forward", "method_output_name": output}} for output, _ in _TASKS.values())),
    refused("module_output_name", "other outputs of the Transformer are not "
            "supported", *(name for _, name in _TASKS.values())),
    refused("processing_kwargs", "arguments of each call of the tokenizer", {}),
    refused("query_length", "a different length limit of queries"),
    refused("document_length", "a different length limit of documents"),
    refused("query_expansion", "tokens that multi-vector models add to queries"),
    refused("tokenizer_name_or_path", "a tokenizer in another directory"),
    honoured("model_args", "arguments of the Transformer; see the table of `model_args`"),
    honoured("model_kwargs", "another name of model_args"),
    honoured("config_args", "arguments of the config; see the table of `model_args`"),
    honoured("config_kwargs", "another name of config_args"),
    honoured("tokenizer_args", "arguments of the tokenizer; see the table of `tokenizer_args`"),
    honoured("processor_kwargs", "another name of tokenizer_args"),
    harmless("unpad_inputs", "affects only speed"),
)  # fmt: skip
# The same of a MultiVectorEncoder.
MULTI_VECTOR_TRANSFORMER = (
    *(key for key in SENTENCE_BERT_CONFIG if key.name not in ("query_length", "document_length", "query_expansion")),
    honoured("query_length", "maximum number of tokens in a query"),
    honoured("document_length", "maximum number of tokens in a document"),
    honoured("query_expansion", "tokens that are added to queries: strategy, length, attend and token"),
)
MODEL_ARGS = (
    harmless("add_pooling_layer", "the pooler is not used by sentence embeddings"),
    harmless("attn_implementation", "affects only speed"),
    honoured("default_task", "the task whose adapter is used, of a model with adapters for several"),
    harmless("device_map", "device of the parameters in PyTorch"),
    harmless("dtype", "dtype of PyTorch's arithmetic; here an argument"),
    harmless("low_cpu_mem_usage", "affects only memory"),
    harmless("revision", "version on the hub"),
    harmless("torch_dtype", "another name of dtype"),
    harmless("trust_remote_code", "code of a model directory is never run"),
    harmless("unpad_inputs", "affects only speed"),
    harmless("use_memory_efficient_attention", "affects only speed"),
)
TOKENIZER_ARGS = (
    honoured("model_max_length", "maximum number of tokens in an input; takes precedence over max_seq_length"),
    refused("do_lower_case", "a setting that differs from the tokenizer's own files"),
    refused("padding_side", "padding on the left is not supported", "right"),
    refused("truncation_side", "truncation on the left is not supported here", "right"),
    harmless("trust_remote_code", "code of a model directory is never run"),
    harmless("use_fast", "implementation of the tokenizer in transformers"),
)
POOLING = (
    honoured("pooling_mode", "cls, max, mean, mean_sqrt_len_tokens, weightedmean, lasttoken, or several, whose vectors "
             "are concatenated"),
    honoured("pooling_mode_cls_token", "older name of cls"),
    honoured("pooling_mode_max_tokens", "older name of max"),
    honoured("pooling_mode_mean_tokens", "older name of mean"),
    honoured("pooling_mode_mean_sqrt_len_tokens", "older name of mean_sqrt_len_tokens"),
    honoured("pooling_mode_weightedmean_tokens", "older name of weightedmean"),
    honoured("pooling_mode_lasttoken", "older name of lasttoken"),
    honoured("include_prompt", "whether the tokens of a prompt are also pooled"),
    honoured("embedding_dimension", "width of the token vectors; must agree with config.json"),
    honoured("word_embedding_dimension", "older name of embedding_dimension"),
)  # fmt: skip
SPLADE_POOLING = (
    honoured("pooling_strategy", "max (default) or sum"),
    honoured("activation_function", "relu (default) or log1p_relu"),
    harmless("embedding_dimension", "always the size of the vocabulary"),
    harmless("word_embedding_dimension", "older name of embedding_dimension"),
    harmless("chunk_size", "affects only memory"),
)
DENSE = (
    honoured("in_features", "width of the input; must agree with the module before"),
    honoured("out_features", "width of the output"),
    honoured("bias", "whether there is a bias"),
    honoured("activation_function", "class of torch.nn without arguments; default: tanh"),
    honoured("use_residual", "whether the input is added to the output"),
    refused("module_input_name", "other inputs are not supported", _VECTOR),
    refused("module_output_name", "other outputs are not supported", _VECTOR),
)
NORMALIZE = (
    refused("module_input_name", "other inputs are not supported", _VECTOR),
    refused("module_output_name", "other outputs are not supported", _VECTOR),
)
# Modules of a MultiVectorEncoder, which change the vectors of tokens.
_TOKENS = "token_embeddings"
TOKEN_NORMALIZE = (
    refused("module_input_name", "other inputs are not supported", _TOKENS),
    refused("module_output_name", "other outputs are not supported", _TOKENS),
)
TOKEN_DENSE = (*DENSE[:5], *TOKEN_NORMALIZE)
MULTI_VECTOR_MASK = (
    honoured("skiplist_words", "tokens that are not scored"),
    honoured("skiplist_tasks", "tasks whose texts skip them; default: document"),
    refused("keep_only_token_ids", "tokens of images are not supported", []),
)
LAYER_NORM = (honoured("dimension", "width; must agree with the module before"),)
DROPOUT = (honoured("dropout", "dropout rate"),)
CONFIG_SENTENCE_TRANSFORMERS = (
    honoured(
        "model_type",
        "SentenceTransformer (default), SparseEncoder, MultiVectorEncoder, ColBERT or CrossEncoder; others are refused",
    ),
    honoured("prompts", "prompts by name, which are put before inputs"),
    honoured("default_prompt_name", "name of the default prompt"),
    honoured("similarity_fn_name", "similarity of vectors: cosine, dot, euclidean or manhattan"),
    honoured("max_active_dims", "number of greatest weights of a sparse vector that are kept"),
    honoured("truncate_dim", "number of leading dimensions of a vector that are kept"),
    honoured("activation_fn", "activation of a cross-encoder's logits, a class of torch.nn"),
    harmless("keep_in_fp32_modules", "logits are always float32"),
    harmless("__version__", "versions of the libraries that wrote the file"),
    harmless("requirements", "versions that PyTorch needs"),
)
# The same of a MultiVectorEncoder, and of PyLate's models.
MULTI_VECTOR_CONFIG = (
    *(key for key in CONFIG_SENTENCE_TRANSFORMERS if key.name not in ("similarity_fn_name", "truncate_dim",
                                                                      "activation_fn", "max_active_dims")),
    honoured("similarity_fn_name", "maxsim (default) or meanmaxsim"),
    honoured("query_prefix", "a token before each query (PyLate)"),
    honoured("document_prefix", "a token before each document (PyLate)"),
    honoured("query_length", "older place of the Transformer's"),
    honoured("document_length", "older place of the Transformer's"),
    honoured("query_expansion", "older place of the Transformer's"),
    honoured("do_query_expansion", "whether queries are expanded (PyLate); default: true"),
    honoured("attend_to_expansion_tokens", "whether tokens attend to the expansion (PyLate)"),
    honoured("attend_to_mask_tokens", "older name of attend_to_expansion_tokens"),
    honoured("skiplist_words", "tokens that are not scored (PyLate); default: punctuation"),
    refused("truncate_dim", "vectors of tokens are not cut"),
)  # fmt: skip
# Of ColBERT models in the layout of their authors; keys of training and of their index are ignored.
ARTIFACT_METADATA = (
    honoured("query_maxlen", "number of tokens to which queries are filled up; default: 32"),
    honoured("doc_maxlen", "maximum number of tokens in a document"),
    honoured("query_token_id", "token before each query; default: [unused0]"),
    honoured("doc_token_id", "token before each document; default: [unused1]"),
    honoured("mask_punctuation", "whether punctuation is not scored; default: true"),
    honoured("attend_to_mask_tokens", "whether tokens attend to those that fill up a query"),
    refused("similarity", "other similarities of vectors are not supported", "cosine"),
    *(harmless(name, "a setting of training, of the index or of the run") for name in (
        "query_token", "doc_token", "dim", "checkpoint", "model_name", "triples", "collection", "queries", "index_name",
        "root", "experiment", "name", "meta", "nranks", "amp", "gpus", "rank", "bsize", "accumsteps", "lr", "maxsteps",
        "warmup", "warmup_bert", "nway", "use_ib_negatives", "reranker", "distillation_alpha", "ignore_scores",
        "save_every", "resume", "resume_optimizer", "ncells", "centroid_score_threshold", "ndocs", "index_path",
        "index_bsize", "nbits", "kmeans_niters", "overwrite", "interaction", "relu", "load_index_with_mmap", "configs",
        "total_visible_gpus", "avoid_fork_if_possible", "local_rank", "kmeans_seed", "use_rotary_embeddings",
    )),
)  # fmt: skip
# The object `sentence_transformers` in the config.json of a cross-encoder.
CROSS_ENCODER = (
    honoured("activation_fn", "activation of the logits, a class of torch.nn"),
    harmless("keep_in_fp32_modules", "logits are always float32"),
    harmless("version", "version of the library that wrote the file"),
)

# Titles of the tables in docs/model_files.md.
FILES = {
    "MODULES": "an entry of `modules.json`",
    "SENTENCE_BERT_CONFIG": "`sentence_bert_config.json` in the directory of the Transformer, or "
    "`sentence_roberta_config.json` and the like",
    "MODEL_ARGS": "`model_args` in `sentence_bert_config.json`",
    "TOKENIZER_ARGS": "`tokenizer_args` in `sentence_bert_config.json`",
    "POOLING": "`config.json` of a Pooling (`1_Pooling`)",
    "SPLADE_POOLING": "`config.json` of a SpladePooling (`1_SpladePooling`)",
    "MULTI_VECTOR_TRANSFORMER": "`sentence_bert_config.json` of a MultiVectorEncoder",
    "TOKEN_NORMALIZE": "`config.json` of a Normalize of a MultiVectorEncoder",
    "TOKEN_DENSE": "`config.json` of a Dense of a MultiVectorEncoder",
    "MULTI_VECTOR_MASK": "`config.json` of a MultiVectorMask",
    "MULTI_VECTOR_CONFIG": "`config_sentence_transformers.json` of a MultiVectorEncoder",
    "ARTIFACT_METADATA": "`artifact.metadata` of a ColBERT model in the layout of its authors",
    "DENSE": "`config.json` of a Dense",
    "NORMALIZE": "`config.json` of a Normalize",
    "LAYER_NORM": "`config.json` of a LayerNorm",
    "DROPOUT": "`config.json` of a Dropout",
    "CONFIG_SENTENCE_TRANSFORMERS": "`config_sentence_transformers.json`",
    "CROSS_ENCODER": "`sentence_transformers` in the `config.json` of a cross-encoder",
}
