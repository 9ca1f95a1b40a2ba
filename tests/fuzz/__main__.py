"""`make fuzz`: tries many damaged files of every kind, and says what ended badly.

python tests/fuzz --cases 50000 --jobs 2     exit status 1 when anything was found
python tests/fuzz --case 1234 --keep DIR     one case again, its files kept; also the name of a hostile input
"""

import argparse
import os
import pathlib
import sys
import tempfile
import time
from collections.abc import Callable

import cases
import engine
import hostile_inputs

os.environ.setdefault("JAX_PLATFORMS", "cpu")  # for the whole files; workers have it from `engine`
_SECONDS = 10  # between two words on how far it is


def main() -> int:
    """Runs the cases that the command line names; returns 1 when something was found."""
    parser = argparse.ArgumentParser(prog="python tests/fuzz", description=__doc__.partition("\n")[0])
    add = parser.add_argument
    add("--cases", type=int, default=2000, metavar="N", help="numbered cases (default: %(default)s)")
    add("--first", type=int, default=0, metavar="N", help="the number of the first (default: %(default)s)")
    add("--kind", choices=sorted(cases.KINDS), help="of files, alone")
    add("--slow", action="store_true", help="the hostile inputs that take longest, too")
    add("--jobs", type=int, default=os.cpu_count() or 1, metavar="N", help="processes (default: one a core)")
    add("--case", metavar="N|NAME", help="this one alone")
    add("--keep", metavar="DIR", help="write the files of --case into a new directory too")
    args = parser.parse_args()
    numbered = (number for number in range(args.first, args.first + args.cases))
    names: list[int | str] = [number for number in numbered if args.kind in (None, cases.kind_of(number))]
    named = {name: it for name, it in hostile_inputs.NAMED.items() if args.kind in (None, it.kind)}
    names = [*(name for name, it in named.items() if args.slow or not it.slow), *names]
    if args.case:
        names = [int(args.case) if args.case.isdigit() else args.case]
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        seeds_file = pathlib.Path(folder) / "seeds"
        known = cases.kept(seeds_file)
        if args.case and args.keep:
            case = cases.make(names[0], known)
            cases.written(pathlib.Path(args.keep), case.files)
            print(f"{args.keep}: {case.kind}: {case.what}")
        summary = engine.run(names, seeds_file, args.jobs, _progress(len(names), start))
    print(f"\n{summary}\n{time.monotonic() - start:.0f} s")
    return 1 if summary.findings else 0


def _progress(total: int, start: float) -> Callable[[engine.Summary], None]:
    """Says how far it is, and each finding of a new sort."""
    seen: set[str] = set()
    said = start

    def show(summary: engine.Summary) -> None:
        nonlocal said
        for finding in summary.findings[-1:]:
            if finding.what not in seen:
                seen.add(finding.what)
                print(f"--case {finding.case}: {finding.kind}: {finding.what}", flush=True)
        if time.monotonic() - said > _SECONDS:
            said = time.monotonic()
            done = summary.tried.total()
            print(f"{done} of {total}, {done / (said - start):.0f} a second, {len(summary.findings)} found", flush=True)

    return show


if __name__ == "__main__":
    sys.exit(main())
