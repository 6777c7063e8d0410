"""`skulkctl trace rm`: everywhere, and honest about nodes that did not answer."""

from __future__ import annotations

from tests.cli.conftest import Cli
from tests.cli.stock import StockNode

TRACE = {"taskId": "task-9", "createdAt": "2026-05-04T14:00:00", "fileSize": 10}
SILENT = {"nodeId": "node-b", "error": "no answer in 5 s"}
DELETE = "/v1/cluster/traces/delete"


def test_a_trace_is_deleted_on_every_node(cli: Cli, stock: StockNode) -> None:
    stock.on("GET", "/v1/cluster/traces", {"traces": [TRACE], "unreachableNodes": []})
    stock.on("POST", DELETE, {"deleted": ["task-9"], "notFound": [], "unreachableNodes": []})
    assert cli("trace", "rm", "task", "--dry-run").out == "would delete task-9\n"
    assert cli("trace", "rm", "task").code == 9
    assert [seen.path for seen in stock.seen if seen.method == "POST"] == []
    assert cli("trace", "rm", "task", "task-9", "--yes") == (
        0,
        "deleted task-9\n",
        "note: task matches trace task-9  None\n",
    )
    assert [seen.body for seen in stock.seen if seen.path == DELETE] == [b'{"taskIds": ["task-9"]}']
    assert cli("trace", "rm", "other", "--yes").code == 3
    assert cli("trace", "rm", "tas", "--yes").code == 2


def test_a_node_that_did_not_answer_makes_it_partial(cli: Cli, stock: StockNode) -> None:
    stock.on("GET", "/v1/cluster/traces", {"traces": [TRACE], "unreachableNodes": []})
    told = {"deleted": ["task-9"], "notFound": [], "unreachableNodes": [SILENT]}
    stock.on("POST", DELETE, told)
    result = cli("trace", "rm", "task-9", "--yes")
    assert (result.code, result.out) == (8, "deleted task-9\n")
    assert "node-b: no answer in 5 s" in result.err
