"""Tokenizers: WordPiece, SentencePiece and byte-level BPE behind one interface, from files or trained."""

from bert_jax.tokenization.big_bird import big_bird
from bert_jax.tokenization.byte_level import deberta
from bert_jax.tokenization.families import albert, byte_level_bpe, camembert, deberta_v2, mpnet, xlm_roberta
from bert_jax.tokenization.fast_bpe import FastBpeTokenizer
from bert_jax.tokenization.huggingface import word_piece
from bert_jax.tokenization.interface import Tokenizer
from bert_jax.tokenization.layout import RowLayout
from bert_jax.tokenization.loading import has_tokenizer, load_tokenizer
from bert_jax.tokenization.sentencepiece import SentencePieceTokenizer
from bert_jax.tokenization.training import train_bpe, train_sentencepiece, train_wordpiece

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
