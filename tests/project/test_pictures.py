"""The pictures of README and docs: well formed, self-contained, words apart."""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

from terminal_svg import moving, still  # noqa: E402

PICTURES = sorted((ROOT / "docs/images").glob("*.svg"))
SVG = "{http://www.w3.org/2000/svg}"


def exported(*lines: str) -> str:
    console = Console(record=True, width=40, file=io.StringIO(), force_terminal=True)
    for line in lines:
        console.print(Text.from_ansi(line))
    return console.export_svg(title="")


def texts(svg: str) -> list[str]:
    return [one.text or "" for one in ElementTree.fromstring(svg).iter(f"{SVG}text")]


@pytest.mark.parametrize("path", PICTURES, ids=lambda path: path.name)
def test_a_picture_loads_nothing_and_keeps_its_words_apart(path: Path) -> None:
    svg = path.read_text(encoding="utf-8")
    assert len(svg) < 1024 * 1024
    assert not re.search(r"@import|url\(|<image|<script|href=", svg)
    assert not re.search(r"/tmp/|/work/|/home/|/root/", svg)
    words = texts(svg)
    assert len(words) > 20
    assert not [word for word in words[1:] if re.search(r"\s", word)]


def test_every_picture_is_shown_and_every_shown_picture_exists() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    shown = {
        (page.parent / name).resolve()
        for page in pages
        for name in re.findall(r"!\[[^\]]*\]\(([^)]+\.svg)\)", page.read_text(encoding="utf-8"))
    }
    assert shown == {path.resolve() for path in PICTURES}


def test_words_are_placed_one_by_one() -> None:
    svg = still(exported("\x1b[32mok\x1b[0m  daemon <1> \x1b[1m北京\x1b[0m."), "a & b")
    assert texts(svg) == ["a & b", "ok", "daemon", "<1>", "北京", "."]
    places = [float(one.get("x", 0)) for one in ElementTree.fromstring(svg).iter(f"{SVG}text")]
    cell = places[2] / 4
    assert places[3:] == pytest.approx([11 * cell, 15 * cell, 19 * cell], abs=0.1)


def test_frames_are_played_and_what_they_share_is_there_once() -> None:
    svg = moving([exported("same", "one"), exported("same", "two")], [1.0, 3.0], "film")
    assert sorted(texts(svg)) == ["film", "one", "same", "two"]
    assert svg.count("@keyframes") == 2
    assert "25.000%{visibility:hidden}" in svg
    assert "25.000%{visibility:visible}" in svg


def test_another_svg_is_refused() -> None:
    with pytest.raises(ValueError, match="rich"):
        still("<svg/>", "x")
