"""Clusters of real daemons, for the tests of every room that needs more than one node.

    def test_something(cluster: StartCluster) -> None:
        three = cluster(3)                       # formed: one master, everybody knows everybody
        a, b, c = three.nodes                    # LiveNode: .get/.post, .kill, .freeze, .start …
        instance = three.place(on=b)             # the tiny model, ready, on that node
        answer = stream(a)                       # chatting.stream: read beside the test
        b.kill()
        answer.wait_end()
        assert "b" in answer.error["message"]    # names are kite1, kite2, …

Every daemon has its own home with the tiny model in it, listens on loopback with ports of its own,
shares one secret and one namespace, and is gone when the test ends, whatever happened. A cluster
that is only read can be shared: use `live_cluster` in a module-scoped fixture. `machines` puts
the nodes into network namespaces (`lan.py`).
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import shutil
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from skulkd.store.imports.tiny_model import TINY_MODEL_ID, make_tiny_model
from tests.cluster_live.lan import Machine
from tests.cluster_live.live_node import LiveNode
from tests.daemon_process import wait_until

FORM_S = 300.0
SERVING = ({"RunnerReady": {}}, {"RunnerRunning": {}})
SECRET = "the-secret-of-the-live-tests"
_NAMES = itertools.count(1)
# Below the range from which systems take ports for outgoing connections.
_PORTS = (20_000, 32_000)
_DICE = random.Random(os.getpid())


def free_port() -> int:
    """A port of 127.0.0.1 that nobody uses and nobody gets by chance."""
    while True:
        port = _DICE.randrange(*_PORTS)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


@dataclass
class LiveCluster:
    """Nodes that were started together, and whoever joins them."""

    base: Path
    namespace: str
    secret: str = SECRET
    machines: Sequence[Machine] = ()
    config: str = ""
    nodes: list[LiveNode] = field(default_factory=list)

    # --- members ---

    def add(
        self,
        *,
        peers: Iterable[LiveNode] | None = None,
        arguments: Sequence[str] = (),
        environ: Mapping[str, str] | None = None,
        secret: str | None = None,
        model: bool = True,
    ) -> LiveNode:
        """Another node, not started. Without `peers` it calls the first two that are there."""
        number = len(self.nodes)
        home = self.base / f"kite{number + 1}"
        home.mkdir()
        self._settle(home, secret or self.secret, model)
        machine = self.machines[number] if self.machines else None
        called = (
            []
            if machine is not None and peers is None
            else (self.nodes[:2] if peers is None else peers)
        )
        node = LiveNode(
            name=f"kite{number + 1}",
            home=home,
            fabric=f"127.0.0.1:{free_port()}" if machine is None else "0.0.0.0:52416",
            peers=[peer.fabric for peer in called],
            arguments=arguments,
            machine=machine,
            environ=environ or {},
        )
        self.nodes.append(node)
        return node

    def _settle(self, home: Path, secret: str, model: bool) -> None:
        config = f"cluster: {{secret: {secret}, namespace: {self.namespace}}}\n{self.config}"
        file = home / "skulk.yaml"
        file.write_text(config, encoding="utf-8")
        file.chmod(0o600)
        if model:
            shutil.copytree(tiny_model(self.base), home / "models")

    def start(self, *nodes: LiveNode) -> None:
        """Start these, or all, at the same time, and wait until each is ready."""
        for node in nodes or self.nodes:
            node.start()
        for node in nodes or self.nodes:
            node.wait_ready()

    @property
    def alive(self) -> list[LiveNode]:
        return [node for node in self.nodes if node.alive]

    def of(self, node_id: str) -> LiveNode:
        """The living node with that id."""
        return next(node for node in self.alive if node.node_id == node_id)

    def end(self) -> None:
        for node in self.nodes:
            node.clean_up()

    # --- agreement ---

    def wait_formed(self, nodes: Sequence[LiveNode] | None = None) -> None:
        """Until these, or all living ones, and nobody else, agree on one master and one list."""
        wanted = list(nodes or self.alive)
        try:
            wait_until(lambda: is_formed(wanted), f"{len(wanted)} nodes to agree", FORM_S)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{story(wanted)}") from None

    def master(self, nodes: Sequence[LiveNode] | None = None) -> LiveNode:
        """Of these, or of all living ones, once they agree."""
        self.wait_formed(nodes)
        some = (nodes or self.alive)[0]
        return self.of(some.view()["masterNodeId"])

    def wait_links(self) -> None:
        """Until everybody has measured a way to everybody else."""
        ids = {node.node_id for node in self.alive}

        def linked() -> bool:
            connections = self.alive[0].state()["topology"]["connections"]
            return all(set(connections.get(one, {})) >= ids - {one} for one in ids)

        wait_until(linked, "links between all nodes", FORM_S)

    # --- models ---

    def place(self, *, on: LiveNode | None = None, via: LiveNode | None = None, **body: Any) -> str:
        """The id of an instance of the tiny model that serves; `on` leaves all others out."""
        via = via or on or self.alive[0]
        if on is not None:
            body["excluded_nodes"] = [one.node_id for one in self.alive if one is not on]
        placed = via.post("/place_instance", {"model_id": TINY_MODEL_ID, **body})
        assert placed.status == 200, placed
        instance_id: str = placed.body["instance_id"]
        self.wait_serving(instance_id)
        return instance_id

    def wait_serving(self, instance_id: str, nodes: Sequence[LiveNode] | None = None) -> None:
        """Until all runners serve, as these, or all living nodes, see it."""

        def serves(node: LiveNode) -> bool:
            state = node.state()
            instance = state["instances"].get(instance_id)
            return instance is not None and all(
                state["runners"].get(runner) in SERVING for runner in runners_of(instance)
            )

        for node in nodes or self.alive:
            try:
                wait_until(lambda one=node: serves(one), f"{node.name} to see it serve", FORM_S)
            except AssertionError as error:
                state = node.state()
                known = {key: sorted(nodes_of(one)) for key, one in state["instances"].items()}
                told = f"{instance_id} of {known}, runners {state['runners']}"
                raise AssertionError(f"{error}: {told}\n{story(self.alive)}") from None


def is_formed(nodes: Sequence[LiveNode]) -> bool:
    """Whether these nodes, and nobody else, follow one master and know each other's readings."""
    ids = {node.node_id for node in nodes}
    sessions = set()
    try:
        for node in nodes:
            view, state = node.view(), node.state()
            sessions.add((view["session"] or {}).get("id"))
            members = {one["nodeId"] for one in view["nodes"] if one["ok"]}
            if members != ids or len(view["nodes"]) != len(ids):
                return False
            if view["masterNodeId"] not in ids or set(state["nodeIdentities"]) != ids:
                return False
    except (OSError, AssertionError):
        return False
    return len(sessions) == 1 and None not in sessions


def story(nodes: Sequence[LiveNode]) -> str:
    """What each node sees and has said, for whoever must find out what went wrong."""
    told = []
    for node in nodes:
        try:
            view = node.view()
            seen = [(one["name"], one["ok"], one["session"]) for one in view["nodes"]]
            told.append(f"{node.name} {node.node_id} follows {view['session']}: {seen}")
        except (OSError, AssertionError) as error:
            told.append(f"{node.name}: {error}")
        lines = [line for line in node.daemon.stderr if " /" not in line]
        told += [f"    {line}" for line in lines[-15:]]
    return "\n".join(told)


def runners_of(instance: Mapping[str, Any]) -> list[str]:
    [content] = instance.values()
    return list(content["shardAssignments"]["runnerToShard"])


def nodes_of(instance: Mapping[str, Any]) -> set[str]:
    [content] = instance.values()
    return set(content["shardAssignments"]["nodeToRunner"])


def tiny_model(base: Path) -> Path:
    """A models directory with the tiny model, made once for each base."""
    models = base / "tiny"
    if not models.exists():
        make_tiny_model(models)
    return models


class StartCluster(Protocol):
    """Makes a cluster of so many nodes and waits until it has formed."""

    def __call__(
        self,
        count: int,
        *,
        arguments: Sequence[str] = (),
        environ: Mapping[str, str] | None = None,
        machines: Sequence[Machine] = (),
        config: str = "",
        wait: bool = True,
    ) -> LiveCluster: ...


def make_cluster(
    base: Path,
    count: int,
    *,
    arguments: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
    machines: Sequence[Machine] = (),
    config: str = "",
) -> LiveCluster:
    """Nodes that are not started yet."""
    base.mkdir(exist_ok=True)
    namespace = f"live-{os.getpid()}-{next(_NAMES)}"
    cluster = LiveCluster(base, namespace, machines=machines, config=config)
    for _ in range(count):
        cluster.add(arguments=arguments, environ=environ)
    if count > 1 and not machines:
        # The first calls the second, so that it finds the others when it comes back.
        cluster.nodes[0].peers = [cluster.nodes[1].fabric]
    return cluster


@contextlib.contextmanager
def live_cluster(base: Path, count: int, **options: Any) -> Iterator[LiveCluster]:
    """A formed cluster; gone with the block."""
    cluster = make_cluster(base, count, **options)
    try:
        cluster.start()
        cluster.wait_formed()
        yield cluster
    finally:
        cluster.end()
