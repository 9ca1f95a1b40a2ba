"""Keys of an encoder-decoder: the outer keys of its config.json, and those of its generation_config.json."""

from bert_jax.model_files.keys import FileKey, harmless, honoured, refused

ENCODER_DECODER_GENERATION: tuple[FileKey, ...] = (
    honoured("decoder_start_token_id", "first token of the decoder; if missing, bos_token_id"),
    honoured("bos_token_id", "first token of the decoder, if decoder_start_token_id is missing"),
    honoured("eos_token_id", "token that ends a text; a single one"),
    honoured("pad_token_id", "padding after the end of a text"),
    honoured("max_length", "maximum number of tokens of a text, including the first"),
    honoured("max_new_tokens", "maximum number of tokens of a text, excluding the first; overrides max_length"),
    honoured("min_length", "minimum number of tokens of a text, including the first"),
    honoured("min_new_tokens", "minimum number of tokens of a text, excluding the first; overrides min_length"),
    honoured("num_beams", "beams of beam search; 1 = greedy search or sampling"),
    honoured("length_penalty", "power of the length by which the log probability of a text is divided (beam search)"),
    honoured("early_stopping", "when beam search ends: true, false or never"),
    honoured("no_repeat_ngram_size", "length of token sequences that are never repeated; 0 = no limit"),
    honoured("do_sample", "whether tokens are sampled"),
    honoured("temperature", "divisor of logits before sampling"),
    honoured("top_k", "number of most likely tokens to sample from; 0 = all"),
    honoured("top_p", "sum of the probabilities of the most likely tokens to sample from"),
    refused("num_return_sequences", "one text is returned for each source", 1),
    refused("repetition_penalty", "penalties of repetition are not supported", 1.0),
    refused("encoder_repetition_penalty", "penalties of repetition are not supported", 1.0),
    refused("encoder_no_repeat_ngram_size", "bans of the source's n-grams are not supported", 0),
    refused("num_beam_groups", "groups of beams are not supported", 1),
    refused("diversity_penalty", "groups of beams are not supported", 0.0),
    refused("typical_p", "typical sampling is not supported", 1.0),
    refused("min_p", "min-p sampling is not supported"),
    refused("top_h", "top-H sampling is not supported"),
    refused("epsilon_cutoff", "epsilon sampling is not supported", 0.0),
    refused("eta_cutoff", "eta sampling is not supported", 0.0),
    refused("bad_words_ids", "banned words are not supported", []),
    refused("force_words_ids", "forced words are not supported", []),
    refused("constraints", "forced words are not supported", []),
    refused("forced_bos_token_id", "forced tokens are not supported"),
    refused("forced_eos_token_id", "forced tokens are not supported"),
    refused("suppress_tokens", "banned tokens are not supported", []),
    refused("begin_suppress_tokens", "banned tokens are not supported", []),
    refused("sequence_bias", "biases of tokens are not supported", {}),
    refused("exponential_decay_length_penalty", "penalties by position are not supported"),
    refused("renormalize_logits", "scores are not normalised again", False),
    refused("remove_invalid_values", "invalid scores are not replaced", False),
    refused("guidance_scale", "guidance is not supported", 1.0),
    refused("watermarking_config", "watermarks are not supported"),
    refused("penalty_alpha", "contrastive search is not supported", 0.0),
    refused("dola_layers", "DoLa decoding is not supported"),
    refused("token_healing", "changes of the prompt are not supported", False),
    refused("stop_strings", "texts end only with eos_token_id", []),
)
ENCODER_DECODER: tuple[FileKey, ...] = (
    honoured("model_type", "encoder-decoder"),
    honoured("encoder", "the encoder's config: the keys of its family"),
    honoured("decoder", "the decoder's config: the keys of its family, with is_decoder and add_cross_attention"),
    refused("tie_encoder_decoder", "encoders and decoders that share parameters are not supported", False),
    harmless("is_encoder_decoder", "always true"),
)

# Titles of the tables in docs/model_files.md.
FILES = {
    "ENCODER_DECODER": "`config.json` of an encoder-decoder",
    "ENCODER_DECODER_GENERATION": "`generation_config.json` of an encoder-decoder; its keys may be in `config.json`",
}
