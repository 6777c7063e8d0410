"""Every code that a daemon's error can carry is in skulkctl's table of codes."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from types import ModuleType

import pytest

import skulkd.api
from skulkctl.daemon.codes import CODES, exception_for
from skulkctl.errors import CliError, NotFound, Refused, ServerFailed
from skulkd.api import auth, errors, tls_listener, token_uses
from skulkd.cluster import commands, commits, token_admin
from skulkd.placement import refusals
from skulkd.store import errors as store_errors

TAKEN_OVER = {
    "skulkd.api.error_mapping": {"error.kind"},  # of StoreError, and of a request's own errors
    "skulkd.api.instances": {"error.kind"},  # of UnknownInstance
    "skulkd.api.uploads": {"error.kind"},  # of StoreError
    "skulkd.api.load": {"kind"},  # what the disk of a node said
    "skulkd.api.placement_errors": {"kind"},  # the same
    "skulkd.api.token_uses": {"kind"},  # one of its constants
}
"""Where the API passes a code on; `declared` has the classes and constants that it comes from."""


def declared() -> set[str]:
    """The codes that are classes, values or constants of the daemon."""
    placement = {
        one.__name__
        for _, one in inspect.getmembers(refusals, inspect.isclass)
        if issubclass(one, refusals.Refusal) and one is not refusals.Refusal
    }
    store = {
        one.kind
        for _, one in inspect.getmembers(store_errors, inspect.isclass)
        if issubclass(one, store_errors.StoreError)
    }
    access = {one.code for _, one in inspect.getmembers(auth) if isinstance(one, auth.AuthRefusal)}
    return (
        placement
        | store
        | access
        | {
            commands.NO_MASTER,
            commands.CLUSTER_DOWN,
            commits.STORAGE_FULL,
            commits.STORAGE_FAILED,
            token_admin.NAME_TAKEN,
            token_admin.TOO_MANY,
            token_uses.RATE_LIMITED,
            token_uses.TOO_MANY_REQUESTS,
            tls_listener.NEEDS_TLS,
            errors.UNKNOWN_URL,
        }
    )


def api_modules() -> Iterator[ModuleType]:
    for found in pkgutil.walk_packages(skulkd.api.__path__, "skulkd.api."):
        yield importlib.import_module(found.name)


def codes_given(module: ModuleType) -> Iterator[ast.expr]:
    """The expression of every code that a module writes into an error itself."""
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name | ast.Attribute):
            continue
        name = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
        if name == "OpenAiNotFound":
            yield node.args[1]
        if name in ("ApiError", "envelope"):
            for given in (*node.args, *(keyword.value for keyword in node.keywords)):
                yield from _kind_of(given)


def _kind_of(given: ast.expr) -> Iterator[ast.expr]:
    if isinstance(given, ast.Dict):
        for key, value in zip(given.keys, given.values, strict=True):
            if isinstance(key, ast.Constant) and key.value == "kind":
                yield value


def value_of(expression: ast.expr, module: ModuleType) -> str | None:
    """The code, where the module's own names say it."""
    if isinstance(expression, ast.Constant):
        return str(expression.value)
    root, *names = ast.unparse(expression).split(".")
    found = getattr(module, root, None)
    for name in names:
        found = getattr(found, name, None)
    return found if isinstance(found, str) else None


def test_every_code_that_the_daemon_declares_is_in_the_table() -> None:
    assert declared() - CODES.keys() == set()


def test_every_code_that_a_handler_gives_is_in_the_table() -> None:
    given: set[str] = set()
    taken_over: dict[str, set[str]] = {}
    for module in api_modules():
        for expression in codes_given(module):
            code = value_of(expression, module)
            if code is None:
                taken_over.setdefault(module.__name__, set()).add(ast.unparse(expression))
            else:
                given.add(code)
    assert len(given) >= 5
    assert given - CODES.keys() == set()
    assert taken_over == TAKEN_OVER


@pytest.mark.parametrize(
    ("code", "status", "kind"),
    [
        ("DoesNotFit", 400, Refused),
        ("InfoPending", 503, Refused),
        ("unknown_model", 400, NotFound),
        ("of_the_future", 503, Refused),
        (None, 404, NotFound),
        (None, 409, Refused),
        (None, 500, ServerFailed),
    ],
)
def test_a_code_decides_before_the_status(
    code: str | None, status: int, kind: type[CliError]
) -> None:
    assert exception_for(code, status) is kind
