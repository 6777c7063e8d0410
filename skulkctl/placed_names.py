"""Names of models, instances, requests and tokens for completion: asked for within 300 ms."""

from __future__ import annotations

from collections.abc import Mapping

from skulkctl.client import Client
from skulkctl.fetch import fetch_state
from skulkctl.node_names import Name, known_names
from skulkctl.tables import plain
from skulkctl.views.instances import instance_items
from skulkctl.views.models import catalogue_ids
from skulkctl.views.tasks import task_items
from skulkctl.views.tokens import token_items

Given = Mapping[str, str]


def model_names(options: Given, environ: Given) -> list[Name]:
    """Every model of the catalogue."""
    return known_names("models", _models, options, environ)


def placed_model_names(options: Given, environ: Given) -> list[Name]:
    """The models that are placed, with their status."""
    return known_names("placed", _placed, options, environ)


def instance_names(options: Given, environ: Given) -> list[Name]:
    """The ids of all instances, with their models."""
    return known_names("instances", _instances, options, environ)


def task_names(options: Given, environ: Given) -> list[Name]:
    """The command ids of the requests that are open."""
    return known_names("tasks", _tasks, options, environ)


def token_names(options: Given, environ: Given) -> list[Name]:
    """The names of all access tokens, with their scopes."""
    return known_names("tokens", _tokens, options, environ)


def _models(client: Client) -> list[Name]:
    return [(model_id, "") for model_id in catalogue_ids(client.get("/models"))]


def _placed(client: Client) -> list[Name]:
    items = instance_items(fetch_state(client).state)
    return list({str(item["modelId"]): str(item["status"]) for item in items}.items())


def _instances(client: Client) -> list[Name]:
    items = instance_items(fetch_state(client).state)
    return [(str(item["id"]), plain(item["modelId"])) for item in items]


def _tokens(client: Client) -> list[Name]:
    items = token_items(client.get("/v1/cluster/tokens"))
    return [(str(item["name"]), plain(item["scopes"])) for item in items]


def _tasks(client: Client) -> list[Name]:
    items = task_items(fetch_state(client).state)
    return [(str(item["commandId"]), plain(item["modelId"])) for item in items]
