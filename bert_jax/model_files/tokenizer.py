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
    harmless("auto_map", "Python code, which is never run"),
    harmless("vocab_type", "always spm in DeBERTa-v2"),
    harmless("do_basic_tokenize", "used only by transformers' former Python tokenizers"),
    harmless("never_split", "used only by transformers' former Python tokenizers"),
    harmless("do_split_on_punc", "used only by transformers' former Python tokenizers"),
    harmless("do_word_tokenize", "option of BertJapaneseTokenizer, which is refused"),
    harmless("do_subword_tokenize", "option of BertJapaneseTokenizer, which is refused"),
    harmless("mecab_kwargs", "option of BertJapaneseTokenizer, which is refused"),
    harmless("sudachi_kwargs", "option of BertJapaneseTokenizer, which is refused"),
    harmless("jumanpp_kwargs", "option of BertJapaneseTokenizer, which is refused"),
    harmless("add_bos_token", "rows of these families are fixed"),
    harmless("add_eos_token", "rows of these families are fixed"),
    harmless("spaces_between_special_tokens", "used only by transformers' former Python tokenizers"),
    harmless("errors", "used only by transformers' former Python tokenizers"),
    harmless("remove_space", "contained in tokenizer.json"),
    harmless("legacy", "option of T5 and Llama; contained in tokenizer.json"),
    harmless("max_length", "argument of the last call before saving"),
    harmless("stride", "argument of the last call before saving"),
    harmless("truncation_strategy", "argument of the last call before saving"),
    harmless("pad_to_multiple_of", "argument of the last call before saving"),
    harmless("pad_token_type_id", "token type of padding, to which no token attends"),
    harmless("pad_token_id", "taken from the vocabulary"),
    harmless("unk_token_id", "taken from the vocabulary"),
    harmless("cls_token_id", "taken from the vocabulary"),
    harmless("sep_token_id", "taken from the vocabulary"),
    harmless("mask_token_id", "taken from the vocabulary"),
    harmless("bos_token_id", "taken from the vocabulary"),
    harmless("eos_token_id", "taken from the vocabulary"),
    harmless("additional_special_tokens_ids", "taken from the vocabulary"),
    harmless("unk_id", "taken from the vocabulary"),
    harmless("vocab_size", "taken from the vocabulary"),
    harmless("merges_file", "path in the original directory"),
    harmless("tokenizer_file", "path in the original directory"),
    harmless("special_tokens_map_file", "path in the original directory"),
    harmless("added_tokens_file", "path in the original directory"),
    harmless("name_or_path", "path in the original directory"),
    harmless("init_inputs", "positional arguments of the constructor, which these families lack"),
    harmless("use_fast", "implementation in transformers"),
    harmless("from_slow", "implementation in transformers"),
    harmless("slow_tokenizer_class", "implementation in transformers"),
    harmless("backend", "implementation in transformers"),
    harmless("is_local", "source of the files in transformers"),
    harmless("local_files_only", "source of the files in transformers"),
    harmless("files_loaded", "source of the files in transformers"),
    harmless("device_map", "device of the model in transformers"),
    harmless("trust_remote_code", "code of a model directory is never run"),
    harmless("transformers_version", "version of transformers"),
    harmless("_commit_hash", "version on the hub"),
    harmless("verbose", "logging of transformers"),
    harmless("processor_class", "processor class in transformers"),
    harmless("chat_template", "option of chat models"),
    harmless("chat_control_tokens", "option of chat models"),
    harmless("response_template", "option of chat models"),
    harmless("response_schema", "option of chat models"),
    harmless("tokenizer_type", "a name that is not used"),
    harmless("model_type", "taken from config.json"),
    harmless("lang", "a name that is not used"),
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
