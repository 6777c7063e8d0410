"""Certificates that skulkctl does not accept, shown by a real TLS server, and what it says."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from skulkd.settings.tls import TlsFiles
from tests.cli.conftest import Cli
from tests.cluster.certificates import make_certificate, make_certificates

NOW = datetime.now(UTC)


@contextmanager
def server(files: TlsFiles, newest: ssl.TLSVersion | None = None) -> Iterator[int]:
    """Its port; it takes part in handshakes and says nothing else."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate, files.key)
    if newest is not None:
        context.minimum_version, context.maximum_version = ssl.TLSVersion.TLSv1, newest
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                client, _ = listening.accept()
            except OSError:
                return
            with client, suppress(OSError):
                client.settimeout(300)
                context.wrap_socket(client, server_side=True).close()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield listening.getsockname()[1]
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join(300)


@pytest.mark.parametrize(
    ("begins", "days", "names", "message"),
    [
        (NOW - timedelta(days=9), 1, ["127.0.0.1"], f"expired on {NOW - timedelta(8):%Y-%m-%d}"),
        (NOW + timedelta(days=9), 1, ["127.0.0.1"], "is not valid yet"),
        (NOW, 1, ["kite1", "10.0.0.1"], "is for kite1, 10.0.0.1, not for 127.0.0.1"),
    ],
)
def test_a_certificate_that_does_not_hold_is_explained(
    cli: Cli,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    begins: datetime,
    days: int,
    names: list[str],
    message: str,
) -> None:
    make_certificates(tmp_path)
    files = make_certificate(tmp_path, "kite1", names, days, begins)
    monkeypatch.setenv("SKULK_CA", str(tmp_path / "ca.pem"))
    with server(files) as port:
        done = cli("status", "--endpoint", f"https://127.0.0.1:{port}")
        assert done.code == 5
        assert message in done.err
        row = cli("tls", "status", f"https://127.0.0.1:{port}", "--check")
    assert (row.code, message in row.out) == (7, True)


def test_an_old_version_of_tls_is_not_used(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_certificates(tmp_path)
    files = make_certificate(tmp_path, "kite1", ["127.0.0.1"])
    monkeypatch.setenv("SKULK_CA", str(tmp_path / "ca.pem"))
    with (
        pytest.warns(DeprecationWarning),
        server(files, ssl.TLSVersion.TLSv1_1) as port,
    ):
        done = cli("status", "--endpoint", f"https://127.0.0.1:{port}")
    assert done.code == 5
    assert "have no TLS version in common" in done.err


@pytest.mark.parametrize(
    ("text", "code", "message"), [(None, 3, "no CA file"), ("hello", 4, "is no PEM certificate")]
)
def test_an_authority_that_cannot_be_read_is_named(
    cli: Cli,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    text: str | None,
    code: int,
    message: str,
) -> None:
    if text is not None:
        (tmp_path / "ca.pem").write_text(text)
    monkeypatch.setenv("SKULK_CA", str(tmp_path / "ca.pem"))
    make_certificates(tmp_path / "pki")
    with server(make_certificate(tmp_path / "pki", "kite1", ["127.0.0.1"])) as port:
        done = cli("status", "--endpoint", f"https://127.0.0.1:{port}")
    assert (done.code, message in done.err) == (code, True)
    assert str(tmp_path / "ca.pem") in done.err
