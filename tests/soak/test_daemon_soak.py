"""Minutes of a daemon that is written to, killed, stopped and restarted at random.

`make soak` runs it; SKULK_SOAK_SECONDS sets how long (300 by default), SKULK_SOAK_SEED repeats it.
"""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from skulkd.settings.load import check_config_text
from tests.conftest import StartDaemon
from tests.daemon_process import DaemonProcess, wait_until

SOAK_S = float(os.environ.get("SKULK_SOAK_SECONDS", "300"))
SEED = int(os.environ.get("SKULK_SOAK_SEED", str(time.time_ns())))


def _put(daemon: DaemonProcess, days: int) -> bool:
    """Ask for a setting; whether the daemon said that it was written."""
    body = json.dumps({"tracing": {"retention_days": days}}).encode()
    request = urllib.request.Request(f"{daemon.url}/config", data=body, method="PUT")
    try:
        with urllib.request.urlopen(request, timeout=600) as answer:
            return bool(json.load(answer)["success"])
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return False


def _days(home: Path) -> int:
    file = home / "skulk.yaml"
    return check_config_text(file.read_bytes(), file).tracing.retention_days


class _Soak:
    def __init__(self, start: StartDaemon, chance: random.Random) -> None:
        self.start = start
        self.chance = chance
        self.daemon = start()
        self.home = self.daemon.home
        self.secret = (self.home / "cluster.secret").read_text()
        self.allowed: set[int] = {3}
        self.starts_of_process = 1

    def write(self) -> None:
        days = self.chance.randrange(1, 1000)
        self.allowed |= {days}
        if _put(self.daemon, days):
            self.allowed = {days}

    def kill_while_writing(self) -> None:
        days = self.chance.randrange(1, 1000)
        self.allowed |= {days}
        delay_s = self.chance.random() / 50
        killer = threading.Timer(delay_s, os.kill, (self.daemon.pid, signal.SIGKILL))
        killer.start()
        if _put(self.daemon, days):
            self.allowed = {days}
        killer.join()
        self.again()

    def stop(self) -> None:
        assert self.daemon.stop() == 0, self.daemon.said()
        self.again()

    def restart(self) -> None:
        before = self.daemon.node_id
        urllib.request.urlopen(
            urllib.request.Request(f"{self.daemon.url}/admin/restart", method="POST"), timeout=600
        ).close()
        self.starts_of_process += 1
        self.daemon.wait_ready(self.starts_of_process)
        assert self.daemon.node_id != before

    def again(self) -> None:
        self.daemon.process.wait(300)
        self.daemon = self.start(home=self.home)
        self.starts_of_process = 1

    def check(self) -> None:
        state: dict[str, Any] = wait_until(lambda: self.daemon.get("/state"), "/state")
        assert list(state["lastSeen"]) == [self.daemon.node_id]
        assert (self.home / "cluster.secret").read_text() == self.secret
        if (self.home / "skulk.yaml").exists():
            found = _days(self.home)
            assert found in self.allowed, "a setting that was acknowledged is gone"
            self.allowed = {found}


@pytest.mark.slow
@pytest.mark.timeout(SOAK_S + 300)
def test_daemon_survives_kills_stops_and_restarts_and_loses_no_setting(
    daemon: StartDaemon,
) -> None:
    chance = random.Random(SEED)
    soak = _Soak(daemon, chance)
    actions = [soak.write] * 4 + [soak.kill_while_writing, soak.stop, soak.restart]
    ends = time.monotonic() + SOAK_S
    done = 0
    while time.monotonic() < ends:
        chance.choice(actions)()
        soak.check()
        done += 1
    assert done > 0, f"seed {SEED}"
