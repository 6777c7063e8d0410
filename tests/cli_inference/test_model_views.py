"""The catalogue as rows, and which model was meant."""

from __future__ import annotations

from typing import Any

import pytest

from skulkctl.daemon.state import ClusterState
from skulkctl.errors import CliError, NotFound, UsageMistake
from skulkctl.models.rows import find_model, is_like, model_items, nearest
from skulkctl.placement.instances import instance_items
from skulkctl.placement.placed import choose_placed
from skulkd.wire.catalogue import ModelList
from tests.cli.builders import a_cluster, completed, downloads
from tests.cli.stock import KITE2
from tests.cli_inference.model_node import (
    CATALOGUE,
    MODEL,
    a_state,
    an_empty_state,
    another_instance,
)


def listed(entries: list[dict[str, Any]]) -> ModelList:
    return ModelList.model_validate({"data": entries})


IDS = [entry["id"] for entry in CATALOGUE]


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        (MODEL, MODEL),
        (MODEL.upper(), MODEL),
        ("tiny-llama", "skulk/tiny-llama"),
        ("TINY", "skulk/tiny-llama"),
        ("skulk", "skulk/tiny-llama"),
        ("qwen3", "mlx-community/Qwen3-0.6B-4bit"),
        ("nothing", None),
    ],
)
def test_a_model_is_found_by_id_name_or_prefix(typed: str, found: str | None) -> None:
    assert find_model(IDS, typed) == found


def test_a_prefix_of_several_models_lists_them() -> None:
    with pytest.raises(UsageMistake) as raised:
        find_model(IDS, "mlx-community/")
    assert raised.value.why == (MODEL, "mlx-community/Qwen3-0.6B-4bit")


def test_an_id_wins_over_longer_ids_and_over_its_other_spelling() -> None:
    assert find_model(["a/b", "a/bc"], "a/b") == "a/b"
    assert find_model(["A/b", "a/b"], "a/b") == "a/b"


@pytest.mark.parametrize(
    ("typed", "near"),
    [
        ("tinny", ["skulk/tiny-llama"]),
        ("mlx-community/Quen3-0.6B-4bit", ["mlx-community/Qwen3-0.6B-4bit"]),
        ("mlx-community/nothing", []),
    ],
)
def test_the_nearest_ids_look_like_what_was_typed(typed: str, near: list[str]) -> None:
    assert nearest(IDS, typed) == near


def test_a_model_tells_who_has_its_files_and_whether_it_is_placed() -> None:
    state = a_state()
    state["downloads"] = downloads(**{KITE2: completed(KITE2, MODEL)})
    items = {
        str(item["id"]): item
        for item in model_items(listed(CATALOGUE), listed(CATALOGUE[:1]), ClusterState(state))
    }
    assert items[MODEL]["files"] == {"downloaded": True, "nodes": ["kite2"]}
    assert items[MODEL]["placed"] == "ready"
    assert items["skulk/tiny-llama"]["files"] == {"downloaded": True, "nodes": []}
    assert items["skulk/tiny-llama"]["sizeBytes"] == 2 * 1024**2
    unknown = items["mlx-community/Qwen3-0.6B-4bit"]
    assert (unknown["contextLength"], unknown["placed"]) == (None, None)
    assert unknown["files"] == {"downloaded": False, "nodes": []}


def test_the_only_node_of_a_cluster_has_what_is_downloaded() -> None:
    state = a_cluster(nodeIdentities={"n1": {"friendlyName": "kite1"}})
    (item,) = model_items(listed(CATALOGUE[:1]), listed(CATALOGUE[:1]), state)
    assert item["files"] == {"downloaded": True, "nodes": ["kite1"]}


@pytest.mark.parametrize(
    ("words", "fits"), [("QWEN 4bit", True), ("qwen vision", False), ("", True), ("0.6b", True)]
)
def test_a_filter_wants_all_its_words(words: str, fits: bool) -> None:
    (item,) = model_items(listed(CATALOGUE[2:]), listed([]), a_cluster())
    assert is_like(item, words) == fits


def test_the_only_placed_model_need_not_be_named() -> None:
    assert choose_placed(instance_items(ClusterState(a_state())), None)["modelId"] == MODEL
    with pytest.raises(NotFound, match="nothing is placed"):
        choose_placed(instance_items(ClusterState(an_empty_state())), None)
    with pytest.raises(UsageMistake, match="2 models are placed"):
        choose_placed(
            instance_items(ClusterState(another_instance(a_state(), "x", "skulk/tiny-llama"))), None
        )


def test_a_ready_instance_is_chosen_before_one_that_failed() -> None:
    broken = {"RunnerFailed": {"errorMessage": "no memory"}}
    items = instance_items(ClusterState(another_instance(a_state(broken), "x")))
    assert choose_placed(items, MODEL)["id"] == "x"
    with pytest.raises(CliError) as raised:
        choose_placed(instance_items(ClusterState(a_state(broken))), "llama")
    assert raised.value.why == ("failed: no memory",)
