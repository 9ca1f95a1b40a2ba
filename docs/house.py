"""Draw the parts of bert_jax by their imports: `python docs/house.py` rewrites the picture in ARCHITECTURE.md."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "bert_jax"
_REGISTRY_OF_FAMILIES = ("base", "describe", "names")
_PICTURE = re.compile(r"(?<=<!-- house -->\n```\n).*?(?=```\n<!-- /house -->)", re.DOTALL)


def part_of(module: str) -> str:
    """Return the part that a module belongs to: `a task`, `a family`, its folder, or `basics` if it has no folder."""
    names = module.split(".")[1:]
    inner = PACKAGE.joinpath(*names[:2])
    is_folder, is_file = (inner / "__init__.py").exists(), inner.with_suffix(".py").exists()
    if names[0] == "tasks" and names[1:] and is_folder:
        return "a task"
    if names[0] == "families" and names[1:] and (is_folder or is_file) and names[1] not in _REGISTRY_OF_FAMILIES:
        return "a family"
    return names[0] if (PACKAGE / names[0]).is_dir() else "basics"


def imports() -> dict[str, set[str]]:
    """Return part -> the other parts that its files import, inside of functions too."""
    found: dict[str, set[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        if module in ("bert_jax", "bert_jax.__main__", "bert_jax.demo"):
            continue  # entry points, which import from other parts
        part = part_of(module)
        others = found.setdefault(part, set())
        for name in _imported(path):
            if name.startswith("bert_jax.") and (other := part_of(name)) != part:
                others.add(other)
    return found


def _imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def floors(edges: dict[str, set[str]]) -> list[list[str]]:
    """Return the parts by floor, the lowest first: a part is above all that it imports.

    Raises:
        ValueError: parts import one another in a cycle.
    """
    left, placed, result = dict(edges), set[str](), []
    while left:
        floor = sorted(part for part, others in left.items() if others <= placed)
        if not floor:
            raise ValueError(f"expected imports that run one way, found a circle among {sorted(left)}")
        result.append(floor)
        placed |= {*floor}
        left = {part: others for part, others in left.items() if part not in placed}
    return result


def picture() -> str:
    """Return the floors as text, one line per floor, the highest first."""
    numbered = reversed([*enumerate(floors(imports()))])
    return "".join(f"{number:2}  {', '.join(floor)}\n" for number, floor in numbered)


if __name__ == "__main__":
    page = ROOT / "ARCHITECTURE.md"
    page.write_text(_PICTURE.sub(lambda _: picture(), page.read_text()))
