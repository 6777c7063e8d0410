"""The one door to stdout, which may be a closed pipe or a full disk."""

from __future__ import annotations

import errno
import os
import sys

from skulkctl.errors import CliError

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""What writing says when there is no room; nothing else in skulkctl fails like that."""


def write(text: str) -> None:
    """Put data on stdout. A reader that has left ends the output, not the command.

    Raises CliError when the output cannot be written.
    """
    try:
        sys.stdout.write(text)
    except OSError as error:
        give_up(error)


def write_now(text: str) -> bool:
    """Put data on stdout at once, for output that grows; False when the reader has left."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        give_up(error)
        return False
    return True


def flush() -> None:
    """Bring all data out; raises CliError when it cannot be written."""
    try:
        sys.stdout.flush()
    except OSError as error:
        give_up(error)


def give_up(error: OSError) -> None:
    """Forget what could not be written; only a closed pipe is no error."""
    discard()
    if not isinstance(error, BrokenPipeError):
        raise CliError("cannot write the output", str(error.strerror or error)) from error


def discard() -> None:
    """Send what is still buffered, and all that follows, nowhere."""
    null = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(null, sys.stdout.fileno())
    finally:
        os.close(null)
