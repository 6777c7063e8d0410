"""Calls about the configuration of the node that answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from skulkctl.daemon.calls import Call, call

if TYPE_CHECKING:
    from collections.abc import Mapping

    from skulkd.wire.config_api import ConfigAnswer, ConfigPutAnswer

_PATH = "/config"


def config() -> Call[ConfigAnswer]:
    """The settings file without its secrets, and the values in force."""
    from skulkd.wire.config_api import ConfigAnswer

    return call("GET", _PATH, ConfigAnswer)


def put_config(sections: Mapping[str, Any]) -> Call[ConfigPutAnswer]:
    """Write the settings file. A stock node drops what is left out; null removes a section."""
    from skulkd.wire.config_api import ConfigPutAnswer, ConfigPutRequest

    wanted = ConfigPutRequest(config=dict(sections))
    return call("PUT", _PATH, ConfigPutAnswer, body=wanted)
