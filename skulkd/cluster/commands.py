"""Commands: sent from any node, decided and written by the master, answered.

A command has an id and can be sent again, also to the next master: the journal holds the answers
of decided commands, so none is decided twice.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from typing import Protocol
from uuid import uuid4

from skulkd.cluster.commits import NOT_MASTER, Commits, Decision
from skulkd.cluster.journal_replica import JournalReplica
from skulkd.peers import PeerError, PeerRefused, Peers
from skulkd.wire.ids import NodeId

METHOD = "cluster.command"
NO_MASTER = "no_master"
CLUSTER_DOWN = "ClusterDown"
ASK_S = 5.0
"""Timeout of one attempt; it fails earlier when the master is lost."""
POLL_S = 0.1


Decide = Callable[[bytes, JournalReplica], Decision]
"""Decides a command, given its body and the journal, without waiting for anything.

Raises `PeerRefused` to refuse; kind, message and data reach whoever sent the command.
"""


class CommandDeps(Protocol):
    """The part of `ClusterNode` that commands use."""

    commits: Commits
    """Commits the decisions of the master."""
    down: str
    """Why the cluster task is not running; empty while it runs."""

    def master(self) -> NodeId | None:
        """The master, if this node is in sync with it."""
        ...

    def decided(self, command: str) -> tuple[int, str] | None:
        """Index and answer of a command that is in the journal."""
        ...

    async def wait_for(self, index: int, deadline_s: float) -> None:
        """Wait until this node's state includes this index."""
        ...


class Commands:
    """Sends commands to the master, and decides those of this node while it is the master."""

    def __init__(self, peers: Peers, cluster: CommandDeps) -> None:
        self._peers = peers
        self._cluster = cluster
        self._decisions: dict[str, Decide] = {}
        peers.serve(METHOD, self._answer)

    def register(self, kind: str, decide: Decide) -> None:
        """On every node, because every node may become master."""
        self._decisions[kind] = decide

    async def send(self, kind: str, body: bytes, deadline_s: float) -> bytes:
        """The master's answer, once this node's state shows it. Raises PeerRefused.

        `NO_MASTER` is the kind when nobody decided within the deadline. It may still happen then;
        a command whose body names what it makes can be sent again without harm.
        """
        command = str(uuid4())
        head = json.dumps({"id": command, "kind": kind}).encode()
        ends = time.monotonic() + deadline_s
        while (left := ends - time.monotonic()) > 0:
            self._check_up()
            master = self._cluster.master()
            if master is None:
                await asyncio.sleep(min(POLL_S, left))
                continue
            try:
                answer = await self._peers.ask(
                    master, METHOD, head + b"\n" + body, deadline_s=min(ASK_S, left)
                )
            except PeerRefused as refusal:
                if refusal.kind not in (NOT_MASTER, CLUSTER_DOWN):
                    raise
                await asyncio.sleep(POLL_S)
                continue
            except PeerError:
                await asyncio.sleep(POLL_S)
                continue
            index, _, text = answer.partition(b"\n")
            await self._cluster.wait_for(int(index), max(POLL_S, ends - time.monotonic()))
            return text
        message = f"no master answered in {deadline_s:g} s; try again"
        raise PeerRefused(self._peers.node_id, NO_MASTER, message)

    def _check_up(self) -> None:
        """Raises PeerRefused: what a node decided that is cut off from the others would be lost."""
        if self._cluster.down:
            text = "the cluster task of this node is down and is being restarted"
            text += f": {self._cluster.down}"
            raise PeerRefused(self._peers.node_id, CLUSTER_DOWN, text)

    async def _answer(self, _asker: NodeId, frame: bytes) -> bytes:
        me = self._peers.node_id
        self._check_up()
        if self._cluster.master() != me:
            raise PeerRefused(me, NOT_MASTER, f"{me} is not the master")
        head, _, body = frame.partition(b"\n")
        asked = json.loads(head)
        command, kind = str(asked["id"]), str(asked["kind"])
        if (known := self._cluster.decided(command)) is not None:
            return b"%d\n%s" % await self._cluster.commits.confirm(
                command, known[0], known[1].encode()
            )
        decide = self._decisions.get(kind)
        if decide is None:
            raise PeerRefused(me, "unknown_command", f"this version knows no command {kind}")
        return b"%d\n%s" % await self._cluster.commits.commit(command, lambda on: decide(body, on))
