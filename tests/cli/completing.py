"""Asking skulkctl for candidates as a shell does, without a shell."""

from __future__ import annotations

import contextlib
import io
import os
import shlex
import sys
from unittest import mock

import pytest

from skulkctl.main import main


def candidates(*words: str) -> list[str]:
    """What may stand for the last word, as bash is told."""
    asked = {
        "_SKULKCTL_COMPLETE": "complete_bash",
        "COMP_WORDS": "\n".join(["skulkctl", *map(shlex.quote, words)]),
        "COMP_CWORD": str(len(words)),
    }
    rich = sys.modules.get("rich")
    with (
        mock.patch.dict(os.environ, asked),
        contextlib.redirect_stdout(io.StringIO()) as out,
        contextlib.redirect_stderr(io.StringIO()) as err,
        pytest.raises(SystemExit) as ended,
    ):
        main([])
    if rich is None:
        # A completion hides it from Typer, and the tests that follow need it.
        sys.modules.pop("rich", None)
    assert (ended.value.code, err.getvalue()) == (0, "")
    return out.getvalue().split()
