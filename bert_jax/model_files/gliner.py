"""Keys of gliner_config.json: GLiNERs with one encoder and span mode markerV0 are supported, others are refused."""

from bert_jax.model_files.keys import FileKey, harmless, honoured, refused

GLINER: tuple[FileKey, ...] = (
    honoured("encoder_config", "the config.json of the encoder; if missing, the one in the directory or in model_name"),
    honoured("model_name", "path or hub name of the encoder, for its tokenizer and encoder_config if they are missing"),
    honoured("max_width", "maximum number of words in an entity"),
    honoured("hidden_size", "width of the vectors of words, spans and entity types"),
    honoured("dropout", "dropout rate inside the feed-forward blocks of the head"),
    honoured("num_rnn_layers", "layers of the LSTM over the words; 0 = none"),
    honoured("subtoken_pooling", "the token whose vector is its word's: first or last; mean and max are refused"),
    honoured("embed_ent_token", "whether the vector of a type is that of ent_token; false = of the token after it"),
    honoured("ent_token", "special token before the name of each entity type"),
    honoured("sep_token", "special token between the names of the types and the text"),
    honoured("class_token_index", "id of ent_token; -1 = that of the tokenizer"),
    honoured("max_len", "maximum number of words of a text in a row; longer texts are read in windows"),
    honoured("max_types", "maximum number of entity types in a training example"),
    honoured("max_neg_type_ratio", "maximum number of negative types in a training example, for each of its entities"),
    refused("model_type", "other kinds of GLiNER are not supported", "gliner", "gliner_base", "gliner_uni_encoder",
            "gliner_uni_encoder_span"),
    refused("span_mode", "other span representations are not supported", "markerV0"),
    refused("words_splitter_type", "other rules for words are not supported", "whitespace"),
    refused("labels_encoder", "bi-encoders are not supported", ""),
    refused("labels_encoder_config", "bi-encoders are not supported"),
    refused("labels_decoder", "decoders of type names are not supported", ""),
    refused("labels_decoder_config", "decoders of type names are not supported"),
    refused("relations_layer", "relation extraction is not supported", ""),
    refused("triples_layer", "relation extraction is not supported", ""),
    harmless("embed_rel_token", "used only with relations_layer"),
    refused("post_fusion_schema", "attention between types and text after the encoder is not supported", ""),
    refused("fuse_layers", "a mixture of the encoder's layers is not supported", False),
    refused("span_encoder_config", "an encoder over the words is not supported"),
    refused("represent_spans", "token-level models are not supported", False),
    refused("precomputed_prompts_mode", "precomputed type vectors are not supported", False),
)  # fmt: skip

# Titles of the tables in docs/model_files.md.
FILES = {
    "GLINER": "`gliner_config.json`",
}
