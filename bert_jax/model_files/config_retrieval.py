"""Keys of config.json of the families that were made for retrieval."""

from bert_jax.model_files.keys import FileKey, harmless, honoured, refused

_LAYERS: tuple[FileKey, ...] = (
    honoured("intermediate_size", "width of the feed-forward layers"),
    honoured("hidden_act", "activation of the feed-forward layers"),
    honoured("hidden_dropout_prob", "dropout rate"),
    honoured("attention_probs_dropout_prob", "dropout rate"),
    honoured("layer_norm_eps", "epsilon of LayerNorm"),
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
# Titles of the tables in docs/model_files.md.
RETRIEVAL_FILES = {
    "GTE": "`config.json` of GTE",
    "JINA_BERT": "`config.json` of Jina BERT",
}
