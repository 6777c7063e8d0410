"""Calls about the catalogue of models and its cards."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skulkctl.daemon.calls import Call, call, segment

if TYPE_CHECKING:
    from skulkd.wire.catalogue import DeleteCustomModelResponse, ModelList, ModelListModel

# The card may have to be fetched from the hub.
ADD_S = 60.0


def models(*, downloaded: bool = False) -> Call[ModelList]:
    """The models that the cluster knows, or only those whose files a node has."""
    from skulkd.wire.catalogue import ModelList

    query = [("status", "downloaded")] if downloaded else []
    return call("GET", "/models", ModelList, query=query)


def add_card(model_id: str) -> Call[ModelListModel]:
    """Keep the card of a model in the cluster."""
    from skulkd.wire.catalogue import AddCustomModelParams, ModelListModel
    from skulkd.wire.ids import ModelId

    wanted = AddCustomModelParams(model_id=ModelId(model_id))
    return call("POST", "/models/add", ModelListModel, body=wanted, usual_s=ADD_S)


def remove_card(model_id: str) -> Call[DeleteCustomModelResponse]:
    """Remove a card that was added. Raises NotFound for any other."""
    from skulkd.wire.catalogue import DeleteCustomModelResponse

    return call("DELETE", f"/models/custom/{segment(model_id)}", DeleteCustomModelResponse)
