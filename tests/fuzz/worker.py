"""A process that tries one case after the other: what it reads on stdin is a case, what it answers is a verdict.

What stdout and stderr get while a case runs, by Python or by C, is caught and has to be printable too.
"""

import contextlib
import faulthandler
import json
import logging
import os
import pathlib
import re
import resource
import sys
import traceback
from typing import Any

import cases

ADDRESS_SPACE = 6 << 30  # bytes beyond what the imports take: an allocation that is larger fails at once
LONGEST_LINE = 570  # characters: 500 of a message, and which logger or command says it
_AT_ONCE = 1 << 20  # bytes of output: a million texts print more than may be held
_SHOWN = 300  # characters of a message in a report
_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


class Output:
    """A file that stands in for stdout and stderr."""

    def __init__(self, path: pathlib.Path):
        self._file = open(path, "w+b")  # noqa: SIM115
        for stream in (1, 2):
            os.dup2(self._file.fileno(), stream)

    def take(self) -> str:
        """Of what came since the last call, the first part that no terminal should get, or else the last part."""
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(ValueError):
                stream.flush()
        self._file.seek(0)
        found = ""
        while lines := self._file.readlines(_AT_ONCE):
            found = b"".join(lines).decode("utf-8", "surrogateescape")
            if wrong_with(found):
                break
        self._file.seek(0)
        self._file.truncate()
        return found


def wrong_with(text: str, one_line: bool = False) -> str:
    """What no terminal should get of a text, in words; "" when all is well."""
    if found := _UNPRINTABLE.search(text):
        return f"U+{ord(found.group()):04X} is printed"
    lines = text.split("\n")
    if one_line and len(lines) > 1:
        return "a message of several lines"
    if (longest := max(map(len, lines))) > LONGEST_LINE:
        return f"a line of {longest} characters is printed"
    return ""


def place_of(error: BaseException) -> str:
    """The innermost line of ours that an error went through."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "/bert_jax/" in frame.filename]
    frame = frames[-1] if frames else traceback.extract_tb(error.__traceback__)[-1]
    return f"{frame.filename.rpartition('/bert_jax/')[2]}:{frame.lineno} {frame.name}"


def memory() -> tuple[int, int]:
    """Bytes that this process holds, and the most since `forget_peak`."""
    status = pathlib.Path("/proc/self/status").read_text()
    return tuple(int(re.search(rf"{name}:\s+(\d+)", status)[1]) << 10 for name in ("VmRSS", "VmHWM"))  # type: ignore


def forget_peak() -> None:
    pathlib.Path("/proc/self/clear_refs").write_text("5")


def tried(run: Any, output: Output) -> dict[str, Any]:
    """Runs a case; returns what was wrong as `kind` and `text`, "" where nothing was."""
    from bert_jax.errors import InputError

    output.take()
    forget_peak()
    before, _ = memory()
    kind = text = ""
    refused = False
    try:
        run()
    except InputError as error:
        refused = True
        if wrong := wrong_with(str(error), one_line=True):
            kind, text = f"{wrong} ({place_of(error)})", ascii(str(error)[:_SHOWN])
    except BaseException as error:  # SystemExit and KeyboardInterrupt are as wrong as any other
        if isinstance(error, OSError) and error.strerror and type(error).__module__ == "builtins":
            refused = True  # the command line makes one line of it
        else:
            kind = f"{type(error).__name__} in {place_of(error)}"
            text = "".join(traceback.format_exception(error))[-3000:]
    printed = output.take()
    if not kind and (wrong := wrong_with(printed)):
        kind, text = wrong, ascii(printed[:2000])
    return {"kind": kind, "text": text, "refused": refused, "memory": memory()[1] - before}


def main(root: pathlib.Path, seeds_file: pathlib.Path, group: str) -> None:
    answers = os.fdopen(os.dup(1), "w")
    output = Output(root / "output")
    faulthandler.enable()
    logging.basicConfig(level=logging.INFO)  # as a user's program may
    for name in ("absl", "asyncio"):  # the log of Orbax is not ours
        logging.getLogger(name).disabled = True

    known = cases.kept(seeds_file)
    cases.warm_up(known, root / "case", group)
    used = int(re.search(r"VmSize:\s+(\d+)", pathlib.Path("/proc/self/status").read_text())[1]) << 10  # type: ignore
    resource.setrlimit(resource.RLIMIT_AS, (used + ADDRESS_SPACE, resource.RLIM_INFINITY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    output.take()
    print(json.dumps({"ready": True}), file=answers, flush=True)
    for line in sys.stdin:
        found = cases.make(json.loads(line), known)
        folder = cases.written(root / "case", found.files)
        size = sum(map(len, found.files.values()))
        print(json.dumps({"what": found.what, "bytes": size}), file=answers, flush=True)
        if found.prepare:
            found.prepare(folder)
        verdict = tried(lambda found=found, folder=folder: found.run(folder), output)
        print(json.dumps(verdict), file=answers, flush=True)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3])
