"""Keys of the files of sentence-transformers: one table a file."""

from bert_jax.model_files.keys import harmless, honoured, refused

_VECTOR = "sentence_embedding"
_TASKS = {
    "feature-extraction": ("last_hidden_state", "token_embeddings"),
    "sequence-classification": ("logits", "scores"),
}

# An entry of the list in modules.json.
MODULES = (
    honoured("type", "the class of the module: Transformer, Pooling, Dense, LayerNorm, Normalize or Dropout of "
             "sentence-transformers; any other is refused by its name"),
    honoured("path", "the folder of the module"),
    harmless("idx", "the order is that of the list"),
    harmless("name", "a name for users of PyTorch"),
    refused("kwargs", "arguments that reach the module with each call", [], {}),
)  # fmt: skip
# Beside the Transformer; also as sentence_roberta_config.json and the like.
SENTENCE_BERT_CONFIG = (
    honoured("max_seq_length", "tokens of the longest input; what is longer is cut"),
    honoured("do_lower_case", "whether texts are lower-cased before the tokenizer"),
    refused("transformer_task", "what the Transformer is read for", *_TASKS),
    refused("modality_config", "how inputs other than texts are read",
            *({"text": {"method": "forward", "method_output_name": output}} for output, _ in _TASKS.values())),
    refused("module_output_name", "what the Transformer gives", *(name for _, name in _TASKS.values())),
    refused("processing_kwargs", "arguments that reach the tokenizer with each call", {}),
    refused("query_length", "another longest input for queries"),
    refused("document_length", "another longest input for documents"),
    refused("query_expansion", "tokens that are added to queries, for models of many vectors"),
    refused("tokenizer_name_or_path", "a tokenizer in another place"),
    honoured("model_args", "arguments of the Transformer; see the next table"),
    honoured("model_kwargs", "the same"),
    honoured("config_args", "the same"),
    honoured("config_kwargs", "the same"),
    honoured("tokenizer_args", "arguments of the tokenizer; see the table after it"),
    honoured("processor_kwargs", "the same"),
    harmless("unpad_inputs", "a matter of speed"),
)  # fmt: skip
MODEL_ARGS = (
    harmless("add_pooling_layer", "sentence embeddings do not read BERT's pooler"),
    harmless("attn_implementation", "a matter of speed"),
    harmless("device_map", "where PyTorch puts the parameters"),
    harmless("dtype", "of PyTorch's arithmetic; here it is chosen when a model is opened"),
    harmless("low_cpu_mem_usage", "a matter of memory"),
    harmless("revision", "a version on the hub"),
    harmless("torch_dtype", "as dtype"),
    harmless("trust_remote_code", "no code of a model is run here"),
    harmless("unpad_inputs", "a matter of speed"),
    harmless("use_memory_efficient_attention", "a matter of speed"),
)
TOKENIZER_ARGS = (
    honoured("model_max_length", "tokens of the longest input; comes before max_seq_length"),
    refused("do_lower_case", "another setting of the tokenizer than in its own files"),
    refused("padding_side", "where rows are padded", "right"),
    refused("truncation_side", "which end of a long text is cut", "right"),
    harmless("trust_remote_code", "no code of a model is run here"),
    harmless("use_fast", "which of two implementations PyTorch users get"),
)
POOLING = (
    honoured("pooling_mode", "cls, max, mean, mean_sqrt_len_tokens, weightedmean, lasttoken, or several, whose vectors "
             "are set side by side"),
    honoured("pooling_mode_cls_token", "older spelling of cls"),
    honoured("pooling_mode_max_tokens", "older spelling of max"),
    honoured("pooling_mode_mean_tokens", "older spelling of mean"),
    honoured("pooling_mode_mean_sqrt_len_tokens", "older spelling of mean_sqrt_len_tokens"),
    honoured("pooling_mode_weightedmean_tokens", "older spelling of weightedmean"),
    honoured("pooling_mode_lasttoken", "older spelling of lasttoken"),
    honoured("include_prompt", "whether the tokens of a prompt are pooled too"),
    honoured("embedding_dimension", "width of the token vectors; compared with config.json"),
    honoured("word_embedding_dimension", "older spelling of embedding_dimension"),
)  # fmt: skip
DENSE = (
    honoured("in_features", "width of what goes in; compared with the module before"),
    honoured("out_features", "width of what comes out"),
    honoured("bias", "whether there is a bias"),
    honoured("activation_function", "a class of torch.nn without arguments; tanh where the key is missing"),
    honoured("use_residual", "whether the input is added to the output"),
    refused("module_input_name", "what goes in", _VECTOR),
    refused("module_output_name", "what comes out", _VECTOR),
)
NORMALIZE = (
    refused("module_input_name", "what goes in", _VECTOR),
    refused("module_output_name", "what comes out", _VECTOR),
)
LAYER_NORM = (honoured("dimension", "width; compared with the module before"),)
DROPOUT = (honoured("dropout", "rate, while training"),)
CONFIG_SENTENCE_TRANSFORMERS = (
    honoured("model_type", "sentenceTransformer (the default) or CrossEncoder; any other is refused"),
    honoured("prompts", "texts by name, to be put before inputs"),
    honoured("default_prompt_name", "the prompt of inputs for which no other is named"),
    honoured("similarity_fn_name", "cosine, dot, euclidean or manhattan: how vectors are compared"),
    honoured("truncate_dim", "numbers of a vector that are kept, from the first"),
    honoured("activation_fn", "of a cross-encoder: the class of torch.nn that makes scores of logits"),
    harmless("keep_in_fp32_modules", "logits are float32 here in any case"),
    harmless("__version__", "of the libraries that wrote it"),
    harmless("requirements", "versions that PyTorch users need"),
)
# The object `sentence_transformers` in the config.json of a cross-encoder.
CROSS_ENCODER = (
    honoured("activation_fn", "the class of torch.nn that makes scores of logits"),
    harmless("keep_in_fp32_modules", "logits are float32 here in any case"),
    harmless("version", "of the library that wrote it"),
)

# Where each table is found, for the page that lists them.
FILES = {
    "MODULES": "an entry of `modules.json`",
    "SENTENCE_BERT_CONFIG": "`sentence_bert_config.json` in the folder of the Transformer, or "
    "`sentence_roberta_config.json` and the like",
    "MODEL_ARGS": "`model_args` in `sentence_bert_config.json`",
    "TOKENIZER_ARGS": "`tokenizer_args` in `sentence_bert_config.json`",
    "POOLING": "`config.json` of a Pooling (`1_Pooling`)",
    "DENSE": "`config.json` of a Dense",
    "NORMALIZE": "`config.json` of a Normalize",
    "LAYER_NORM": "`config.json` of a LayerNorm",
    "DROPOUT": "`config.json` of a Dropout",
    "CONFIG_SENTENCE_TRANSFORMERS": "`config_sentence_transformers.json`",
    "CROSS_ENCODER": "`sentence_transformers` in the `config.json` of a cross-encoder",
}
