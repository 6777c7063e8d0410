"""The directory of local copies: what counts as whole, what is recorded, how it goes away."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from skulkd.store.config import check_staging_place
from skulkd.store.errors import BadModelIdError, BusyError, FileAccessError, StagingPlaceError
from skulkd.store.retention import models_in_use
from skulkd.store.staging.area import StagingArea
from skulkd.wire.ids import NodeId
from tests.storage.cards import card, instance, stage, state_with

ROOT = Path(__file__).parents[2]


@pytest.fixture
def area(tmp_path: Path) -> StagingArea:
    return StagingArea(tmp_path / "staging")


def test_a_missing_area_has_no_copies(area: StagingArea) -> None:
    assert area.copies() == []
    area.remove_leftovers()


def test_copies_are_listed_last_used_first_with_their_sizes(area: StagingArea) -> None:
    stage(area, "org/old", 300, at=100.0)
    stage(area, "org/new", 200, at=200.0)
    found = area.copies()
    assert [(model.model_id, model.last_used) for model in found] == [
        ("org/new", 200.0),
        ("org/old", 100.0),
    ]
    marker = len((area.root / "org--new" / ".complete").read_bytes())
    assert found[0].size_bytes == 200 + marker
    assert all(model.complete for model in found)


@pytest.mark.parametrize("harm", ["no marker", "broken marker", "short file", "missing file"])
def test_a_half_copy_is_never_whole(area: StagingArea, harm: str) -> None:
    path = stage(area, "org/model")
    assert area.is_complete("org/model")
    if harm == "no marker":
        area.unmark("org/model")
    elif harm == "broken marker":
        (path / ".complete").write_text('{"files": ')
    elif harm == "short file":
        os.truncate(path / "weights", 99)
    else:
        (path / "weights").unlink()
    assert not area.is_complete("org/model")
    assert not area.copies()[0].complete


def test_without_a_mark_of_use_the_directory_tells_the_time(area: StagingArea) -> None:
    path = stage(area, "org/model")
    (path / ".last_used").unlink()
    os.utime(path, (77.0, 77.0))
    assert area.copies()[0].last_used == 77.0


def test_a_copy_that_no_id_of_ours_has_is_looked_after_like_any_other(area: StagingArea) -> None:
    (area.root / "a--b--c").mkdir(parents=True)
    area.touch_copy("a--b--c", 55.0)
    assert [(copy.name, copy.last_used) for copy in area.copies()] == [("a--b--c", 55.0)]
    area.remove("a--b--c")
    assert area.copies() == []


def test_a_file_where_the_area_should_be_is_said_and_tidying_survives_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    area = StagingArea(tmp_path / "file")
    area.remove_leftovers()
    with pytest.raises(FileAccessError, match="Not a directory"):
        area.copies()


def test_removing_a_copy_tells_its_bytes_and_leaves_nothing(area: StagingArea) -> None:
    stage(area, "org/model", 500)
    size = area.copies()[0].size_bytes
    assert area.remove("org--model") == size
    assert list(area.root.iterdir()) == []
    assert area.remove("org--model") == 0


def test_a_link_is_removed_and_what_it_names_stays(area: StagingArea, tmp_path: Path) -> None:
    precious = stage(StagingArea(tmp_path / "elsewhere"), "org/model")
    area.root.mkdir()
    (area.root / "org--model").symlink_to(precious)
    area.remove("org--model")
    assert (precious / "weights").exists()
    assert list(area.root.iterdir()) == []


def test_a_copy_that_another_process_fills_is_not_removed(area: StagingArea) -> None:
    stage(area, "org/model")
    with area.locked("org--model"), pytest.raises(BusyError, match="another process"):
        area.remove("org--model")
    assert area.is_complete("org/model")


@pytest.mark.parametrize("bad", ["../x", "org/..", "a/b/c", "/etc", "org/na me", ""])
def test_no_id_leads_out_of_the_area(area: StagingArea, bad: str) -> None:
    with pytest.raises(BadModelIdError):
        area.path_of(bad)


def test_a_kill_in_the_middle_of_a_deletion_leaves_no_half_model(area: StagingArea) -> None:
    path = stage(area, "org/model")
    (path / "more").write_bytes(b"x")
    program = f"""
import os, pathlib, shutil, signal
from skulkd.store.staging.area import StagingArea
def half(path, **_):
    next(p for p in pathlib.Path(path).iterdir() if p.name == "weights").unlink()
    os.kill(os.getpid(), signal.SIGKILL)
shutil.rmtree = half
StagingArea(pathlib.Path({str(area.root)!r})).remove("org--model")
"""
    child = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env={"PYTHONPATH": str(ROOT)}, check=False
    )
    assert child.returncode == -signal.SIGKILL
    assert area.copies() == []
    assert [path.name[:10] for path in area.root.iterdir()] == [".removing-"]
    area.remove_leftovers()
    assert list(area.root.iterdir()) == []


# --- where staging may lie ---


def test_staging_beside_store_and_models_is_fine(tmp_path: Path) -> None:
    check_staging_place(tmp_path / "staging", tmp_path / "store", tmp_path / "models")
    check_staging_place(tmp_path / "staging", None, tmp_path / "staging-models")


@pytest.mark.parametrize(
    ("staging", "relation"), [("a/b", "is"), ("a/b/c", "is inside"), ("a", "contains")]
)
@pytest.mark.parametrize("which", ["store", "models"])
def test_staging_near_originals_is_refused_with_both_paths(
    tmp_path: Path, staging: str, relation: str, which: str
) -> None:
    place, other = tmp_path / staging, tmp_path / "a" / "b"
    store, models = (other, tmp_path / "m") if which == "store" else (tmp_path / "s", other)
    with pytest.raises(StagingPlaceError) as caught:
        check_staging_place(place, store, models)
    assert f"staging {place} {relation} the {which}" in caught.value.message
    assert str(other) in caught.value.message


def test_a_link_to_the_store_is_the_store(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "staging").symlink_to(tmp_path / "store")
    with pytest.raises(StagingPlaceError, match="is the store"):
        check_staging_place(tmp_path / "staging", tmp_path / "store", tmp_path / "models")


# --- what is in use ---


def test_an_instance_here_uses_its_model_and_all_companions() -> None:
    model = card("org/base", vision="org/eyes", sidecar="org/mtp", drafter="org/draft")
    uses = models_in_use(state_with(instance(model, "node-a")), NodeId("node-a"))
    assert uses["org--base"] == ("instance 1f2e3d4c",)
    assert uses["org--eyes"] == ("vision weights of org/base (instance 1f2e3d4c)",)
    assert set(uses) == {"org--base", "org--eyes", "org--mtp", "org--draft"}


def test_an_instance_elsewhere_uses_nothing_here() -> None:
    state = state_with(instance(card("org/base"), "node-b"))
    assert models_in_use(state, NodeId("node-a")) == {}


def test_a_runner_that_still_stops_and_files_on_their_way_count() -> None:
    uses = models_in_use(
        state_with(),
        NodeId("node-a"),
        running=[card("org/stopping")],
        staging=[card("org/coming", drafter="org/draft")],
    )
    assert uses["org--stopping"] == ("a runner",)
    assert uses["org--coming"] == ("being staged",)
    assert uses["org--draft"] == ("assistant drafter of org/coming (being staged)",)
