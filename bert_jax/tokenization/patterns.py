"""Reject regular expressions of a tokenizer.json that take exponential time."""

import itertools
import json
import subprocess
import sys
from typing import Any

from bert_jax.errors import InputError, printable

_SECONDS, _BYTES = 3, 1 << 30  # of a processor, and memory, that a trial of patterns may take
_MOST_SECONDS = 7  # that it may last, on a machine that does much else
# What tokenizers in use have; read and found to take time in proportion to the text. A pattern that is not here is
# tried.
_KNOWN = frozenset(
    {
        r"\s",
        r"\s+",
        " {2,}",
        r"\p{N}",
        r"\p{N}+",
        r"\p{N}{1,3}",
        r"[0-9]",
        r"\p{Mn}",
        "''",
        r"[\x00\x{fffd}\p{Cc}\p{Cf}&&[^\t\n\r]]",  # of `huggingface.bert_normalizer`
        r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
        *(
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|" + digits + r"| ?[^\s\p{L}\p{N}]+[\r\n]*|"
            r"\s*[\r\n]+|\s+(?!\S)|\s+"
            for digits in (r"\p{N}", r"\p{N}{1,3}")
        ),
    }
)
# Runs in a process of its own: a pattern that blows up cannot be stopped from Python.
_TRIAL = """
import json, resource, sys
resource.setrlimit(resource.RLIMIT_CPU, ({seconds}, {seconds}))
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
import tokenizers
resource.setrlimit(resource.RLIMIT_AS, ({bytes}, {bytes}))
content, texts, named = json.load(sys.stdin)
backend = tokenizers.Tokenizer.from_str(json.dumps(content))
for text in texts:
    for side in (text, text + "\\x00" + named, named + text):
        if backend.normalizer is not None:
            backend.normalizer.normalize_str(side)
        if backend.pre_tokenizer is not None:
            backend.pre_tokenizer.pre_tokenize_str(side)
        if backend.decoder is not None:
            backend.decoder.decode([side])
"""
_LENGTH = 1000  # characters of a text of the trial: time that grows with their cube shows, with their square passes
_MOST_TEXTS = 100


def check_patterns(parts: dict[str, list[dict[str, Any]]]) -> None:
    """Try regular expressions that are not known to be safe on texts that are hard for them, within limits.

    Args:
        parts: those parts of the `normalizer`, `pre_tokenizer` and `decoder` that have a `pattern` with a `Regex`.

    Raises:
        InputError: a pattern repeats what repeats, or the trial took three seconds or a gigabyte.
    """
    unknown = {
        name: [part for part in several if part["pattern"]["Regex"] not in _KNOWN] for name, several in parts.items()
    }
    patterns = [part["pattern"]["Regex"] for several in unknown.values() for part in several]
    if not patterns:
        return
    for pattern in patterns:
        if _repeats_repetitions(pattern):
            raise InputError(f"expected patterns that repeat no repetition, found {printable(repr(pattern), 100)}")
    names = {"normalizer": "normalizers", "pre_tokenizer": "pretokenizers", "decoder": "decoders"}
    content: dict[str, Any] = {
        "version": "1.0",
        "model": {"type": "WordLevel", "vocab": {"": 0}, "unk_token": ""},
        **{name: {"type": "Sequence", names[name]: several} for name, several in unknown.items() if several},
    }
    script = _TRIAL.format(seconds=_SECONDS, bytes=_BYTES)
    try:
        done = subprocess.run(
            [sys.executable, "-c", script],
            input=json.dumps([content, _hard_texts(patterns), "".join(dict.fromkeys("".join(patterns)))]),
            text=True,
            capture_output=True,
            timeout=_MOST_SECONDS,
            check=False,
        )
        failed = done.returncode != 0
    except subprocess.TimeoutExpired:
        failed = True
    if failed:
        shown = ", ".join(repr(pattern) for pattern in patterns)
        raise InputError(f"expected patterns that cut {_LENGTH} characters in {_SECONDS} seconds, found "
                         f"{printable(shown, 200)}, which fail or take longer")  # fmt: skip


def _hard_texts(patterns: list[str]) -> list[str]:
    """Long runs of each character that the patterns name, and of some of each kind: what repetitions backtrack over."""
    named = dict.fromkeys(c for pattern in patterns for c in pattern)
    pairs = [first + second for pattern in patterns for first, second in itertools.pairwise(pattern)]
    runs = dict.fromkeys([*"aA0 _.-'\n\u00e9\u4e2d\u3000", "a ", "a1", "a.", "aA", " \n", *named, *pairs])
    return [(run * _LENGTH)[:_LENGTH] for run in list(runs)[:_MOST_TEXTS]]


def _repeats_repetitions(pattern: str) -> bool:
    """Whether a group that holds a repetition or a choice is itself repeated, as in `(a+)+` and `(a|aa)*`."""
    varies = [False]  # for each open group
    closed = False  # whether a group that varies ends here
    i = 0
    while i < len(pattern):
        c = pattern[i]
        if c in "*+" or (c == "{" and not pattern[i + 1 : i + 2].isalpha()):
            if closed:
                return True
            varies[-1] = True
        elif c in "?|":
            varies[-1] = varies[-1] or (c == "|")
        if c == "(":
            varies.append(False)
        closed = c == ")" and len(varies) > 1 and varies.pop()
        if closed:
            varies[-1] = True
        if c == "\\":
            i += (
                2
                if pattern[i + 1 : i + 2] not in ("p", "P", "x") or pattern[i + 2 : i + 3] != "{"
                else _braced(pattern, i)
            )
            continue
        i = _class_end(pattern, i) if c == "[" else i + 1
    return False


def _braced(pattern: str, i: int) -> int:
    return pattern.find("}", i) - i + 1 if "}" in pattern[i:] else len(pattern) - i


def _class_end(pattern: str, i: int) -> int:
    """The place behind a class of characters, which may hold classes."""
    depth = 0
    while i < len(pattern):
        depth += {"[": 1, "]": -1}.get(pattern[i], 0)
        i += 2 if pattern[i] == "\\" else 1
        if depth == 0:
            break
    return i
