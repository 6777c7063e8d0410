"""Claims: a job runs on one node of the cluster, after all other nodes have granted it.

Gateways may lease a job twice, to one node or to two that share an enrolment. Before a job
starts, its node asks every other one; of two that ask at once the smaller id wins. A node that
does not answer counts as granting: the cluster prefers availability to certainty.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import OrderedDict
from typing import Literal

from skulkd.peers import PeerError, Peers
from skulkd.swarm.job_records import JobRecords
from skulkd.wire.ids import NodeId

METHOD = "swarm.claim"
REMEMBERED = 4096
ASK_S = 5.0

Hold = Literal["asking", "held"]
log = logging.getLogger(__name__)


class Claims:
    """The jobs that this node holds, or asks for."""

    def __init__(self, peers: Peers, records: JobRecords) -> None:
        self._peers = peers
        self._records = records
        self._own: OrderedDict[str, Hold] = OrderedDict()
        peers.serve(METHOD, self._answer)

    async def claim(self, job_id: str) -> bool:
        """Whether this node may run it. False when it has it already, or another node has."""
        if job_id in self._own:
            return False
        self._own[job_id] = "asking"
        while len(self._own) > REMEMBERED:
            self._own.popitem(last=False)
        answers = await asyncio.gather(
            *(self._ask(peer.node_id, job_id) for peer in self._peers.others())
        )
        if not all(answers) or job_id not in self._own:
            self._own.pop(job_id, None)
            return False
        self._own[job_id] = "held"
        return True

    def release(self, job_id: str) -> None:
        """It was not run; another node may."""
        self._own.pop(job_id, None)

    async def _ask(self, node: NodeId, job_id: str) -> bool:
        body = json.dumps({"jobId": job_id}).encode()
        try:
            raw = await self._peers.ask(node, METHOD, body, deadline_s=ASK_S)
            return json.loads(raw).get("granted") is not False
        except (PeerError, ValueError) as error:
            log.warning("job %s is claimed without an answer from %s: %s", job_id[:64], node, error)
            return True

    async def _answer(self, asker: NodeId, body: bytes) -> bytes:
        job_id = str(json.loads(body)["jobId"])
        return json.dumps({"granted": self._grant(asker, job_id)}).encode()

    def _grant(self, asker: NodeId, job_id: str) -> bool:
        held = self._own.get(job_id)
        if held is None and not self._records.may_run(job_id):
            return asker == self._peers.node_id
        if held is None or asker == self._peers.node_id:
            return True
        if held == "asking" and asker < self._peers.node_id:
            # Both ask at once; the other has the smaller id, so this node gives way.
            del self._own[job_id]
            return True
        return False
