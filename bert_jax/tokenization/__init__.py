"""Text to ids and back: WordPiece and SentencePiece behind one interface, loaded from files or trained."""

from bert_jax.tokenization.huggingface import word_piece
from bert_jax.tokenization.interface import Tokenizer
from bert_jax.tokenization.loading import has_tokenizer, load_tokenizer
from bert_jax.tokenization.sentencepiece import SentencePieceTokenizer
from bert_jax.tokenization.training import train_sentencepiece, train_wordpiece

__all__ = [
    "SentencePieceTokenizer",
    "Tokenizer",
    "has_tokenizer",
    "load_tokenizer",
    "train_sentencepiece",
    "train_wordpiece",
    "word_piece",
]
