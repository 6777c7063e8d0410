"""Which machine does a name in the settings mean, and what it overrides there. Pure.

Must not look up any name: host name, node name and node id are given.
"""

import ipaddress

from skulkd.wire.config import NodeOverride, SkulkConfig, StagingSection


def normalised(host: str) -> str:
    """A host name as it is compared: no spaces around, no dots at the end, lower case."""
    return host.strip().rstrip(".").lower()


def host_aliases(host: str) -> frozenset[str]:
    """The names a host goes by: in full, its first part, and that part with `.local`."""
    full = normalised(host)
    if not full:
        return frozenset()
    try:
        ipaddress.ip_address(full)
    except ValueError:
        short = full.partition(".")[0]
        return frozenset((full, short, f"{short}.local"))
    # The first part of an address names nothing.
    return frozenset((full,))


def same_host(one: str, other: str) -> bool:
    """Whether two names can mean one machine.

    Symmetric, where the reference is not: `kite3.lan` matches `kite3`, and `kite3` matches
    `kite3.lan`. Two different full names such as `kite3.lan` and `kite3.office` do not match.
    """
    return normalised(one) in host_aliases(other) or normalised(other) in host_aliases(one)


def is_store_host(config: SkulkConfig, node_id: str, name: str, hostname: str) -> bool:
    """Whether `model_store.store_host` means this node."""
    if config.model_store is None:
        return False
    wanted = config.model_store.store_host
    return (
        wanted == node_id or normalised(wanted) == normalised(name) or same_host(wanted, hostname)
    )


def find_override(
    overrides: dict[str, NodeOverride], node_id: str, name: str, hostname: str
) -> StagingSection | None:
    """The staging override for this node.

    The most specific key wins, whatever the order in the file: node id, then friendly name, then
    the host name in full, then another name of that host.
    """
    given = {key: entry.staging for key, entry in overrides.items() if entry.staging is not None}
    tests = (
        lambda key: key == node_id,
        lambda key: normalised(key) == normalised(name),
        lambda key: normalised(key) == normalised(hostname),
        lambda key: same_host(key, hostname),
    )
    for matches in tests:
        for key, staging in given.items():
            if matches(key):
                return staging
    return None


def effective_staging(
    config: SkulkConfig, node_id: str, name: str, hostname: str
) -> StagingSection | None:
    """Staging as it holds on one node; None when there is no model store.

    An override replaces only the keys that it names.
    """
    store = config.model_store
    if store is None:
        return None
    override = find_override(store.node_overrides, node_id, name, hostname)
    if override is None:
        return store.staging
    written = {key: getattr(override, key) for key in override.model_fields_set}
    return store.staging.model_copy(update=written)
