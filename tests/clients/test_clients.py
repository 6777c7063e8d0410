"""Every call that docs/clients.md promises, made by the real client against a real daemon."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.clients import (
    anthropic_checks,
    embedding_checks,
    ollama_checks,
    openai_checks,
    other_checks,
    responses_checks,
)
from tests.clients.checks import CHECKS, Check, rows
from tests.inference.served import Served

PAGE = Path(__file__).parents[2] / "docs" / "clients.md"
HEAD = "| client | calls that work |\n|---|---|\n"
TABLE = re.compile(rf"{re.escape(HEAD)}(\|.*\n)+")
WORKS: list[Check] = []

# Importing a module registers its checks, in this order.
CLIENTS = (
    openai_checks,
    responses_checks,
    anthropic_checks,
    ollama_checks,
    other_checks,
    embedding_checks,
)


@pytest.mark.parametrize("one", CHECKS, ids=lambda one: one.label)
def test_call(one: Check, served: Served) -> None:
    one.run(served)
    WORKS.append(one)


def test_the_table_in_the_docs_is_what_works() -> None:
    """Rows of clients that are not installed are left alone. `SKULK_WRITE_DOCS=1` writes all."""
    if not WORKS:
        pytest.skip("no check was run, or none passed")
    every, works = rows(CHECKS), rows(WORKS)
    if os.environ.get("SKULK_WRITE_DOCS") and every == works:
        text = HEAD + "".join(works.values())
        PAGE.write_text(TABLE.sub(lambda _: text, PAGE.read_text()))
    found = TABLE.search(PAGE.read_text())
    assert found
    shown = found.group().removeprefix(HEAD).splitlines(keepends=True)
    assert [line.split(" | ")[0].removeprefix("| ") for line in shown] == list(every)
    for name, line in zip(every, shown, strict=True):
        if works.get(name) == every[name]:
            assert line == works[name]
