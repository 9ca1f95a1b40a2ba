"""The modules of sentence-transformers that are not supported, each with the reason."""

from bert_jax.conversion.module_files import EmbeddingModule
from bert_jax.errors import InputError

# Class -> why no model with it can be opened.
_REASONS = {
    "CNN": "convolutions over word embeddings are no encoder of this package",
    "LSTM": "recurrent networks over word embeddings are no encoder of this package",
    "BoW": "counts of words need the word lists of the library, and no weights",
    "WordEmbeddings": "its words are split by the library's own tokenizers; a StaticEmbedding is supported",
    "WordWeights": "a weighted mean of tokens is not supported; a StaticEmbedding holds weighted vectors",
    "WeightedLayerPooling": "token vectors from several layers are not supported",
    "CLIPModel": "images are not supported",
    "SparseAutoEncoder": "its sparse vectors are not over a vocabulary, as those of a SpladePooling are",
    "LogitScore": "it reads the logits of a decoder, and this package has encoders",
    "LambdaTokenPooling": "it is a Python function, and no code of a model directory runs",
    "Router": "it must be the first module",
    "Asym": "it must be the first module",
}


def refuse_module(module: EmbeddingModule, expected: str, where: object) -> None:
    """Raise InputError for a module that is not supported, with the reason where it is a known one.

    Args:
        module: the module.
        expected: the modules that are supported.
        where: the file that names it, for messages.
    """
    reason = _REASONS.get(module.kind) if module.type.startswith("sentence_transformers.") else None
    reason = f": {reason}" if reason else ""
    raise InputError(f"{where}: expected {expected} of sentence_transformers, found {module.type!r}{reason}")
