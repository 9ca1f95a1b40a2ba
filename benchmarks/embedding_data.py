"""Training pairs and retrieval sets for embedding models, from the data directory.

    python -m benchmarks.embedding_data --data data --out embedding_data

It writes to `--out`:

    squad/       a retrieval set in the layout of BEIR: 6,000 documents, the paragraphs of squad2_articles and some
                 of wikitext-2; the queries of its split `test` are the answerable questions of the dev file, those of
                 its split `dev` the questions of two articles of the train file
    books/       a retrieval set: 5,000 passages of books that no training pair is from; each query is a sentence that
                 was taken out of its passage (the inverse cloze task: Lee et al. 2019, arXiv:1906.00300, section 4)
    squad.jsonl  pairs `query`, `document`: questions of the other articles and their paragraphs
    books.jsonl  pairs: sentences and the passages that they were taken out of, from the other books
    documentation.jsonl  pairs: first line and remaining text of docstrings of Python's standard library, NumPy and JAX
    sts/         STS-B, `train.tsv` and `dev.tsv`
"""

import argparse
import gzip
import importlib
import inspect
import json
import pkgutil
import random
import re
import shutil
import tarfile
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path

_WIKIPEDIA_SET, _BOOK_DOCUMENTS, _BOOK_QUERIES, _BOOK_PAIRS = 6_000, 5_000, 500, 8_000
_DEV_ARTICLES = ("Yuan_dynasty", "Immune_system")
_LIBRARIES = ("asyncio", "collections", "email", "http", "json", "logging", "multiprocessing", "os", "pathlib",
              "sqlite3", "statistics", "string", "tarfile", "textwrap", "threading", "unittest", "urllib", "xml",
              "zipfile", "numpy", "jax")  # fmt: skip
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z\"'])")
Pair = tuple[str, str]  # query and document


def write(data: Path, out: Path) -> None:
    """Write all sets; see the module.

    Args:
        data: directory with squad2_articles, wikitext-2, books and glue/STS-B.
        out: the directory to write.
    """
    out.mkdir(parents=True, exist_ok=True)
    (out / "sts").mkdir(exist_ok=True)
    for name in ("train.tsv", "dev.tsv"):
        shutil.copy(data / "glue" / "STS-B" / name, out / "sts" / name)
    _write_squad(data, out)
    _write_books(data, out)
    _write_pairs(out / "documentation.jsonl", docstring_pairs())


def _write_squad(data: Path, out: Path) -> None:
    documents: dict[str, str] = {}
    queries: dict[str, dict[str, tuple[str, str]]] = {"dev": {}, "test": {}}  # split -> id -> question, document
    train: list[Pair] = []
    for file in ("train", "dev"):
        content = json.loads((data / "squad2_articles" / f"{file}.json").read_text(encoding="utf-8"))
        for article in content["data"]:
            for number, paragraph in enumerate(article["paragraphs"]):
                name = f"{article['title']}-{number}"
                documents[name] = paragraph["context"]
                for question in paragraph["qas"]:
                    if question.get("is_impossible"):
                        continue
                    if file == "dev" or article["title"] in _DEV_ARTICLES:
                        split = "test" if file == "dev" else "dev"
                        queries[split][question["id"]] = question["question"], name
                    else:
                        train.append((question["question"], paragraph["context"]))
    paragraphs = wikipedia_paragraphs(data / "wikitext-2" / "wiki.train.raw.gz")
    random.Random(0).shuffle(paragraphs)
    for number, text in enumerate(paragraphs[: _WIKIPEDIA_SET - len(documents)]):
        documents[f"wikitext-{number}"] = text
    _write_retrieval_set(out / "squad", documents, queries)
    _write_pairs(out / "squad.jsonl", train)


def _write_books(data: Path, out: Path) -> None:
    with tarfile.open(data / "books" / "books.tar.xz") as archive:
        files = sorted((member for member in archive if member.isfile()), key=lambda member: member.name)
        books = []
        for member in files:
            content = archive.extractfile(member)
            assert content is not None
            books.append(content.read().decode("utf-8"))
    draws = random.Random(0)
    held = [passage for book in books[::10] for passage in passages(book)]
    others = [passage for i, book in enumerate(books) if i % 10 for passage in passages(book)]
    draws.shuffle(held)
    draws.shuffle(others)
    documents, queries = {}, {}
    for number, passage in enumerate(held[:_BOOK_DOCUMENTS]):
        name = f"passage-{number}"
        documents[name] = passage
        if number < _BOOK_QUERIES:
            sentence, documents[name] = without_a_sentence(passage, draws)
            queries[f"query-{number}"] = sentence, name
    _write_retrieval_set(out / "books", documents, {"test": queries})
    _write_pairs(out / "books.jsonl", [without_a_sentence(passage, draws) for passage in others[:_BOOK_PAIRS]])


def wikipedia_paragraphs(file: Path) -> list[str]:
    """Return the paragraphs of WikiText of at least 300 characters, with the spaces of its tokenization removed."""
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        kept = [line.strip() for line in lines if len(line) >= 300 and not line.startswith(" =")]
    kept = [re.sub(r" @([.,-])@ ", r"\1", line) for line in kept]
    return [re.sub(r" ([.,;:!?)'])", r"\1", line).replace("( ", "(") for line in kept]


def passages(book: str, characters: int = 700) -> Iterator[str]:
    """Yield consecutive passages of a book of at least 4 sentences and about `characters` characters."""
    gathered: list[str] = []
    for line in book.splitlines():
        if line.startswith("#"):
            gathered = []
            continue
        gathered += [sentence for sentence in _SENTENCE.split(line.strip()) if sentence]
        if sum(map(len, gathered)) >= characters:
            passage = " ".join(gathered)
            if len(_SENTENCE.split(passage)) >= 4:
                yield passage
            gathered = []


def without_a_sentence(passage: str, draws: random.Random) -> Pair:
    """Return a sentence of a passage, drawn among its longer half, and the passage without it."""
    sentences = _SENTENCE.split(passage)
    longer = sorted(range(len(sentences)), key=lambda i: -len(sentences[i]))[: max(1, len(sentences) // 2)]
    chosen = draws.choice(longer)
    return sentences[chosen], " ".join(sentences[:chosen] + sentences[chosen + 1 :])


def docstring_pairs() -> list[Pair]:
    """Return the first lines and the remaining texts of the docstrings of `_LIBRARIES`, without duplicates."""
    pairs: dict[str, str] = {}
    for module in _modules():
        for value in vars(module).values():
            text = inspect.getdoc(value) if inspect.isroutine(value) or inspect.isclass(value) else None
            summary, _, body = (text or "").partition("\n\n")
            summary, body = " ".join(summary.split()), " ".join(body.split())
            if len(summary) >= 20 and len(body) >= 100:
                pairs.setdefault(summary, body[:1500])
    return sorted(pairs.items())


def _modules() -> Iterator[object]:
    for name in _LIBRARIES:
        module = importlib.import_module(name)
        yield module
        for info in pkgutil.iter_modules(getattr(module, "__path__", [])):
            if not info.name.startswith("_"):
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    try:
                        yield importlib.import_module(f"{name}.{info.name}")
                    except ImportError:  # a module of another platform
                        continue


def _write_retrieval_set(
    directory: Path, documents: dict[str, str], queries: dict[str, dict[str, tuple[str, str]]]
) -> None:
    """Write documents, and for each split its queries with the one document that answers each."""
    (directory / "qrels").mkdir(parents=True, exist_ok=True)
    _write_lines(directory / "corpus.jsonl", ({"_id": name, "title": "", "text": text}
                                              for name, text in documents.items()))  # fmt: skip
    _write_lines(directory / "queries.jsonl", ({"_id": name, "text": text} for of_split in queries.values()
                                               for name, (text, _) in of_split.items()))  # fmt: skip
    for split, of_split in queries.items():
        lines = ["query-id\tcorpus-id\tscore", *(f"{name}\t{document}\t1" for name, (_, document) in of_split.items())]
        (directory / "qrels" / f"{split}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _write_pairs(file: Path, pairs: list[Pair]) -> None:
    _write_lines(file, ({"query": query, "document": document} for query, document in pairs))


def _write_lines(file: Path, rows: Iterable[dict[str, str]]) -> None:
    file.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, metavar="DIR")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    arguments = parser.parse_args()
    write(arguments.data, arguments.out)
