"""Misfortune for a live cluster: carries out the acts of a schedule, one after the other.

Each act is undone before the next. What an operator's request comes to is judged here, too.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from skulkd.store.imports.tiny_model import TINY_MODEL_ID
from tests.cluster_live.cluster import LiveCluster
from tests.cluster_live.lan import Lan
from tests.cluster_live.live_node import LiveNode, Reply
from tests.cluster_live.processes import family
from tests.soak.chronicle import Chronicle
from tests.soak.schedule import Act
from tests.soak.wanted import Wanted

RETRYABLE = (429, 500, 503, 507)
MOST_EXTRA = 2
"""Instances that chaos places itself; the machine is small."""
FILLER = "filler"
_PIECE = bytes(1 << 16)


@dataclass
class Faults:
    """`small` is the node whose home is a small disk; None when there can be no such."""

    cluster: LiveCluster
    chronicle: Chronicle
    wanted: Wanted
    extra: list[str] = field(default_factory=list)
    """Instances that were placed by chaos."""
    network: Lan | None = None
    small: LiveNode | None = None
    done: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def carry_out(self, act: Act) -> None:
        self.chronicle.note(str(act))
        nodes = [self.cluster.nodes[number] for number in act.nodes]
        perform: Callable[[Act, list[LiveNode]], None] = getattr(self, act.kind)
        perform(act, nodes)
        self.done[act.kind] += 1
        if act.settle:
            self.cluster.wait_formed(self.cluster.nodes)
            self.chronicle.note("formed")

    # --- processes ---

    def kill(self, act: Act, nodes: list[LiveNode]) -> None:
        self._kill(act, nodes[:1])

    def kill_two(self, act: Act, nodes: list[LiveNode]) -> None:
        self._kill(act, nodes[:2])

    def _kill(self, act: Act, nodes: list[LiveNode]) -> None:
        with self.chronicle.down(*nodes, killed=True):
            for node in nodes:
                node.kill()
            self._pause(act)
            self.cluster.start(*nodes)

    def stop(self, act: Act, nodes: list[LiveNode]) -> None:
        node = nodes[0]
        with self.chronicle.down(node, killed=False):
            code = node.stop()
            assert code == 0, f"{node.name} ended with {code}"
            self._pause(act)
            self.cluster.start(node)

    def restart(self, act: Act, nodes: list[LiveNode]) -> None:
        """Through another node, as an operator would."""
        node, asked = nodes[0], self.cluster.nodes[0]
        self.cluster.wait_formed(self.cluster.nodes)  # it must know the other
        starts, old = len(node.daemon.ready_lines), node.node_id
        with self.chronicle.down(node, killed=False):
            reply = asked.post(f"/admin/restart?node_id={old}")
            assert (reply.status, reply.body["status"]) == (200, "restart_sent"), reply
            node.daemon.wait_ready(starts + 1)
        assert node.node_id != old

    def freeze(self, act: Act, nodes: list[LiveNode]) -> None:
        """The daemon stands still, its runners go on."""
        self._freeze(act, nodes[0], {nodes[0].pid})

    def freeze_all(self, act: Act, nodes: list[LiveNode]) -> None:
        """As a machine that sleeps."""
        self._freeze(act, nodes[0], family(nodes[0]))

    def _freeze(self, act: Act, node: LiveNode, pids: set[int]) -> None:
        with self.chronicle.frozen(node):
            _signal(pids, signal.SIGSTOP)
            try:
                self._pause(act)
            finally:
                _signal(pids, signal.SIGCONT)

    def kill_runner(self, act: Act, nodes: list[LiveNode]) -> None:
        pids = [(node, pid) for node in nodes for pid in node.runner_pids()]
        for node, pid in pids[:1]:
            self.chronicle.note(f"runner {pid} of {node.name}")
            _signal({pid}, signal.SIGKILL)

    # --- disk and network ---

    def fill_disk(self, act: Act, _nodes: list[LiveNode]) -> None:
        if self.small is None:
            return
        filler = self.small.home / FILLER
        with filler.open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(_PIECE)
            except OSError as error:
                assert error.errno == errno.ENOSPC, error
        try:
            self._pause(act)
        finally:
            filler.unlink()

    def cut(self, act: Act, nodes: list[LiveNode]) -> None:
        assert self.network is not None
        half = 1 + act.number % (len(act.nodes) - 1)
        self.network.cut(act.nodes[:half], act.nodes[half:])
        self._heal(act)

    def cut_one_way(self, act: Act, nodes: list[LiveNode]) -> None:
        assert self.network is not None
        self.network.cut_one_way(*act.nodes[:2])
        self._heal(act)

    def _heal(self, act: Act) -> None:
        assert self.network is not None
        self._pause(act)
        self.network.heal()
        self.chronicle.note("heal")

    # --- what operators ask ---

    def drain(self, act: Act, nodes: list[LiveNode]) -> None:
        """Of a node through another; a drain that was refused is not there."""
        node, asked = nodes[:2]
        body = {"nodeIds": [node.node_id]}
        self._change(asked, "PUT", "/v1/drain", {**body, "draining": True}, (404,))
        self._pause(act)
        self._change(asked, "PUT", "/v1/drain", {**body, "draining": False}, (404,))

    def place(self, act: Act, nodes: list[LiveNode]) -> None:
        if len(self.extra) >= MOST_EXTRA:
            self.delete(act, nodes)
            return
        reply = self._change(nodes[0], "POST", "/place_instance", {"model_id": TINY_MODEL_ID})
        if reply is None:
            self.wanted.unanswered += 1
        elif reply.status == 200:
            instance_id = reply.body["instance_id"]
            self.wanted.placed[instance_id] = TINY_MODEL_ID
            self.extra.append(instance_id)

    def delete(self, act: Act, nodes: list[LiveNode]) -> None:
        if not self.extra:
            return
        instance_id = self.extra.pop(0)
        reply = self._change(nodes[0], "DELETE", f"/instance/{instance_id}", None, (404,))
        del self.wanted.placed[instance_id]
        sure = reply is not None and reply.status == 200
        (self.wanted.deleted if sure else self.wanted.perhaps).add(instance_id)

    def configure(self, act: Act, nodes: list[LiveNode]) -> None:
        self._write_setting(nodes[0], act.number)

    def kill_while_writing(self, act: Act, nodes: list[LiveNode]) -> None:
        node = nodes[0]
        with self.chronicle.down(node, killed=True):
            killer = threading.Timer(act.pause_s, os.kill, (node.pid, signal.SIGKILL))
            killer.start()
            self._write_setting(node, act.number)
            killer.join()
            node.kill()
            self.cluster.start(node)

    def trace(self, act: Act, nodes: list[LiveNode]) -> None:
        for enabled in (True, False):
            self._change(nodes[0], "PUT", "/v1/tracing", {"enabled": enabled})
            self._pause(act)

    def _write_setting(self, node: LiveNode, days: int) -> None:
        self.wanted.write(node.home, days)
        body = {"tracing": {"retention_days": days}}
        reply = self._change(node, "PUT", "/config", body)
        if reply is not None and reply.status == 200:
            self.wanted.written(node.home, days)

    def _change(
        self, node: LiveNode, method: str, path: str, body: object, fine: tuple[int, ...] = ()
    ) -> Reply | None:
        """The answer of that node; None when nobody knows what came of it."""
        try:
            reply = node.ask(method, path, body)
        except OSError as error:
            self.chronicle.note(f"{method} {path} on {node.name}: {error}")
            return None
        if reply.status != 200:
            self.chronicle.note(f"{method} {path} on {node.name}: {reply.status} {reply.body}")
        if reply.status not in (200, *RETRYABLE, *fine):
            self.wrong.append(f"{method} {path} on {node.name}: {reply}")
        return None if reply.status == 503 else reply

    def _pause(self, act: Act) -> None:
        time.sleep(act.pause_s)


def _signal(pids: set[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
