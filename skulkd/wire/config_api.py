"""Bodies of `GET /config` and `PUT /config`. The settings themselves are not described here."""

from typing import Any

from pydantic import Field

from skulkd.wire.base import CamelModel, SnakeModel


class EffectiveConfig(SnakeModel):
    kv_cache_backend: str
    has_hf_token: bool | None = Field(
        default=None, description="Older nodes do not say when there is no file."
    )


class ConfigSetting(CamelModel):
    """One value as flags, environment and file say now, and the one the daemon works with."""

    key: str = Field(description="Dotted, as in the file.")
    value: Any = Field(description="What the next start would use. Null for a secret.")
    origin: str = Field(description="Where `value` comes from.")
    in_force: Any = Field(default=None, description="In use now. Null for a secret.")
    in_force_origin: str | None = Field(
        default=None, description="Where the value in use now came from."
    )
    restart_needed: bool = Field(
        default=False, description="Whether the two differ until the daemon is restarted."
    )


class ConfigAnswer(CamelModel):
    config: dict[str, Any] = Field(description="The file as it is, without secrets.")
    config_path: str
    file_exists: bool
    effective: EffectiveConfig
    settings: list[ConfigSetting] | None = Field(
        default=None, description="Our addition; the reference does not have it."
    )


class ConfigPutRequest(SnakeModel):
    """One of the two forms of the body of `PUT /config`; the settings check the sections."""

    config: dict[str, Any]


class ConfigPutAnswer(CamelModel):
    success: bool
    message: str
    requires_restart: bool
