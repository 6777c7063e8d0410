"""A release in dist/: sdist and wheel, tried in clean environments, checksums, what changed.

The wheel is built from the sdist, so that the sdist is known to be complete. Publishes nothing.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
SERVER_PARTS = ("mlx", "mlx_lm", "aiohttp", "zenoh", "numpy")
START_DEADLINE_S = 300.0


def main() -> int:
    version = read_version((ROOT / "skulkd" / "__init__.py").read_text(encoding="utf-8"))
    notes = excerpt((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), version)
    shutil.rmtree(DIST, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix="skulk-release-") as scratch:
        wheel, sdist = build(Path(scratch))
        for package, extra in ((wheel, ""), (sdist, ""), (wheel, "[node]")):
            say(f"trying {package.name}{extra}")
            with clean_environment(Path(scratch), package, extra) as python:
                smoke_test(python, version, is_node=bool(extra))
    (DIST / "CHANGES.md").write_text(notes, encoding="utf-8")
    (DIST / "SHA256SUMS").write_text(checksums([wheel, sdist]), encoding="utf-8")
    names = sorted(file.name for file in DIST.iterdir())
    say(f"{version} is in {DIST.relative_to(ROOT)}/: " + ", ".join(names))
    return 0


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def read_version(source: str) -> str:
    """The one place that has the version."""
    found = re.search(r'^__version__ = "([^"]+)"$', source, re.MULTILINE)
    if found is None:
        raise SystemExit("error: skulkd/__init__.py has no __version__")
    return found[1]


def excerpt(changelog: str, version: str) -> str:
    """The changelog's section of one version."""
    heading = re.compile(rf"^## \[{re.escape(version)}\].*$", re.MULTILINE)
    found = heading.search(changelog)
    if found is None:
        raise SystemExit(f"error: CHANGELOG.md has no section for {version}")
    rest = changelog[found.end() :]
    return found[0] + re.split(r"^(?:## |\[[^]]+\]: )", rest, maxsplit=1, flags=re.MULTILINE)[0]


def checksums(files: list[Path]) -> str:
    """Lines for `sha256sum --check`."""
    return "".join(
        f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in sorted(files)
    )


def build(scratch: Path) -> tuple[Path, Path]:
    """Wheel and sdist."""
    python = new_environment(scratch / "build")
    install(python, "build")
    say("building")
    run(python, "-m", "build", "--outdir", str(DIST), str(ROOT), cwd=scratch)
    (wheel,), (sdist,) = DIST.glob("*.whl"), DIST.glob("*.tar.gz")
    return wheel, sdist


@contextmanager
def clean_environment(scratch: Path, package: Path, extra: str) -> Iterator[Path]:
    """The Python of a new virtual environment that has the package and nothing else."""
    place = scratch / "tried"
    python = new_environment(place)
    install(python, f"{package}{extra}")
    try:
        yield python
    finally:
        shutil.rmtree(place)


def new_environment(place: Path) -> Path:
    venv.create(place, with_pip=True)
    return place / "bin" / "python"


def install(python: Path, what: str) -> None:
    pip = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    run(python, *pip, "--constraint", str(ROOT / "constraints.txt"), what, cwd=python.parent)


def run(python: Path, *arguments: str, cwd: Path) -> None:
    subprocess.run([python, *arguments], cwd=cwd, check=True, stdout=subprocess.DEVNULL)


def smoke_test(python: Path, version: str, *, is_node: bool) -> None:
    """What a new user does first: empty home, empty environment, nothing of this checkout."""
    with tempfile.TemporaryDirectory(prefix="skulk-home-") as home:
        expect(home, python, "skulkctl", "--version", out=f"skulkctl {version}\n")
        expect(home, python, "skulkd", "--version", out=f"skulkd {version}\n")
        expect(home, python, "skulkctl", "man", "place", out="skulkctl-place")
        expect(home, python, "skulkctl", "completion", "install", "bash", out="wrote ")
        present = [name for name in SERVER_PARTS if has_module(python, name)]
        if is_node:
            serve_once(home, python, version)
        elif present:
            raise SystemExit(f"error: the base install brings {', '.join(present)}")
        else:
            expect(home, python, "skulkd", "run", err="skulk-toolkit[node]", code=1)


def has_module(python: Path, name: str) -> bool:
    code = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({name!r}) is None)"
    return subprocess.run([python, "-I", "-c", code], check=False).returncode == 0


def environ_of(home: str) -> dict[str, str]:
    return {"HOME": home, "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}


def expect(
    home: str, python: Path, *command: str, out: str = "", err: str = "", code: int = 0
) -> None:
    program = [python.with_name(command[0]), *command[1:]]
    done = subprocess.run(
        program, env=environ_of(home), cwd=home, capture_output=True, text=True, check=False
    )
    if done.returncode != code or out not in done.stdout or err not in done.stderr:
        said = f"exit code {done.returncode}\n{done.stdout}{done.stderr}"
        raise SystemExit(f"error: {' '.join(command)}: {said}")


def serve_once(home: str, python: Path, version: str) -> None:
    """A daemon on a free port, found by skulkctl, stopped by SIGTERM."""
    command = [python.with_name("skulkd"), "run", "--listen=127.0.0.1:0"]
    command += ["--fabric-listen=127.0.0.1:0", "--name=release"]
    with subprocess.Popen(
        command, env=environ_of(home), cwd=home, stderr=subprocess.PIPE, text=True
    ) as daemon:
        signal.signal(signal.SIGALRM, lambda *_: daemon.kill())
        signal.setitimer(signal.ITIMER_REAL, START_DEADLINE_S)
        try:
            wait_ready(daemon)
            expect(home, python, "skulkctl", "nodes", "-o", "json", out=version)
        finally:
            daemon.terminate()
            daemon.communicate()
            signal.setitimer(signal.ITIMER_REAL, 0)
    if daemon.returncode:
        raise SystemExit(f"error: skulkd stopped with exit code {daemon.returncode}")


def wait_ready(daemon: subprocess.Popen[str]) -> None:
    lines = []
    for line in daemon.stderr or ():
        if "listening on" in line:
            return
        lines.append(line)
    raise SystemExit("error: skulkd did not start:\n" + "".join(lines))


if __name__ == "__main__":
    sys.exit(main())
