"""Every table on a terminal of 80 and of 120 columns: no broken word, no line that is too long."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skulkctl.chat.load_curve import CURVE
from skulkctl.cli.resources import RESOURCES
from skulkctl.commands.context import CONTEXTS
from skulkctl.daemon.reading import read_model
from skulkctl.diagnostics.page import diagnostics_page
from skulkctl.doctor.checklist import CHECKS
from skulkctl.models.rows import MODELS
from skulkctl.nodes.load import LOAD
from skulkctl.nodes.rows import NODES
from skulkctl.nodes.status_page import PROBLEMS, status_screen
from skulkctl.output.formats import Style
from skulkctl.output.layout import (
    elide,
    pairs,
    time_of_day,
    unique_prefixes,
    without_directory,
    without_owner,
    wrap,
)
from skulkctl.output.tables import Column, Resource, render
from skulkctl.output.terminal import width
from skulkctl.placement.instances import INSTANCES
from skulkctl.placement.plans import plan_screen
from skulkctl.placement.previews import PREVIEWS, preview_screen
from skulkctl.settings.rows import PROBLEMS as CONFIG_PROBLEMS
from skulkctl.settings.rows import SETTINGS
from skulkctl.storage.purge import AFTER, PURGE
from skulkctl.storage.rows import COPIES, STORAGE
from skulkctl.storage.store import STORE
from skulkctl.swarm.pages import status_page as swarm_page
from skulkctl.tokens.rows import TOKENS
from skulkctl.traces.rows import STATS, TRACES
from skulkd.wire.diagnostics import NodeDiagnostics
from skulkd.wire.swarm import SwarmStatus
from tests.cli.builders import a_recorder_entry, a_supervised_runner
from tests.cli.stock import recorded

GIB = 1024**3
NAMES = ("studio-rack-3", "kite2", "mac-mini-office")
NODE_IDS = tuple(
    f"12D3KooW{letter}PjceQrSwdWXPyLLeABRXmuqt69Rg3sBYbU1Nft9HyQ6X" for letter in "EGH"
)
UUIDS = tuple(f"{n}f3c2a10-0b52-4a6e-9a61-1f0c6f1b2d0{n}" for n in range(3))
MODEL_IDS = (
    "mlx-community/Qwen3-Next-80B-A3B-Instruct-8bit",
    "mlx-community/Llama-3.3-70B-Instruct-4bit",
    "skulk/SmolLM2-135M-Instruct",
)
MESSAGE = (
    "the interface en7 with the address 192.168.113.117 has no route to 192.168.113.118:52415; "
    "models over both nodes cannot be placed"
)

Item = dict[str, object]


def rows(**columns: Sequence[object]) -> list[Item]:
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def node_rows() -> list[Item]:
    return [
        {
            "name": name,
            "id": node_id,
            "role": "master" if name == "kite2" else "worker",
            "health": "NO ANSWER" if name == "kite2" else "ok",
            "draining": None,
            "memory": {"availableBytes": 118 * GIB, "totalBytes": 512 * GIB},
            "disk": {"availableBytes": 1011 * GIB, "totalBytes": 4000 * GIB},
            "accelerator": {"name": "Apple M3 Ultra"},
            "address": "192.168.113.117",
            "seenSecondsAgo": 3.2,
            "version": "1.3.0",
            "os": "macOS 15.5",
        }
        for name, node_id in zip(NAMES, NODE_IDS, strict=True)
    ]


def instance_rows() -> list[Item]:
    return [
        {
            "id": uuid,
            "modelId": model,
            "ready": "1/3",
            "status": "starting",
            "detail": "staging 118.2GiB/512.0GiB, 17m42s left; moved from mac-mini-office",
            "nodes": list(NAMES),
            "sharding": "Pipeline",
            "contextTokenLimit": 262144,
            "tasks": 2,
            "runners": [],
        }
        for uuid, model in zip(UUIDS, MODEL_IDS, strict=True)
    ]


def storage_rows() -> list[Item]:
    keys = (
        "stagedBytes",
        "inUseBytes",
        "keepRecentBytes",
        "nextEvictionBytes",
        "eventLogBytes",
        "logBytes",
        "diskFreeBytes",
        "diskTotalBytes",
    )
    return [
        {"name": name, "status": "NO ANSWER", "modelCount": 17, **dict.fromkeys(keys, 1011 * GIB)}
        for name in (*NAMES, "TOTAL")
    ]


def copy_rows() -> list[Item]:
    return rows(
        node=NAMES,
        modelId=MODEL_IDS,
        sizeBytes=[75 * GIB] * 3,
        unusedSeconds=[190_000.0] * 3,
        state=["staging 41% of 75.0GiB, 110.3MiB/s, 6m41s left", "in use", "evict next"],
        inUseBy=[[f"instance {uuid}", "being staged"] for uuid in UUIDS],
    )


def trace_rows() -> list[Item]:
    return rows(
        taskId=UUIDS,
        createdAt=["2026-05-04T14:00:00"] * 3,
        modelId=MODEL_IDS,
        ranksText=["1/2 PARTIAL"] * 3,
        fileSize=[117 * 1024] * 3,
    )


def preview_rows(node: str = NAMES[0]) -> list[Item]:
    rank = {"layers": "14-28/56", "rank": 1, "node": node}
    sizes = ("weightBytes", "overheadBytes", "kvBytes", "floorBytes", "needBytes", "usableBytes")
    ranks = [{**rank, **dict.fromkeys(sizes, 111 * GIB)} for _ in NAMES]
    good: Item = {
        "planId": "plan-0123456789ab",
        "modelId": MODEL_IDS[0],
        "kind": "MlxRingInstance",
        "sharding": "Pipeline",
        "link": "MlxRing",
        "fits": True,
        "nodes": list(NAMES),
        "contextTokenLimit": 262144,
        "ranks": ranks,
    }
    bad: Item = {**good, "fits": False, "planId": None, "nodes": [], "ranks": [], "reason": MESSAGE}
    return [good, bad]


def check_rows() -> list[Item]:
    return rows(
        result=["ok", "warn", "fail"],
        check=["cluster-size", "warnings", "storage"],
        message=[
            f"3 nodes: {', '.join(NAMES)}",
            f"{NAMES[0]}: {MESSAGE}",
            "/Users/operator/Library/Application-Support/skulk/staging/models has 1.2 GiB free",
        ],
        hint=[None, f"skulkctl diagnose {NAMES[0]}", "free space on kite2"],
    )


def load_rows() -> list[Item]:
    numbers = ("activeJobs", "queuedJobs", "freeSlots", "maxConcurrency", "recentFailureCount")
    return [
        {"name": name, "state": "draining", **dict.fromkeys(numbers, 1117), "avgLatencyMs": 912_345}
        for name in NAMES
    ]


LISTS: dict[str, tuple[Resource, list[Item]]] = {
    "nodes": (NODES, node_rows()),
    "instances": (INSTANCES, instance_rows()),
    "storage": (STORAGE, storage_rows()),
    "storage copies": (COPIES, copy_rows()),
    "preview": (PREVIEWS, preview_rows()),
    "trace list": (TRACES, trace_rows()),
    "doctor": (CHECKS, check_rows()),
    "load": (LOAD, load_rows()),
    "models": (
        MODELS,
        rows(
            id=MODEL_IDS,
            sizeBytes=[75 * GIB] * 3,
            contextLength=[262144] * 3,
            quantization=["8bit"] * 3,
            tags=[["thinking", "vision", "tensor"]] * 3,
            files=[{"downloaded": True, "nodes": list(NAMES)}] * 3,
            placed=["starting"] * 3,
        ),
    ),
    "token list": (
        TOKENS,
        rows(
            tokenId=["589833f09e68", "f4ece90d88be", "b8829487452b"],
            name=["webshop-production", "ci", "grafana"],
            scopes=[["read", "infer"], ["operate"], ["read"]],
            rate=["600/min", None, None],
            concurrency=[8, None, None],
            createdText=["3d4h ago", "9m2s ago", "41s ago"],
            expiresText=["in 89d23h", "never", "expired"],
            lastUsedText=["0.4s ago", "-", "-"],
        ),
    ),
    "store": (
        STORE,
        rows(
            modelId=MODEL_IDS,
            sizeBytes=[75 * GIB] * 3,
            fileCount=[117] * 3,
            status=["stored", f"failed 41%: {MESSAGE}", "downloading 41%"],
        ),
    ),
    "trace stats": (
        STATS,
        rows(
            rank=["all", "0", "1"],
            category=["pipeline_parallel_receive", "decode", "prefill"],
            **dict.fromkeys(("totalText", "avgText", "minText", "maxText"), ["129.41 ms"] * 3),
            count=[12345] * 3,
        ),
    ),
    "bench": (
        CURVE,
        rows(
            concurrency=[1, 128, 1024],
            requests=[4, 512, 4096],
            failed=[0] * 3,
            firstTokenSecondsP50=[0.2, 12.5, 190.0],
            firstTokenSecondsP90=[0.3, 190.0, 3700.0],
            tokensPerSecondPerClient=[None, 1117.2, 3.5],
            tokensPerSecond=[1117.2] * 3,
            knee=[False, True, False],
        ),
    ),
    "config show": (
        SETTINGS,
        rows(
            key=["cluster.static_peers", "model_store.staging_keep_recent_gb", "hf_token"],
            value=[[f"192.168.113.{n}:52415" for n in range(6)], 500, "(hidden)"],
            pending=[{"value": ["192.168.113.9:52415"]}, {"value": 100}, None],
            restartNeeded=[True, True, False],
            origin=["skulk.yaml:12", "--staging-keep-recent-gb", "HF_TOKEN"],
        ),
    ),
    "config validate": (
        CONFIG_PROBLEMS,
        rows(
            file=["/Users/operator/.config/skulk/skulk.yaml"],
            line=[117],
            key=["model_store.staging_keep_recent_gb"],
            message=["must be a whole number greater than zero, or null"],
            value=["five hundred gibibytes"],
            suggestion=["500"],
        ),
    ),
    "context list": (
        CONTEXTS,
        rows(
            name=["lab", "production"],
            current=[True, False],
            endpoints=[[f"http://{name}.example.net:52415" for name in NAMES], ["http://k:1"]],
            protected=[False, True],
            tokenFile=[None, "/Users/operator/.config/skulk/production.token"],
        ),
    ),
    "status problems": (
        PROBLEMS,
        rows(
            level=["error"] * 3,
            where=[f"{model} on {NAMES[0]}" for model in MODEL_IDS],
            code=["runner_failed", "other_session", "download_failed"],
            message=[MESSAGE] * 3,
        ),
    ),
    "purge": (
        PURGE,
        rows(
            node=NAMES,
            modelId=MODEL_IDS,
            sizeBytes=[75 * GIB] * 3,
            result=["would purge", "in use", "NO ANSWER"],
            reasons=[[f"instance {uuid}"] for uuid in UUIDS],
        ),
    ),
    "purged nodes": (
        AFTER,
        rows(
            node=NAMES,
            **dict.fromkeys(
                ("stagedBytesBefore", "stagedBytesAfter", "freedBytes", "diskFreeBytes"),
                [1011 * GIB] * 3,
            ),
        ),
    ),
}


def diagnostics() -> NodeDiagnostics:
    document = recorded("diagnostics_node")
    document["runtime"]["configPath"] = "/Users/operator/.config/skulk/skulk.yaml"
    document["resources"]["network"] = {
        "interfaces": [
            {"name": f"en{n}", "ipAddress": f"192.168.113.{n}", "interfaceType": "thunderbolt"}
            for n in range(7)
        ]
    }
    document["processes"] = [
        {
            "pid": 41_117,
            "role": "runner",
            "status": "sleeping",
            "cpuPercent": 112.5,
            "rss": {"inBytes": 75 * GIB},
            "elapsedSeconds": 190_000.0,
            "command": f"/opt/skulk/.venv/bin/python -m skulkd.runner --model {MODEL_IDS[0]} "
            f"--instance {UUIDS[0]} --rank 1 --socket /tmp/skulk-501/runner-1.sock",
        }
    ]
    shard = {"deviceRank": 1, "worldSize": 3, "startLayer": 14, "endLayer": 28, "nLayers": 56}
    waiting = "waiting for the activations of rank 0 since 14:00:00"
    entry = a_recorder_entry(
        "2026-05-04T14:00:00.123456Z", "decode_stream", "pipeline_last_eval_enter", waiting
    )
    document["supervisorRunners"] = [
        {
            **a_supervised_runner(uuid, "decode_wait_first_token"),
            **shard,
            "modelId": model,
            "pid": 41_117,
            "statusKind": "RunnerWarmingUp",
            "secondsInPhase": 17.5,
            "flightRecorder": [entry],
        }
        for uuid, model in zip(UUIDS, MODEL_IDS, strict=True)
    ]
    document["warnings"] = [MESSAGE]
    return read_model(NodeDiagnostics, document, pytest.fail)


def status() -> Item:
    problems = LISTS["status problems"][1]
    return {
        "context": "production",
        "endpoint": "http://studio-rack-3-upper.example.net:52415",
        "healthy": False,
        "nodes": [{"name": f"{name}-{n}"} for n in range(3) for name in NAMES],
        "lost": [],
        "master": NAMES[0],
        "session": {"id": NODE_IDS[0], "ageSeconds": 483.0},
        "versions": ["1.3.0"],
        "memory": {"availableBytes": 60 * GIB, "totalBytes": 96 * GIB, "nodesMeasured": 2},
        "disk": None,
        "tracingEnabled": False,
        "instances": instance_rows(),
        "problems": problems,
        "warnings": [],
    }


def swarm() -> SwarmStatus:
    return SwarmStatus(
        configured=True,
        node_id="shn_0123456789abcdef",
        state="polling",
        gateway_base_url="https://gateway.example.net/self-hosted",
        models=list(MODEL_IDS) * 2,
        running_jobs=dict.fromkeys(UUIDS, "chat"),
        problems=[MESSAGE],
    )


def listed(resource: Resource, items: list[Item], form: str) -> Callable[[int | None], str]:
    return lambda room: Style(format=form, room=room).rows(resource, items)


Draw = Callable[[int | None], str]

PAGES: dict[str, Draw] = {
    **{name: listed(*table, "table") for name, table in LISTS.items()},
    **{f"{name} -o wide": listed(*table, "wide") for name, table in LISTS.items()},
    "preview page": lambda room: preview_screen(preview_rows(), "", room),
    "place --dry-run": lambda room: plan_screen(preview_rows()[0], room).partition("\n\n")[2],
    "diagnose": lambda room: diagnostics_page(diagnostics(), False, False, room),
    "diagnose -o wide": lambda room: diagnostics_page(diagnostics(), True, False, room),
    "status": lambda room: status_screen(status(), node_rows(), False, room),
    "swarm status": lambda room: swarm_page(swarm(), room),
}

TERMINALS = (40, 60, 80, 120, 200)


def words(text: str) -> set[str]:
    """Without symbols and bars, which only repeat what is told in words."""
    return {word for word in re.split(r"[\s,●▲✖◌·█▉▊▋▌▍▎▏░]+", text) if word}


def is_shortened(word: str, whole: set[str]) -> bool:
    """An id's beginning, a time without its day, a lost middle."""
    ids = [one for one in whole if one.startswith(("12D3KooW", "plan-")) or one.count("-") == 4]
    if len(word) >= 8 and any(one.startswith(word) for one in ids):
        return True
    if re.fullmatch(r"\d\d:\d\d:\d\d\.\d{3}", word):
        return True
    first, mark, last = word.partition("…")
    ends = [one for one in whole if one.startswith(first) and one.endswith(last)]
    return bool(mark) and bool(ends) and (word == "…" or len(word) >= 12)


@pytest.mark.parametrize("room", TERMINALS)
@pytest.mark.parametrize("name", PAGES)
def test_no_page_breaks_a_word_or_is_wider_than_the_terminal(name: str, room: int) -> None:
    page, whole = PAGES[name](room), PAGES[name](None)
    assert [line for line in page.splitlines() if width(line) > room] == []
    # Where rows become blocks of lines, the headers become labels.
    known = words(whole) | words(whole.lower())
    known |= {word.partition("/")[2] for word in known}
    known |= {word.rpartition("/")[2] for word in known}
    broken = [word for word in words(page) if word not in known and not is_shortened(word, known)]
    assert broken == []


def test_every_list_that_a_command_shows_is_among_them() -> None:
    shown = [id(resource) for resource, _ in LISTS.values()]
    assert [name for name, resource in RESOURCES.items() if id(resource) not in shown] == []


@pytest.mark.parametrize("name", ["nodes", "instances", "storage", "preview", "trace list", "load"])
def test_a_list_stays_a_list_in_80_columns(name: str) -> None:
    first = PAGES[name](80).splitlines()[0]
    assert first == first.upper()


@pytest.mark.parametrize(
    ("name", "columns"),
    [
        ("nodes", {"NAME", "HEALTH", "FREE", "SEEN"}),
        ("instances", {"INSTANCE", "MODEL", "READY", "STATUS", "DETAIL"}),
        ("storage", {"NODE", "STATUS", "STAGED", "FREE", "EVICT"}),
        ("trace list", {"TASK", "CREATED", "MODEL", "RANKS"}),
    ],
)
def test_what_matters_most_is_still_there_in_80_columns(name: str, columns: set[str]) -> None:
    assert columns <= set(PAGES[name](80).splitlines()[0].split())


def test_the_arithmetic_of_a_preview_adds_up_in_80_columns() -> None:
    page = preview_screen(preview_rows("kite1"), "", 80)
    heads = [line.split() for line in page.splitlines() if "WEIGHTS" in line]
    assert heads == [["PLAN", "NODE", "WEIGHTS", "OVERHEAD", "KV", "FLOOR", "NEED", "USABLE"]]


def test_the_arithmetic_of_nodes_with_long_names_is_a_list_in_80_columns() -> None:
    page = preview_screen(preview_rows("mac-studio-ultra-lab-03.local"), "", 80)
    assert "WEIGHTS" in page
    assert "NEED" in page


@pytest.mark.parametrize("name", LISTS)
def test_a_pipe_gets_every_column_and_every_character(name: str) -> None:
    resource, items = LISTS[name]
    lines = Style().rows(resource, items).splitlines()
    assert len(lines) == 1 + len(items)
    for column in resource.choose(None, wide=False):
        assert column.header in lines[0]
        assert all(column.cell(item) in line for item, line in zip(items, lines[1:], strict=True))


TEXTS = Resource(
    kind="TextList",
    name_path="a",
    columns=(
        Column("a", "a", "A.", short=unique_prefixes(4), is_id=True),
        Column("b", "b", "B.", spare=1),
        Column("c", "c", "C."),
    ),
)


def lines_of(items: list[Item], room: int, **how: Any) -> list[str]:
    return Style(room=room, **how).rows(TEXTS, items).splitlines()


def test_a_column_that_is_empty_in_every_row_is_not_shown_unless_asked_for() -> None:
    items: list[Item] = [{"a": "one", "b": None, "c": "x"}, {"a": "two", "b": "", "c": "y"}]
    assert lines_of(items, 80) == ["A    C", "one  x", "two  y"]
    assert lines_of(items, 80, columns="a,b") == ["A    B", "one  -", "two  -"]


def test_ids_are_shortened_on_a_terminal_to_what_tells_them_apart() -> None:
    items: list[Item] = [{"a": "abcdef-1", "c": "x"}, {"a": "abcdeg-1", "c": "y"}]
    assert lines_of(items, 80) == ["A       C", "abcdef  x", "abcdeg  y"]
    assert lines_of(items, 80, columns="a") == ["A", "abcdef-1", "abcdeg-1"]


def test_text_wraps_before_a_column_goes_and_the_spare_one_goes_first() -> None:
    items: list[Item] = [{"a": "one", "b": "beta beta", "c": "some words that are long enough"}]
    assert lines_of(items, 32) == [
        "A    B          C",
        "one  beta beta  some words that",
        "                are long enough",
    ]
    assert lines_of(items, 24) == ["A    C", "one  some words that are", "     long enough"]


def test_rows_that_cannot_fit_become_one_field_per_line() -> None:
    items: list[Item] = [{"a": "one", "b": "beta", "c": "x" * 22}, {"a": "two", "b": "b", "c": "z"}]
    assert lines_of(items, 25, columns="a,b,c") == [
        "a  one",
        "b  beta",
        f"c  {'x' * 22}",
        "",
        "a  two",
        "b  b",
        "c  z",
    ]


def test_blocks_leave_out_empty_fields_unless_they_were_asked_for() -> None:
    items: list[Item] = [{"a": "one", "b": "beta", "c": "x" * 22}, {"a": "two", "c": "z"}]
    assert lines_of(items, 25, format="wide")[-2:] == ["a  two", "c  z"]
    assert lines_of(items, 25, columns="a,b,c")[-2:] == ["b  -", "c  z"]


def test_a_wrapped_status_word_keeps_its_colour() -> None:
    column = Column("state", "s", "S.", status=True)
    painted = render([column], [{"s": "NO ANSWER"}], colour=True, room=6).splitlines()
    assert painted[1:] == ["\x1b[31m✖ NO\x1b[0m", "\x1b[31mANSWER\x1b[0m"]


def test_names_lose_only_what_is_not_needed() -> None:
    assert without_owner(["a/x", "b/x", "b/y", "-"]) == ["a/x", "b/x", "y", "-"]
    assert unique_prefixes(2)(["abc", "abd", "-"]) == ["abc", "abd", "-"]
    assert time_of_day(["2026-05-04T14:00:00.123456Z"]) == ["14:00:00.123"]
    two_days = ["2026-05-04T14:00:00Z", "2026-05-05T14:00:00Z"]
    assert time_of_day(two_days) == two_days
    assert without_directory(["/opt/bin/python -m x /y", "init", ""]) == [
        "python -m x /y",
        "init",
        "",
    ]
    assert elide("/opt/skulk/models", 9) == "/opt…dels"


def test_a_long_value_wraps_below_itself() -> None:
    assert pairs([("nodes", "kite1, kite2, kite3"), ("x", "1")], 15) == (
        "nodes  kite1,\n       kite2,\n       kite3\nx      1\n"
    )


@given(st.text(alphabet="ab ,é狐", max_size=40), st.integers(min_value=6, max_value=30))
def test_wrapping_keeps_every_word_in_order(text: str, cells: int) -> None:
    lines = wrap(text, cells)
    assert all(width(line) <= cells for line in lines)
    if all(width(word) <= cells for word in text.split()):
        assert "".join("".join(lines).split()) == "".join(text.split())
