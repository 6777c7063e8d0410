"""The property list of launchd, for one user or for the machine. Pure."""

from __future__ import annotations

import plistlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from skulkd.service.definition import (
    BAD_CONFIGURATION,
    OPEN_FILES,
    RESTART_SECONDS,
    STOP_SECONDS,
    Service,
)
from skulkd.service.steps import Remove, Run, Step

LABEL = "org.skulk-toolkit.skulkd"
# launchd's own PATH has neither of the first two, where mactop and other tools are.
PATH = "/opt/homebrew/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
MARK = "SKULK_SERVICE_MANAGER"


@dataclass(frozen=True, slots=True)
class Launchd:
    """launchd, as a `Manager`."""

    name: str = "launchd"
    program: str = "launchctl"

    def file(self, service: Service) -> Path:
        return (
            _library(service) / f"Launch{'Daemons' if service.system else 'Agents'}/{LABEL}.plist"
        )

    def render(self, service: Service) -> str:
        job: dict[str, object] = {
            "Label": LABEL,
            "ProgramArguments": list(service.command),
            "EnvironmentVariables": {"PATH": PATH, MARK: self.name, **service.environment},
            "WorkingDirectory": str(service.account.home),
            "RunAtLoad": True,
            "KeepAlive": {"SuccessfulExit": False},
            "ThrottleInterval": RESTART_SECONDS,
            "ExitTimeOut": STOP_SECONDS,
            "SoftResourceLimits": {"NumberOfFiles": OPEN_FILES},
            "HardResourceLimits": {"NumberOfFiles": OPEN_FILES},
            # Other kinds of processes get less of the CPU and of the disk.
            "ProcessType": "Interactive",
            "StandardErrorPath": str(_log(service)),
            "Umask": 0o077,
        }
        if service.system:
            job["UserName"] = service.account.name
        return plistlib.dumps(job).decode()

    def start(self, service: Service, *, changed: bool) -> list[Step]:
        target, file = _target(service), str(self.file(service))
        enable = Run(("launchctl", "enable", target))
        load = ("launchctl", "bootstrap", _domain(service), file)
        if not changed:
            return [enable, Run(load, may_fail=True), Run(("launchctl", "kickstart", target))]
        return [enable, Run(("launchctl", "bootout", target), may_fail=True), Run(load)]

    def remove(self, service: Service) -> list[Step]:
        unload = Run(("launchctl", "bootout", _target(service)), may_fail=True)
        return [unload, Remove(self.file(service)), Remove(_log(service))]

    def status(self, service: Service) -> list[str]:
        return ["launchctl", "print", _target(service)]

    def logs(self, service: Service, lines: int, *, follow: bool) -> list[str]:
        return ["tail", "-n", str(lines), *(["-F"] if follow else []), str(_log(service))]


def exit_code_for(code: int, environ: Mapping[str, str]) -> int:
    """launchd starts a job again after any exit code but 0, so bad configuration must be 0."""
    is_launchd = environ.get(MARK) == Launchd().name
    return 0 if is_launchd and code == BAD_CONFIGURATION else code


def _library(service: Service) -> Path:
    return Path("/Library") if service.system else service.account.home / "Library"


def _log(service: Service) -> Path:
    return _library(service) / "Logs/skulkd.log"


def _domain(service: Service) -> str:
    return "system" if service.system else f"gui/{service.account.uid}"


def _target(service: Service) -> str:
    return f"{_domain(service)}/{LABEL}"
