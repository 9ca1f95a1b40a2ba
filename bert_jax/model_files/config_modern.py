"""Keys of config.json of the families that descend from Llama, of proteins, and of RoFormer."""

from bert_jax.model_files.keys import FileKey, harmless, honoured, refused

EUROBERT: tuple[FileKey, ...] = (
    honoured("intermediate_size", "width of the feed-forward layers"),
    honoured("hidden_act", "activation of the feed-forward layers"),
    honoured("num_key_value_heads", "number of heads of keys and values"),
    honoured("rms_norm_eps", "epsilon of RMSNorm"),
    honoured("attention_bias", "whether attention has biases"),
    honoured("mlp_bias", "whether feed-forward layers and the output matrix of the masked-LM head have biases"),
    honoured("attention_dropout", "dropout rate"),
    honoured("hidden_dropout_prob", "dropout rate, which transformers ignores"),
    honoured("classifier_dropout", "dropout rate, which transformers ignores"),
    honoured("classifier_pooling", "what a sequence classifier reads: bos, mean or late"),
    honoured("clf_pooling", "classifier_pooling in the files of its authors"),
    honoured("rope_parameters", "base of rotary positions; scaled ones are refused"),
    honoured("rope_theta", "base of rotary positions, in older files"),
    harmless("hidden_dropout", "written by the original code, but not used"),
    harmless("pretraining_tp", "implementation of layers"),
    harmless("bos_token", "taken from the tokenizer's files"),
    harmless("eos_token", "taken from the tokenizer's files"),
    harmless("pad_token", "taken from the tokenizer's files"),
    harmless("mask_token", "taken from the tokenizer's files"),
)
ESM: tuple[FileKey, ...] = (
    honoured("intermediate_size", "width of the feed-forward layers"),
    honoured("hidden_dropout_prob", "dropout rate"),
    honoured("attention_probs_dropout_prob", "dropout rate"),
    honoured("layer_norm_eps", "epsilon of LayerNorm"),
    honoured("position_embedding_type", "absolute (ESM-1b) or rotary (ESM-2)"),
    honoured("rope_theta", "base of rotary positions, if the weights do not have their speeds"),
    honoured("emb_layer_norm_before", "whether the embeddings have a LayerNorm"),
    honoured("token_dropout", "whether embeddings are rescaled in place of the mask token's"),
    honoured("mask_token_id", "id of the mask token, for token_dropout"),
    refused("is_folding_model", "ESMFold is not supported", False),
    refused("esmfold_config", "ESMFold is not supported", None),
    harmless("vocab_list", "tokens of ESMFold"),
    harmless("hidden_act", "written by the original code, but not used: always gelu"),
)
