"""Every directory and file the toolkit uses, decided in one place.

The only module that asks platformdirs. Must stay cheap to import: the CLI loads it on every start.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from skulkd.settings.problems import SettingsError

CONFIG_FILE_NAME = "skulk.yaml"
LEGACY_CONFIG_FILE_NAME = "exo.yaml"


@dataclass(frozen=True, slots=True)
class Paths:
    """The homes of this user's files, and the files in them. Nothing is created here."""

    config: Path
    data: Path
    cache: Path
    models: Path
    staging: Path
    moved: bool
    """True when SKULK_HOME chose the homes."""

    @property
    def config_file(self) -> Path:
        return self.config / CONFIG_FILE_NAME

    @property
    def secret_file(self) -> Path:
        return self.config / "cluster.secret"

    @property
    def contexts_file(self) -> Path:
        return self.config / "skulkctl.toml"

    @property
    def tls(self) -> Path:
        return self.config / "tls"

    @property
    def local_api_file(self) -> Path:
        return self.data / "local-api.json"

    @property
    def custom_cards(self) -> Path:
        return self.data / "custom_model_cards"

    @property
    def event_log(self) -> Path:
        return self.data / "event_log"

    @property
    def log_file(self) -> Path:
        return self.cache / "logs" / "skulk.log"

    @property
    def traces(self) -> Path:
        return self.cache / "traces"

    @property
    def completion_cache(self) -> Path:
        return self.cache / "completion.json"


def find_paths(environ: Mapping[str, str]) -> Paths:
    """Decide the homes from the environment.

    SKULK_HOME (absolute, or relative to the home directory) holds everything when it is set.
    Raises SettingsError when a variable cannot be used.
    """
    moved = environ.get("SKULK_HOME")
    if moved:
        config = data = cache = expand_home(moved, environ, below_home=True)
        staging = config / "staging"
    else:
        # The reference keeps staging here on every platform.
        staging = _home(environ) / ".skulk" / "staging"
        config, data, cache = _usual_homes(environ)
    models_dir = environ.get("SKULK_MODELS_DIR")
    models = data / "models"
    if models_dir:
        models = expand_home(models_dir, environ, below_home=True)
    return Paths(config, data, cache, models, staging, moved=bool(moved))


def expand_home(text: str, environ: Mapping[str, str], *, below_home: bool = False) -> Path:
    """A path from a settings value: a leading `~` is the home directory.

    With `below_home` a relative path is taken from there too. Raises SettingsError when the home
    directory is needed and not known.
    """
    if text == "~" or text.startswith("~/"):
        return _home(environ) / text[2:]
    path = Path(text)
    return _home(environ) / path if below_home and not path.is_absolute() else path


def _home(environ: Mapping[str, str]) -> Path:
    try:
        return Path(environ.get("HOME") or Path.home())
    except RuntimeError:
        message = "not set, and this user has no home directory; set SKULK_HOME to a full path"
        raise SettingsError.single(message, source="HOME") from None


def _usual_homes(environ: Mapping[str, str]) -> tuple[Path, Path, Path]:
    if sys.platform != "linux":
        return (_home(environ) / ".skulk",) * 3
    import platformdirs

    return (
        _xdg(environ, "XDG_CONFIG_HOME") or platformdirs.user_config_path("skulk"),
        _xdg(environ, "XDG_DATA_HOME") or platformdirs.user_data_path("skulk"),
        _xdg(environ, "XDG_CACHE_HOME") or platformdirs.user_cache_path("skulk"),
    )


def _xdg(environ: Mapping[str, str], variable: str) -> Path | None:
    value = environ.get(variable, "").strip()
    if not value:
        return None
    if not Path(value).is_absolute():
        raise SettingsError.single(f"must be an absolute path (value {value})", source=variable)
    return Path(value) / "skulk"
