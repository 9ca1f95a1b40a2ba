"""Reject regular expressions of a tokenizer.json that take exponential time."""

import itertools
import json
import subprocess
import sys
from typing import Any

from bert_jax.errors import InputError, printable

_SECONDS, _BYTES = 3, 1 << 30  # limits of a trial of patterns: CPU time and memory
_MOST_SECONDS = 7  # limit of a trial: elapsed time, which is longer on a busy machine
# Patterns of common tokenizers, known to take linear time. Any other pattern is tried.
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
# Runs in a separate process, since Python cannot interrupt a pattern.
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
_LENGTH = 1000  # characters in a text of the trial: patterns of cubic time fail, of quadratic time pass
_MOST_TEXTS = 100


def check_patterns(parts: dict[str, list[dict[str, Any]]]) -> None:
    """Run unknown regular expressions on adversarial texts, within limits of time and memory.

    Args:
        parts: the parts of `normalizer`, `pre_tokenizer` and `decoder` that have a `pattern` with a `Regex`.

    Raises:
        InputError: a pattern has nested repetitions, or the trial exceeded three seconds or a gigabyte.
    """
    unknown = {
        name: [part for part in several if part["pattern"]["Regex"] not in _KNOWN] for name, several in parts.items()
    }
    patterns = [part["pattern"]["Regex"] for several in unknown.values() for part in several]
    if not patterns:
        return
    for pattern in patterns:
        if _repeats_repetitions(pattern):
            raise InputError(f"expected patterns without nested repetitions, found {printable(repr(pattern), 100)}")
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
        raise InputError(f"expected patterns that process {_LENGTH} characters in {_SECONDS} seconds, found "
                         f"{printable(shown, 200)}, which fail or take longer")  # fmt: skip


def _hard_texts(patterns: list[str]) -> list[str]:
    """Return adversarial texts: long runs of characters and pairs from the patterns, over which they backtrack."""
    named = dict.fromkeys(c for pattern in patterns for c in pattern)
    pairs = [first + second for pattern in patterns for first, second in itertools.pairwise(pattern)]
    runs = dict.fromkeys([*"aA0 _.-'\n\u00e9\u4e2d\u3000", "a ", "a1", "a.", "aA", " \n", *named, *pairs])
    return [(run * _LENGTH)[:_LENGTH] for run in list(runs)[:_MOST_TEXTS]]


def _repeats_repetitions(pattern: str) -> bool:
    """Return whether a group with a repetition or a choice is itself repeated, as in `(a+)+` and `(a|aa)*`."""
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
    """Return the position after a character class, which may contain other classes."""
    depth = 0
    while i < len(pattern):
        depth += {"[": 1, "]": -1}.get(pattern[i], 0)
        i += 2 if pattern[i] == "\\" else 1
        if depth == 0:
            break
    return i
