"""The enrolment of this node as its files and the environment tell it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from skulkd.swarm.answers import is_header_token
from skulkd.swarm.errors import ConfigError, NotEnrolled
from skulkd.swarm.gateway import check_gateway_url
from skulkd.swarm.node_config import Enrolled, NodeConfig, Setup, State, node_config, state_after
from skulkd.swarm.node_files import NodeFiles
from skulkd.swarm.script_values import first_text

BAD_TOKEN = "the stored runtime token cannot be sent in a header; run: skulkctl swarm setup"  # noqa: S105 - a sentence


@dataclass(frozen=True, slots=True)
class Enrolment:
    """Reads and writes; raises ConfigError for files that cannot be used."""

    files: NodeFiles
    environ: Mapping[str, str]

    def config(self) -> NodeConfig | None:
        config = node_config(self.environ, self.files.read_state())
        if config is not None:
            check_gateway_url(config.gateway_base_url)
        return config

    def required(self) -> tuple[NodeConfig, State]:
        """Raises NotEnrolled."""
        config = self.config()
        if config is None:
            raise NotEnrolled("this node is not enrolled with a gateway")
        return config, self.files.read_state()

    def token(self, config: NodeConfig | None) -> str | None:
        """Raises ConfigError for one that no request could carry."""
        if config is None:
            return None
        legacy = self.files.read_state().get("runtime_token")
        token = first_text(config.runtime_token, self.files.read_token(), legacy)
        if token is not None and not is_header_token(token):
            raise ConfigError(BAD_TOKEN)
        return token

    async def keep(
        self,
        wanted: Setup,
        enrolled: Enrolled,
        relay: Mapping[str, str],
        identity: tuple[str | None, str, str],
    ) -> None:
        """`identity` is fingerprint, version and time of the enrolment."""
        state = state_after(wanted, enrolled, *identity)
        # The token first: a state without it would be an enrolment that cannot speak.
        await asyncio.to_thread(self.files.write_token, enrolled.runtime_token)
        await asyncio.to_thread(self.files.write_state, {**state, **relay})
