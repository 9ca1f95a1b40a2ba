"""The corpus `python-docs`: documentation from the user's own Python installation, without a download.

It holds the language reference that `help()` shows (`pydoc_data.topics`) and the docstrings of the standard library and
of the packages that bert_jax depends on, as running text: markup, tables, examples and repetitions are left out. Source
files are parsed by `ast`; nothing is imported or executed. Each module, and each topic of the reference, is a document.
"""

import ast
import functools
import hashlib
import importlib.util
import inspect
import re
import sysconfig
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path

from bert_jax.data.corpora.readers import Document
from bert_jax.errors import InputError

# Packages whose documentation is read, by import name; those not installed are skipped.
PACKAGES = (
    "absl array_record etils flax grain jax matplotlib ml_collections numpy optax orbax rich safetensors sentencepiece "
    "tensorflow_datasets tokenizers"
)
# Tests and vendored packages have few docstrings, odd ones or copies.
_SKIPPED_DIRECTORIES = frozenset(("test", "tests", "testing", "idlelib", "site-packages", "dist-packages", "_vendor"))
_SKIPPED_FILES = re.compile(r"test_.*|.*_test|conftest|.*_pb2|.*_pb2_grpc")
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_LONGEST_SOURCE = 1 << 20  # bytes; longer files are generated tables

_UNDERLINE = re.compile(r"\s*([^\w\s])\1{2,}[\s\W]*$")
_BULLET = re.compile(r"\s*([-*+•]|\d+[.)])\s+")
_ITEM = re.compile(r"\s*[\w*.,() ]+ : |.*:\s*$")  # numpydoc's "name : type", or a line before an indented block
_MARKUP = re.compile(
    r":[a-zA-Z:+-]+:`~[^`<]*?([^`<.]+)`|:[a-zA-Z:+-]+:`([^`<]*?)\s*(?:<[^`>]*>)?`|``([^`]*)``|`([^`]+?)\s*(?:<[^`>]*>)?`_{0,2}|\*\*([^\s*][^*]*)\*\*"
    r"|(?<!\w)\*([^\s*][^*]*[^\s*]|\w)\*(?!\w)"
)
_DIRECTIVE = re.compile(r"\.\. ")
_PROSE_CHARACTERS = re.compile(r"(?:[^\W\d_]|[ .,;:'])+")
_FEWEST_WORDS = 5  # words in a paragraph
_LEAST_PROSE = 0.8  # minimum share of _PROSE_CHARACTERS in a paragraph


def read_python_docs() -> Iterator[Document]:
    """Yield topics, then modules of the standard library, then those of PACKAGES, each group sorted by name.

    A paragraph that is identical to one of an earlier document is left out, so that no held-out text is a copy of
    training text. The result is about 10 MB, takes a few seconds to read and stays in memory for the next pass.

    Raises:
        InputError: this Python has no source files of its standard library.
    """
    return iter(_all_documents())


@functools.cache
def _all_documents() -> tuple[Document, ...]:
    library = Path(sysconfig.get_paths()["stdlib"])
    topics = library / "pydoc_data" / "topics.py"
    if not topics.is_file():
        raise InputError(f"{library}: expected the sources of Python's standard library, found no pydoc_data/topics.py")
    seen: set[bytes] = set()
    documents = [d for name, text in _topics(topics) for d in _document(name, [text], seen)]
    roots = [("", library), *((package, root) for package in PACKAGES.split() for root in _package_roots(package))]
    for package, root in roots:
        for name, path in _sources(root, package):
            documents += _document(name, _docstrings(path), seen)
    return tuple(documents)


def _document(name: str, texts: Iterable[str], seen: set[bytes]) -> Iterator[Document]:
    paragraphs = []
    for paragraph in (p for text in texts for p in prose(text)):
        key = hashlib.blake2b(paragraph.encode(), digest_size=8).digest()
        if key not in seen:
            seen.add(key)
            paragraphs.append(paragraph)
    if len(paragraphs) > 1:  # a single short text teaches little about the order of sentences
        yield Document(f"python-docs:{name}", tuple(paragraphs))


def _topics(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the items of the dictionary literal `topics = {name: text}` in a source file, without running it."""
    tree = ast.parse(path.read_bytes())
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict):
            yield from sorted(ast.literal_eval(node.value).items())


def _package_roots(package: str) -> list[Path]:
    """Return the directories of a top-level package, without importing it."""
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return []
    return sorted(Path(root) for root in spec.submodule_search_locations or ()) if spec else []


def _sources(root: Path, package: str) -> list[tuple[str, Path]]:
    """Return (module name, path) of the Python files below `root`, sorted by name."""
    modules = []
    for path in root.rglob("*.py"):
        parts = path.relative_to(root).with_suffix("").parts
        if not _SKIPPED_DIRECTORIES.intersection(parts) and not _SKIPPED_FILES.fullmatch(parts[-1]):
            modules.append((".".join(filter(None, (package, *parts))).removesuffix(".__init__"), path))
    return sorted(modules)


def _docstrings(path: Path) -> Iterator[str]:
    """Yield every docstring in a file, in order; nothing where this Python cannot parse the file."""
    if path.stat().st_size > _LONGEST_SOURCE:
        return
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # ignore warnings about invalid escapes in other people's strings
            tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):
        return
    # Walk statements only: expressions hold no docstrings and make up most of a tree.
    statements: list[ast.AST] = [tree]
    while statements:
        node = statements.pop()
        if isinstance(node, _DOCUMENTED) and (text := ast.get_docstring(node)):
            yield text
        nested = (getattr(node, field, ()) for field in ("finalbody", "orelse", "handlers", "body"))
        statements += [child for children in nested for child in reversed(children)]


def prose(text: str) -> list[str]:
    """Return the paragraphs of running text in a docstring, each on one line, without markup.

    Left out: examples (`>>>`), headings, tables, directives, and paragraphs of few words or mostly symbols.
    """
    paragraphs = []
    for block in re.split(r"\n\s*\n", inspect.cleandoc(text)):
        if ">>>" not in block and not _DIRECTIVE.match(block.lstrip()):
            paragraphs += [_without_markup(" ".join(lines)) for lines in _unwrapped(block.split("\n"))]
    return [paragraph for paragraph in paragraphs if _is_prose(paragraph)]


def _unwrapped(lines: list[str]) -> list[list[str]]:
    """Group the lines of a block into paragraphs, by bullets and indentation; drop headings."""
    groups: list[list[str]] = []
    previous, indent = "", 0
    for line in lines:
        if _UNDERLINE.match(line):
            groups = groups[:-1] if previous and groups and len(groups[-1]) == 1 else groups
            previous = ""
            continue
        new_indent = len(line) - len(line.lstrip())
        bullet = _BULLET.match(line)
        if not previous or bullet or new_indent < indent or (new_indent > indent and _ITEM.match(previous)):
            groups.append([])
        groups[-1].append(line[bullet.end() :].strip() if bullet else line.strip())
        previous, indent = line, new_indent
    return groups


def _without_markup(text: str) -> str:
    text = _MARKUP.sub(lambda match: next(group for group in match.groups() if group is not None), text)
    return " ".join(text.removesuffix("::").split())


def _is_prose(text: str) -> bool:
    if text.count(" ") + 1 < _FEWEST_WORDS:
        return False
    return sum(map(len, _PROSE_CHARACTERS.findall(text))) >= _LEAST_PROSE * len(text)
