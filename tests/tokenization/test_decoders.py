"""Decoding by a tokenizer.json without a decoder, and keywords of transformers that have another name here."""

import json

import pytest
import tokenizers
from tokenizers import models, pre_tokenizers, trainers

from bert_jax.errors import InputError
from bert_jax.tokenization import load_tokenizer

TEXTS = ["the cat doesn't sit , on the mat !", "Unbelievable cats", 'he said : " hello " .', "a b c 1.5 ' s"]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
METASPACE = pre_tokenizers.Metaspace
KINDS = {
    "word_piece": (models.WordPiece, trainers.WordPieceTrainer, pre_tokenizers.BertPreTokenizer, {}),
    "bpe": (models.BPE, trainers.BpeTrainer, pre_tokenizers.Whitespace, {}),
    "byte_level": (models.BPE, trainers.BpeTrainer, lambda: pre_tokenizers.ByteLevel(add_prefix_space=False),
                   {"initial_alphabet": pre_tokenizers.ByteLevel.alphabet()}),
    "unigram": (models.Unigram, trainers.UnigramTrainer, METASPACE, {"unk_token": "[UNK]"}),
    "words": (models.WordLevel, trainers.WordLevelTrainer, pre_tokenizers.Whitespace, {}),
}  # fmt: skip
CLASSES = {
    "word_piece": ["PreTrainedTokenizerFast", "BertTokenizer", "DistilBertTokenizerFast", "MPNetTokenizerFast", ""],
    "bpe": ["PreTrainedTokenizerFast", "RobertaTokenizerFast"],
    "byte_level": ["PreTrainedTokenizerFast", "RobertaTokenizerFast"],
    "unigram": ["PreTrainedTokenizerFast", "XLMRobertaTokenizerFast"],
    "words": ["PreTrainedTokenizerFast"],
}


def write_folder(directory, kind, **settings):
    model, trainer, splits, options = KINDS[kind]
    unknown = {} if kind == "unigram" else {"unk_token": "[UNK]"}
    backend = tokenizers.Tokenizer(model(**unknown))
    backend.pre_tokenizer = splits()
    backend.train_from_iterator(TEXTS * 20, trainer(vocab_size=330, special_tokens=SPECIAL, **options))
    assert backend.decoder is None
    directory.mkdir()
    backend.save(str(directory / "tokenizer.json"))
    roles = {"unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]",
             "mask_token": "[MASK]"}  # fmt: skip
    (directory / "tokenizer_config.json").write_text(json.dumps(roles | settings))
    (directory / "config.json").write_text(json.dumps({"model_type": "bert"}))
    return directory


@pytest.mark.parametrize("clean_up", [None, True, False])
@pytest.mark.parametrize("kind, name", [(kind, name) for kind, names in CLASSES.items() for name in names])
def test_texts_are_those_of_transformers(tmp_path, kind, name, clean_up):
    transformers = pytest.importorskip("transformers", reason="transformers is the oracle")
    settings = {"tokenizer_class": name, "clean_up_tokenization_spaces": clean_up}
    folder = write_folder(tmp_path / "tokenizer", kind, **{k: v for k, v in settings.items() if v not in (None, "")})
    theirs, ours = transformers.AutoTokenizer.from_pretrained(folder), load_tokenizer(folder)
    for text in TEXTS:
        ids = theirs(text)["input_ids"]
        assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=True)


@pytest.mark.parametrize(
    "keyword, message",
    [
        ({"return_offsets_mapping": True}, "return_offsets_mapping: the name here is return_offsets"),
        ({"text_pair": ["b"]}, "text_pair: the name here is text_pairs"),
        ({"return_length": True}, r"return_length: lengths are attention_mask.sum\(-1\)"),
        ({"padding_side": "left"}, "padding_side: rows are padded on the right"),
        ({"is_split_into_words": True}, "is_split_into_words: join the words"),
        ({"return_special_tokens_mask": True}, "return_special_tokens_mask: "),
        ({"return_offset": True}, "return_offset: no such argument; did you mean 'return_offsets'"),
    ],
)
def test_keywords_of_transformers(tiny_tokenizer, keyword, message):
    with pytest.raises(InputError, match=message):
        tiny_tokenizer(["a"], **keyword)
