"""Pictures of terminals: what rich and Textual export, as SVG that looks the same everywhere.

Every word is placed by itself, with its width: a viewer with another font, or one that ignores
widths, cannot glue words together. Several frames become one picture that plays them.
"""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from rich.cells import cell_len

_STYLE = re.compile(r"\.(?P<name>[\w-]+-r\d+) \{ (?P<css>[^}]*) \}")
_TEXT = re.compile(
    r'<text class="(?P<name>[\w-]+-r\d+)" x="(?P<x>[\d.]+)" y="(?P<y>[\d.]+)" '
    r'textLength="(?P<length>[\d.]+)"[^>]*>(?P<text>.*?)</text>'
)
_RECT = re.compile(
    r'<rect fill="(?P<fill>#\w+)" x="(?P<x>[\d.]+)" y="(?P<y>[\d.]+)" width="(?P<width>[\d.]+)" '
    r'height="(?P<height>[\d.]+)" shape-rendering="crispEdges"/>'
)
_SIZE = re.compile(r'viewBox="0 0 (?P<width>[\d.]+) (?P<height>[\d.]+)"')
_INSIDE = re.compile(r'<g transform="translate\((?P<x>[\d.]+), (?P<y>[\d.]+)\)" clip-path')
FONTS = "'DejaVu Sans Mono','SF Mono',Menlo,Consolas,'Liberation Mono',monospace"
BACKGROUND = "#0f1318"
_WORDS = re.compile(r"\S+")


@dataclass
class Picture:
    """One frame: its size, its colours and the elements in it."""

    width: float
    height: float
    left: float
    top: float
    elements: list[str] = field(default_factory=list)


def parse(svg: str) -> Picture:
    """The frame of an SVG that rich exported. Raises ValueError for any other."""
    size, inside = _SIZE.search(svg), _INSIDE.search(svg)
    if size is None or inside is None:
        raise ValueError("this is not an SVG that rich has exported")
    styles = {match["name"]: match["css"] for match in _STYLE.finditer(svg)}
    picture = Picture(
        float(size["width"]), float(size["height"]), float(inside["x"]), float(inside["y"])
    )  # fmt: skip
    picture.elements += [match[0] for match in _RECT.finditer(svg)]
    for match in _TEXT.finditer(svg):
        picture.elements += _words(match, styles[match["name"]])
    return picture


def _words(match: re.Match[str], css: str) -> list[str]:
    """The words of a piece of text, each at its own place."""
    text = html.unescape(match["text"]).replace("\xa0", " ")
    cells = cell_len(text)
    if not cells:
        return []
    cell = float(match["length"]) / cells
    found = []
    for word in _WORDS.finditer(text):
        x = float(match["x"]) + cell * cell_len(text[: word.start()])
        found.append(
            f'<text x="{x:g}" y="{match["y"]}" textLength="{cell * cell_len(word[0]):g}" '
            f'lengthAdjust="spacingAndGlyphs" style="{css.strip()}">{html.escape(word[0])}</text>'
        )
    return found


def still(svg: str, title: str) -> str:
    """One frame as a picture."""
    picture = parse(svg)
    return _frame(picture, title, "".join(f"{one}\n" for one in picture.elements), "")


def moving(svgs: Sequence[str], seconds: Sequence[float], title: str) -> str:
    """Frames, each shown for so many seconds, played again and again.

    What several frames have in common is in the picture once.
    """
    pictures = [parse(svg) for svg in svgs]
    ends = [sum(seconds[: number + 1]) for number in range(len(seconds))]
    shown: dict[str, list[int]] = {}
    for number, picture in enumerate(pictures):
        for one in dict.fromkeys(picture.elements):
            shown.setdefault(one, []).append(number)
    # Colours of cells are below all text, whichever frames they belong to.
    groups: dict[tuple[bool, tuple[int, ...]], list[str]] = {}
    for one, numbers in shown.items():
        groups.setdefault((one.startswith("<text"), tuple(numbers)), []).append(one)
    css, body = [], []
    for number, ((_, frames), elements) in enumerate(sorted(groups.items())):
        inner = "".join(f"{one}\n" for one in elements)
        if len(frames) == len(pictures):
            body.append(inner)
            continue
        css.append(_keyframes(f"f{number}", frames, [0.0, *ends]))
        body.append(f'<g class="f{number}">{inner}</g>')
    return _frame(pictures[0], title, "".join(body), "".join(css))


def _keyframes(name: str, frames: Sequence[int], times: Sequence[float]) -> str:
    total = times[-1]
    steps = "".join(
        f"{100 * times[number] / total:.3f}%{{visibility:"
        f"{'visible' if number in frames else 'hidden'}}}"
        for number in range(len(times) - 1)
    )
    return f".{name}{{animation:{name} {total:g}s step-end infinite}}@keyframes {name}{{{steps}}}\n"


def _frame(picture: Picture, title: str, body: str, css: str) -> str:
    size = f"{picture.width:g} {picture.height:g}"
    dots = "".join(
        f'<circle cx="{28 + 22 * number}" cy="24" r="7" fill="{colour}"/>'
        for number, colour in enumerate(("#ff5f57", "#febc2e", "#28c840"))
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size}" role="img" '
        f'aria-label="{html.escape(title)}">\n'
        f"<style>text{{font-family:{FONTS};font-size:20px;white-space:pre}}\n{css}</style>\n"
        f'<rect x="1" y="1" width="{picture.width - 2:g}" height="{picture.height - 2:g}" rx="8" '
        f'fill="{BACKGROUND}" stroke="#44505c"/>{dots}\n'
        f'<text x="{picture.width / 2:g}" y="29" text-anchor="middle" fill="#8b98a5" '
        f'style="font-size:17px">{html.escape(title)}</text>\n'
        f'<g transform="translate({picture.left:g},{picture.top:g})">\n{body}</g>\n</svg>\n'
    )
