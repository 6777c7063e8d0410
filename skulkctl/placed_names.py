"""Names of models, instances, requests and tokens for completion: asked for within 300 ms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from skulkctl.daemon.client import Daemon
from skulkctl.node_names import Name, known_names
from skulkctl.placement.instances import instance_items
from skulkctl.placement.requests import request_items
from skulkctl.tables import plain

if TYPE_CHECKING:
    from skulkctl.daemon.state import ClusterState
    from skulkd.wire.catalogue import ModelList
    from skulkd.wire.tokens import TokenList

Given = Mapping[str, str]


def model_names(options: Given, environ: Given) -> list[Name]:
    """Every model of the catalogue."""
    return known_names("models", Daemon.models.steps, _models, options, environ)


def placed_model_names(options: Given, environ: Given) -> list[Name]:
    """The models that are placed, with their status."""
    return known_names("placed", Daemon.state.steps, _placed, options, environ)


def instance_names(options: Given, environ: Given) -> list[Name]:
    """The ids of all instances, with their models."""
    return known_names("instances", Daemon.state.steps, _instances, options, environ)


def task_names(options: Given, environ: Given) -> list[Name]:
    """The command ids of the requests that are open."""
    return known_names("tasks", Daemon.state.steps, _tasks, options, environ)


def token_names(options: Given, environ: Given) -> list[Name]:
    """The names of all access tokens, with their scopes."""
    return known_names("tokens", Daemon.tokens.steps, _tokens, options, environ)


def _models(catalogue: ModelList) -> list[Name]:
    return [(model.id, "") for model in catalogue.data]


def _placed(state: ClusterState) -> list[Name]:
    return list({item["modelId"]: item["status"] for item in instance_items(state)}.items())


def _instances(state: ClusterState) -> list[Name]:
    return [(item["id"], item["modelId"]) for item in instance_items(state)]


def _tokens(listed: TokenList) -> list[Name]:
    return [(token.name, ", ".join(token.scopes)) for token in listed.tokens]


def _tasks(state: ClusterState) -> list[Name]:
    return [(item["commandId"], plain(item["modelId"])) for item in request_items(state)]
