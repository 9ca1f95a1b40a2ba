"""Text to ids and back: WordPiece and SentencePiece behind one interface, loaded from files or trained."""

from bert_jax.tokenization.huggingface import word_piece
from bert_jax.tokenization.interface import Tokenizer
from bert_jax.tokenization.loading import load_tokenizer
from bert_jax.tokenization.sentencepiece import SentencePieceTokenizer

__all__ = ["SentencePieceTokenizer", "Tokenizer", "load_tokenizer", "word_piece"]
