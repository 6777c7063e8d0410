"""Calls about the catalogue of models."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skulkctl.daemon.calls import Call, call

if TYPE_CHECKING:
    from skulkd.wire.catalogue import ModelList


def models(*, downloaded: bool = False) -> Call[ModelList]:
    """The models that the cluster knows, or only those whose files a node has."""
    from skulkd.wire.catalogue import ModelList

    query = [("status", "downloaded")] if downloaded else []
    return call("GET", "/models", ModelList, query=query)
