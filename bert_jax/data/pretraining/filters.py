"""Filter documents by their language, or by a user's function, which may also change their text."""

import dataclasses
import functools
import importlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from bert_jax import storage
from bert_jax.data.corpora.readers import Document
from bert_jax.errors import InputError, did_you_mean
from bert_jax.extras import how_to_install

_JUDGED = 1000  # characters of a document from which its language is detected
LANGUAGE = "language"  # name of the filter by language


@dataclasses.dataclass(frozen=True)
class Filters:
    """Conditions on the documents of a corpus, in order: their language, then the functions.

    Attributes:
        languages: the languages to keep, as ISO 639-1 codes; () = all.
        functions: names of functions, as in `document_function`.
    """

    languages: tuple[str, ...]
    functions: tuple[str, ...]

    def check(self) -> None:
        """Raise InputError where a function or a language is not known."""
        dict(self._conditions())

    def kept(self, documents: Iterable[Document], left_out: Counter[str]) -> Iterator[Document]:
        """Yield the documents to keep, and count the others in `left_out` by the name of the filter.

        Raises:
            InputError: as `check`, or a function raises an error or returns neither a text, True, False nor None.
        """
        conditions = list(self._conditions())
        if not conditions:
            yield from documents
            return
        for document in documents:
            text = "\n".join(document.texts)
            for name, function in conditions:
                kept = _called(name, function, text, document.name)
                if isinstance(kept, str):
                    texts = tuple(filter(None, map(str.strip, kept.splitlines())))
                    document, text = dataclasses.replace(document, texts=texts), "\n".join(texts)
                if not kept or not document.texts:
                    left_out[name] += 1
                    break
            else:
                yield document

    def _conditions(self) -> Iterator[tuple[str, Callable[[str], Any]]]:
        if self.languages:
            yield LANGUAGE, _has_language(self.languages)
        for name in self.functions:
            yield name, document_function(name)


def _called(name: str, function: Callable[[str], Any], text: str, document: str) -> Any:
    try:
        kept = function(text)
    except Exception as error:
        raise InputError(f"filter {name}: {document}: {type(error).__name__}: {error}") from error
    if kept is None or isinstance(kept, bool | str):
        return kept
    raise InputError(f"filter {name}: expected a text, True, False or None, found {type(kept).__name__}")


@functools.cache
def document_function(name: str) -> Callable[[str], Any]:
    """Import a user's function of a document's text (a line for each paragraph) that says whether to keep the document.

    It returns True to keep the document, False or None to leave it out, or a text that replaces the document's.

    Args:
        name: `FILE.py:FUNCTION`, or `MODULE:FUNCTION` of a module that every worker can import.

    Raises:
        InputError: there is no such function.
    """
    source, colon, function = name.rpartition(":")
    if not colon or not function:
        raise InputError(f"filter {name}: expected FILE.py:FUNCTION or MODULE:FUNCTION")
    try:
        module = storage.run_python(source) if source.endswith(".py") else importlib.import_module(source)
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"filter {name}: {type(error).__name__}: {error}") from error
    document_filter = getattr(module, function, None)
    if not callable(document_filter):
        raise InputError(f"filter {name}: expected a function{did_you_mean(function, vars(module))}, found none")
    return document_filter


@functools.cache  # called for each of a million files
def _has_language(languages: tuple[str, ...]) -> Callable[[str], bool]:
    """Return a function that says whether a text is in one of some languages."""
    try:
        import py3langid
    except ImportError as error:
        raise InputError(
            f"languages: expected the library that identifies them: {how_to_install('languages')} ({error})"
        ) from None
    known = {name for name, _ in py3langid.rank("")}
    for language in languages:
        if language not in known:
            raise InputError(
                f"languages: expected codes of ISO 639-1 such as en, found {language!r}{did_you_mean(language, known)}"
            )
    return lambda text: py3langid.classify(text[:_JUDGED])[0] in languages
