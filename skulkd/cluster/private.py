"""What must not travel to every node: the words of a request. Pure.

The node that runs a request gets them directly. The replicated task says who asked for what model
with which limits, which is all that anybody else needs, and it stays small.
"""

from __future__ import annotations

from skulkd.wire.events import Event, TaskCreated
from skulkd.wire.tasks import OtherTaskParams, TextGeneration, TextGenerationTaskParams

_WORDS: dict[str, object] = {
    "input": [],
    "instructions": None,
    "tools": None,
    "chat_template_messages": None,
    "images": [],
    "image_hashes": {},
}


def without_words(event: Event) -> Event:
    """The event as it may be replicated."""
    if not isinstance(event, TaskCreated):
        return event
    params = getattr(event.task, "task_params", None)
    if isinstance(event.task, TextGeneration) and isinstance(params, TextGenerationTaskParams):
        bare = params.model_copy(update=_WORDS)
    elif isinstance(params, OtherTaskParams):
        bare = OtherTaskParams(model=params.model)  # type: ignore[assignment]
    else:
        return event
    return event.model_copy(update={"task": event.task.model_copy(update={"task_params": bare})})
