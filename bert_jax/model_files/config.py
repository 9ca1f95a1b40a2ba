"""Keys of config.json that all families share. A family's own keys are in its file of `bert_jax.families`."""

from bert_jax.model_files.keys import FileKey, harmless, honoured, refused

SHARED_BY_FAMILIES: tuple[FileKey, ...] = (
    honoured("model_type", "the family"),
    honoured("architectures", "the saved class, which determines the head"),
    honoured("vocab_size", "rows of the word embedding"),
    honoured("hidden_size", "width of the layers"),
    honoured("num_hidden_layers", "number of layers"),
    honoured("num_attention_heads", "number of attention heads"),
    honoured("head_dim", "width of a head, if not hidden_size / num_attention_heads, as in a model with pruned heads"),
    honoured("max_position_embeddings", "maximum number of tokens in a sequence, or rows of the position embedding"),
    honoured("initializer_range", "parameter of the initialiser of fresh parameters"),
    honoured("pad_token_id", "id of the padding token"),
    honoured("tie_word_embeddings", "whether the masked-LM head's matrix is the word embedding"),
    honoured("num_labels", "number of classes, if id2label is missing"),
    honoured("id2label", "names of the classes, by number"),
    honoured("label2id", "numbers of the classes, by name; must agree with id2label"),
    honoured("problem_type", "type of a sequence classifier: single-label, multi-label or regression"),
    honoured("sbert_ce_default_activation_function", "activation of a cross-encoder, in older files"),
    honoured("sentence_transformers", "activation and version of a cross-encoder"),
    refused("is_decoder", "decoders are not supported", False),
    refused("add_cross_attention", "decoders are not supported", False),
    refused("is_encoder_decoder", "encoder-decoders are not supported", False),
    refused("pruned_heads", "pruned heads are not supported", {}, []),
    honoured("quantization_config", "how `bert-jax quantize` has quantized the weights; other methods are refused"),
    refused("per_layer_config", "layers of different shapes are not supported", {}),
    refused("position_embedding_type", "other position embeddings are not supported", "absolute"),
    refused("rope_scaling", "scaled rotary positions are not supported", {}),
    harmless("max_length", "setting of text generation"),
)
# Keys that are not copied from the read config.json to a written one: `BertConfig` writes its own, or they concern
# files that are not written.
NOT_CARRIED = (
    "architectures",
    "model_type",
    "dtype",
    "torch_dtype",
    "num_labels",
    "_num_labels",
    "auto_map",
    "quantization_config",
)
# Keys that change the outputs of models whose family is not supported.
OF_OTHER_MODELS = (
    "attention_multiplier", "attn_logit_softcapping", "embedding_multiplier", "final_logit_softcapping", "logit_scale",
    "max_window_layers", "partial_rotary_factor", "qk_norm", "query_pre_attn_scalar", "residual_multiplier",
    "rope_interleaved", "sliding_window", "use_bidirectional_attention", "use_qk_norm", "use_sliding_window",
)  # fmt: skip
# Titles of the tables in docs/model_files.md.
FILES = {
    "SHARED_BY_FAMILIES": "`config.json`: keys of all families",
}
