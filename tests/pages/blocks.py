"""The pages of the documentation and their code blocks."""

import re
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "docs"))  # for the hooks, which say what other files are pages

from hooks import ELSEWHERE  # noqa: E402

PAGES = sorted([
    "README.md", *ELSEWHERE.values(), *(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md"))
])  # fmt: skip


@dataclass(frozen=True)
class Block:
    """A code block of a page.

    Attributes:
        page: its file, from the root of the repository.
        line: the number of the line that opens it.
        language: as the fence says; "" where it does not.
        text: the lines between the fences.
    """

    page: str
    line: int
    language: str
    text: str

    @property
    def key(self) -> tuple[str, str]:
        """The page and how the block begins, by which the tests list blocks."""
        return self.page, self.text.partition("\n")[0].strip()[:40].strip()

    @property
    def commands(self) -> list[list[str]]:
        """The command lines of a bash block, as words; assignments before a command are left out."""
        lines = re.sub(r"\\\n\s*", " ", self.text).splitlines()
        split = [shlex.split(part, comments=True) for line in lines for part in re.split(r" && | \| ", line)]
        return [words for words in split if words]


def blocks_of(page: str) -> list[Block]:
    """The fenced blocks of a page, in order."""
    found, opened, lines = [], None, []
    for number, line in enumerate((ROOT / page).read_text(encoding="utf-8").splitlines(), 1):
        fence = re.match(r"\s*```(\w*)", line)
        if fence and opened is None:
            opened, lines = (number, fence[1]), []
        elif fence:
            found.append(Block(page, *opened, "\n".join(lines) + "\n"))
            opened = None
        else:
            lines.append(line)
    assert opened is None, f"{page}: a block is not closed"
    return found
