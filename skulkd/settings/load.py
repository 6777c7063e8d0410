"""The settings in force: flag over environment over file over default, each with its origin.

The one place that combines them. Must not write anything.
"""

import socket
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from skulkd.settings.check import Locate, Written, check_raw, in_document
from skulkd.settings.document import MAX_BYTES, Document, ValuePath, parse_document
from skulkd.settings.paths import CONFIG_FILE_NAME, LEGACY_CONFIG_FILE_NAME, Paths
from skulkd.settings.problems import Problem, SettingsError
from skulkd.settings.schema import join_key
from skulkd.settings.sources import Given, Origin, from_environment, from_flags
from skulkd.wire.config import ConfigSection, NodeOverride, SkulkConfig

_DEFAULT = Origin("default", "default")


@dataclass(frozen=True, slots=True)
class Settings:
    """The checked settings, and where each value came from."""

    config: SkulkConfig
    origins: Mapping[str, Origin]
    """Dotted key of every effective value to its origin."""
    file: Path
    """The file that was read, or the one that a first write creates."""
    file_exists: bool
    raw: dict[str, Any] = field(repr=False)
    """What the file says, secrets included: use `edit.redact` before showing it."""
    hostname: str

    @property
    def node_name(self) -> str:
        """The friendly name: as configured, else the host name."""
        return self.config.node.name or self.hostname

    def origin_text(self, key: str) -> str:
        """Where the value of a dotted key comes from, as `Origin.text`."""
        origin = self.origins.get(key)
        return origin.text if origin else "not set"

    def values(self) -> Iterator[tuple[str, object]]:
        """Dotted key and value of everything in `origins`, secrets included."""
        for path, value in _leaves(self.config, ()):
            yield join_key(path), value


def load_settings(
    paths: Paths,
    environ: Mapping[str, str],
    flags: Mapping[str, object] | None = None,
    config_file: Path | None = None,
    hostname: str | None = None,
    cwd: Path | None = None,
) -> Settings:
    """Read and check everything. Raises SettingsError with all problems at once.

    `flags` maps dotted keys to values, None where the flag was not given; text is converted to
    the type of the key. `config_file` is the value of `--config`.
    """
    file, exists = find_config_file(paths, environ, config_file, cwd)
    source = str(file)
    problems: list[Problem] = []
    document = parse_document(b"", source)
    base: dict[str, Any] = {}
    try:
        if exists:
            document = read_document(file)
        check_raw(document.data, in_document(document, source), whole=False)
        base = document.data
    except SettingsError as error:
        # The other sources are still worth checking, so that one run shows everything.
        problems += error.problems
    given = [*from_environment(environ, problems), *from_flags(flags or {}, problems)]
    given += _moved_staging(paths, base)
    decided = {one.path: one.origin for one in given}
    try:
        config = check_raw(_merged(base, given), _locate_in(document, source, decided))
    except SettingsError as error:
        raise SettingsError([*problems, *error.problems]) from None
    if problems:
        raise SettingsError(problems)
    origins = {
        join_key(path): decided.get(path) or _file_origin(document, source, path)
        for path, _ in _leaves(config, ())
    }
    name = hostname if hostname is not None else socket.gethostname()
    return Settings(config, origins, file, exists, document.data, name)


def check_config_text(text: bytes | str, file: str | Path) -> SkulkConfig:
    """Check the text of a settings file by itself. Raises SettingsError with every problem."""
    document = parse_document(text, str(file))
    return check_raw(document.data, in_document(document, str(file)))


def read_document(file: Path) -> Document:
    """Read and parse a settings file. Raises SettingsError, also when it cannot be read."""
    try:
        with file.open("rb") as stream:
            # One byte more than allowed is enough to know that it is too big.
            content = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise SettingsError.single(f"cannot be read: {error.strerror}", source=file) from error
    return parse_document(content, str(file))


def find_config_file(
    paths: Paths,
    environ: Mapping[str, str],
    config_file: Path | None = None,
    cwd: Path | None = None,
) -> tuple[Path, bool]:
    """The settings file to use, and whether it exists.

    A file that was named must exist; otherwise it is `./skulk.yaml`, else the one in the config
    home. Raises SettingsError when there is only a file with the old name.
    """
    here = cwd if cwd is not None else Path()
    variable = environ.get("SKULK_CONFIG")
    if config_file is not None or variable:
        named = here / (config_file if config_file is not None else Path(str(variable)))
        if not _present(named):
            asked_by = "SKULK_CONFIG" if config_file is None else "--config"
            raise SettingsError.single(f"{named} does not exist", source=asked_by)
        return named, True
    candidates = (here / CONFIG_FILE_NAME, paths.config_file)
    for candidate in candidates:
        if _present(candidate):
            return candidate, True
    for candidate in candidates:
        legacy = candidate.with_name(LEGACY_CONFIG_FILE_NAME)
        if _present(legacy):
            message = f"this name is no longer read; rename the file to {CONFIG_FILE_NAME}"
            raise SettingsError.single(message, source=legacy)
    return paths.config_file, False


def _present(file: Path) -> bool:
    # A link that leads nowhere is present: using defaults instead would surprise its owner.
    try:
        file.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise SettingsError.single(f"cannot be read: {error.strerror}", source=file) from error
    return True


def _moved_staging(paths: Paths, base: dict[str, Any]) -> list[Given]:
    """SKULK_HOME moves staging too, unless the file says where it is."""
    store = base.get("model_store")
    if not paths.moved or store is None or "node_cache_path" in store.get("staging", {}):
        return []
    path = ("model_store", "staging", "node_cache_path")
    return [Given(path, str(paths.staging), Origin("env", "SKULK_HOME"))]


def _merged(base: dict[str, Any], given: list[Given]) -> dict[str, Any]:
    merged = deepcopy(base)
    for one in given:
        here = merged
        for part in one.path[:-1]:
            if here.get(part) is None:
                here[part] = {}
            here = here[part]
        here[one.path[-1]] = one.value
    return merged


def _locate_in(
    document: Document, source: str, decided: Mapping[tuple[str, ...], Origin]
) -> Locate:
    in_file = in_document(document, source)

    def locate(path: ValuePath) -> Written:
        for given, origin in decided.items():
            if path[: len(given)] == given:
                return Written(origin.text)
        return in_file(path)

    return locate


def _file_origin(document: Document, source: str, path: tuple[str, ...]) -> Origin:
    place = document.place(path)
    return _DEFAULT if place is None else Origin("file", f"{source}:{place.line}")


def _leaves(
    value: object, path: tuple[str, ...], *, written_only: bool = False
) -> Iterator[tuple[tuple[str, ...], object]]:
    """Every single value in a checked config. An override shows only what was written."""
    if isinstance(value, ConfigSection):
        written_only = written_only or isinstance(value, NodeOverride)
        names = [
            name
            for name in type(value).model_fields
            if not written_only or name in value.model_fields_set
        ]
        parts = {name: getattr(value, name) for name in names}
    elif isinstance(value, dict):
        parts = value
    else:
        yield path, value
        return
    if not parts:
        yield path, {}
    for name, part in parts.items():
        yield from _leaves(part, (*path, name), written_only=written_only)
