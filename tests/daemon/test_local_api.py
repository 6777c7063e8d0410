"""`skulkctl` finds the daemon of its user on any port, and ignores the file of a dead one."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from skulkctl.contexts import Context, ContextFile, resolve, write_contexts
from skulkctl.endpoints import DEFAULT_ENDPOINT
from skulkd.settings.local_api import LocalApi, read_local_api, remove_local_api, write_local_api
from skulkd.settings.paths import Paths, find_paths
from tests.daemon_process import StartDaemon, wait_until
from tests.skulkctl_process import skulkctl


def paths_of(home: Path) -> Paths:
    return find_paths({"SKULK_HOME": str(home), "HOME": str(home)})


def endpoint_of(home: Path, **environ: str) -> str:
    return resolve(paths_of(home), environ, None, None).context.endpoints[0]


def test_skulkctl_finds_a_daemon_on_another_port(daemon: StartDaemon) -> None:
    process = daemon()
    done = skulkctl("nodes", "-o", "json", home=process.home)
    assert done.code == 0, done.err
    assert process.node_id in done.out


@pytest.mark.parametrize("listen", ["0.0.0.0:0", "[::]:0"])
def test_a_daemon_on_all_addresses_is_found(daemon: StartDaemon, listen: str) -> None:
    process = daemon(listen=listen)
    done = skulkctl("api", "GET", "/node_id", home=process.home)
    assert (done.code, process.node_id in done.out) == (0, True), done.err


def test_a_stopped_daemon_leaves_no_address(daemon: StartDaemon) -> None:
    process = daemon()
    file = paths_of(process.home).local_api_file
    assert read_local_api(file) == LocalApi(process.url, None, process.pid)
    assert process.stop() == 0
    assert not file.exists()
    assert endpoint_of(process.home) == DEFAULT_ENDPOINT


def test_a_restart_keeps_the_address(daemon: StartDaemon) -> None:
    process = daemon("--name", "kite1")
    done = skulkctl("restart", "kite1", "--yes", "--wait", home=process.home)
    assert done.code == 0, done.err
    process.wait_ready(2)
    wait_until(lambda: endpoint_of(process.home) == process.url, "the address of the second start")


def test_the_address_of_a_killed_daemon_is_ignored(daemon: StartDaemon) -> None:
    process = daemon()
    process.signal(signal.SIGKILL)
    process.wait_exit()
    assert paths_of(process.home).local_api_file.exists()
    assert endpoint_of(process.home) == DEFAULT_ENDPOINT


def test_everything_that_was_named_comes_first(daemon: StartDaemon) -> None:
    process = daemon()
    assert endpoint_of(process.home) == process.url
    named = Context("lab", ("http://kite1:52415",))
    write_contexts(paths_of(process.home).contexts_file, ContextFile("lab", {"lab": named}))
    assert endpoint_of(process.home) == "http://kite1:52415"
    assert endpoint_of(process.home, SKULK_ENDPOINT="kite2") == "http://kite2:52415"


def test_a_daemon_does_not_remove_the_file_of_its_successor(tmp_path: Path) -> None:
    file = tmp_path / "local-api.json"
    write_local_api(file, LocalApi("http://127.0.0.1:1", None, 8))
    remove_local_api(file, 7)
    assert file.exists()
    remove_local_api(file, 8)
    assert not file.exists()


def test_an_https_address_is_never_replaced_by_plain_http(tmp_path: Path) -> None:
    file = paths_of(tmp_path).local_api_file
    write_local_api(file, LocalApi("https://kite1:1", "/ca.pem", 2**31 - 1))
    remove_local_api(file, 2**31 - 1)
    assert endpoint_of(tmp_path) == "https://kite1:1"


@pytest.mark.parametrize("pid", [0, -1, 2**31 - 1, 2**80, True, "1", None])
def test_a_file_without_a_living_process_is_stale(tmp_path: Path, pid: object) -> None:
    file = paths_of(tmp_path).local_api_file
    file.write_text(json.dumps({"endpoint": "http://127.0.0.1:1", "authority": None, "pid": pid}))
    assert endpoint_of(tmp_path) == DEFAULT_ENDPOINT


@pytest.mark.parametrize("text", ["", "[]", "{}", "nonsense", '{"endpoint": 1, "authority": null}'])
def test_an_unreadable_file_is_no_file(tmp_path: Path, text: str) -> None:
    file = tmp_path / "local-api.json"
    file.write_text(text, encoding="utf-8")
    assert read_local_api(file) is None
