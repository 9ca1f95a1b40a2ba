"""Split a corpus into chunks of texts."""

from collections.abc import Iterable, Iterator
from itertools import islice

from bert_jax.errors import InputError

CORPUS_CHUNK = 4096  # texts of a corpus that are embedded and scored together


def corpus_chunks(corpus: Iterable[str]) -> Iterator[list[str]]:
    """Yield a corpus in lists of up to CORPUS_CHUNK texts. Raises InputError if it is empty or an item is no text."""
    if isinstance(corpus, str):
        raise InputError("corpus: expected a list of texts, found one text")
    texts, start = iter(corpus), 0
    while chunk := list(islice(texts, CORPUS_CHUNK)):
        for i, text in enumerate(chunk, start):
            if not isinstance(text, str):
                raise InputError(f"corpus: text {i}: expected a string, found {type(text).__name__}")
        yield chunk
        start += len(chunk)
    if not start:
        raise InputError("corpus: expected at least one text, found none")
