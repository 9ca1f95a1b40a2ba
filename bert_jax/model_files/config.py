"""Keys of config.json: all keys that transformers writes or reads for the supported families.

`config_keys(family)` is the table of one family: the keys that all configs share, and its own.
"""

from bert_jax.model_files.config_modern import ESM, EUROBERT, MOBILEBERT, NEOBERT, ROFORMER
from bert_jax.model_files.config_retrieval import (
    GTE,
    JINA_BERT,
    JINA_V3,
    NOMIC_BERT,
    NOMIC_MOE,
    RETRIEVAL_FILES,
)
from bert_jax.model_files.keys import LAYER_KEYS as _LAYERS
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
    honoured("quantization_config", "how `bert-jax quantize` has quantized the weights; others are refused"),
    refused("per_layer_config", "layers of different shapes are not supported", {}),
    refused("rope_scaling", "scaled rotary positions are not supported", {}),
    harmless("dtype", "dtype of the weights; any dtype is read"),
    harmless("torch_dtype", "dtype of the weights, in older files"),
    harmless("transformers_version", "version of transformers"),
    harmless("_name_or_path", "path of the model at its author"),
    harmless("name_or_path", "path of the model at its author"),
    harmless("_commit_hash", "version on the hub"),
    harmless("auto_map", "Python classes beside the weights, which are never run"),
    harmless("_num_labels", "number of classes in files of 2020; id2label has it"),
    harmless("use_cache", "cache of a decoder"),
    harmless("chunk_size_feed_forward", "number of tokens that are computed at once"),
    harmless("output_attentions", "default of an argument of calls"),
    harmless("output_hidden_states", "default of an argument of calls"),
    harmless("output_past", "default of an argument of calls"),
    harmless("return_dict", "type of the output of calls"),
    harmless("tie_last_hidden_states", "whether the last hidden state is a copy"),
    harmless("attn_implementation", "implementation of attention"),
    harmless("_attn_implementation", "implementation of attention"),
    harmless("_attn_implementation_autoset", "implementation of attention"),
    harmless("gradient_checkpointing", "rematerialisation in training"),
    harmless("torchscript", "setting of PyTorch's compiler"),
    harmless("use_bfloat16", "dtype of TensorFlow's arithmetic"),
    harmless("bos_token_id", "taken from the tokenizer's files"),
    harmless("eos_token_id", "taken from the tokenizer's files"),
    harmless("sep_token_id", "taken from the tokenizer's files"),
    harmless("cls_token_id", "taken from the tokenizer's files"),
    harmless("mask_token_id", "taken from the tokenizer's files"),
    harmless("unk_token_id", "taken from the tokenizer's files"),
    harmless("tokenizer_class", "used by the tokenizer"),
    harmless("prefix", "prefix of prompts in text generation"),
    harmless("finetuning_task", "task of fine-tuning"),
    harmless("task_specific_params", "setting of text generation"),
    harmless("cross_attention_hidden_size", "setting of decoders"),
    harmless("decoder_start_token_id", "setting of text generation"),
    harmless("tie_encoder_decoder", "setting of encoder-decoders"),
    harmless("tf_legacy_loss", "loss of TensorFlow models"),
    harmless("adapters", "settings of adapters in other files"),
    harmless("directionality", "always bidi in TensorFlow's bert_config.json"),
    harmless("pooler_fc_size", "written by TensorFlow, but not used"),
    harmless("pooler_num_attention_heads", "written by TensorFlow, but not used"),
    harmless("pooler_num_fc_layers", "written by TensorFlow, but not used"),
    harmless("pooler_size_per_head", "written by TensorFlow, but not used"),
    harmless("pooler_type", "written by TensorFlow, but not used"),
    harmless("vocab_file", "path of the vocabulary at its author"),
    harmless("language", "language of the training text"),
    harmless("name", "name of the model"),
    harmless("model_name", "name of the model"),
    harmless("base_model_name", "name of the base model"),
)
# Defaults of text generation that transformers 4 wrote into every config.json, and 5 drops.
GENERATION_IN_CONFIG: tuple[FileKey, ...] = tuple(
    harmless(name, "setting of text generation")
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
_SEGMENTS: tuple[FileKey, ...] = (
    honoured("type_vocab_size", "rows of the segment embedding"),
    honoured("classifier_dropout", "dropout rate"),
)
_ABSOLUTE: tuple[FileKey, ...] = (
    refused("position_embedding_type", "other position embeddings are not supported", "absolute"),
)
_SUMMARY: tuple[FileKey, ...] = (
    refused("summary_type", "multiple choice reads the first token", "first"),
    refused("summary_use_proj", "multiple choice has a dense layer", True),
    refused("summary_activation", "multiple choice has gelu after the dense layer", "gelu"),
    refused("summary_proj_to_labels", "the classifier follows the dense layer", False, True),
    harmless("summary_last_dropout", "dropout rate; classifier_dropout is used"),
    harmless("summary_first_dropout", "dropout rate; classifier_dropout is used"),
)
BERT: tuple[FileKey, ...] = (
    *_LAYERS,
    *_SEGMENTS,
    honoured("position_embedding_type", "absolute (learned) or sinusoidal; others are refused"),
    refused("feed_forward_type", "gated layers are those of a Jina BERT, whose auto_map names its code", "original"),
    harmless("embedding_size", "equal to hidden_size; a narrower embedding makes the model an electra"),
)
ROBERTA: tuple[FileKey, ...] = (*_LAYERS, *_SEGMENTS, *_ABSOLUTE)
ERNIE: tuple[FileKey, ...] = (
    *_LAYERS,
    *_SEGMENTS,
    *_ABSOLUTE,
    honoured("use_task_id", "whether there is a task embedding"),
    honoured("task_type_vocab_size", "rows of the task embedding, if use_task_id is true"),
)
MEGATRON_BERT: tuple[FileKey, ...] = (
    *_LAYERS,
    *_ABSOLUTE,
    honoured("type_vocab_size", "rows of the segment embedding"),
)
ALBERT: tuple[FileKey, ...] = (
    *_LAYERS,
    *_ABSOLUTE,
    honoured("type_vocab_size", "rows of the segment embedding"),
    honoured("embedding_size", "width of the embeddings"),
    honoured("num_hidden_groups", "groups of layers with tied parameters"),
    honoured("inner_group_num", "layers in a group; num_hidden_layers counts the uses of groups"),
    honoured("classifier_dropout_prob", "dropout rate"),
    refused("net_structure_type", "other structures are not supported", 0),
    harmless("down_scale_factor", "written by the original code, but not used"),
    harmless("gap_size", "written by the original code, but not used"),
    harmless("layers_to_keep", "written by the original code, but not used"),
    harmless("num_memory_blocks", "written by the original code, but not used"),
)
DISTILBERT: tuple[FileKey, ...] = (
    honoured("dim", "width of the layers"),
    honoured("hidden_dim", "width of the feed-forward layers"),
    honoured("n_layers", "number of layers"),
    honoured("n_heads", "number of attention heads"),
    honoured("activation", "activation of the feed-forward layers"),
    honoured("dropout", "dropout rate"),
    honoured("attention_dropout", "dropout rate"),
    honoured("seq_classif_dropout", "dropout rate"),
    honoured("qa_dropout", "dropout rate"),
    harmless("sinusoidal_pos_embds", "initialisation of the position embedding"),
    harmless("tie_weights_", "equal to tie_word_embeddings"),
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
    refused("relative_attention_num_buckets", "other numbers of buckets are not supported", 32),
    harmless("type_vocab_size", "MPNet has no token types"),
)
MODERNBERT: tuple[FileKey, ...] = (
    honoured("intermediate_size", "width of the feed-forward layers"),
    honoured("hidden_activation", "activation of the feed-forward layers"),
    honoured("norm_eps", "epsilon of LayerNorm"),
    honoured("norm_bias", "whether LayerNorms have biases"),
    honoured("attention_bias", "whether attention has biases"),
    honoured("mlp_bias", "whether feed-forward layers have biases"),
    honoured("attention_dropout", "dropout rate"),
    honoured("embedding_dropout", "dropout rate; must equal mlp_dropout"),
    honoured("mlp_dropout", "dropout rate"),
    honoured("classifier_dropout", "dropout rate"),
    honoured("layer_types", "full or sliding attention of each layer"),
    honoured("global_attn_every_n_layers", "number of layers from one global layer to the next, in older files"),
    honoured("local_attention", "width of the attention window of local layers"),
    honoured("rope_parameters", "bases of rotary positions; scaled ones are refused"),
    honoured("global_rope_theta", "base of rotary positions, in older files"),
    honoured("local_rope_theta", "base of rotary positions in local layers, in older files"),
    honoured("decoder_bias", "whether the masked-LM head has a bias for each token"),
    honoured("classifier_bias", "whether a head's dense layer has a bias"),
    honoured("classifier_activation", "activation of a head's dense layer"),
    honoured("classifier_pooling", "which tokens a sequence classifier reads"),
    harmless("initializer_cutoff_factor", "truncation of the initialiser"),
    harmless("deterministic_flash_attn", "implementation of attention"),
    harmless("sparse_prediction", "implementation of a loss"),
    harmless("sparse_pred_ignore_index", "implementation of a loss"),
    harmless("reference_compile", "setting of PyTorch's compiler"),
    harmless("repad_logits_with_grad", "implementation of a loss"),
    harmless("layer_norm_eps", "norm_eps is used"),
    harmless("position_embedding_type", "always rotary"),
)
_DEBERTA: tuple[FileKey, ...] = (
    *_LAYERS,
    honoured("type_vocab_size", "rows of the segment embedding; 0 = none"),
    honoured("embedding_size", "width of the embeddings"),
    honoured("relative_attention", "whether attention is disentangled; must agree with pos_att_type"),
    honoured("pos_att_type", "terms of disentangled attention: c2p, p2c or both"),
    honoured("position_biased_input", "whether the embeddings have position embeddings"),
    honoured("max_relative_positions", "greatest relative position; -1 = max_position_embeddings"),
    honoured("pooler_dropout", "dropout rate before the dense layer of a classifier"),
    honoured("pooler_hidden_act", "activation of the dense layer of a classifier"),
    honoured("pooler_hidden_size", "must equal hidden_size"),
    honoured("cls_dropout", "dropout rate before a classifier"),
    honoured("legacy", "whether the masked-LM head has BERT's tensor names"),
    *_ABSOLUTE,
)
DEBERTA: tuple[FileKey, ...] = (
    *_DEBERTA,
    refused("talking_head", "attention heads that are mixed by a matrix are not supported", False),
    harmless("position_buckets", "DeBERTa has a row for each distance"),
    harmless("norm_rel_ebd", "DeBERTa has no LayerNorm there"),
    harmless("share_att_key", "DeBERTa projects positions by layers of their own"),
    harmless("attention_head_size", "hidden_size / num_attention_heads is used"),
    harmless("padding_idx", "pad_token_id is used"),
    harmless("vocab_type", "always gpt2"),
)
DEBERTA_V2: tuple[FileKey, ...] = (
    *_DEBERTA,
    honoured("position_buckets", "buckets of relative positions; -1 = none"),
    honoured("share_att_key", "whether positions are projected by the layers for queries and keys"),
    honoured("norm_rel_ebd", "layer_norm: the embeddings of relative positions are normalised"),
    honoured("conv_kernel_size", "width of the convolution beside the first layer; 0 = none"),
    honoured("conv_act", "activation of this convolution"),
    refused("conv_groups", "convolutions in groups are not supported", 1),
    honoured("attention_head_size", "width of an attention head"),
)
LONGFORMER: tuple[FileKey, ...] = (
    *_LAYERS,
    *_ABSOLUTE,
    honoured("type_vocab_size", "rows of the segment embedding"),
    honoured("attention_window", "width of the attention window, of all layers or of each"),
    honoured("sep_token_id", "id of the separator, by which question and choice are found"),
    honoured("max_global_tokens", "most tokens of a sequence with global attention; a key of bert_jax"),
    harmless("attention_mode", "implementation of attention"),
    harmless("attention_dilation", "1 in every layer, as transformers has no other"),
    refused("autoregressive", "decoders are not supported", False),
    harmless("ignore_attention_mask", "written by the original code, but not used"),
    harmless("onnx_export", "setting of PyTorch's export"),
)
BIG_BIRD: tuple[FileKey, ...] = (
    *_LAYERS,
    *_SEGMENTS,
    *_ABSOLUTE,
    honoured("attention_type", "original_full, or block_sparse in sequences that are long enough"),
    honoured("block_size", "tokens in a block of block-sparse attention"),
    honoured("num_random_blocks", "random blocks to which each block attends"),
    honoured("use_bias", "whether the layers for queries, keys and values have biases"),
    honoured("rescale_embeddings", "whether word embeddings are multiplied by the square root of hidden_size"),
    honoured("sep_token_id", "id of the separator, which ends the question"),
)
_OF_FAMILY = {
    "bert": BERT, "roberta": ROBERTA, "xlm-roberta": ROBERTA, "camembert": ROBERTA, "data2vec-text": ROBERTA,
    "roberta-prelayernorm": ROBERTA, "xlm-roberta-xl": ROBERTA, "ernie": ERNIE, "megatron-bert": MEGATRON_BERT,
    "albert": ALBERT, "mobilebert": MOBILEBERT,
    "distilbert": DISTILBERT, "electra": ELECTRA, "mpnet": MPNET, "nomic_bert": NOMIC_BERT, "modernbert": MODERNBERT,
    "deberta": DEBERTA, "deberta-v2": DEBERTA_V2, "gte": GTE, "nomic-moe": NOMIC_MOE, "jina_embeddings_v3": JINA_V3,
    "jina-bert": JINA_BERT, "jina-bert-qk": JINA_BERT, "longformer": LONGFORMER, "big_bird": BIG_BIRD,
    "eurobert": EUROBERT, "esm": ESM, "neobert": NEOBERT, "roformer": ROFORMER,
}  # fmt: skip
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


def config_keys(family: str) -> tuple[FileKey, ...]:
    """Return the keys of a family's config.json."""
    own = {key.name for key in _OF_FAMILY[family]}
    shared = (key for key in (*SHARED_BY_FAMILIES, *GENERATION_IN_CONFIG) if key.name not in own)
    return (*shared, *_OF_FAMILY[family])


# Titles of the tables in docs/model_files.md.
FILES = {
    "SHARED_BY_FAMILIES": "`config.json`: keys of all families",
    "GENERATION_IN_CONFIG": "`config.json`: keys of text generation",
    "BERT": "`config.json` of BERT",
    "ROBERTA": "`config.json` of RoBERTa, XLM-R, XLM-R XL, CamemBERT, data2vec and RoBERTa-PreLayerNorm",
    "ERNIE": "`config.json` of ERNIE",
    "MEGATRON_BERT": "`config.json` of Megatron-BERT",
    "ALBERT": "`config.json` of ALBERT",
    "MOBILEBERT": "`config.json` of MobileBERT",
    "DISTILBERT": "`config.json` of DistilBERT",
    "ELECTRA": "`config.json` of ELECTRA",
    "MPNET": "`config.json` of MPNet",
    "MODERNBERT": "`config.json` of ModernBERT",
    "DEBERTA": "`config.json` of DeBERTa",
    "DEBERTA_V2": "`config.json` of DeBERTa-v2 and v3",
    "EUROBERT": "`config.json` of EuroBERT",
    "ESM": "`config.json` of ESM",
    "NEOBERT": "`config.json` of NeoBERT",
    "ROFORMER": "`config.json` of RoFormer",
    "LONGFORMER": "`config.json` of Longformer",
    "BIG_BIRD": "`config.json` of BigBird",
} | RETRIEVAL_FILES
