"""The budgets of the style guide, checked by a test and not by taste."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted(p for room in ("skulkd", "skulkctl") for p in (ROOT / room).rglob("*.py"))
FILE_LIMIT = 450
FUNCTION_LIMIT = 60


def _ids(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", SOURCES, ids=_ids)
def test_a_module_is_small_and_says_what_it_is_for(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count("\n") <= FILE_LIMIT, "split it"
    assert ast.get_docstring(ast.parse(text)), "open it with what it does"


@pytest.mark.parametrize("path", SOURCES, ids=_ids)
def test_functions_fit_on_a_screen_and_hide_no_error(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or 0) - node.lineno + 1
            assert length <= FUNCTION_LIMIT, f"{node.name} has {length} lines"
        if isinstance(node, ast.ExceptHandler):
            silent = len(node.body) == 1 and isinstance(node.body[0], ast.Pass)
            assert not silent, f"line {node.lineno} swallows an error"
