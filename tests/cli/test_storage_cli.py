"""`storage`, `purge-staging`, `store`, `model pull|rm`: screens, questions and exit codes."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from skulkctl.daemon.state import ClusterState
from skulkctl.doctor.checks import storage as storage_check
from skulkctl.doctor.facts import Facts
from skulkctl.output.formats import Style
from skulkctl.output.watching import changes
from skulkctl.storage.purge import gains, purge_items
from skulkctl.storage.rows import COPIES, STORAGE, copies_of, storage_items, total_of
from skulkd.wire.storage import ClusterStorage, PurgeResult
from tests.cli.builders import downloads, ongoing
from tests.cli.conftest import Cli
from tests.cli.stock import KITE1, KITE2, Reply, Seen, StockNode

NOW = datetime(2026, 3, 20, 12, 0, tzinfo=UTC)
GIB = 1024**3


def copy(model_id: str, gib: float, used_at: float, **more: Any) -> dict[str, Any]:
    return {
        "modelId": model_id, "directory": f"/s/{model_id.replace('/', '--')}",
        "sizeBytes": int(gib * GIB), "lastUsedEpochSeconds": used_at, "inUse": False,
        "complete": True, "inUseBy": [], **more,
    }  # fmt: skip


CLUSTER = {
    "nodes": [
        {
            "nodeId": KITE1, "name": "kite1", "ok": True, "error": None,
            "storage": {
                "nodeId": KITE1, "stagingRoot": "/s", "stagedTotalBytes": 14 * GIB,
                "stagedModels": [
                    copy("org/used", 4, NOW.timestamp() - 60, inUse=True,
                         inUseBy=["instance 1f2e3d4c"]),
                    copy("org/old", 10, NOW.timestamp() - 7200),
                ],
                "eventLogBytes": 2048, "logBytes": 3072,
                "diskTotalBytes": 100 * GIB, "diskFreeBytes": 5 * GIB, "keepRecentBytes": 0,
                "nextEviction": ["org/old"], "nextEvictionBytes": 10 * GIB,
                "storePath": None,
            },
        },
        {"nodeId": KITE2, "name": "kite2", "ok": False, "error": "did not answer in 5 s",
         "storage": None},
    ]
}  # fmt: skip


def state(**parts: Any) -> ClusterState:
    return ClusterState(parts, NOW)


def transfer(done: int, total: int) -> ClusterState:
    return state(downloads=downloads(**{KITE1: ongoing(KITE1, "org/coming", done, total)}))


STORED_MODEL = {
    "model_id": "org/m",
    "store_path": "org--m",
    "files": ["config.json"],
    "downloaded_at": "2026-03-04T12:00:00+00:00",
    "total_bytes": 5,
}
STORED = ClusterStorage.model_validate(CLUSTER)


# --- views ---


TABLE = (
    "NODE   STATUS     MODELS   STAGED  IN USE  KEEP    EVICT  EVENTS    LOGS    FREE      DISK\n"
    "kite1  ok              2  14.0GiB  4.0GiB    0B  10.0GiB  2.0KiB  3.0KiB  5.0GiB  100.0GiB\n"
    "kite2  NO ANSWER       -        -       -     -        -       -       -       -         -\n"
    "TOTAL  -               2  14.0GiB  4.0GiB     -  10.0GiB  2.0KiB  3.0KiB  5.0GiB  100.0GiB\n"
)


def test_nodes_are_rows_with_their_totals() -> None:
    items = storage_items(STORED, state())
    assert Style().rows(STORAGE, [*items, total_of(items)]) == TABLE


def test_copies_tell_their_use_and_their_fate() -> None:
    assert Style().rows(COPIES, copies_of(storage_items(STORED, state()))) == (
        "NODE   MODEL        SIZE  UNUSED  STATE       WHY\n"
        "kite1  org/used   4.0GiB      1m  in use      instance 1f2e3d4c\n"
        "kite1  org/old   10.0GiB      2h  evict next  -\n"
    )


def test_a_model_on_its_way_is_a_row_with_rate_and_time_left() -> None:
    (item, _) = storage_items(STORED, transfer(3 * GIB, 12 * GIB))
    row = copies_of([item])[-1]
    assert row["modelId"] == "org/coming"
    assert row["state"] == "staging 3.0GiB/12.0GiB, 1.0MiB/s, 18s left"
    assert row["inUseBy"] == ["being staged"]


def test_progress_makes_a_row_of_watch_a_changed_one() -> None:
    before, after = (
        {str(row["id"]): row for row in copies_of(storage_items(STORED, transfer(n, 100)))}
        for n in (10, 20)
    )
    found = list(changes(before, after, ("state", "complete", "inUseBy")))
    assert [(kind, row["modelId"]) for kind, row in found] == [("changed", "org/coming")]


# --- storage ---


def cluster_storage(seen: Seen) -> Any:
    nodes = CLUSTER["nodes"][:1] if "local=true" in seen.path else CLUSTER["nodes"]
    return {"nodes": nodes}


@pytest.fixture
def ours(stock: StockNode) -> StockNode:
    stock.server = "skulkd"
    stock.on("GET", "/store/storage/cluster", cluster_storage)
    return stock


def test_storage_shows_one_node_and_all_of_them_on_demand(ours: StockNode, cli: Cli) -> None:
    done = cli("storage")
    assert done.code == 0
    assert "kite1" in done.out
    assert "kite2" not in done.out
    assert "org/old" in done.out
    done = cli("storage", "--all-nodes")
    assert done.code == 8
    assert "NO ANSWER" in done.out
    assert "warning: kite2: no answer: did not answer in 5 s" in done.err


def test_storage_as_json_has_bytes_and_times_for_scripts(ours: StockNode, cli: Cli) -> None:
    done = cli("storage", "--all-nodes", "-o", "json")
    document = json.loads(done.out)
    assert document["kind"] == "StorageList"
    kite1, kite2 = document["items"]
    assert kite1["diskFreeBytes"] == 5 * GIB
    assert kite1["nextEviction"] == ["org/old"]
    assert kite1["models"][0]["lastUsed"] == "2026-03-20T11:59:00Z"
    assert kite2["error"] == "did not answer in 5 s"


def test_a_stock_node_tells_of_itself(stock: StockNode, cli: Cli) -> None:
    keys = ("complete", "inUseBy")
    plain = {k: v for k, v in copy("org/m", 1, 5.0).items() if k not in keys}
    stock.on("GET", "/store/storage", {
        "nodeId": KITE1, "stagingRoot": "/s", "stagedModels": [plain], "stagedTotalBytes": GIB,
        "eventLogBytes": 0, "diskTotalBytes": 2 * GIB, "diskFreeBytes": GIB,
    })  # fmt: skip
    done = cli("storage", "--all-nodes")
    assert done.code == 0
    assert "org/m" in done.out
    assert "only its own storage" in done.err


# --- purge-staging ---


def purge_answer(seen: Seen, *, silent: bool = False, used: bool = False) -> Any:
    asked = json.loads(seen.body)
    old = {"modelId": "org/old", "sizeBytes": 10 * GIB, "reasons": []}
    nodes = [
        {
            "nodeId": KITE1, "name": "kite1", "ok": True, "error": None,
            "purged": [] if used else [old],
            "skipped": [{"modelId": "org/used", "sizeBytes": GIB, "reasons": ["instance 1"]}],
            "freedBytes": 0 if used else 10 * GIB, "stagedBytesBefore": 14 * GIB,
            "stagedBytesAfter": 4 * GIB, "diskFreeBytes": 15 * GIB,
        },
        {
            "nodeId": KITE2, "name": "kite2", "ok": not silent, "error": "gone" if silent else None,
            "purged": [] if silent or used else [old], "skipped": [],
            "freedBytes": 10 * GIB, "stagedBytesBefore": 10 * GIB,
            "stagedBytesAfter": 0, "diskFreeBytes": 15 * GIB,
        },
    ]  # fmt: skip
    wanted = asked.get("nodes")
    nodes = [node for node in nodes if wanted is None or node["nodeId"] in wanted]
    dry = bool(asked.get("dryRun"))
    return {"commandId": "c", "message": "m", "dryRun": dry, "nodes": nodes}


def asked(node: StockNode) -> list[Any]:
    return [json.loads(seen.body) for seen in node.seen if seen.path == "/v1/cluster/purge-staging"]


@pytest.fixture
def purging(stock: StockNode) -> StockNode:
    stock.on("POST", "/v1/cluster/purge-staging", purge_answer)
    return stock


def test_a_dry_run_shows_what_would_go_and_changes_nothing(purging: StockNode, cli: Cli) -> None:
    done = cli("purge-staging", "--dry-run")
    assert done.code == 0
    assert asked(purging) == [{"dryRun": True}]
    assert "kite1  org/old   10.0GiB  would purge  -" in done.out
    assert "kite1  org/used   1.0GiB  in use       instance 1" in done.out


def test_everything_on_several_nodes_needs_the_name_of_the_context(
    purging: StockNode, cli: Cli
) -> None:
    done = cli("purge-staging", "--yes")
    assert done.code == 9
    assert "--confirm" in done.err
    assert "kite1: 1 model and 10.0 GiB" in done.err
    assert asked(purging) == [{"dryRun": True}]
    name = done.err.rpartition("--confirm ")[2].split()[0]
    done = cli("purge-staging", "--confirm", name)
    assert done.code == 0
    assert asked(purging)[-1] == {}
    assert "NODE    BEFORE   AFTER    FREED     FREE" in done.out
    assert "kite1  14.0GiB  4.0GiB  10.0GiB  15.0GiB" in done.out


def test_one_node_or_one_model_needs_a_yes(purging: StockNode, cli: Cli) -> None:
    assert cli("purge-staging", "--node", "kite1").code == 9
    assert cli("purge-staging", "--node", "kite1", "--yes").code == 0
    assert asked(purging)[-1] == {"nodes": [KITE1]}
    assert cli("purge-staging", "org/old", "--yes").code == 0
    assert asked(purging)[-1] == {"modelId": "org/old"}
    assert cli("purge-staging", "--node", "kite9").code == 3


def test_a_model_that_is_in_use_is_refused_with_its_user(stock: StockNode, cli: Cli) -> None:
    stock.on("POST", "/v1/cluster/purge-staging", lambda seen: purge_answer(seen, used=True))
    done = cli("purge-staging", "org/used", "--yes")
    assert done.code == 4
    assert "org/used is in use and was not purged" in done.err
    assert "org/used on kite1: instance 1" in done.err


def test_nothing_to_purge_is_no_failure(stock: StockNode, cli: Cli) -> None:
    stock.on("POST", "/v1/cluster/purge-staging", lambda seen: purge_answer(seen, used=True))
    done = cli("purge-staging")
    assert done.code == 0
    assert "kite1  org/used  1.0GiB  in use  instance 1" in done.out
    assert asked(stock) == [{"dryRun": True}]


def test_a_silent_node_is_a_row_and_exit_8(stock: StockNode, cli: Cli) -> None:
    stock.on("POST", "/v1/cluster/purge-staging", lambda seen: purge_answer(seen, silent=True))
    done = cli("purge-staging", "--yes")
    assert done.code == 8
    assert "NO ANSWER" in done.out
    assert "warning: kite2: no answer: gone" in done.err


def test_an_unknown_model_is_not_found(stock: StockNode, cli: Cli) -> None:
    gone = {"error": {"message": "Model org/typo is unknown", "type": "Not Found", "code": 404}}
    stock.on("POST", "/v1/cluster/purge-staging", Reply(404, gone))
    done = cli("purge-staging", "org/typo", "--yes")
    assert done.code == 3
    assert "org/typo" in done.err


def test_a_stock_node_is_never_asked_to_purge_what_is_in_use(stock: StockNode, cli: Cli) -> None:
    stock.on("POST", "/store/purge-staging", {"commandId": "c", "message": "m"})
    done = cli("purge-staging", "--yes")
    assert done.code == 4
    assert "cannot preview a purge" in done.err
    assert not [seen for seen in stock.seen if seen.path == "/store/purge-staging"]


def test_purge_rows_and_gains_are_plain_arithmetic() -> None:
    seen = Seen("POST", "/", b"{}", None)
    answer = PurgeResult.model_validate(purge_answer(seen))
    assert [row["result"] for row in purge_items(answer)] == ["purged", "in use", "purged"]
    assert gains(answer) == ("kite1: 1 model and 10.0 GiB", "kite2: 1 model and 10.0 GiB")


# --- store and model ---


def test_store_lists_models_and_fetches(stock: StockNode, cli: Cli) -> None:
    health = {"storePath": "/store", "freeBytes": GIB, "totalBytes": 2 * GIB, "usedBytes": GIB}
    entry = {
        "model_id": "org/m", "store_path": "org--m", "files": ["a", "b"], "total_bytes": 2 * GIB,
        "downloaded_at": "2026-03-20T14:32:00+00:00", "repo_has_projector": None,
    }  # fmt: skip
    coming = {"modelId": "org/n", "status": "downloading", "progress": 0.25, "error": None}
    stock.on("GET", "/store/health", health)
    stock.on("GET", "/store/registry", {"entries": [entry]})
    stock.on("GET", "/store/downloads", {"downloads": [coming]})
    done = cli("store")
    assert done.code == 0
    assert "org/m  2.0GiB      2  stored" in done.out
    assert "org/n       -      -  downloading 25%" in done.out
    assert "note: /store: 1.0 GiB free of 2.0 GiB" in done.err


def unavailable(message: str) -> Reply:
    error = {"message": message, "type": "Service Unavailable", "param": None, "code": 503}
    return Reply(503, {"error": error})


@pytest.mark.parametrize(
    ("message", "code", "said"),
    [
        ("Store not configured", 4, "this cluster has no model store"),
        ("Store unreachable", 1, "the model store cannot be reached"),
    ],
)
def test_without_a_store_the_command_says_what_to_do(
    stock: StockNode, cli: Cli, message: str, code: int, said: str
) -> None:
    stock.on("GET", "/store/health", unavailable(message))
    done = cli("store")
    assert (done.code, said in done.err) == (code, True)


def test_pull_has_the_store_fetch_and_waits(stock: StockNode, cli: Cli) -> None:
    path = "/store/models/org%2Fm/download"
    states = iter(["downloading", "complete"])
    stock.on("GET", "/store/registry", {"entries": []})
    stock.on("POST", "/store/models/org/m/download", {
        "modelId": "org/m", "status": "pending", "progress": 0.0})  # fmt: skip
    stock.on("GET", "/store/models/org/m/download/status", lambda seen: {
        "modelId": "org/m", "status": next(states), "progress": 0.5, "error": None})  # fmt: skip
    done = cli("model", "pull", "org/m")
    assert done.code == 0
    assert "pulled org/m" in done.out
    assert path in [seen.path for seen in stock.seen]


def test_a_pull_that_fails_names_the_cause(stock: StockNode, cli: Cli) -> None:
    failed = {"modelId": "org/m", "status": "failed", "progress": 0.1, "error": "the hub is away"}
    stock.on("GET", "/store/registry", {"entries": []})
    stock.on("POST", "/store/models/org/m/download", {**failed, "status": "pending"})
    stock.on("GET", "/store/models/org/m/download/status", failed)
    done = cli("model", "pull", "org/m")
    assert done.code == 1
    assert "the hub is away" in done.err
    assert "hint: resume the download:  skulkctl model pull org/m" in done.err


def test_pull_of_a_word_that_is_no_model_is_a_usage_mistake(stock: StockNode, cli: Cli) -> None:
    done = cli("model", "pull", "nonsense")
    assert done.code == 2
    assert "skulkctl model pull ORG/NAME" in done.err


def test_rm_from_the_store_asks_and_deletes(stock: StockNode, cli: Cli) -> None:
    stock.on("GET", "/store/registry", {"entries": [STORED_MODEL]})
    stock.on("DELETE", "/store/models/org/m", {"modelId": "org/m", "deleted": True})
    assert cli("model", "rm", "org/m", "--store", "--dry-run").out == "would remove org/m\n"
    missing = cli("model", "rm", "org/x", "--store", "--dry-run")
    assert (missing.code, "error: org/x is not in the store" in missing.err) == (3, True)
    assert cli("model", "rm", "org/m", "--store").code == 9
    done = cli("model", "rm", "org/m", "--store", "--yes")
    assert (done.code, "removed org/m" in done.out) == (0, True)
    busy = {"error": {"message": "org/m is in use: instance 1", "type": "Conflict", "code": 409}}
    stock.on("DELETE", "/store/models/org/m", Reply(409, busy))
    done = cli("model", "rm", "org/m", "--store", "--yes")
    assert (done.code, "instance 1" in done.err) == (4, True)


# --- doctor ---


def storage_findings(free: int, min_free: int | None = None) -> list[tuple[str, str]]:
    node = {"name": "kite1", "diskFreeBytes": free, "stagingRoot": "/s"}
    facts = Facts("http://x", storage=[node], min_free_bytes=min_free)
    return [(found.result, found.message) for found in storage_check(facts)]


def test_doctor_looks_at_the_volume_of_staged_models() -> None:
    assert storage_findings(50 * GIB) == []
    assert storage_findings(5 * GIB)[0][0] == "warn"
    assert storage_findings(1 * GIB)[0][0] == "fail"
    assert storage_findings(15 * GIB, 20 * GIB) == [
        ("fail", "kite1 has 15.0 GiB free for staged models, less than 20.0 GiB")
    ]


def test_doctor_min_free_fails_with_the_command_that_helps(ours: StockNode, cli: Cli) -> None:
    done = cli("doctor", "--min-free", "20G")
    assert done.code == 7
    assert "kite1 has 5.0 GiB free for staged models, less than 20.0 GiB" in done.out
    assert "skulkctl purge-staging --node kite1 --dry-run" in done.err
