"""The API over HTTPS: a real daemon, its certificate, and clients that do or do not trust it."""

from __future__ import annotations

import hashlib
import http.client
import json
import socket
import ssl
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from skulkd.api.tls_setup import local_api, prepare_tls
from skulkd.machine.ports import Address
from skulkd.settings.load import load_settings
from skulkd.settings.paths import find_paths
from skulkd.settings.problems import SettingsError
from tests.cluster.certificates import make_certificate, make_certificates
from tests.daemon_process import DaemonProcess, spawn_daemon, wait_until
from tests.skulkctl_process import Result, skulkctl

ASK_S = 300.0
HERE = ["kite1", "localhost", "127.0.0.1"]


@dataclass
class Secure:
    """A daemon with `api.tls`, and the directory of its certificates."""

    daemon: DaemonProcess
    pki: Path

    def client(self, authority: Path | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=authority or self.pki / "ca.pem")
        context.set_alpn_protocols(["h2", "http/1.1"])
        # As newer versions of Python do by default.
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        return context

    def get(self, path: str) -> bytes:
        """The body of an answer; this client sends no Host header with a foreign name."""
        with closing(
            http.client.HTTPSConnection(
                "127.0.0.1", self.daemon.port, timeout=ASK_S, context=self.client()
            )
        ) as connection:
            connection.request("GET", path)
            return connection.getresponse().read()

    def shown(self) -> str:
        """SHA-256 of the certificate that new connections get."""
        with self.connect() as secure:
            return hashlib.sha256(secure.getpeercert(binary_form=True) or b"").hexdigest()

    def connect(self) -> ssl.SSLSocket:
        plain = socket.create_connection(("127.0.0.1", self.daemon.port), ASK_S)
        return self.client().wrap_socket(plain, server_hostname="localhost")

    def ctl(self, *arguments: str, **environ: str) -> Result:
        """skulkctl as the user of this machine, who has set nothing up."""
        return skulkctl(*arguments, home=self.daemon.home, environ=environ)


def config_of(pki: Path, more: str = "") -> str:
    files = f"certificate: {pki}/kite1.pem, key: {pki}/kite1.key, authority: {pki}/ca.pem"
    return f"node: {{name: kite1}}\napi: {{tls: {{{files}{more}}}}}\n"


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secure]:
    home, pki = tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("pki")
    make_certificates(pki)
    make_certificate(pki, "kite1", HERE)
    (home / "skulk.yaml").write_text(config_of(pki))
    daemon = spawn_daemon(home, "--no-worker")
    try:
        daemon.wait_ready()
        yield Secure(daemon, pki)
    finally:
        daemon.kill()


def test_it_answers_those_who_trust_its_authority(secure: Secure) -> None:
    assert secure.daemon.url.startswith("https://127.0.0.1:")
    assert json.loads(secure.get("/node_id")) == secure.daemon.node_id
    with secure.connect() as connection:
        assert connection.selected_alpn_protocol() == "http/1.1"
        assert connection.version() in ("TLSv1.2", "TLSv1.3")


def test_plain_http_gets_an_answer_that_says_what_to_do(secure: Secure) -> None:
    with closing(
        http.client.HTTPConnection("127.0.0.1", secure.daemon.port, timeout=ASK_S)
    ) as connection:
        connection.request("POST", "/place_instance", b"{}" * 100_000)
        answer = connection.getresponse()
        error = json.loads(answer.read())["error"]
    assert (answer.status, error["refusal"]["kind"]) == (400, "tls_required")
    assert "https://" in error["message"]


def test_connections_that_say_nothing_or_nonsense_delay_nobody(secure: Secure) -> None:
    silent = [socket.create_connection(("127.0.0.1", secure.daemon.port)) for _ in range(20)]
    try:
        silent[0].sendall(b"\x16nonsense that is no handshake" * 10)
        silent[1].sendall(b"\x16")
        assert json.loads(secure.get("/node_id")) == secure.daemon.node_id
        assert not [line for line in secure.daemon.stderr if " ERROR " in line]
    finally:
        for one in silent:
            one.close()


def test_skulkctl_on_this_machine_needs_no_setting(secure: Secure) -> None:
    done = secure.ctl("nodes", "-o", "json")
    assert done.code == 0, done.err
    (node,) = json.loads(done.out)["items"]
    assert node["name"] == "kite1"
    assert [one["use"] for one in node["certificates"]] == ["api"]
    checked = secure.ctl("doctor", "-o", "json")
    found = {item["check"]: item for item in json.loads(checked.out)["items"]}
    # The certificate is valid for two days.
    assert found["certificates"]["result"] == "warn"
    assert "the api certificate of kite1 expires in 1 day" in found["certificates"]["message"]
    assert found["certificates"]["hint"] == "skulkctl tls issue kite1 --renew"


def test_another_authority_another_name_and_plain_http_are_told_apart(
    secure: Secure, tmp_path: Path
) -> None:
    make_certificates(tmp_path, "x")
    port = secure.daemon.port
    (tmp_path / "home").mkdir()
    elsewhere = {"SKULK_HOME": str(tmp_path / "home"), "SKULK_CA": str(tmp_path / "ca.pem")}
    done = secure.ctl("status", "--endpoint", f"https://127.0.0.1:{port}", **elsewhere)
    assert done.code == 5
    assert "signed by an authority that is not trusted here (tests)" in done.err
    assert "SKULK_CA=ca.pem" in done.err
    done = secure.ctl("status", "--endpoint", f"http://127.0.0.1:{port}")
    assert (done.code, "speaks TLS only" in done.err) == (5, True)
    assert f"skulkctl --endpoint https://127.0.0.1:{port}" in done.err


def test_a_name_that_is_not_in_the_certificate_is_refused_with_both(secure: Secure) -> None:
    done = secure.ctl("status", "--endpoint", f"https://[::ffff:127.0.0.1]:{secure.daemon.port}")
    assert done.code == 5
    names = "is for kite1, localhost, 127.0.0.1, not for ::ffff:127.0.0.1"
    assert names in done.err, done.err


def test_https_to_a_plain_port_says_so(shared_daemon: DaemonProcess, secure: Secure) -> None:
    endpoint = f"https://127.0.0.1:{shared_daemon.port}"
    done = secure.ctl("status", "--endpoint", endpoint)
    assert done.code == 5
    assert "does not speak TLS" in done.err
    assert f"--endpoint http://127.0.0.1:{shared_daemon.port}" in done.err


def test_a_context_trusts_its_own_authority_only(secure: Secure, tmp_path: Path) -> None:
    make_certificates(tmp_path / "theirs", "x")
    home = tmp_path / "home"
    home.mkdir()
    ask = {"SKULK_HOME": str(home)}
    endpoint = f"https://127.0.0.1:{secure.daemon.port}"
    bad = secure.ctl("context", "add", "lab", endpoint, "--ca", "/nowhere/ca.pem", **ask)
    assert (bad.code, "No such file" in bad.err) == (4, True)
    ca = str(tmp_path / "theirs" / "ca.pem")
    assert secure.ctl("context", "add", "lab", endpoint, "--ca", ca, "--use", **ask).code == 0
    refused = secure.ctl("nodes", **ask)
    assert refused.code == 5
    assert "skulkctl context set lab --ca ca.pem" in refused.err
    right = str(secure.pki / "ca.pem")
    assert secure.ctl("context", "set", "lab", "--ca", right, **ask).code == 0
    assert secure.ctl("nodes", "-q", **ask).out == "kite1\n"
    shown = json.loads(secure.ctl("tls", "status", endpoint, "-o", "json", **ask).out)
    (item,) = shown["items"]
    assert (item["state"], item["chain"], item["subject"]) == ("expiring", "trusted", "kite1")


def test_a_new_certificate_is_used_at_once_and_a_broken_one_never(secure: Secure) -> None:
    before = secure.shown()
    with secure.connect() as old:
        make_certificate(secure.pki, "kite1", HERE, days=90)
        wait_until(lambda: secure.shown() != before, "the new certificate", ASK_S)
        # Who is connected stays connected.
        old.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert old.recv(12) == b"HTTP/1.1 200"
    good = secure.shown()
    (secure.pki / "kite1.pem").write_text("nonsense")
    wait_until(
        lambda: "the old one stays in use: api.tls.certificate" in secure.daemon.said(),
        "the warning",
        ASK_S,
    )
    assert secure.shown() == good
    member = json.loads(secure.get("/v1/cluster"))["nodes"][0]
    assert any("is no PEM certificate" in one["message"] for one in member["warnings"])
    ends = datetime.fromisoformat(member["certificates"][0]["expiresAt"])
    assert ends > datetime.now(UTC) + timedelta(days=80)
    name = 'skulk_tls_certificate_expiry_timestamp_seconds{use="api"} '
    (line,) = [one for one in secure.get("/metrics").decode().splitlines() if one.startswith(name)]
    assert float(line.removeprefix(name)) == ends.timestamp()


@pytest.mark.parametrize(
    ("names", "listen", "more", "refused"),
    [
        (["kite1"], "0.0.0.0", "", None),
        (["kite1.example.org"], "0.0.0.0", "", None),
        (["kite2", "localhost", "127.0.0.1"], "0.0.0.0", "", "is for kite2, localhost, 127.0.0.1"),
        (["kite2", "localhost"], "127.0.0.1", "", None),
        (["api.example.org"], "0.0.0.0", ", names: [api.example.org]", None),
        (["api.example.org"], "0.0.0.0", "", "this node is reached as"),
        (["10.9.9.9"], "10.9.9.9", "", None),
    ],
)
def test_a_certificate_must_be_for_this_node(
    tmp_path: Path, names: list[str], listen: str, more: str, refused: str | None
) -> None:
    make_certificates(tmp_path)
    make_certificate(tmp_path, "kite1", names)
    environ = {"SKULK_HOME": str(tmp_path), "HOME": str(tmp_path)}
    (tmp_path / "skulk.yaml").write_text(config_of(tmp_path, more))
    settings = load_settings(find_paths(environ), environ, cwd=tmp_path)
    address = Address(listen, 52415)
    if refused is not None:
        with pytest.raises(SettingsError, match=refused):
            prepare_tls(settings, environ, address)
        return
    made = local_api(prepare_tls(settings, environ, address), settings, address, 7)
    assert made.authority == str(tmp_path / "ca.pem")
    host = made.endpoint.removeprefix("https://").removesuffix(":52415")
    assert host in names


def test_a_start_with_an_expired_certificate_ends_with_key_and_file(tmp_path: Path) -> None:
    make_certificates(tmp_path)
    make_certificate(tmp_path, "kite1", HERE, days=1, now=datetime.now(UTC) - timedelta(days=9))
    (tmp_path / "skulk.yaml").write_text(config_of(tmp_path))
    daemon = spawn_daemon(tmp_path)
    try:
        assert daemon.wait_exit() == 78
        assert f"api.tls.certificate: {tmp_path}/kite1.pem: expired on" in daemon.said()
    finally:
        daemon.kill()
    assert not (tmp_path / "local-api.json").exists()
