"""Damages a directory of files: each way from a number, the same one each time.

Damage of bytes alone would mostly end in "not JSON". So what is JSON, JSON lines, text or compressed is also taken
apart, changed where it hurts, and put together again.
"""

import contextlib
import gzip
import io
import json
import random
import struct
import zlib
from collections.abc import Callable
from typing import Any

Files = dict[str, bytes]  # name in a directory, which may have "/" -> content

# Words of JSON that json.dumps cannot write: of thousands of digits, half a character, nested too deeply.
RAW = {
    "@digits": "9" * 5000,
    "@half": '"a\\ud800b"',
    "@deep": "[" * 100_000 + "]" * 100_000,
    "@deep objects": '{"a":' * 3000 + "1" + "}" * 3000,
    "@twice": '{"a": 1, "a": {}}',
    "@open": '{"a": [',
}
NUMBERS = [0, 1, 2, 3, 7, 100, 2**15, 2**31 - 1, 2**31, 2**32, 2**53, 2**63 - 1, 2**63, 2**64, 10**9, 10**12, 10**39]
NUMBERS += [-number for number in NUMBERS]
FLOATS = [0.0, -0.0, 0.5, 1.0, 1e-12, 1e-300, 1e39, 1e308, -1.5, float("nan"), float("inf"), float("-inf")]
TEXTS = [
    "", " ", "\0", "\x1b[2J\x1b]0;title\x07", "\u202egnp.exe", "a\nb", "a\rb", "\t", "\x9b31m", "\u2028", "\ufeff",
    "x" * 60_000, "\U0001f600" * 300, "e\u0301", "\u0130", "[UNK]", "[MASK]", "<unk>", "../../etc/passwd", "/dev/zero",
    ".", "..", "1", "1.0", "-1", "1e-12", "nan", "true", "null", "None", "True", "'", '"', "%s", "{}", "{0}", "*",
    "(a+)+$", "\\", "[red]", "a:b", "__class__", "mean", "cls", "gelu", "float16", "\u0661", "LABEL_0", ",", ";",
    "\u200b", "-DOCSTART-",
]  # fmt: skip
# Parts of a tokenizer.json that take time or memory without end, that abort, or that make no sense.
_BLOW_UP = [{"type": "Replace", "pattern": {"String": "x"}, "content": "xx"}] * 30
PARTS: list[Any] = [
    *({"type": "Replace", "pattern": {"Regex": pattern}, "content": ""} for pattern in ("(x+)+$", "(x|x)*y", "(", "")),
    {"type": "Replace", "pattern": {"String": ""}, "content": "x"},
    {"type": "Replace", "pattern": {"String": "x"}, "content": "x" * 100_000},
    {"type": "Sequence", "normalizers": _BLOW_UP},
    {"type": "Sequence", "pretokenizers": [], "processors": [], "decoders": []},
    {"type": "Precompiled", "precompiled_charsmap": "AAAAAA=="},
    {"type": "Precompiled", "precompiled_charsmap": "/////wAAAAAAAAAA"},
    {"type": "Prepend", "prepend": "x" * 100_000},
    {"type": "Split", "pattern": {"Regex": "(x+x+)+y"}, "behavior": "Isolated", "invert": False},
    {"type": "Split", "pattern": {"String": ""}, "behavior": "Removed", "invert": True},
    {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": False},
    {"type": "FixedLength", "length": 0},
    {"type": "Strip", "content": "x", "start": 2**40, "stop": 2**40, "strip_left": True, "strip_right": True},
    {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": False},
    {"type": "TemplateProcessing", "single": [], "pair": [], "special_tokens": {}},
    {"type": "RobertaProcessing", "sep": ["a", 2**32 - 1], "cls": ["b", 0], "trim_offsets": True,
     "add_prefix_space": False},
    {"strategy": {"Fixed": 2**40}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0, "pad_type_id": 0,
     "pad_token": "[PAD]"},
    {"strategy": "BatchLongest", "direction": "Right", "pad_to_multiple_of": 2**40, "pad_id": 0, "pad_type_id": 0,
     "pad_token": "[PAD]"},
    {"direction": "Right", "max_length": 0, "strategy": "LongestFirst", "stride": 7},
    {"direction": "Left", "max_length": 3, "strategy": "OnlySecond", "stride": 5},
]  # fmt: skip
_PARTS = ("normalizer", "pre_tokenizer", "post_processor", "decoder", "padding", "truncation")
BYTES = [b"\0", b"\xff", b"\xed\xa0\x80", b"\x1b[31m", b"\r", b"\n", b"\t", b",", b'"', b" ", b"\xe2\x80\xae",
         b"\xef\xbb\xbf", b"\xe2\x80\xa8", b"\x85", b"\\", b"{", b"}", b"[", b"]", b":", b"\x7f", b"'"]  # fmt: skip
_LONGEST = 1_000_000  # bytes that one mutation may make


class Mutator:
    """Makes the files of case `number` out of whole ones.

    Args:
        number: of the case.
        others: further files, which may take the place of one.
    """

    def __init__(self, number: int, others: list[bytes]):
        self._random = random.Random(number)
        self._others = others
        self.done: list[str] = []  # in words

    def choice(self, items: Any) -> Any:
        return items[self._random.randrange(len(items))]

    def files(self, whole: Files) -> Files:
        """A copy with one to three changes; `done` says which."""
        files = dict(whole)
        for _ in range(self.choice((1, 1, 1, 1, 2, 2, 3))):
            if not files:
                break
            name = self.choice(sorted(files))
            if self._random.random() < 0.08:
                self._of_directory(files, name)
            else:
                files[name] = self.content(name, files[name])[: _LONGEST + len(files[name])]
        return files

    def _of_directory(self, files: Files, name: str) -> None:
        other = self.choice(sorted(files))
        kind = self.choice(("removed", "emptied", "swapped", "renamed", "foreign"))
        self.done.append(f"{name} {kind}")
        if kind == "removed":
            del files[name]
        elif kind == "emptied":
            files[name] = b""
        elif kind == "swapped":
            files[name], files[other] = files[other], files[name]
        elif kind == "renamed":
            files[self.choice(("x", "config.json", "vocab.txt", f"{name}.gz", f"{name}/x"))] = files.pop(name)
        else:
            files[name] = self.choice(self._others)

    def content(self, name: str, content: bytes) -> bytes:
        """A file's content, changed in one place or a few."""
        if name.endswith(".gz") and self._random.random() < 0.5:
            try:
                return gzip.compress(self.content(name.removesuffix(".gz"), gzip.decompress(content)), 1, mtime=0)
            except (OSError, EOFError, zlib.error):
                pass
        changed = self._changed_content(name, content)
        return changed if not name.endswith(".gz") or _unpacked(changed) < _LONGEST else content

    def _changed_content(self, name: str, content: bytes) -> bytes:
        ways: list[Callable[[bytes], bytes]] = [self.flipped, self.cut, self.inserted, self.spliced, self.repeated]
        if self._random.random() < 0.85:
            if name.endswith(".model"):
                ways = [self._of_pieces]
            elif name.endswith(".safetensors"):
                ways = [self._header]
            elif name.endswith((".jsonl", ".ndjson")):
                ways = [self._line_of_json, self._line_of_json, self.of_lines]
            elif name.endswith((".json", "METADATA", "/metrics")):
                ways = [self.of_json]
            elif not name.endswith((".bin", ".msgpack", ".model", ".gz", ".npy")):
                ways = [self.of_lines]
        way = self.choice(ways)
        self.done.append(f"{name} {way.__name__.strip('_')}")
        return way(content)

    # Bytes.

    def _place(self, content: bytes) -> int:
        return self._random.randrange(len(content) + 1)

    def flipped(self, content: bytes) -> bytes:
        changed = bytearray(content)
        for _ in range(self.choice((1, 1, 2, 8, 40)) if content else 0):
            changed[self._random.randrange(len(changed))] ^= 1 << self._random.randrange(8)
        return bytes(changed)

    def cut(self, content: bytes) -> bytes:
        place = self._place(content)
        return content[:place] if self._random.random() < 0.7 else content[place:]

    def inserted(self, content: bytes) -> bytes:
        place = self._place(content)
        return content[:place] + self.choice(BYTES) * self.choice((1, 1, 2, 300, 70_000)) + content[place:]

    def spliced(self, content: bytes) -> bytes:
        other = self.choice(self._others)
        return content[: self._place(content)] + other[self._place(other) :]

    def repeated(self, content: bytes) -> bytes:
        start, end = sorted((self._place(content), self._place(content)))
        return content[:end] + content[start:end] * self.choice((1, 2, 50)) + content[end:]

    # Lines.

    def of_lines(self, content: bytes) -> bytes:
        lines = content.split(b"\n")
        at = self._random.randrange(len(lines))
        ways: list[Callable[[bytes], bytes | list[bytes]]] = [
            lambda line: [],
            lambda line: [line] * self.choice((2, 3, 1000)),
            lambda line: [line, b"", b"", line],
            lambda line: self.choice(TEXTS).encode(),
            lambda line: [line, self.choice(TEXTS).encode()],
            self.inserted,
            self.flipped,
            lambda line: line * self.choice((2, 100, 5000)),
            lambda line: line.replace(self.choice((b"\t", b",", b" ")), self.choice((b"\t", b",", b";", b" ", b""))),
            self._cells,
            lambda line: line.upper(),
            lambda line: line.strip(),
            lambda line: b'"' + line,
        ]  # fmt: skip
        if self._random.random() < 0.1:
            whole: list[Callable[[str], bytes]] = [
                lambda text: text.encode("utf-16"), lambda text: text.encode("latin-1", "replace"),
                lambda text: text.replace("\n", "\r\n").encode(), lambda text: text.replace("\n", "\r").encode(),
                lambda text: b"\xef\xbb\xbf" + text.encode(), lambda text: text.replace("\n", " ").encode(),
                lambda text: text.replace("\t", ";").replace(",", ";").encode(), lambda text: b"\n" * len(text),
            ]  # fmt: skip
            return self.choice(whole)(content.decode("utf-8", "replace"))
        changed = self.choice(ways)(lines[at])
        lines[at : at + 1] = changed if isinstance(changed, list) else [changed]
        return b"\n".join(lines)

    def _cells(self, line: bytes) -> bytes:
        separator = next((mark for mark in (b"\t", b",", b" ") if mark in line), b"\t")
        cells = line.split(separator)
        cells[self._random.randrange(len(cells))] = self.choice(
            [text.encode() for text in TEXTS] + [str(number).encode() for number in NUMBERS] + BYTES
        )
        return separator.join(cells)

    def _line_of_json(self, content: bytes) -> bytes:
        lines = content.split(b"\n")
        at = self._random.randrange(len(lines))
        lines[at] = self.of_json(lines[at]).replace(b"\n", b" ")
        return b"\n".join(lines)

    # JSON.

    def of_json(self, content: bytes) -> bytes:
        try:
            tree = json.loads(content)
        except (ValueError, RecursionError):
            return self.of_lines(content)
        for _ in range(self.choice((1, 1, 1, 2, 4))):
            tree = self._changed(tree)
        return self._written(tree)

    def _written(self, tree: Any) -> bytes:
        text = json.dumps(tree, ensure_ascii=self._random.random() < 0.7)
        for mark, raw in RAW.items():
            text = text.replace(f'"{mark}"', raw)
        return text.encode("utf-8", "surrogatepass")

    def _changed(self, tree: Any) -> Any:
        if isinstance(tree, dict) and "pre_tokenizer" in tree and self._random.random() < 0.3:
            return tree | {self.choice(_PARTS): self.choice(PARTS)}
        nodes: list[tuple[Any, Any]] = []  # container and key
        pending = [tree]
        while pending and len(nodes) < 5000:
            node = pending.pop()
            keys = list(node) if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ()
            nodes += [(node, key) for key in keys]
            pending += [node[key] for key in keys]
        if not nodes or self._random.random() < 0.02:
            return self._value(tree)
        # A parameter or a vocabulary has thousands of leaves: what stands near the top is changed as often.
        shallow = [(node, key) for node, key in nodes if node is tree]
        node, key = self.choice(shallow if shallow and self._random.random() < 0.4 else nodes)
        way = self._random.random()
        if way < 0.12:
            del node[key]
        elif way < 0.2 and isinstance(node, dict):
            node[self.choice((key + "s", key.upper(), key[:-1], self.choice(TEXTS), self.choice(nodes)[1]))] = node.pop(
                key
            )
        elif way < 0.3:
            other, place = self.choice(nodes)
            if not _holds(node[key], other) and not _holds(other[place], node):  # a tree without circles
                node[key], other[place] = other[place], node[key]
        elif way < 0.35 and isinstance(node, list):
            node[key:key] = [node[key]] * self.choice((1, 2, 1000))
        elif way < 0.4:
            node[key] = self.choice(({"a": node[key]}, [node[key]], [[node[key]]], str(node[key])))
        else:
            node[key] = self._value(node[key])
        return tree

    def _value(self, old: Any) -> Any:
        if isinstance(old, str) and self._random.random() < 0.4:
            at = self._random.randrange(len(old) + 1)
            return old[:at] + self.choice(TEXTS) + old[at:]
        if isinstance(old, int) and not isinstance(old, bool) and self._random.random() < 0.5:
            return self.choice((old + 1, old - 1, -old, old * 2, old * 1000, float(old), str(old), bool(old), [old]))
        kinds: list[Any] = [NUMBERS, FLOATS, TEXTS, list(RAW)]
        kinds.append(
            [None, True, False, [], {}, [[]], [{}], {"a": {}}, [None], [1, 2], ["a", "b"], {"1": "a"}, [0.5, "x"]]
        )
        return self.choice(self.choice(kinds))

    def _of_pieces(self, content: bytes) -> bytes:
        """A SentencePiece model, taken apart by the library's own description of it."""
        from sentencepiece import sentencepiece_model_pb2

        try:
            model: Any = sentencepiece_model_pb2.ModelProto.FromString(content)  # type: ignore[attr-defined]
        except Exception:  # no such model any more
            return self.flipped(content)
        if not model.pieces:
            return self.cut(content)
        piece, charsmap = self.choice(model.pieces), model.normalizer_spec.precompiled_charsmap
        ways: list[Callable[[], Any]] = [
            lambda: setattr(piece, "piece", self.choice([text for text in TEXTS if "\ud800" not in text])),
            lambda: setattr(piece, "score", self.choice(FLOATS[:6] + FLOATS[9:])),
            lambda: setattr(piece, "type", self.choice((1, 2, 3, 4, 5, 6))),
            lambda: model.pieces.remove(piece),
            lambda: model.pieces.extend([piece] * self.choice((1, 1000))),
            lambda: model.ClearField(self.choice(("pieces", "trainer_spec", "normalizer_spec"))),
            lambda: setattr(model.trainer_spec, "model_type", self.choice((1, 2, 3, 4))),
            lambda: setattr(model.trainer_spec, "byte_fallback", True),
            lambda: setattr(model.trainer_spec, "treat_whitespace_as_suffix", True),
            lambda: setattr(model.normalizer_spec, "precompiled_charsmap", self.flipped(charsmap)),
            lambda: setattr(model.normalizer_spec, "precompiled_charsmap", self.cut(charsmap)),
            lambda: setattr(model.normalizer_spec, "precompiled_charsmap", self.choice(BYTES) * 9),
            lambda: setattr(model.denormalizer_spec, "precompiled_charsmap", self.cut(charsmap)),
        ]
        self.choice(ways)()
        return model.SerializeToString()

    def _header(self, content: bytes) -> bytes:
        """The JSON before the data of a safetensors file, its length put right."""
        if len(content) < 8:
            return self.inserted(content)
        start = 8 + struct.unpack("<Q", content[:8])[0]
        header = self.of_json(content[8:start])
        return struct.pack("<Q", len(header)) + header + content[start:]


def _unpacked(content: bytes) -> int:
    """Bytes that come out of a file, so far as it is whole; a table of millions of rows takes its time."""
    size = 0
    with contextlib.suppress(OSError, EOFError, zlib.error), gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
        while size < _LONGEST and (part := file.read(1 << 16)):
            size += len(part)
    return size


def _holds(tree: Any, part: Any) -> bool:
    """Whether a container is, or is somewhere within, a tree."""
    pending = [tree]
    while pending:
        node = pending.pop()
        if node is part:
            return True
        pending += node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    return False
