"""Web archives as corpora: which records are documents, what text they have, and what is said of damaged ones."""

import gzip
import sys
import time

import pytest

from bert_jax.data import corpora
from bert_jax.data.corpora.sources import open_corpus
from bert_jax.data.lines import MAX_ROW_BYTES
from bert_jax.errors import InputError

HTML = """<html><head><title>t</title></head><body><nav><ul><li><a href="/">Home</a></ul></nav>
<article><h1>Caf\u00e9</h1><p>One
paragraph of <b>words</b>.</p><p>Another.</p></article><footer>Copyright</footer></body></html>"""
PARAGRAPHS = ("Caf\u00e9", "One paragraph of words.", "Another.")


def record(kind, body, content_type="", length=None, address="https://a.example/page"):
    fields = {"WARC-Type": kind, "WARC-Target-URI": address, "Content-Type": content_type}
    fields["Content-Length"] = len(body) if length is None else length
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items() if value != "")
    return f"WARC/1.0\r\n{head}\r\n".encode() + body + b"\r\n\r\n"


def text(body):
    return record("conversion", body.encode(), "text/plain")


def page(body, content_type="text/html", status="200 OK", more=""):
    head = f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\n{more}\r\n".encode()
    return record("response", head + body, "application/http; msgtype=response")


@pytest.fixture
def opened(tmp_path):
    def write(*records, name="a.warc"):
        (tmp_path / name).write_bytes(b"".join(records))
        return open_corpus(str(tmp_path / name))

    return write


def test_texts(opened):
    corpus = opened(record("warcinfo", b"isPartOf: x\r\n"), text("One.\n\nTwo."), text("Three."), name="a.warc.wet")
    assert [(document.name[-1], document.texts) for document in corpus] == [("2", ("One.", "Two.")), ("3", ("Three.",))]
    (part,) = corpus.parts(10)
    assert part.has_rows and [document.texts for document in part.read()] == [document.texts for document in corpus]


@pytest.mark.parametrize("name", ["a.warc.gz", "a.WARC.wet.gz"])
@pytest.mark.parametrize("by_record", [True, False])
def test_compressed_as_a_whole_or_by_record(opened, name, by_record):
    records = [text("One."), text("Two.")]
    packed = map(gzip.compress, records) if by_record else [gzip.compress(b"".join(records))]
    assert [document.texts for document in opened(*packed, name=name)] == [("One.",), ("Two.",)]


@pytest.mark.parametrize(
    ("encoding", "content_type"),
    [("utf-8", "text/html; charset=UTF-8"), ("cp1252", "text/html; charset=ISO-8859-1"), ("utf-8", "text/html"),
     ("koi8-r", "application/xhtml+xml;charset='koi8-r'"), ("utf-8", "text/html; charset=nonsense")],
)  # fmt: skip
def test_the_main_text_of_pages(opened, encoding, content_type):
    written = HTML.replace("\u00e9", "\u0436") if encoding == "koi8-r" else HTML
    (document,) = opened(page(written.encode(encoding), content_type))
    assert tuple(part.replace("\u0436", "\u00e9") for part in document.texts) == PARAGRAPHS


def test_pages_as_servers_sent_them(opened):
    packed = gzip.compress(HTML.encode())
    chunks = f"{len(packed):x}\r\n".encode() + packed + b"\r\n0\r\n\r\n"
    more = "Content-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n"
    sent = page(chunks, more=more), page(chunks + b"more that is of no chunk", more=more)
    plain = page("Caf\u00e9.".encode("cp1252"), "text/plain; charset=windows-1252")
    assert [document.texts for document in opened(*sent, plain)] == [PARAGRAPHS, PARAGRAPHS, ("Caf\u00e9.",)]


def test_what_is_no_page_is_ignored(opened):
    corpus = opened(
        page(HTML.encode(), status="404 Not Found"), page(b"\x89PNG", "image/png"), page(b"Plain.", "text/plain"),
        record("request", b"GET / HTTP/1.1\r\n\r\n", "application/http"),
        record("resource", HTML.encode(), "text/html"),
        record("metadata", b"{}", "application/json"), record("response", b""),
    )  # fmt: skip
    assert [document.texts for document in corpus] == [("Plain.",), PARAGRAPHS]


def test_deep_pages_take_no_longer_than_others(opened):
    before = time.monotonic()
    assert [document.texts for document in opened(page(b"<div>" * 100_000 + b"deep"))] == [("deep",)]
    assert time.monotonic() - before < 20  # minutes, where the main text is looked for


def test_invalid_records_are_left_out(opened):
    latin, long = record("conversion", b"caf\xe9"), text("x" * MAX_ROW_BYTES + "x")
    corpus = opened(text("One."), latin, long, text("Two."))
    with pytest.raises(InputError, match=r"a\.warc: record 2: expected UTF-8 text, found byte 0xe9 at offset 3"):
        list(corpus)
    skipped = []
    (part,) = corpus.parts(10)
    assert [document.texts for document in part.readable(skipped)] == [("One.",), ("Two.",)]
    assert "record 2: expected UTF-8 text" in skipped[0] and "record 3: expected at most 16,777,216" in skipped[1]


CUT = "expected a complete record, found a truncated one"
DAMAGED = {
    "text": ((b"hello\nworld\n",), "record 1: expected a record of a web archive, found: Unknown archive format"),
    "between": ((text("One."), b"rubbish\n\n", text("Two.")), "record 2: expected a record of a web archive"),
    "cut": ((text("One."), text("Two.")[:-6]), f"record 2: {CUT}"),
    "length": ((text("One."), record("conversion", b"Two.", length=10**30)), f"record 2: {CUT}"),
    "address": ((text("One."), record("response", b"x", address="")), "record 2: expected a record of a web archive"),
    "empty": ((record("warcinfo", b"x: y\r\n"),), "expected records with texts or pages, found none"),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGED)
def test_damage_is_named(opened, name):
    records, message = DAMAGED[name]
    with pytest.raises(InputError, match=rf"a\.warc: {message}"):
        list(opened(*records))


@pytest.mark.parametrize("count", [1, 400])
def test_a_compressed_archive_that_is_cut_short(opened, count):
    records = gzip.compress(b"".join(text(f"Text {i} of many.") for i in range(count)))[:-20]
    with pytest.raises(InputError, match=r"record \d+: expected a whole \.gz file, found one that is cut short"):
        list(opened(records, name="a.warc.gz"))


def test_without_its_libraries(opened, monkeypatch):
    monkeypatch.setitem(sys.modules, "warcio.archiveiterator", None)
    monkeypatch.delitem(sys.modules, "bert_jax.data.corpora.web_archives", raising=False)
    monkeypatch.delattr(corpora, "web_archives", raising=False)
    with pytest.raises(InputError, match=r"a\.warc: expected libraries .* pip install .*\[web\]'"):
        list(opened(text("One.")))
