"""The unit of systemd, for one user or for the machine. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from skulkd.service.definition import (
    BAD_CONFIGURATION,
    OPEN_FILES,
    RESTART_SECONDS,
    STOP_SECONDS,
    Service,
)
from skulkd.service.steps import Remove, Run, Step

UNIT = "skulkd.service"

# For both kinds of units. A user's manager cannot restrict the file system without user namespaces.
HARDENING = (
    "NoNewPrivileges=yes",
    "LockPersonality=yes",
    "RestrictRealtime=yes",
    "RestrictSUIDSGID=yes",
    "RestrictNamespaces=yes",
    "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK",
    "SystemCallArchitectures=native",
    # Not a list of allowed calls: MLX, BLAS, GPU drivers and py-spy each need unusual ones.
    "SystemCallFilter=~@clock @cpu-emulation @module @mount @obsolete @raw-io @reboot @swap",
    "SystemCallErrorNumber=EPERM",
)
# Models may be stored anywhere but in the system's directories. GPUs must stay usable, so neither
# PrivateDevices nor ProtectClock, which restricts devices as well.
SYSTEM_HARDENING = (
    "ProtectSystem=full",
    "PrivateTmp=yes",
    "ProtectControlGroups=yes",
    "ProtectHostname=yes",
    "ProtectKernelLogs=yes",
    "ProtectKernelModules=yes",
    "ProtectKernelTunables=yes",
)


@dataclass(frozen=True, slots=True)
class Systemd:
    """systemd, as a `Manager`."""

    environ: Mapping[str, str] = field(default_factory=dict)
    name: str = "systemd"
    program: str = "systemctl"

    def file(self, service: Service) -> Path:
        if service.system:
            return Path("/etc/systemd/system") / UNIT
        config = self.environ.get("XDG_CONFIG_HOME") or service.account.home / ".config"
        return Path(config) / "systemd" / "user" / UNIT

    def render(self, service: Service) -> str:
        return "\n".join([*_unit(service), "", *_service(service), "", *_install(service), ""])

    def start(self, service: Service, *, changed: bool) -> list[Step]:
        # By its path: XDG_CONFIG_HOME may be set in this shell and not for the user's manager.
        enable = _systemctl(service, "enable", str(self.file(service)))
        if not changed:
            return [enable, _systemctl(service, "start", UNIT)]
        return [
            _systemctl(service, "daemon-reload"),
            enable,
            _systemctl(service, "restart", UNIT),
        ]

    def remove(self, service: Service) -> list[Step]:
        return [
            _systemctl(service, "disable", "--now", UNIT),
            _systemctl(service, "reset-failed", UNIT, may_fail=True),
            Remove(self.file(service)),
            _systemctl(service, "daemon-reload"),
        ]

    def status(self, service: Service) -> list[str]:
        return [*_systemctl(service, "status", "--no-pager", UNIT).argv]

    def logs(self, service: Service, lines: int, *, follow: bool) -> list[str]:
        unit = f"--unit={UNIT}" if service.system else f"--user-unit={UNIT}"
        argv = ["journalctl", unit, f"--lines={lines}", "--no-pager"]
        return [*argv, "--follow"] if follow else argv


def _systemctl(service: Service, *words: str, may_fail: bool = False) -> Run:
    scope = () if service.system else ("--user",)
    return Run(("systemctl", *scope, *words), may_fail=may_fail)


def _unit(service: Service) -> Iterator[str]:
    yield "[Unit]"
    yield "Description=Skulk daemon (MLX inference cluster)"
    yield "Documentation=man:skulkd(1)"
    if service.system:
        yield "Wants=network-online.target"
        yield "After=network-online.target"


def _service(service: Service) -> Iterator[str]:
    yield "[Service]"
    yield "Type=exec"
    yield f"ExecStart={exec_line(service.command)}"
    yield from (f"Environment={quoted(f'{k}={v}')}" for k, v in service.environment.items())
    yield f"EnvironmentFile=-{file_pattern(service.secrets_file)}"
    if service.system:
        yield f"User={service.account.name}"
    yield "WorkingDirectory=~"
    yield "Restart=on-failure"
    yield f"RestartSec={RESTART_SECONDS}"
    yield f"RestartPreventExitStatus={BAD_CONFIGURATION}"
    # The daemon ends its runners in order, and outlives one that used up the memory.
    yield "KillMode=mixed"
    yield "OOMPolicy=continue"
    yield f"TimeoutStopSec={STOP_SECONDS}"
    yield f"LimitNOFILE={OPEN_FILES}"
    yield "UMask=0077"
    yield from HARDENING
    if service.system:
        yield from SYSTEM_HARDENING
        if not service.account.is_root:
            yield "CapabilityBoundingSet="


def _install(service: Service) -> Iterator[str]:
    yield "[Install]"
    yield f"WantedBy={'multi-user.target' if service.system else 'default.target'}"


def exec_line(command: Sequence[str]) -> str:
    """A command for `ExecStart`, where `$` would start a variable."""
    return " ".join(quoted(word).replace("$", "$$") for word in command)


def quoted(text: str) -> str:
    """One word of a unit file, as it is."""
    escaped = _specifiers(text).replace("\\", "\\\\").replace('"', '\\"')
    for char, code in (("\n", "\\n"), ("\t", "\\t"), ("\r", "\\r")):
        escaped = escaped.replace(char, code)
    is_plain = bool(text) and all(char.isalnum() or char in "%$_./:=@,+-" for char in text)
    return escaped if is_plain else f'"{escaped}"'


def file_pattern(file: Path) -> str:
    """The pattern that matches this file alone: systemd takes the value for one."""
    return _specifiers(re.sub(r"[\\*?\[\]]", r"\\\g<0>", str(file)))


def _specifiers(text: str) -> str:
    return text.replace("%", "%%")
