"""The budgets of the style guide, checked by a test and not by taste."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
FILE_LIMIT = 450
FUNCTION_LIMIT = 60


@cache
def modules() -> list[tuple[Path, str, ast.Module]]:
    """Path, text and syntax tree of every module of both packages."""
    paths = sorted(path for room in ("skulkd", "skulkctl") for path in (ROOT / room).rglob("*.py"))
    texts = [(path.relative_to(ROOT), path.read_text(encoding="utf-8")) for path in paths]
    return [(path, text, ast.parse(text)) for path, text in texts]


def functions(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Name and length of every function."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, (node.end_lineno or 0) - node.lineno + 1


def silent_handlers(tree: ast.Module) -> Iterator[int]:
    """Lines of `except` clauses that only pass."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ExceptHandler) and [type(one) for one in node.body] == [ast.Pass]:
            yield node.lineno


def test_modules_are_small() -> None:
    long = [str(path) for path, text, _ in modules() if text.count("\n") > FILE_LIMIT]
    assert not long, f"over {FILE_LIMIT} lines: split them"


def test_modules_say_what_they_are_for() -> None:
    assert not [str(path) for path, _, tree in modules() if not ast.get_docstring(tree)]


def test_functions_fit_on_a_screen() -> None:
    assert not [
        f"{path}: {name} has {length} lines"
        for path, _, tree in modules()
        for name, length in functions(tree)
        if length > FUNCTION_LIMIT
    ]


def test_no_error_is_swallowed() -> None:
    assert not [f"{path}:{line}" for path, _, tree in modules() for line in silent_handlers(tree)]
