"""Where the store server is, as seen from this node. Pure.

`store_http_host` is taken as it is. Else the name in `store_host` is looked up among the nodes of
the cluster, because friendly names are in no DNS; an address that was measured to answer wins.
"""

import ipaddress
from collections.abc import Mapping, Sequence

from skulkd.settings.overrides import normalised, same_host
from skulkd.wire.config import ModelStoreSection
from skulkd.wire.ids import NodeId
from skulkd.wire.state import State

LOOPBACK = "127.0.0.1"


def bind_host(store: ModelStoreSection) -> str:
    """Where the store's host listens: at the address given for URLs, else everywhere."""
    try:
        return str(ipaddress.ip_address(store.store_http_host or ""))
    except ValueError:
        return "0.0.0.0"  # noqa: S104 - every request must show the cluster's token


def store_host_address(
    store: ModelStoreSection,
    state: State,
    measured: Mapping[NodeId, Sequence[str]],
    *,
    is_host: bool,
) -> str:
    """The host of the store's URL. `measured` are addresses that answered, the best first."""
    if store.store_http_host is not None:
        return store.store_http_host
    if is_host:
        return LOOPBACK
    for node_id, identity in state.node_identities.items():
        named = normalised(store.store_host) == normalised(identity.friendly_name)
        if node_id != store.store_host and not named:
            continue
        known = [*measured.get(node_id, ()), *_addresses(state, node_id)]
        if known:
            return known[0]
    for node_id, identity in state.node_identities.items():
        if same_host(store.store_host, identity.friendly_name) and measured.get(node_id):
            return measured[node_id][0]
    return store.store_host


def _addresses(state: State, node_id: NodeId) -> list[str]:
    network = state.node_network.get(node_id)
    found = [] if network is None else [face.ip_address for face in network.interfaces]
    return sorted(filter(_is_reachable, found), key=lambda address: ":" in address)


def _is_reachable(address: str) -> bool:
    try:
        known = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    return not (known.is_loopback or known.is_link_local or known.is_unspecified)
