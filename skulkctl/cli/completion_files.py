"""Where a user's shell looks for completions, and putting ours there. Touches no other file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from skulkctl.cli.completion import SCRIPTS, Shell
from skulkctl.errors import CliError, Refused

MARK = "completion for skulkctl"
"""In every script of ours; a file without it is somebody else's."""

NEXT: Mapping[Shell, tuple[str, ...]] = {
    Shell.BASH: ("open a new shell; bash loads it with the package bash-completion",),
    Shell.ZSH: (
        "open a new shell; ~/.zshrc needs these lines, before any other compinit:",
        "  fpath=(~/.zfunc $fpath)",
        "  autoload -Uz compinit && compinit",
    ),
    Shell.FISH: ("open a new shell",),
}


def completion_file(shell: Shell, environ: Mapping[str, str]) -> Path:
    """The file in this user's directories that the shell loads for skulkctl."""
    home = Path(environ.get("HOME") or Path.home())
    if shell is Shell.ZSH:
        return Path(environ.get("ZDOTDIR") or home) / ".zfunc" / "_skulkctl"
    if shell is Shell.FISH:
        config = Path(environ.get("XDG_CONFIG_HOME") or home / ".config")
        return config / "fish" / "completions" / "skulkctl.fish"
    data = Path(environ.get("XDG_DATA_HOME") or home / ".local" / "share")
    own = environ.get("BASH_COMPLETION_USER_DIR") or data / "bash-completion"
    return Path(own) / "completions" / "skulkctl"


def write_completion(file: Path, shell: Shell) -> bool:
    """Write the script; False when it is there already. Raises CliError."""
    from skulkd.settings.files import write_atomic

    present = _present(file)
    if present == SCRIPTS[shell]:
        return False
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(file, SCRIPTS[shell].encode(), mode=0o644)
    except OSError as error:
        raise CliError(f"cannot write {file}", str(error.strerror or error)) from error
    return True


def remove_completion(file: Path) -> bool:
    """Delete the script; False when there is none. Raises CliError."""
    if _present(file) is None:
        return False
    try:
        file.unlink()
    except OSError as error:
        raise CliError(f"cannot delete {file}", str(error.strerror or error)) from error
    return True


def _present(file: Path) -> str | None:
    """What is there now. Raises Refused when it is not ours."""
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CliError(f"cannot read {file}", str(error.strerror or error)) from error
    if MARK not in text:
        raise Refused(f"{file} was not written by skulkctl", hints=["move that file away"])
    return text
