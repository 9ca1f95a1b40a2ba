"""Keys of generation_config.json: settings of text generation, which encoders ignore."""

from bert_jax.model_files.config import GENERATION_IN_CONFIG
from bert_jax.model_files.keys import FileKey, harmless

GENERATION: tuple[FileKey, ...] = (
    *GENERATION_IN_CONFIG,
    *(
        harmless(name, "setting of text generation")
        for name in (
            "_from_model_config", "transformers_version", "use_cache", "bos_token_id", "eos_token_id", "pad_token_id",
            "decoder_start_token_id", "output_attentions", "output_hidden_states", "output_logits",
            "cache_implementation", "cache_config", "stop_strings", "prompt_lookup_num_tokens",
            "assistant_confidence_threshold", "num_assistant_tokens_schedule", "max_matching_ngram_size",
            "penalty_alpha", "dola_layers", "low_memory", "token_healing", "sequence_bias", "is_assistant",
            "compile_config",
            "disable_compile", "return_legacy_cache", "trust_remote_code", "top_h", "assistant_early_exit",
            "assistant_lookbehind", "target_lookbehind", "prefill_chunk_size", "continuous_batching_config",
            "max_cache_len", "encoder_repetition_penalty", "assistant_ensemble_weight", "use_mtp", "speculation_type",
        )
    ),
)  # fmt: skip

# Titles of the tables in docs/model_files.md.
FILES = {
    "GENERATION": "`generation_config.json`",
}
