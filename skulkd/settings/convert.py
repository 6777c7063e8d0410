"""Text from the environment or a command line to the type a key wants. Pure."""

import re

from skulkd.settings.schema import Key

_WORDS = {
    "true": True, "yes": True, "on": True, "1": True,
    "false": False, "no": False, "off": False, "0": False,
}  # fmt: skip
_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


def from_text(key: Key, text: str) -> object:
    """The value that `text` means for this key; a list is separated by commas.

    Raises ValueError that says what the key wants. The rules of the schema are not checked here.
    """
    if key.kind == "boolean":
        if text.strip().lower() not in _WORDS:
            raise ValueError("must be true or false (also yes, no, on, off, 1, 0)")
        return _WORDS[text.strip().lower()]
    if key.kind == "integer":
        if not _WHOLE.fullmatch(text.strip()):
            raise ValueError("must be a whole number")
        return int(text)
    if key.kind == "number":
        if not _NUMBER.fullmatch(text.strip()):
            raise ValueError("must be a number")
        return float(text)
    if key.kind == "list":
        bare = text.strip()
        if bare.startswith("[") and bare.endswith("]"):
            bare = bare[1:-1]
        return [part.strip() for part in bare.split(",")] if bare.strip() else []
    return text
