"""The observe room of a node: built from its settings, with the node's own secrets hidden."""

from __future__ import annotations

from collections.abc import Callable

from skulkd.api.observing import Observing, build_observing
from skulkd.api.trace_desk import TraceDesk
from skulkd.log import hide_values
from skulkd.machine.redact import redact_text
from skulkd.node_start import Start
from skulkd.observe.event_log import EventLog
from skulkd.observe.trace_files import TraceFiles
from skulkd.peers import Peers
from skulkd.wire.state import State


def build_observe(
    start: Start, events: EventLog, peers: Peers, state: Callable[[], State]
) -> Observing:
    """Connected to the event log; nothing runs yet."""
    started = start.settings.started
    secrets = [start.secret.value, started.config.hf_token or ""]
    return build_observing(
        start.settings.sources.paths,
        started.config,
        events,
        hide_values(redact_text, secrets),
        TraceDesk(TraceFiles(start.settings.sources.paths.traces), peers, state),
        started.hostname,
    )
