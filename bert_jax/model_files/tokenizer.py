"""Keys of tokenizer_config.json, special_tokens_map.json, tokenizer.json and added tokens."""

from bert_jax.model_files.keys import FileKey, harmless, honoured, refused

_ROLES = (
    honoured("pad_token", "token for padding"),
    honoured("unk_token", "token for text outside the vocabulary"),
    honoured("cls_token", "token before a text"),
    honoured("sep_token", "token after a text"),
    honoured("mask_token", "token for masked positions"),
    honoured("bos_token", "a special token; not added to rows if it differs from cls_token"),
    honoured("eos_token", "a special token; not added to rows if it differs from sep_token"),
    honoured("additional_special_tokens", "more special tokens, which are recognised in texts"),
    honoured("extra_special_tokens", "additional_special_tokens in transformers 5, a list or a map"),
)

# Also, as in transformers, any key that ends in `_token` with a string value names a special token.
TOKENIZER_CONFIG: tuple[FileKey, ...] = (
    *_ROLES,
    honoured("added_tokens_decoder", "added tokens by id, with their flags"),
    honoured("do_lower_case", "whether text is lower-cased"),
    honoured("strip_accents", "whether accents are dropped; null means as do_lower_case"),
    honoured("keep_accents", "whether ALBERT's text keeps its accents"),
    honoured("tokenize_chinese_chars", "whether each CJK ideograph is a word of its own"),
    honoured("add_prefix_space", "whether the first word of a text is tokenized as if a space preceded it"),
    honoured("split_by_punct", "whether DeBERTa-v2's tokenizer makes each punctuation mark a word of its own"),
    honoured("trim_offsets", "whether character ranges leave out the leading space of a token"),
    honoured("clean_up_tokenization_spaces", "whether decoding removes spaces before punctuation"),
    honoured("model_max_length", "maximum number of tokens in a row; above a million = no limit"),
    honoured("max_len", "older name of model_max_length"),
    honoured("model_input_names", "inputs of the model; without token_type_ids there are no token types"),
    honoured("truncation_side", "the side on which texts that are too long are cut"),
    honoured("split_special_tokens", "whether names of special tokens in a text are tokenized as text"),
    honoured("tokenizer_class", "determines the algorithm without a tokenizer.json; unknown classes are refused"),
    honoured("vocab_file", "name of the vocabulary file in this directory"),
    refused(
        "padding_side",
        "padding on the left is not supported, since positions are counted from the first token; single texts have "
        "the same outputs with \"right\"",
        "right",
    ),
    refused("wordpieces_prefix", "other prefixes are not supported", "##"),
    refused("sp_model_kwargs", "options of SentencePiece are not supported", {}),
    refused("clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output", "clean-up of byte-level BPE is "
            "not supported",
            False),
    refused("fast_tokenizer_files", "files for different versions of transformers are not "
            "supported", [], ["tokenizer.json"]),
    refused("word_tokenizer_type", "Japanese word segmentation is not supported", "basic"),
    refused("subword_tokenizer_type", "Japanese characters or SentencePiece are not supported", "wordpiece"),
    refused("normalization", "BERTweet's normalisation is not supported", False),
    harmless("additional_special_tokens_ids", "taken from the vocabulary"),
)  # fmt: skip

# As in transformers: ignored if tokenizer_config.json has added_tokens_decoder, else it overrides that file.
SPECIAL_TOKENS_MAP: tuple[FileKey, ...] = _ROLES

# The keys of an added token, wherever it is an object.
ADDED_TOKEN: tuple[FileKey, ...] = (
    honoured("content", "the text of the token"),
    honoured("lstrip", "whether the token absorbs spaces before it"),
    honoured("rstrip", "whether the token absorbs spaces after it"),
    honoured("single_word", "whether the token is only recognised as a separate word"),
    honoured("normalized", "whether the token is searched in the normalised text"),
    honoured("special", "whether the token is special; decoding can skip special tokens"),
    honoured("id", "order of added tokens in tokenizer.json; the tokenizers library renumbers them"),
    harmless("__type", "marks an added token"),
)

TOKENIZER_JSON: tuple[FileKey, ...] = (
    honoured("model", "the algorithm and the vocabulary"),
    honoured("normalizer", "normalisation of text"),
    honoured("pre_tokenizer", "splitting of text into words"),
    honoured("post_processor", "positions of special tokens in a row"),
    honoured("decoder", "decoding of tokens to text"),
    honoured("added_tokens", "tokens outside the model's vocabulary, with their flags"),
    honoured("truncation", "side of truncation, unless tokenizer_config.json has it; the length is an argument"),
    honoured("padding", "side of padding, as padding_side; the length is an argument"),
    refused("version", "other versions are not supported", "1.0"),
)

# Titles of the tables in docs/model_files.md.
FILES = {
    "TOKENIZER_CONFIG": "`tokenizer_config.json`",
    "SPECIAL_TOKENS_MAP": "`special_tokens_map.json`",
    "ADDED_TOKEN": "an added token",
    "TOKENIZER_JSON": "`tokenizer.json`",
}
