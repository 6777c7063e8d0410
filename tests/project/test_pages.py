"""Every command on a page of the docs can be typed: it exists and takes those options."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from skulkctl.cli.command import new_context
from skulkctl.cli.root import build

DOCS = Path(__file__).parents[2] / "docs"
PAGES = [page for page in sorted(DOCS.glob("*.md")) if page.name != "reference.md"]
_BLOCK = re.compile(r"```(?:console|sh|cron)\n(.*?)```", re.DOTALL)
_SPAN = re.compile(r"`(skulkctl [^`\n]+)`")
# What stands after these is another program's, or prose.
_ENDS = ("|", "&&", "||", ">", "<", ";")
SECTIONS_OF_THE_SEED = {
    "staged copies": "## A disk fills up",
    "the eviction lifecycle": "storage.md",
    "the grace budget": "staging_keep_recent_gb",
    "the per-node picture": "skulkctl storage --all-nodes",
    "manual cleanup": "skulkctl purge-staging",
    "400, arithmetic per node": "## A placement is refused",
    "503 after forming": "retry shortly",
    "ids are per session": "ids are new at every start",
    "preview": "skulkctl preview",
    "a node dies": "## A node died",
    "a wedged GPU": "## A wedged GPU",
    "a crashed process": "## A runner crashed",
    "restart in place": "skulkctl restart",
    "where logs go": "## Where the logs are",
    "event log retention": "## The event log only counts",
    "tracing": "skulkctl trace on",
    "tracing by completion id": "skulkctl trace show --command",
    "the health checklist": "skulkctl doctor --expect-nodes",
    "a probe request": "skulkctl probe",
    "speculation": "MTP",
}


def lines_of(page: Path) -> Iterator[str]:
    """What a page says to type, in blocks and in sentences."""
    text = page.read_text(encoding="utf-8")
    for block in _BLOCK.findall(text):
        for line in block.splitlines():
            _, found, command = line.partition("skulkctl ")
            if found and not line.lstrip().startswith("#"):
                yield f"skulkctl {command}"
    yield from _SPAN.findall(text)


def commands_in(line: str) -> Iterator[list[str]]:
    """The words of each skulkctl command of a line; comments and other programs are left out."""
    words: list[str] = []
    lexer = shlex.shlex(line, posix=True, punctuation_chars=";&|<>")
    lexer.whitespace_split = True
    lexer.commenters = "#"
    for word in [*lexer, ";"]:
        if word in _ENDS:
            if words[:1] == ["skulkctl"]:
                yield words[1:]
            words = []
        else:
            words.append(word)


COMMANDS = sorted(
    {
        (page.name, shlex.join(words))
        for page in PAGES
        for line in lines_of(page)
        if "…" not in line and "..." not in line
        for words in commands_in(line)
    }
)


def understood(words: list[str]) -> None:
    """Parse as the command line does, but run nothing. Raises UsageError, LookupError."""
    command: Any = build()
    context = new_context(command, "skulkctl", None)
    rest = list(words)
    while hasattr(command, "list_commands") and rest:
        name = rest.pop(0)
        if name.startswith("-"):
            return  # an option of the root; others name those
        command = command.get_command(context, name)
        if command is None:
            raise LookupError(f"no such command: {name}")
        context = new_context(command, name, context)
    if not hasattr(command, "list_commands"):
        command.make_context(words[0], rest)


@pytest.mark.parametrize(("page", "typed"), COMMANDS)
def test_a_command_of_a_page_can_be_typed(page: str, typed: str) -> None:
    try:
        understood(shlex.split(typed))
    except typer.BadParameter as error:
        # A sentence may name a command without what it works on.
        if type(error).__name__ != "MissingParameter" or f"`skulkctl {typed}`" not in text_of(page):
            raise


def text_of(page: str) -> str:
    return (DOCS / page).read_text(encoding="utf-8")


def test_there_are_commands_to_check() -> None:
    assert len([one for one in COMMANDS if one[0] == "runbook.md"]) > 60
    with pytest.raises(Exception, match="No such option"):
        understood(["cancel", "4be0", "--no-such-option"])
    with pytest.raises(Exception, match="no such command"):
        understood(["no-such-command"])


@pytest.mark.parametrize("section", SECTIONS_OF_THE_SEED)
def test_the_runbook_has_every_section(section: str) -> None:
    assert SECTIONS_OF_THE_SEED[section] in text_of("runbook.md")


def test_the_contents_of_the_runbook_are_its_sections() -> None:
    text = text_of("runbook.md")
    headings = re.findall(r"^## (.+)$", text, re.MULTILINE)
    listed = re.findall(r"^- \[(.+?)\]\(#(.+?)\)$", text, re.MULTILINE)
    assert [title for title, _ in listed] == headings
    for title, anchor in listed:
        assert anchor == re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
