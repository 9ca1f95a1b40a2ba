"""Keys of config.json: all that transformers writes or reads for the supported families.

`config_keys(family)` is the table of one family: the keys that all configs share, and its own.
"""

from bert_jax.model_files.keys import FileKey, harmless, honoured, refused

SHARED_BY_FAMILIES: tuple[FileKey, ...] = (
    honoured("model_type", "the family"),
    honoured("architectures", "the class that was saved, which says the head"),
    honoured("vocab_size", "rows of the word embedding"),
    honoured("hidden_size", "width of the layers"),
    honoured("num_hidden_layers", "number of layers"),
    honoured("num_attention_heads", "number of attention heads"),
    honoured("max_position_embeddings", "longest sequence, or rows of the position embedding"),
    honoured("initializer_range", "spread of fresh parameters"),
    honoured("pad_token_id", "id of the padding token"),
    honoured("tie_word_embeddings", "whether the masked-LM head's matrix is the word embedding"),
    honoured("num_labels", "number of classes, where id2label does not say"),
    honoured("id2label", "names of the classes, by number"),
    honoured("label2id", "the same by name; must agree with id2label"),
    honoured("problem_type", "what a sequence classifier was trained for"),
    honoured("sbert_ce_default_activation_function", "activation of a cross-encoder, as older files say it"),
    honoured("sentence_transformers", "activation and version of a cross-encoder"),
    refused("is_decoder", "a decoder attends to the left alone, and these are encoders", False),
    refused("add_cross_attention", "cross-attention belongs to a decoder", False),
    refused("is_encoder_decoder", "these are encoders", False),
    refused("pruned_heads", "layers of different numbers of heads are not supported", {}, []),
    refused("quantization_config", "quantized weights are not read"),
    refused("per_layer_config", "layers of different shapes are not supported", {}),
    refused("rope_scaling", "stretched rotary positions are not supported", {}),
    harmless("dtype", "weights are read in whichever dtype the file has"),
    harmless("torch_dtype", "as dtype, in older files"),
    harmless("transformers_version", "who wrote the file"),
    harmless("_name_or_path", "where its author had the model"),
    harmless("name_or_path", "where its author had the model"),
    harmless("_commit_hash", "where it came from"),
    harmless("auto_map", "classes in Python files beside the weights, which are never run"),
    harmless("_num_labels", "number of classes in files of 2020; id2label says it"),
    harmless("use_cache", "a decoder's cache"),
    harmless("chunk_size_feed_forward", "how much is computed at once"),
    harmless("output_attentions", "which outputs a call returns; here an argument says it"),
    harmless("output_hidden_states", "which outputs a call returns; here an argument says it"),
    harmless("output_past", "which outputs a call returns"),
    harmless("return_dict", "the type of what a call returns"),
    harmless("tie_last_hidden_states", "which of two equal tensors the last hidden state is"),
    harmless("attn_implementation", "how attention is computed"),
    harmless("_attn_implementation", "how attention is computed"),
    harmless("_attn_implementation_autoset", "how attention is computed"),
    harmless("gradient_checkpointing", "how training saves memory"),
    harmless("torchscript", "how PyTorch compiles"),
    harmless("use_bfloat16", "how TensorFlow computed"),
    harmless("bos_token_id", "the tokenizer's files say it"),
    harmless("eos_token_id", "the tokenizer's files say it"),
    harmless("sep_token_id", "the tokenizer's files say it"),
    harmless("cls_token_id", "the tokenizer's files say it"),
    harmless("mask_token_id", "the tokenizer's files say it"),
    harmless("unk_token_id", "the tokenizer's files say it"),
    harmless("tokenizer_class", "read with the tokenizer's files"),
    harmless("prefix", "text before a generated one"),
    harmless("finetuning_task", "what the model was trained on"),
    harmless("task_specific_params", "settings of text generation"),
    harmless("cross_attention_hidden_size", "cross-attention belongs to a decoder"),
    harmless("decoder_start_token_id", "text generation"),
    harmless("tie_encoder_decoder", "encoder-decoders"),
    harmless("tf_legacy_loss", "a loss of TensorFlow's"),
    harmless("adapters", "settings of adapters, whose weights are elsewhere"),
    harmless("directionality", "always bidi in TensorFlow's bert_config.json"),
    harmless("pooler_fc_size", "written by TensorFlow and read by nobody"),
    harmless("pooler_num_attention_heads", "written by TensorFlow and read by nobody"),
    harmless("pooler_num_fc_layers", "written by TensorFlow and read by nobody"),
    harmless("pooler_size_per_head", "written by TensorFlow and read by nobody"),
    harmless("pooler_type", "written by TensorFlow and read by nobody"),
    harmless("vocab_file", "where its author had the vocabulary"),
    harmless("language", "of the training text"),
    harmless("name", "of the model"),
    harmless("model_name", "of the model"),
    harmless("base_model_name", "of the model"),
)
# Defaults of text generation that transformers 4 wrote into every config.json, and 5 drops.
GENERATION_IN_CONFIG: tuple[FileKey, ...] = tuple(
    harmless(name, "text generation")
    for name in (
        "max_length", "max_new_tokens", "min_length", "do_sample", "early_stopping", "num_beams", "num_beam_groups",
        "diversity_penalty", "temperature", "top_k", "top_p", "typical_p", "repetition_penalty", "length_penalty",
        "no_repeat_ngram_size", "encoder_no_repeat_ngram_size", "bad_words_ids", "num_return_sequences",
        "output_scores", "return_dict_in_generate", "forced_bos_token_id", "forced_eos_token_id",
        "remove_invalid_values", "exponential_decay_length_penalty", "suppress_tokens", "begin_suppress_tokens",
        "min_new_tokens", "epsilon_cutoff", "eta_cutoff", "max_time", "constraints", "force_words_ids",
        "renormalize_logits", "num_assistant_tokens", "min_p", "watermarking_config", "guidance_scale",
        "generation_kwargs",
    )
)  # fmt: skip
_LAYERS: tuple[FileKey, ...] = (
    honoured("intermediate_size", "width of the feed-forward layers"),
    honoured("hidden_act", "activation of the feed-forward layers"),
    honoured("hidden_dropout_prob", "dropout in training"),
    honoured("attention_probs_dropout_prob", "dropout in training"),
    honoured("layer_norm_eps", "added to the variance"),
)
_SEGMENTS: tuple[FileKey, ...] = (
    honoured("type_vocab_size", "rows of the segment embedding"),
    honoured("classifier_dropout", "dropout in training"),
)
_ABSOLUTE: tuple[FileKey, ...] = (
    refused("position_embedding_type", "relative and rotary positions of this family are not supported", "absolute"),
)
_SUMMARY: tuple[FileKey, ...] = (
    refused("summary_type", "multiple choice reads the first token", "first"),
    refused("summary_use_proj", "multiple choice has a dense layer of its own", True),
    refused("summary_activation", "multiple choice has gelu there", "gelu"),
    refused("summary_proj_to_labels", "the classifier follows that layer", False, True),
    harmless("summary_last_dropout", "dropout in training, for which classifier_dropout is taken"),
    harmless("summary_first_dropout", "dropout in training, for which classifier_dropout is taken"),
)
BERT: tuple[FileKey, ...] = (
    *_LAYERS,
    *_SEGMENTS,
    honoured("position_embedding_type", "absolute (learned) or sinusoidal; others are refused"),
    harmless("embedding_size", "as hidden_size: where it is narrower, the model is an electra"),
)
ROBERTA: tuple[FileKey, ...] = (*_LAYERS, *_SEGMENTS, *_ABSOLUTE)
XLM_ROBERTA: tuple[FileKey, ...] = ROBERTA
DISTILBERT: tuple[FileKey, ...] = (
    honoured("dim", "width of the layers"),
    honoured("hidden_dim", "width of the feed-forward layers"),
    honoured("n_layers", "number of layers"),
    honoured("n_heads", "number of attention heads"),
    honoured("activation", "activation of the feed-forward layers"),
    honoured("dropout", "dropout in training"),
    honoured("attention_dropout", "dropout in training"),
    honoured("seq_classif_dropout", "dropout in training"),
    honoured("qa_dropout", "dropout in training"),
    harmless("sinusoidal_pos_embds", "how the position embedding began; the file has the trained one"),
    harmless("tie_weights_", "tie_word_embeddings says it"),
    *_ABSOLUTE,
)
ELECTRA: tuple[FileKey, ...] = (
    *_LAYERS,
    *_SEGMENTS,
    *_ABSOLUTE,
    *_SUMMARY,
    honoured("embedding_size", "width of the embeddings"),
)
MPNET: tuple[FileKey, ...] = (
    *_LAYERS,
    *_ABSOLUTE,
    refused("relative_attention_num_buckets", "distances fall into 32 buckets", 32),
    harmless("type_vocab_size", "an MPNet has no segments"),
)
NOMIC_BERT: tuple[FileKey, ...] = (
    *_LAYERS,
    *_SEGMENTS,
    honoured("rope_parameters", "base of rotary positions; stretched ones are refused"),
    honoured("head_dim", "width of an attention head: hidden_size / num_attention_heads"),
    # As the files of its authors say them.
    honoured("n_embd", "hidden_size"),
    honoured("n_layer", "num_hidden_layers"),
    honoured("n_head", "num_attention_heads"),
    honoured("n_inner", "intermediate_size"),
    honoured("n_positions", "max_position_embeddings"),
    honoured("layer_norm_epsilon", "layer_norm_eps"),
    honoured("resid_pdrop", "hidden_dropout_prob"),
    honoured("attn_pdrop", "attention_probs_dropout_prob"),
    honoured("rotary_emb_base", "base of rotary positions"),
    refused("activation_function", "the feed-forward layers are gated by silu", "swiglu"),
    refused("prenorm", "LayerNorm comes after each block", False),
    refused("use_rms_norm", "normalisation is LayerNorm", False),
    refused("rotary_emb_fraction", "all of a head is rotated", 1.0),
    refused("rotary_emb_interleaved", "halves of a head are rotated", False),
    refused("rotary_emb_scale_base", "rotary positions are not stretched"),
    refused("rotary_scaling_factor", "rotary positions are not stretched"),
    refused("qkv_proj_bias", "attention has no biases", False),
    refused("mlp_fc1_bias", "feed-forward layers have no biases", False),
    refused("mlp_fc2_bias", "feed-forward layers have no biases", False),
    refused("causal", "these are encoders", False),
    refused("parallel_block", "attention comes before the feed-forward layer", False),
    refused("parallel_block_tied_norm", "attention comes before the feed-forward layer", False),
    refused("scale_attn_weights", "attention is scaled by the head's width", True),
    refused("scale_attn_by_inverse_layer_idx", "attention is scaled alike in all layers", False),
    harmless("embd_pdrop", "dropout in training, for which resid_pdrop is taken"),
    harmless("use_flash_attn", "how attention is computed"),
    harmless("use_xentropy", "how a loss is computed"),
    harmless("fused_bias_fc", "how layers are computed"),
    harmless("fused_dropout_add_ln", "how layers are computed"),
    harmless("dense_seq_output", "how a loss is computed"),
    harmless("last_layer_subset", "how a loss is computed"),
    harmless("reorder_and_upcast_attn", "how attention is computed"),
    harmless("pad_vocab_size_multiple", "how vocab_size was rounded"),
    harmless("max_trained_positions", "length of the training text"),
    harmless("mlm", "what it was trained for"),
    harmless("mlm_probability", "what it was trained for"),
    *(harmless(name, "written by GPT-2's config and read by nobody")
      for name in ("summary_activation", "summary_first_dropout", "summary_proj_to_labels", "summary_type",
                   "summary_use_proj")),
)  # fmt: skip
MODERNBERT: tuple[FileKey, ...] = (
    honoured("intermediate_size", "width of the feed-forward layers"),
    honoured("hidden_activation", "activation of the feed-forward layers"),
    honoured("norm_eps", "added to the variance"),
    honoured("norm_bias", "whether LayerNorms have biases"),
    honoured("attention_bias", "whether attention has biases"),
    honoured("mlp_bias", "whether feed-forward layers have biases"),
    honoured("attention_dropout", "dropout in training"),
    honoured("embedding_dropout", "dropout in training: as mlp_dropout"),
    honoured("mlp_dropout", "dropout in training"),
    honoured("classifier_dropout", "dropout in training"),
    honoured("layer_types", "which layers see everything"),
    honoured("global_attn_every_n_layers", "the same in older files"),
    honoured("local_attention", "how far the other layers see"),
    honoured("rope_parameters", "bases of rotary positions; stretched ones are refused"),
    honoured("global_rope_theta", "base of rotary positions, in older files"),
    honoured("local_rope_theta", "the same of local layers"),
    honoured("decoder_bias", "whether the masked-LM head has a bias for each word"),
    honoured("classifier_bias", "whether a head's dense layer has a bias"),
    honoured("classifier_activation", "activation of a head's dense layer"),
    honoured("classifier_pooling", "which tokens a sequence classifier reads"),
    harmless("initializer_cutoff_factor", "how fresh parameters are cut off"),
    harmless("deterministic_flash_attn", "how attention is computed"),
    harmless("sparse_prediction", "how a loss is computed"),
    harmless("sparse_pred_ignore_index", "how a loss is computed"),
    harmless("reference_compile", "how PyTorch compiles"),
    harmless("repad_logits_with_grad", "how a loss is computed"),
    harmless("layer_norm_eps", "norm_eps says it"),
    harmless("position_embedding_type", "always rotary"),
)
_OF_FAMILY = {
    "bert": BERT, "roberta": ROBERTA, "xlm-roberta": XLM_ROBERTA, "distilbert": DISTILBERT, "electra": ELECTRA,
    "mpnet": MPNET, "nomic_bert": NOMIC_BERT, "modernbert": MODERNBERT,
}  # fmt: skip
# Keys that a written config.json does not copy from the one that was read: they are set again, or are about files that
# are not written.
NOT_CARRIED = ("architectures", "model_type", "dtype", "torch_dtype", "num_labels", "_num_labels", "auto_map")


def config_keys(family: str) -> tuple[FileKey, ...]:
    """The keys of a family's config.json."""
    return (*SHARED_BY_FAMILIES, *GENERATION_IN_CONFIG, *_OF_FAMILY[family])


# Where each table is found, for docs/model_files.md.
FILES = {
    "SHARED_BY_FAMILIES": "`config.json`: keys of all families",
    "GENERATION_IN_CONFIG": "`config.json`: keys of text generation",
    "BERT": "`config.json` of BERT",
    "ROBERTA": "`config.json` of RoBERTa and XLM-R",
    "DISTILBERT": "`config.json` of DistilBERT",
    "ELECTRA": "`config.json` of ELECTRA",
    "MPNET": "`config.json` of MPNet",
    "NOMIC_BERT": "`config.json` of NomicBERT",
    "MODERNBERT": "`config.json` of ModernBERT",
}
