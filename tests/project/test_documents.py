"""Documents that cannot rot: links lead somewhere, commands exist, versions agree."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

import skulkd
from skulkctl.cli.command import new_context
from skulkctl.cli.root import build

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
LINK = re.compile(r"\]\((?!https?://)([^)#\s]*)(?:#([^)\s]+))?\)")
COMMAND = re.compile(r"^\$ (skulkctl .*?)(?:\s{2,}#.*)?$", re.MULTILINE)


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_every_link_in_a_page_leads_to_a_file_and_a_heading(page: Path) -> None:
    for target, fragment in LINK.findall(page.read_text(encoding="utf-8")):
        file = (page.parent / target) if target else page
        assert file.exists(), f"{page.name} links to {target}"
        if fragment:
            headings = re.findall(r"^#+ (.+)$", file.read_text(encoding="utf-8"), re.MULTILINE)
            assert fragment in [_anchor(h) for h in headings], f"{page.name} links to #{fragment}"


def _documented() -> list[str]:
    found = {c for page in PAGES for c in COMMAND.findall(page.read_text(encoding="utf-8"))}
    return sorted(re.split(r"\s(?:\||\|\||&&|>)\s", command)[0] for command in found)


@pytest.mark.parametrize("command", _documented())
def test_every_command_in_the_documents_is_one_that_skulkctl_accepts(command: str) -> None:
    words = shlex.split(command)[1:]
    node: Any = build()
    while hasattr(node, "get_command"):
        default = getattr(node, "default", None)
        listing = default is not None and (not words or words[0].startswith("-"))
        name = default if listing else words.pop(0)
        node = node.get_command(new_context(node, "skulkctl"), name)
        assert node is not None, f"{name} is not a command"
    known = {option for parameter in node.params for option in parameter.opts}
    unknown = {word.split("=")[0] for word in words if word.startswith("-")} - known
    assert not unknown, f"not options of {command}"


def test_the_changelog_has_a_place_for_the_current_version() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"## [{skulkd.__version__}] - " in text
