"""`skulkctl preview` and `swap` on a stock server: what is shown, what is asked in which order."""

from __future__ import annotations

import json
from typing import Any

from tests.cli.builders import accepted
from tests.cli.conftest import Cli
from tests.cli.stock import KITE1, KITE2, Reply
from tests.cli_inference.model_node import (
    INSTANCE,
    MODEL,
    ModelNode,
    a_state,
    another_instance,
    error_body,
    the_states,
)

ACCEPTED = accepted(MODEL)
NEW = "new-instance"


def a_row(sharding: str = "Pipeline", meta: str = "MlxRing", **changes: Any) -> dict[str, Any]:
    return {
        "model_id": MODEL,
        "sharding": sharding,
        "instance_meta": meta,
        "instance": a_state()["instances"][INSTANCE],
        "memory_delta_by_node": {KITE1: 364904448, KITE2: 364904448},
        "error": None,
        **changes,
    }


NEEDS = {
    node: {
        "total_bytes": 1073741824,
        "weights_bytes": 364904448,
        "overhead_bytes": 109471334,
        "kv_bytes": 268435456,
        "floor_bytes": 268435456,
        "usable_bytes": 12884901888,
    }
    for node in (KITE1, KITE2)
}


def test_preview_shows_each_way_once_with_its_arithmetic_and_the_reasons(
    cli: Cli, node: ModelNode
) -> None:
    error = (
        f"no RDMA-connected cycles; left out: {KITE2} is draining\nhint: --instance-meta MlxRing"
    )
    rows = [
        a_row(need_by_node=NEEDS),
        a_row("Tensor", need_by_node=NEEDS),
        a_row("Tensor", "MlxJaccl", instance=None, memory_delta_by_node=None, error=error),
    ]
    node.on("GET", "/instance/previews", {"previews": rows})
    assert cli("preview", MODEL) == (
        0,
        "SHARDING  LINK      FITS  COUNT  NODES        CONTEXT  PLAN\n"
        "Pipeline  MlxRing   yes       2  kite1,kite2   131072  plan-1269ba9450a8\n"
        "Tensor    MlxJaccl  no        -  -                  -  -\n"
        "\n"
        "PLAN               RANK  NODE   LAYERS    WEIGHTS  OVERHEAD        KV     FLOOR    NEED"
        "   USABLE\n"
        "plan-1269ba9450a8     0  kite1  0-8/16   348.0MiB  104.4MiB  256.0MiB  256.0MiB  1.0GiB"
        "  12.0GiB\n"
        "plan-1269ba9450a8     1  kite2  8-16/16  348.0MiB  104.4MiB  256.0MiB  256.0MiB  1.0GiB"
        "  12.0GiB\n"
        "\n"
        "Tensor over MlxJaccl is not possible:\n"
        "  no RDMA-connected cycles\n"
        "  left out: kite2 is draining\n",
        f"hint: skulkctl place {MODEL} --plan plan-1269ba9450a8 --wait\n",
    )


def test_preview_of_a_stock_server_shows_what_it_tells(cli: Cli, node: ModelNode) -> None:
    node.on("GET", "/instance/previews", {"previews": [a_row()]})
    assert "WEIGHTS\n" in cli("preview", MODEL).out
    document = json.loads(cli("preview", MODEL, "-o", "json").out)
    assert document["kind"] == "PreviewList"
    assert document["items"][0]["planId"] == "plan-1269ba9450a8"
    assert cli("preview", MODEL, "-q").out == "plan-1269ba9450a8\n"


def test_hints_of_a_model_that_fits_nowhere_are_the_daemons(cli: Cli, node: ModelNode) -> None:
    failing = a_row(instance=None, error="too large\nhint: 3 more nodes: skulkctl nodes")
    node.on("GET", "/instance/previews", {"previews": [failing]})
    result = cli("preview", MODEL)
    assert (result.code, result.err) == (0, "hint: 3 more nodes: skulkctl nodes\n")
    node.on("GET", "/instance/previews", {"previews": []})
    assert cli("preview", MODEL).err.startswith("hint: the daemon has not seen any node yet")


def test_an_unknown_model_or_server_without_previews_is_said(cli: Cli, node: ModelNode) -> None:
    said = Reply(400, error_body("Failed to load model card: nothing", 400))
    node.on("GET", "/instance/previews", said)
    assert cli("preview", "no/thing").code == 3
    del node.answers[("GET", "/instance/previews")]
    assert cli("preview", MODEL).err.startswith("error: this server cannot preview placements")


def swapping(node: ModelNode, *, fits: bool) -> None:
    row = a_row() if fits else a_row(instance=None, error="too small")
    node.on("GET", "/instance/previews", {"previews": [row]})
    node.on("POST", "/place_instance", {**ACCEPTED, "instance_id": NEW})
    node.on(
        "DELETE",
        f"/instance/{INSTANCE}",
        {"message": "x", "command_id": "c", "instance_id": INSTANCE},
    )


def changes(node: ModelNode) -> list[str]:
    return [f"{seen.method} {seen.path}" for seen in node.seen if seen.method != "GET"]


def test_swap_places_the_new_one_first_when_both_fit(cli: Cli, node: ModelNode) -> None:
    swapping(node, fits=True)
    node.on("GET", "/state", the_states(a_state(), another_instance(a_state(), NEW)))
    result = cli("swap", "7f3c", MODEL, "--yes", "--wait", "-q")
    assert (result.code, result.out) == (0, f"{NEW}\n")
    assert changes(node) == ["POST /place_instance", f"DELETE /instance/{INSTANCE}"]


def test_swap_deletes_the_old_one_first_when_it_must(cli: Cli, node: ModelNode) -> None:
    swapping(node, fits=False)
    gone = another_instance(a_state(), NEW)
    del gone["instances"][INSTANCE]
    node.on("GET", "/state", the_states(a_state(), gone))
    result = cli("swap", "7f3c", MODEL, "--yes")
    assert result.code == 0
    assert changes(node) == [f"DELETE /instance/{INSTANCE}", "POST /place_instance"]
    node.on("POST", "/place_instance", Reply(400, error_body("still too small", 400)))
    node.on("GET", "/state", the_states(a_state(), gone))
    result = cli("swap", "7f3c", MODEL, "--yes")
    assert result.code == 4
    assert f"hint: restore the old model:  skulkctl place {MODEL}\n" in result.err


def test_swap_asks_first_and_a_dry_run_changes_nothing(cli: Cli, node: ModelNode) -> None:
    swapping(node, fits=False)
    assert cli("swap", "7f3c", MODEL).code == 9
    result = cli("swap", "7f3c", MODEL, "--dry-run")
    assert result.out == f"would replace {MODEL} (7f3c2a10) on kite1, kite2 by {MODEL}\n"
    assert "does not fit beside it" in result.err
    assert cli("swap", "nobody", MODEL, "--yes").code == 3
    assert changes(node) == []
