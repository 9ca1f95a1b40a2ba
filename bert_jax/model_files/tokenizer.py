"""Keys of tokenizer_config.json, special_tokens_map.json, tokenizer.json and of added tokens."""

from bert_jax.model_files.keys import FileKey, harmless, honoured, refused

_ROLES = (
    honoured("pad_token", "the token of padding"),
    honoured("unk_token", "the token of text that the vocabulary cannot spell"),
    honoured("cls_token", "the token before a text"),
    honoured("sep_token", "the token behind a text"),
    honoured("mask_token", "the token that stands for one to be predicted"),
    honoured("bos_token", "a special token; no row of BERT's family has it where cls_token is another"),
    honoured("eos_token", "a special token; no row of BERT's family has it where sep_token is another"),
    honoured("additional_special_tokens", "further special tokens, one token each wherever a text spells them"),
    honoured("extra_special_tokens", "the same under the name of transformers 5, as a list or as a map of names"),
)

# Beside these, any key that ends in `_token` and holds a string names one more special token, as in transformers.
TOKENIZER_CONFIG: tuple[FileKey, ...] = (
    *_ROLES,
    honoured("added_tokens_decoder", "added tokens by id, with what they take of the spaces around them"),
    honoured("do_lower_case", "whether text is lower-cased"),
    honoured("strip_accents", "whether accents are dropped; null means as do_lower_case"),
    honoured("tokenize_chinese_chars", "whether each CJK ideograph is a word of its own"),
    honoured("add_prefix_space", "whether a text's first word is cut as if a space stood before it"),
    honoured("trim_offsets", "whether the range of a piece leaves out the space that it begins with"),
    honoured("clean_up_tokenization_spaces", "whether decoding closes up the space before punctuation"),
    honoured("model_max_length", "the longest row in tokens; numbers beyond a million mean that nobody knows"),
    honoured("max_len", "the same under its name of 2019, where model_max_length is not there"),
    honoured("model_input_names", "whether the model is told the segments of a pair apart (token_type_ids)"),
    honoured("truncation_side", "the side on which texts that are too long are cut"),
    honoured("split_special_tokens", "whether special tokens that a text spells are text like any other"),
    honoured("tokenizer_class", "the algorithm, where there is no tokenizer.json to say it; unknown ones are refused"),
    honoured("vocab_file", "the file in this directory that the vocabulary is read from"),
    refused(
        "padding_side",
        "positions are counted from a text's first token, so padding goes behind it; a text alone has the same "
        "answers with \"right\"",
        "right",
    ),
    refused("wordpieces_prefix", "word pieces that continue a word begin with ##", "##"),
    refused("sp_model_kwargs", "sentence pieces are neither sampled nor otherwise changed", {}),
    refused("keep_accents", "of ALBERT's and XLNet's SentencePiece, which only a tokenizer.json describes here",
            False, True),
    refused("clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output", "spaces of BPE are the text's",
            False),
    refused("fast_tokenizer_files", "the tokenizer.json for each version of transformers", [], ["tokenizer.json"]),
    refused("word_tokenizer_type", "cuts Japanese into words before word pieces", "basic"),
    refused("subword_tokenizer_type", "cuts Japanese words into characters or sentence pieces", "wordpiece"),
    refused("normalization", "BERTweet's normalisation of tweets", False),
    harmless("auto_map", "names code for a class that tokenizer_class or tokenizer.json describes too; never run"),
    harmless("do_basic_tokenize", "of transformers' former Python tokenizers; its others do not read it"),
    harmless("never_split", "of transformers' former Python tokenizers; its others do not read it"),
    harmless("do_split_on_punc", "of transformers' former Python tokenizers; its others do not read it"),
    harmless("do_word_tokenize", "of BertJapaneseTokenizer, which is refused by its name"),
    harmless("do_subword_tokenize", "of BertJapaneseTokenizer, which is refused by its name"),
    harmless("mecab_kwargs", "of BertJapaneseTokenizer, which is refused by its name"),
    harmless("sudachi_kwargs", "of BertJapaneseTokenizer, which is refused by its name"),
    harmless("jumanpp_kwargs", "of BertJapaneseTokenizer, which is refused by its name"),
    harmless("add_bos_token", "a class of BERT's family sets the special tokens of its rows itself"),
    harmless("add_eos_token", "a class of BERT's family sets the special tokens of its rows itself"),
    harmless("spaces_between_special_tokens", "of decoding by transformers' former Python tokenizers"),
    harmless("errors", "how bytes that are no UTF-8 are decoded by transformers' former Python tokenizers"),
    harmless("remove_space", "a tokenizer.json says it itself"),
    harmless("legacy", "of T5's and Llama's SentencePiece; a tokenizer.json says it itself"),
    harmless("max_length", "of the last call before it was saved; each call has its own"),
    harmless("stride", "of the last call before it was saved; each call has its own"),
    harmless("truncation_strategy", "of the last call before it was saved; each call has its own"),
    harmless("pad_to_multiple_of", "of the last call before it was saved; each call has its own"),
    harmless("pad_token_type_id", "the segment of padding, which no token attends to"),
    harmless("pad_token_id", "the vocabulary says it"),
    harmless("unk_token_id", "the vocabulary says it"),
    harmless("cls_token_id", "the vocabulary says it"),
    harmless("sep_token_id", "the vocabulary says it"),
    harmless("mask_token_id", "the vocabulary says it"),
    harmless("bos_token_id", "the vocabulary says it"),
    harmless("eos_token_id", "the vocabulary says it"),
    harmless("additional_special_tokens_ids", "the vocabulary says it"),
    harmless("unk_id", "the vocabulary says it"),
    harmless("vocab_size", "the vocabulary says it"),
    harmless("merges_file", "a path where it was saved from"),
    harmless("tokenizer_file", "a path where it was saved from"),
    harmless("special_tokens_map_file", "a path where it was saved from"),
    harmless("added_tokens_file", "a path where it was saved from"),
    harmless("name_or_path", "a path where it was saved from"),
    harmless("init_inputs", "positional arguments of a constructor; BERT's family has none"),
    harmless("use_fast", "which of transformers' implementations opens it"),
    harmless("from_slow", "which of transformers' implementations opens it"),
    harmless("slow_tokenizer_class", "which of transformers' implementations opens it"),
    harmless("backend", "which of transformers' implementations opens it"),
    harmless("is_local", "how transformers found it"),
    harmless("local_files_only", "how transformers found it"),
    harmless("files_loaded", "how transformers found it"),
    harmless("device_map", "how transformers opened its model"),
    harmless("trust_remote_code", "no code of a model directory is ever run"),
    harmless("transformers_version", "who wrote it"),
    harmless("_commit_hash", "who wrote it"),
    harmless("verbose", "what transformers logs"),
    harmless("processor_class", "which of transformers' processors it is a part of"),
    harmless("chat_template", "of chats, which encoders have none of"),
    harmless("chat_control_tokens", "of chats, which encoders have none of"),
    harmless("response_template", "of chats, which encoders have none of"),
    harmless("response_schema", "of chats, which encoders have none of"),
    harmless("tokenizer_type", "a name that nobody reads"),
    harmless("model_type", "config.json says it"),
    harmless("lang", "a name that nobody reads"),
)  # fmt: skip

# Read unless tokenizer_config.json has added_tokens_decoder, and then before it, as transformers does.
SPECIAL_TOKENS_MAP: tuple[FileKey, ...] = _ROLES

# An added token, wherever it is written as an object.
ADDED_TOKEN: tuple[FileKey, ...] = (
    honoured("content", "what a text spells it as"),
    honoured("lstrip", "whether it takes the spaces before it"),
    honoured("rstrip", "whether it takes the spaces behind it"),
    honoured("single_word", "whether letters beside it make it text like any other"),
    honoured("normalized", "whether it is looked for in the text as normalised"),
    honoured("special", "whether decoding without special tokens leaves it out"),
    honoured("id", "where tokenizer.json has it; the tokenizers library numbers them again in this order"),
    harmless("__type", "says that this is an added token"),
)

TOKENIZER_JSON: tuple[FileKey, ...] = (
    honoured("model", "the vocabulary and the algorithm over it"),
    honoured("normalizer", "what is done to text before it is cut"),
    honoured("pre_tokenizer", "how text is cut into words"),
    honoured("post_processor", "where special tokens stand in a row"),
    honoured("decoder", "how pieces become text again"),
    honoured("added_tokens", "tokens beside the model's, with what they take of the spaces around them"),
    honoured(
        "truncation", "the side on which texts are cut, unless tokenizer_config.json says it; lengths are a call's"
    ),
    honoured("padding", "the side, as padding_side of tokenizer_config.json; lengths are a call's"),
    refused("version", "another layout of the file", "1.0"),
)

# Where each table is found, for docs/model_files.md.
FILES = {
    "TOKENIZER_CONFIG": "`tokenizer_config.json`",
    "SPECIAL_TOKENS_MAP": "`special_tokens_map.json`",
    "ADDED_TOKEN": "an added token",
    "TOKENIZER_JSON": "`tokenizer.json`",
}
