"""Tokenizers: WordPiece, SentencePiece and byte-level BPE behind one interface, from files or trained."""

from typing import TYPE_CHECKING

from bert_jax.lazy import lazy_attributes

if TYPE_CHECKING:
    from bert_jax.tokenization.big_bird_tokenizer import big_bird
    from bert_jax.tokenization.byte_level import deberta
    from bert_jax.tokenization.families import albert, byte_level_bpe, camembert, deberta_v2, mpnet, xlm_roberta
    from bert_jax.tokenization.fast_bpe import FastBpeTokenizer
    from bert_jax.tokenization.interface import Tokenizer
    from bert_jax.tokenization.layout import RowLayout
    from bert_jax.tokenization.loading import has_tokenizer, load_tokenizer
    from bert_jax.tokenization.sentencepiece import SentencePieceTokenizer
    from bert_jax.tokenization.training import train_bpe, train_sentencepiece, train_wordpiece
    from bert_jax.tokenization.word_piece_tokenizer import word_piece

__all__ = [
    "FastBpeTokenizer",
    "RowLayout",
    "SentencePieceTokenizer",
    "Tokenizer",
    "albert",
    "big_bird",
    "byte_level_bpe",
    "camembert",
    "deberta",
    "deberta_v2",
    "has_tokenizer",
    "load_tokenizer",
    "mpnet",
    "train_bpe",
    "train_sentencepiece",
    "train_wordpiece",
    "word_piece",
    "xlm_roberta",
]

__getattr__, __dir__ = lazy_attributes(
    __name__,
    {
        "bert_jax.tokenization.big_bird_tokenizer": ("big_bird",),
        "bert_jax.tokenization.byte_level": ("deberta",),
        "bert_jax.tokenization.families": (
            "albert", "byte_level_bpe", "camembert", "deberta_v2", "mpnet", "xlm_roberta",
        ),
        "bert_jax.tokenization.fast_bpe": ("FastBpeTokenizer",),
        "bert_jax.tokenization.word_piece_tokenizer": ("word_piece",),
        "bert_jax.tokenization.interface": ("Tokenizer",),
        "bert_jax.tokenization.layout": ("RowLayout",),
        "bert_jax.tokenization.loading": ("has_tokenizer", "load_tokenizer"),
        "bert_jax.tokenization.sentencepiece": ("SentencePieceTokenizer",),
        "bert_jax.tokenization.training": ("train_bpe", "train_sentencepiece", "train_wordpiece"),
    },
)  # fmt: skip
