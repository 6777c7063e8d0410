"""A hub that does not answer in time is no proof that it lacks a model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.api.in_process import SECRET, serving, some_services

MODEL = "org/slow-model"
CALLS: list[tuple[str, str, dict[str, Any] | None]] = [
    ("POST", "/place_instance", {"model_id": MODEL}),
    ("GET", f"/instance/placement?model_id={MODEL}", None),
    ("POST", "/models/add", {"model_id": MODEL}),
    ("POST", "/api/pull", {"model": MODEL}),
]


@pytest.mark.parametrize(("method", "path", "body"), CALLS, ids=[call[1] for call in CALLS])
async def test_a_hub_timeout_is_a_504_with_a_code(
    tmp_path: Path, method: str, path: str, body: dict[str, Any] | None
) -> None:
    node = some_services(tmp_path)
    node.store.lookup.hub.answer_s = 0.0
    headers = {"Authorization": f"Bearer {SECRET}"}
    async with (
        serving(node) as url,
        aiohttp.ClientSession(headers=headers) as session,
        session.request(method, url + path, json=body) as answer,
    ):
        error = (await answer.json())["error"]
    assert (answer.status, answer.headers["Retry-After"]) == (504, "5")
    message = error if isinstance(error, str) else error["message"]
    assert message.startswith("timed out waiting for the hub")
    if path != "/api/pull":
        assert error["refusal"] == {"kind": "hub_timeout"}
