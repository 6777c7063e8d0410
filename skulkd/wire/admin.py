"""Answer of `POST /admin/restart`."""

from typing import Literal

from skulkd.wire.base import SnakeModel
from skulkd.wire.ids import NodeId


class RestartAnswer(SnakeModel):
    status: Literal["restarting", "restart_already_pending", "restart_sent"]
    node_id: NodeId
