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
    refused("kwargs", "other call arguments are not supported", [], {}, ["task"], ["task", "truncate_dim"]),
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
    refused("processing_kwargs", "call arguments of the tokenizer are not supported", {}),
    refused("query_length", "only multi-vector models have a length limit of queries"),
    refused("document_length", "only multi-vector models have a length limit of documents"),
    refused("query_expansion", "only multi-vector models add tokens to queries"),
    refused("tokenizer_name_or_path", "a tokenizer in another directory is not supported"),
    honoured("model_args", "arguments of the Transformer; see the table of `model_args`"),
    honoured("model_kwargs", "another name of model_args"),
    honoured("config_args", "arguments of the config; see the table of `model_args`"),
    honoured("config_kwargs", "another name of config_args"),
    honoured("tokenizer_args", "arguments of the tokenizer; see the table of `tokenizer_args`"),
    honoured("processor_kwargs", "another name of tokenizer_args"),
)  # fmt: skip
MODEL_ARGS = (
    harmless("add_pooling_layer", "the pooler is not used by sentence embeddings"),
    honoured("default_task", "the task whose adapter is used, of a model with adapters for several"),
)
TOKENIZER_ARGS = (
    honoured("model_max_length", "maximum number of tokens in an input; takes precedence over max_seq_length"),
    refused("do_lower_case", "a setting other than in the tokenizer's files is not supported"),
    refused("padding_side", "padding on the left is not supported", "right"),
    refused("truncation_side", "truncation on the left is not supported here", "right"),
)
POOLING = (
    honoured("pooling_mode", "cls, max, mean, mean_sqrt_len_tokens, weightedmean, lasttoken, or several, whose vectors "
             "are concatenated"),
    honoured("pooling_mode_cls_token", "older form of pooling_mode cls"),
    honoured("pooling_mode_max_tokens", "older form of pooling_mode max"),
    honoured("pooling_mode_mean_tokens", "older form of pooling_mode mean"),
    honoured("pooling_mode_mean_sqrt_len_tokens", "older form of pooling_mode mean_sqrt_len_tokens"),
    honoured("pooling_mode_weightedmean_tokens", "older form of pooling_mode weightedmean"),
    honoured("pooling_mode_lasttoken", "older form of pooling_mode lasttoken"),
    honoured("include_prompt", "whether the tokens of a prompt are also pooled"),
    honoured("embedding_dimension", "width of the token vectors; must agree with config.json"),
    honoured("word_embedding_dimension", "older name of embedding_dimension"),
)  # fmt: skip
DENSE = (
    honoured("in_features", "width of the input; must agree with the previous module"),
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
LAYER_NORM = (honoured("dimension", "width; must agree with the previous module"),)
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
    harmless("requirements", "versions that PyTorch needs"),
)

# Titles of the tables in docs/model_files.md.
FILES = {
    "MODULES": "an entry of `modules.json`",
    "SENTENCE_BERT_CONFIG": "`sentence_bert_config.json` in the directory of the Transformer, or "
    "`sentence_roberta_config.json` and the like",
    "MODEL_ARGS": "`model_args` in `sentence_bert_config.json`",
    "TOKENIZER_ARGS": "`tokenizer_args` in `sentence_bert_config.json`",
    "POOLING": "`config.json` of a Pooling (`1_Pooling`)",
    "DENSE": "`config.json` of a Dense",
    "NORMALIZE": "`config.json` of a Normalize",
    "LAYER_NORM": "`config.json` of a LayerNorm",
    "DROPOUT": "`config.json` of a Dropout",
    "CONFIG_SENTENCE_TRANSFORMERS": "`config_sentence_transformers.json`",
}
