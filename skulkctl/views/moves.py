"""How often a placed model was moved, from where to where, and why. Pure.

From `/v1/placements`; a stock server has no such thing, and then nothing is shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from skulkctl.views.read import Document, integer, mapping, sequence, text

PLACEMENTS_PATH = "/v1/placements"


def with_moves(items: Sequence[Document], placements: object) -> list[dict[str, object]]:
    """The instances with what their records say; `detail` tells why one stays where it failed."""
    records = {
        text(row, "instanceId") or "": mapping(row, "record")
        for row in sequence(placements, "placements")
    }
    return [_with_record(item, records.get(str(item["id"]), {})) for item in items]


def _with_record(item: Document, record: Document) -> dict[str, object]:
    moves = moves_of(record)
    stuck = text(record, "stuck")
    detail = item["detail"]
    if stuck:
        detail = f"{detail or 'failed'}; not moved: {stuck.splitlines()[0]}"
    elif moves and detail:
        detail = f"{detail}; moved from {','.join(_names(moves[-1], 'fromNodes'))}"
    return {
        **item,
        "detail": detail,
        "moves": moves,
        "notMoved": stuck,
        "excluded": sorted(str(name) for name in mapping(record, "excluded").values()),
        "only": sorted(str(name) for name in mapping(record, "only").values()),
    }


def moves_of(record: object) -> list[Document]:
    return [move for move in sequence(record, "moves") if isinstance(move, Mapping)]


def move_text(move: object) -> str:
    """`kite1 -> kite1,kite2 (memory-guard, 1 of 2)`."""
    where = f"{','.join(_names(move, 'fromNodes'))} -> {','.join(_names(move, 'toNodes'))}"
    attempt, most = integer(move, "attempt"), integer(move, "most")
    count = f", {attempt} of {most}" if most is not None else ""
    return f"{where} ({text(move, 'cause')}{count})"


def move_line(move: object) -> str:
    """The same with the reason."""
    return f"{move_text(move)}: {text(move, 'reason')}"


def _names(move: object, key: str) -> list[str]:
    names = mapping(move, "names")
    return [str(names.get(str(node), node)) for node in sequence(move, key)]
