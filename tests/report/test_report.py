"""The page of an incident: what is in it, what it must never load, and bad input."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from skulkctl.report.stacks import main_stacks, merge, ranks_text, threads_of
from skulkd.wire.bundles import pack_bundle, pretty_json
from tests.skulkctl_process import skulkctl
from tests.timeline.builders import enter, rank, step, timeline

DUMP = """Process 41: python -m skulkd.runner
Python v3.11.7

Thread 41 (idle): "MainThread"
    {innermost}
    step (generation.py:80)
    main (runner.py:12)
Thread 42 (idle): "pulse"
    wait (threading.py:331)
"""


def hang_bundle(path: Path, hostile: str = "") -> Path:
    """Ranks 0 and 2 wait for rank 1, which computes; `hostile` is in a log and a model's name."""
    first = [step(209, "idle", "runner_ready"), enter(201, "prefill_pipeline", "recv")]
    second = [step(209, "idle", "runner_ready"), enter(200, "prefill_pipeline", "eval")]
    found = timeline(
        rank(0, [*first[:1], enter(201, "prefill_pipeline", "pipeline_first_eval_recv")]),
        rank(1, [*second[:1], enter(200, "prefill_pipeline", "pipeline_last_eval_output")]),
        rank(2, [*first[:1], enter(201, "prefill_pipeline", "pipeline_first_eval_recv")]),
    )
    members = {"timeline.json": pretty_json({"timeline": found, "names": {}})}
    for number, innermost in enumerate(("recv (ring.py:5)", "eval (ops.py:9)", "recv (ring.py:5)")):
        place = f"rank{number}-kite{number + 1}"
        members[f"{place}/py-spy.txt"] = DUMP.format(innermost=innermost).encode()
        members[f"{place}/log.txt"] = f"line of rank {number} {hostile}\n".encode()
        identity = {"skulkVersion": "0.1.0", "osVersion": "Debian"}
        members[f"{place}/diagnostics.json"] = pretty_json({"identity": identity})
    about = {"modelId": f"lab/model{hostile}", "failed": {"rank 9": f"no answer {hostile}"}}
    path.write_bytes(pack_bundle(members, about))
    return path


class Resources(HTMLParser):
    """Everything that a browser would load or run, and all text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.tags: set[str] = set()
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        for name, value in attrs:
            if name in ("src", "href", "srcset", "data") or name.startswith("on"):
                self.loaded.append(f"{tag} {name}={value}")

    def handle_data(self, data: str) -> None:
        self.text += data


def page_of(bundle: Path, tmp_path: Path) -> str:
    page = tmp_path / "hang.html"
    done = skulkctl("capture", "--from", str(bundle), "--report", str(page), home=tmp_path)
    assert (done.code, done.out) == (0, f"report in {page}\n"), done.err
    assert page.stat().st_mode & 0o077 == 0
    return page.read_text(encoding="utf-8")


def test_a_report_tells_the_whole_incident_and_loads_nothing(tmp_path: Path) -> None:
    text = page_of(hang_bundle(tmp_path / "hang.tar.zst"), tmp_path)
    page = Resources(text)
    assert page.loaded == []
    assert {"script", "link", "iframe", "img"}.isdisjoint(page.tags)
    assert "url(" not in text
    assert "@import" not in text
    shown = re.sub(r"\s+", " ", page.text)
    for part in ("✖ HANG", "rule D1", "Rank 1", "skulkctl capture", "[0-2]main (runner.py:12)",
                 "[0,2]recv (ring.py:5)", "[1]eval (ops.py:9)", "pipeline_last_eval_output",
                 "line of rank 2", "0.1.0", "no answer", "MLX memory"):  # fmt: skip
        assert part in shown, part
    assert text.count("<rect") >= 6
    # The ranks that wait are drawn so.
    assert re.search(r'class="wait"[^>]*><title>[^<]*pipeline_first_eval_recv', text)


def test_nothing_in_a_bundle_becomes_markup(tmp_path: Path) -> None:
    hostile = "</pre><script>alert(1)</script><img src=x onerror=alert(1)>"
    page = Resources(page_of(hang_bundle(tmp_path / "hang.tar.zst", hostile), tmp_path))
    assert page.loaded == []
    assert {"script", "img"}.isdisjoint(page.tags)
    assert page.text.count("alert(1)") >= 6


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--from", "{bundle}"], 2, "--report FILE.html"),
        (["--from", "{bundle}", "--report", "page.txt"], 2, "must end in .html"),
        (["--from", "{bundle}", "--report", "{taken}"], 1, "already exists"),
        (["--from", "{nothing}", "--report", "x.html"], 3, "no file"),
        (["--from", "{taken}", "--report", "x.html"], 1, "is not a capture bundle"),
        (["--from", "{node}", "--report", "x.html"], 1, "has no timeline"),
        (["7f3c", "--from", "{bundle}", "--report", "x.html"], 2, "7f3c is not needed"),
    ],
)
def test_a_bad_request_writes_nothing(
    tmp_path: Path, arguments: list[str], code: int, said: str
) -> None:
    taken = tmp_path / "taken.html"
    taken.write_text("mine")
    node = tmp_path / "node.tar.zst"
    node.write_bytes(pack_bundle({"diagnostics.json": b"{}"}, {}))
    places = {"bundle": hang_bundle(tmp_path / "hang.tar.zst"), "taken": taken, "node": node,
              "nothing": tmp_path / "nothing"}  # fmt: skip
    filled = [argument.format(**places) for argument in arguments]
    done = skulkctl("capture", *filled, home=tmp_path, cwd=tmp_path)
    assert done.code == code, done.err
    assert said in done.err
    assert taken.read_text() == "mine"
    assert not (tmp_path / "x.html").exists()


def test_stacks_are_merged_by_their_outermost_frames() -> None:
    dump = DUMP.format(innermost="recv (ring.py:5)")
    assert threads_of(dump)["MainThread"] == [
        "main (runner.py:12)", "step (generation.py:80)", "recv (ring.py:5)",
    ]  # fmt: skip
    assert main_stacks({0: "", 1: "py-spy failed"}) == {}
    tree = merge({0: ["a", "b"], 1: ["a", "c"], 2: ["a", "b"]})
    assert [(depth, one.name, sorted(one.ranks)) for depth, one in tree.lines()] == [
        (0, "a", [0, 1, 2]), (1, "b", [0, 2]), (1, "c", [1]),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("ranks", "text"),
    [([0], "[0]"), ([0, 2, 3], "[0,2-3]"), ([3, 1, 2], "[1-3]"), ([0, 2, 4], "[0,2,4]")],
)
def test_ranks_as_text(ranks: list[int], text: str) -> None:
    assert ranks_text(ranks) == text
