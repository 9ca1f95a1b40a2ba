"""Keys of config.json of the families that were made for retrieval."""

from bert_jax.model_files.keys import LAYER_KEYS as _SHARED_LAYERS
from bert_jax.model_files.keys import FileKey, harmless, honoured, refused

_LAYERS: tuple[FileKey, ...] = (
    *_SHARED_LAYERS,
    honoured("type_vocab_size", "rows of the segment embedding; 0 = none"),
    honoured("classifier_dropout", "dropout rate"),
)
GTE: tuple[FileKey, ...] = (
    *_LAYERS,
    honoured("rope_parameters", "base and factor of rotary positions; types default, linear and ntk"),
    # Keys of the original files, whose model_type is `new`.
    honoured("rope_theta", "base of rotary positions"),
    honoured("rope_scaling", "type (ntk or linear) and factor of scaled rotary positions; mixed_b is refused"),
    refused("position_embedding_type", "other position embeddings are not supported", "rope", "rotary"),
    refused("layer_norm_type", "other norms are not supported", "layer_norm"),
    refused("logn_attention_scale", "attention scaled by the length of a text is not supported", False),
    harmless("logn_attention_clip1", "used only with logn_attention_scale"),
    harmless("pack_qkv", "whether query, key and value are one tensor; the tensors show it"),
    harmless("unpad_inputs", "implementation of attention"),
    harmless("use_memory_efficient_attention", "implementation of attention"),
)
JINA_BERT: tuple[FileKey, ...] = (
    *_LAYERS,
    honoured("auto_map", "repository of the authors' code, which tells the two layouts apart; the code is never run"),
    honoured("feed_forward_type", "geglu and reglu: gated layers with gelu and relu; original: those of BERT"),
    refused("position_embedding_type", "other position embeddings are those of a BERT", "alibi"),
    harmless("emb_pooler", "pooling in the original code; that of sentence-transformers' files is used"),
    harmless("attn_implementation", "implementation of attention"),
    harmless("model_max_length", "taken from the tokenizer's files"),
)
# Keys of the original files of NomicBERT and Nomic Embed v2.
_NOMIC_REFUSED = (
    refused("prenorm", "LayerNorm before each block is not supported", False),
    refused("use_rms_norm", "RMSNorm is not supported", False),
    refused("rotary_emb_fraction", "partly rotated heads are not supported", 1.0),
    refused("rotary_emb_interleaved", "interleaved rotation is not supported", False),
    refused("rotary_emb_scale_base", "scaled rotary positions are not supported"),
    refused("rotary_scaling_factor", "scaled rotary positions are not supported"),
    refused("causal", "decoders are not supported", False),
    refused("parallel_block", "parallel blocks are not supported", False),
    refused("parallel_block_tied_norm", "parallel blocks are not supported", False),
    refused("scale_attn_weights", "unscaled attention is not supported", True),
    refused("scale_attn_by_inverse_layer_idx", "attention scaled by layer is not supported", False),
)
NOMIC_BERT: tuple[FileKey, ...] = (
    *_SHARED_LAYERS,
    honoured("type_vocab_size", "rows of the segment embedding"),
    honoured("classifier_dropout", "dropout rate"),
    honoured("rope_parameters", "base of rotary positions; scaled ones are refused"),
    # Keys of the original files.
    honoured("n_embd", "hidden_size"),
    honoured("n_layer", "num_hidden_layers"),
    honoured("n_head", "num_attention_heads"),
    honoured("n_inner", "intermediate_size"),
    honoured("n_positions", "max_position_embeddings"),
    honoured("layer_norm_epsilon", "layer_norm_eps"),
    honoured("resid_pdrop", "hidden_dropout_prob"),
    honoured("attn_pdrop", "attention_probs_dropout_prob"),
    honoured("rotary_emb_base", "base of rotary positions"),
    refused("activation_function", "other activations are not supported", "swiglu"),
    *_NOMIC_REFUSED,
    refused("qkv_proj_bias", "biases in attention are not supported", False),
    refused("mlp_fc1_bias", "biases in feed-forward layers are not supported", False),
    refused("mlp_fc2_bias", "biases in feed-forward layers are not supported", False),
    harmless("embd_pdrop", "dropout rate; resid_pdrop is used"),
    harmless("use_flash_attn", "implementation of attention"),
    harmless("use_xentropy", "implementation of a loss"),
    harmless("fused_bias_fc", "implementation of layers"),
    harmless("fused_dropout_add_ln", "implementation of layers"),
    harmless("dense_seq_output", "implementation of a loss"),
    harmless("last_layer_subset", "implementation of a loss"),
    harmless("reorder_and_upcast_attn", "implementation of attention"),
    harmless("pad_vocab_size_multiple", "rounding of vocab_size"),
    harmless("max_trained_positions", "sequence length of training"),
    harmless("mlm", "training objective"),
    harmless("mlm_probability", "training objective"),
    *(harmless(name, "written by GPT-2's config, but not used")
      for name in ("summary_activation", "summary_first_dropout", "summary_proj_to_labels", "summary_type",
                   "summary_use_proj")),
)  # fmt: skip
_EXPERTS_OF_NOMIC = (
    honoured("num_experts", "number of experts"),
    honoured("moe_top_k", "number of experts that a token uses"),
    honoured("moe_every_n_layers", "number of layers from one with experts to the next; the second is the first"),
    refused("moe_normalize_expert_weights", "rescaled weights of experts are not supported", False),
    refused("num_shared_experts", "experts that all tokens use are not supported", 0),
    refused("expert_choice_router", "experts that choose tokens are not supported", False),
    refused("ffn_div", "narrower experts are not supported", 1),
    harmless("moe_impl", "implementation of experts"),
    harmless("moe_resid_pdrop", "dropout rate; resid_pdrop is used"),
    harmless("router_aux_loss_coef", "weight of a loss that the authors' code for this format does not have"),
)
NOMIC_MOE: tuple[FileKey, ...] = (
    honoured("n_embd", "width of the layers"),
    honoured("n_layer", "number of layers"),
    honoured("n_head", "number of attention heads"),
    honoured("n_inner", "width of the feed-forward layers, and of an expert"),
    honoured("n_positions", "maximum number of tokens in a sequence"),
    honoured("activation_function", "activation of the feed-forward layers"),
    honoured("layer_norm_epsilon", "epsilon of LayerNorm"),
    honoured("resid_pdrop", "dropout rate"),
    honoured("attn_pdrop", "dropout rate"),
    honoured("rotary_emb_base", "base of rotary positions"),
    honoured("type_vocab_size", "rows of the segment embedding"),
    honoured("classifier_dropout", "dropout rate"),
    *_EXPERTS_OF_NOMIC,
    refused("qkv_proj_bias", "attention without biases is not supported with experts", True),
    refused("mlp_fc1_bias", "feed-forward layers without biases are not supported with experts", True),
    refused("mlp_fc2_bias", "feed-forward layers without biases are not supported with experts", True),
    *_NOMIC_REFUSED,
    *(
        harmless(name, "written by the authors' code, but not used")
        for name in (
            "add_pooling_layer", "dense_seq_output", "embd_pdrop", "fused_bias_fc", "fused_dropout_add_ln",
            "last_layer_subset", "max_trained_positions", "mlm", "mlm_probability", "pad_vocab_size_multiple",
            "reorder_and_upcast_attn", "summary_activation", "summary_first_dropout", "summary_proj_to_labels",
            "summary_type", "summary_use_proj", "use_flash_attn", "use_xentropy",
        )
    ),
)  # fmt: skip
JINA_V3: tuple[FileKey, ...] = (
    *_LAYERS,
    honoured("rope_parameters", "base of rotary positions; scaled ones are refused"),
    # Keys of the authors' files, whose model_type is that of XLM-R.
    honoured("rotary_emb_base", "base of rotary positions"),
    honoured("lora_adaptations", "names of the tasks that have an adapter in the weights"),
    honoured("lora_alpha", "scale of the adapters, times their rank"),
    honoured("task_instructions", "prompts of the tasks, if sentence-transformers' files have none"),
    honoured("truncate_dim", "number of leading dimensions of a vector that are kept"),
    refused("position_embedding_type", "other position embeddings are those of an XLM-R", "rotary"),
    refused("use_reg_tokens", "further tokens before a text are not supported", False),
    harmless("lora_rank", "the shapes of the adapters show it"),
    harmless("lora_dropout_p", "dropout rate of adapters in training"),
    harmless("lora_main_params_trainable", "training of adapters"),
    harmless("load_trained_adapters", "whether the original code reads the adapters"),
    harmless("matryoshka_dimensions", "numbers of dimensions that the training included"),
    harmless("emb_pooler", "pooling in the original code; that of sentence-transformers' files is used"),
    harmless("num_reg_tokens", "used only with use_reg_tokens"),
    harmless("use_flash_attn", "implementation of attention"),
    harmless("use_cache", "cache of a decoder"),
)
# Titles of the tables in docs/model_files.md.
RETRIEVAL_FILES = {
    "GTE": "`config.json` of GTE",
    "NOMIC_BERT": "`config.json` of NomicBERT",
    "NOMIC_MOE": "`config.json` of Nomic Embed v2, a NomicBERT with experts",
    "JINA_V3": "`config.json` of Jina Embeddings v3",
    "JINA_BERT": "`config.json` of Jina BERT",
}
