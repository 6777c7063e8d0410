"""Completion of models, instances and requests, with the rule of 300 ms."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.completing import candidates as values
from tests.cli.stock import HANG
from tests.cli_inference.model_node import COMMAND, INSTANCE, MODEL, ModelNode, a_state, a_task

TINY = "skulk/tiny-llama"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("place", "skulk"), [TINY]),
        (("model", "rm", "mlx-community/L"), [MODEL]),
        (("chat", ""), [MODEL]),
        (("probe", "m"), [MODEL]),
        (("delete", "7f"), [INSTANCE]),
        (("wait", ""), [INSTANCE]),
        (("cancel", "2"), [COMMAND]),
        (("place", "x", "--exclude", "kite2"), ["kite2"]),
        (("place", "--sharding", "T"), ["Tensor"]),
        (("place", "--instance-meta", ""), ["MlxRing", "MlxJaccl"]),
        (("wait", "x", "--for", "d"), ["deleted"]),
        (("wait", "x", "--fail-on", "f"), ["failed", "failed,deleted"]),
        (("model", "pull", ""), ["demo", "demo-embed", "tiny"]),
        (("model", "import", ""), []),
        (("api", "GET", "/s"), []),
        (("instances", "--columns", "det"), ["detail"]),
        (("models", "--sort", "si"), ["size"]),
    ],
)
def test_names_come_from_the_daemon(
    node: ModelNode, words: tuple[str, ...], expected: list[str]
) -> None:
    state = a_state()
    state["tasks"] = {"t": a_task("t", COMMAND)}
    node.on("GET", "/state", state)
    assert values(*words) == expected


def test_a_daemon_that_hangs_is_replaced_by_memory(node: ModelNode, home: Path) -> None:
    for words in (("place", ""), ("delete", ""), ("restart", ""), ("chat", "")):
        assert values(*words)
    node.on("GET", "/state", HANG)
    node.on("GET", "/models", HANG)
    assert values("place", "skulk") == [TINY]
    assert values("delete", "") == [INSTANCE]
    assert values("restart", "kite1") == ["kite1"]
    assert values("chat", "") == [MODEL]
    assert values("cancel", "") == []
