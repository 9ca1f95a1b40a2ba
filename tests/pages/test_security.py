"""docs/security.md: each claim names the test that holds it, and each of those tests runs."""

import ast
import re

import pytest
from blocks import ROOT

PAGE = (ROOT / "docs" / "security.md").read_text()
ROWS = [
    [cell.strip() for cell in line.strip("| ").split(" | ")]
    for section in PAGE.split("| claim | held by |\n|---|---|\n")[1:]
    for line in section.split("\n\n")[0].splitlines()
]


def functions_of(path):
    """Return the test functions of a file by name."""
    tree = ast.parse((ROOT / path).read_text())
    return {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_every_line_of_a_table_is_a_claim_and_its_tests():
    assert len(ROWS) > 30
    assert not [row for row in ROWS if len(row) != 2 or not row[0] or not re.fullmatch(r"`[^`]+`(, `[^`]+`)*", row[1])]


@pytest.mark.parametrize("claim", [row[0] for row in ROWS])
def test_the_tests_of_a_claim_run(claim):
    (held_by,) = (row[1] for row in ROWS if row[0] == claim)
    for name in re.findall(r"`([^`]+)`", held_by):
        path, _, function = name.partition("::")
        test = functions_of(path).get(function)
        assert test is not None, f"{claim}: expected a test {name}, found none"
        skipped = [
            mark for mark in map(ast.unparse, test.decorator_list) if re.match(r"pytest\.mark\.(skip|xfail)\b", mark)
        ]
        assert not skipped, f"{name}: {skipped}"
