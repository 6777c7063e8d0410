"""The screen on a daemon that answers: polling, evidence and log lines over one connection."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from skulkctl.capture.bundles import read_members
from skulkctl.contexts import Context, Target
from skulkctl.daemon.client import AsyncDaemon
from skulkctl.timeline.frames import ClusterWatch
from skulkctl.ui.actions import Actions, Reader
from skulkctl.ui.app import Setup, SkulkApp
from skulkctl.ui.dialogs import TextScreen
from skulkctl.ui.feed import LiveFeed
from skulkd.wire.ids import NodeId
from skulkd.wire.logs import LogLine, LogLines
from tests.cli.builders import as_json
from tests.cli.stock import KITE1, Reply, StockNode, error_body, stock_node
from tests.timeline.app_rig import notices, press, screen_text, settle
from tests.timeline.builders import enter, rank, timeline

RUNNER = "runner-7f3c2b1a-0"
DIAGNOSTICS = f"/v1/diagnostics/cluster/{KITE1}"


@pytest.fixture
def node() -> Iterator[StockNode]:
    served = stock_node()
    stuck = [enter(90, "prefill_stream", "stream_generate_prefill")]
    served.on("GET", "/v1/cluster/timeline", timeline(rank(0, stuck, node=KITE1)))
    served.start()
    yield served
    served.stop()


def captured(folder: Path) -> dict[str, bytes]:
    """The files in the only bundle."""
    [bundle] = folder.glob("skulk-capture-*.tar.zst")
    return read_members(bundle)


async def test_a_daemon_is_polled_captured_read_and_asked_to_cancel(
    node: StockNode, tmp_path: Path
) -> None:
    lines = LogLines(node_id=NodeId(KITE1), lines=[LogLine(text="out of memory")], cursor=1)
    node.on("GET", f"{DIAGNOSTICS}/logs", as_json(lines))
    node.on("POST", f"{DIAGNOSTICS}/capture", {"nodeDiagnostics": {"newer": 1}})
    gone = Reply(404, error_body("no such task", 404))
    node.on("POST", f"{DIAGNOSTICS}/runners/{RUNNER}/cancel", gone)
    daemon = AsyncDaemon(Target(Context("lab", (node.url,)), None))
    feed, actions = LiveFeed(daemon, ClusterWatch()), Actions(daemon, tmp_path)
    app = SkulkApp(Setup(feed, actions, Reader(daemon), mode="timeline", every_s=3600.0))
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(app, pilot)
        assert "Rank 0 on kite1 makes no progress" in screen_text(app)
        await press(app, pilot, "l")
        assert isinstance(app.screen, TextScreen)
        await press(app, pilot, "escape", "c")
        assert "captured: " in notices(app)
        await press(app, pilot, "x", "y")
        assert "not cancelled: " in notices(app)
    # A key that this version does not know is evidence, too.
    assert b'"newer": 1' in captured(tmp_path)["rank0-kite1/diagnostics.json"]
    asked = [(seen.method, seen.path.partition("?")[0]) for seen in node.seen]
    assert asked.count(("POST", f"{DIAGNOSTICS}/runners/{RUNNER}/cancel")) == 1
