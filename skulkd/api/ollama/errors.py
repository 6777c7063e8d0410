"""Errors as Ollama's clients read them."""

from __future__ import annotations

from aiohttp import web

from skulkd.api.errors import ApiError, answer
from skulkd.wire.ollama import OllamaError


def error_line(error: ApiError) -> str:
    return OllamaError(error=error.message).model_dump_json() + "\n"


def error_response(error: ApiError) -> web.Response:
    return answer(error.status, error_line(error).encode(), headers=error.headers)
