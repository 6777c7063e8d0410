"""`GET` and `PUT /config`: the settings file of this node, without its secrets."""

from __future__ import annotations

import asyncio
from typing import Any

from aiohttp import web
from pydantic_core import from_json

from skulkd.api.audit import note
from skulkd.api.bodies import read_body
from skulkd.api.errors import ApiError
from skulkd.api.placement_errors import storage_error
from skulkd.api.routes import RouteTable
from skulkd.api.services import Services, services
from skulkd.api.streams import send
from skulkd.settings.edit import apply_put, redact
from skulkd.settings.load import Settings
from skulkd.settings.problems import SettingsError
from skulkd.settings.running import RunningSettings
from skulkd.settings.schema import join_key, secret_paths
from skulkd.settings.writer import update_config
from skulkd.wire.base import SnakeModel
from skulkd.wire.config import SkulkConfig
from skulkd.wire.config_api import ConfigAnswer, ConfigPutAnswer, ConfigSetting, EffectiveConfig

routes = RouteTable("config")


class WrappedConfig(SnakeModel):
    """The other form of the body."""

    config: SkulkConfig


_TRACING = "tracing.enabled"
# The reference asks for a restart after these; we also do when anything read at start differs.
_RESTART_SECTIONS = frozenset({"model_store"})


@routes.get(
    "/config",
    scope="read",
    summary="The settings file and the values in force",
    answer=ConfigAnswer,
    errors=(409,),
)
async def get_config(request: web.Request) -> web.StreamResponse:
    node = services(request)
    running = node.settings
    try:
        settings = await asyncio.to_thread(running.sources.load)
    except SettingsError as error:
        raise ApiError(409, f"the settings on disk cannot be used: {error}") from error
    return await send(request, _describe(settings, node).model_dump_json().encode())


@routes.put(
    "/config",
    scope="operate",
    summary="Change the settings file: omitted sections stay, null removes one",
    raw_body=SkulkConfig | WrappedConfig,
    answer=ConfigPutAnswer,
    errors=(408, 413, 422, 503, 507),
)
async def put_config(request: web.Request) -> web.StreamResponse:
    running = services(request).settings
    sections = _sections(await read_body(request, running.max_body_bytes))
    note(sections=",".join(sorted(sections)))
    async with running.writing:
        try:
            body = await asyncio.to_thread(_put, running, sections)
        except SettingsError as error:
            raise ApiError(422, str(error)) from error
        except OSError as error:
            raise storage_error(error, "the settings") from error
    return await send(request, body.model_dump_json().encode())


def _sections(raw: bytes) -> dict[str, Any]:
    """The sections of a body: bare, or below the one key `config`."""
    try:
        body = from_json(raw, allow_inf_nan=False)
    except ValueError as error:
        raise ApiError(422, f"the body is not valid JSON: {error}") from error
    if isinstance(body, dict) and "config" in body:
        body = body["config"]
    if not isinstance(body, dict):
        raise ApiError(422, "the settings must be a JSON object, bare or below the key 'config'")
    return body


def _put(running: RunningSettings, sections: dict[str, Any]) -> ConfigPutAnswer:
    file = running.sources.find_file()
    changed = update_config(file, lambda raw: apply_put(raw, sections).raw)
    names = ", ".join(sorted(changed))
    message = f"{names} written to {file}." if changed else f"nothing to change in {file}."
    restart = bool(_RESTART_SECTIONS & sections.keys()) or running.differs_from_start()
    if restart:
        message += " Restart the node to use it."
    return ConfigPutAnswer(success=True, message=message, requires_restart=restart)


def _describe(settings: Settings, node: Services) -> ConfigAnswer:
    return ConfigAnswer(
        config=redact(settings.raw),
        config_path=str(settings.file),
        file_exists=settings.file_exists,
        effective=EffectiveConfig(
            kv_cache_backend=settings.config.inference.kv_cache_backend,
            has_hf_token=settings.config.hf_token is not None,
        ),
        settings=_values(settings, node.settings, node.tracing.enabled),
    )


def _values(settings: Settings, running: RunningSettings, is_tracing: bool) -> list[ConfigSetting]:
    """Every value of the sources; those that only the start knew come last."""
    secret = {join_key(path) for path in secret_paths()}
    current, in_force = dict(settings.values()), running.values_in_force(settings)
    switched = in_force[_TRACING] != is_tracing
    in_force[_TRACING] = is_tracing
    return [
        ConfigSetting(
            key=key,
            value=None if key in secret else current.get(key),
            origin=settings.origin_text(key),
            in_force=None if key in secret else in_force.get(key),
            in_force_origin="skulkctl trace"
            if switched and key == _TRACING
            else running.origin_in_force(key, settings),
            restart_needed=_needs_restart(key, current.get(key), in_force.get(key)),
        )
        for key in dict.fromkeys([*current, *in_force])
    ]


def _needs_restart(key: str, configured: object, in_force: object) -> bool:
    # A start switches tracing on where that is configured, but never off.
    return configured != in_force and (key != _TRACING or configured is True)
