"""Removes prompts from events before they are replicated. Pure.

The node that runs a request gets the prompt directly. The replicated task has the model and the
limits, which is all that other nodes need, and stays small.
"""

from __future__ import annotations

from skulkd.wire.events import Event, TaskCreated
from skulkd.wire.tasks import OtherTaskParams, TextGeneration, TextGenerationTaskParams

_NO_PROMPT: dict[str, object] = {
    "input": [],
    "instructions": None,
    "tools": None,
    "chat_template_messages": None,
    "images": [],
    "image_hashes": {},
}


def redacted(event: Event) -> Event:
    """The event as it may be replicated."""
    if not isinstance(event, TaskCreated):
        return event
    params = getattr(event.task, "task_params", None)
    if isinstance(event.task, TextGeneration) and isinstance(params, TextGenerationTaskParams):
        bare = params.model_copy(update=_NO_PROMPT)
    elif isinstance(params, OtherTaskParams):
        bare = type(params)(model=params.model)  # type: ignore[assignment]
    else:
        return event
    return event.model_copy(update={"task": event.task.model_copy(update={"task_params": bare})})
