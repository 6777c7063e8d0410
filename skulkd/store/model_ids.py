"""Model ids (`org/name`) and the directory names they map to. Pure."""

import re
from pathlib import PurePath

from skulkd.settings.problems import printable
from skulkd.store.errors import BadModelIdError
from skulkd.wire.ids import ModelId

MAX_PART_LENGTH = 96
_SEPARATOR = "--"
_LOCAL_ORGANISATION = "local"

# First and last character are neither "-" nor ".", so that the two parts can always be told apart
# in `org--name`, and no part is hidden, ".." or an option.
_PART = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._-]*[A-Za-z0-9_])?")


def check_model_id(text: str) -> ModelId:
    """The id when it is usable as `org/name`. Raises BadModelIdError saying what is wrong."""
    parts = text.split("/")
    if len(parts) != 2:
        raise _refuse(text, "it must have the form org/name")
    for part in parts:
        if len(part) > MAX_PART_LENGTH:
            raise _refuse(text, f"no part may be longer than {MAX_PART_LENGTH} characters")
        if not _is_part(part):
            raise _refuse(
                text,
                "each part may have letters, digits, '_', '-' and '.', starts and ends with a"
                " letter, digit or '_', and has no '--' or '..'",
            )
    return ModelId(text)


def directory_name(model_id: str) -> str:
    """`org/name` as the name of one directory. Raises BadModelIdError."""
    return check_model_id(model_id).replace("/", _SEPARATOR)


def unchecked_directory_name(model_id: str) -> str:
    """The same for any id, also for one that would be refused for a new model."""
    return model_id.replace("/", _SEPARATOR)


def model_id_of_directory(name: str) -> ModelId | None:
    """The id that maps to this directory name; None when none does."""
    organisation, separator, rest = name.partition(_SEPARATOR)
    too_long = max(len(organisation), len(rest)) > MAX_PART_LENGTH
    if not separator or too_long or not (_is_part(organisation) and _is_part(rest)):
        return None
    return ModelId(f"{organisation}/{rest}")


def suggest_model_id(path: PurePath) -> ModelId:
    """A usable id for something imported from `path`: `local/<its name>`."""
    known = model_id_of_directory(path.name)
    if known is not None:
        return known
    stem = path.name.removesuffix(".gguf")
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", stem)
    name = re.sub(r"-{2,}", "-", re.sub(r"\.{2,}", ".", name))
    return ModelId(f"{_LOCAL_ORGANISATION}/{name[:MAX_PART_LENGTH].strip('-.') or 'model'}")


def _is_part(text: str) -> bool:
    return _PART.fullmatch(text) is not None and "--" not in text and ".." not in text


def _refuse(text: str, why: str) -> BadModelIdError:
    return BadModelIdError(f'model id "{printable(text)}" cannot be used: {why}')
