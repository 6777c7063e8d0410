"""`skulkctl tls`: making an authority and certificates, renewing them, and looking at them."""

from __future__ import annotations

import json
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml

from skulkctl.doctor.checklist import TABLE
from skulkctl.doctor.facts import Facts, Finding
from skulkd.settings.certificates import check_files, read_certificates
from skulkd.settings.check import check_raw
from tests.cli.conftest import Cli
from tests.cluster.certificates import make_certificate, make_certificates

NOW = datetime(2026, 3, 4, tzinfo=UTC)


@pytest.fixture
def pki(cli: Cli, home: Path) -> Path:
    assert cli("tls", "init", "--name", "lab").code == 0
    return home / "tls"


def mode(file: Path) -> int:
    return stat.S_IMODE(file.stat().st_mode)


def test_an_authority_and_a_certificate_fit_cluster_and_api(cli: Cli, pki: Path) -> None:
    done = cli("tls", "issue", "kite1", "--ip", "10.0.0.1", "--host", "kite1.example.org")
    assert done.code == 0, done.err
    files = (pki / "kite1.pem", pki / "kite1.key", pki / "ca.pem")
    own = check_files(*files, purposes=("server", "client"))
    assert own.names == (
        "kite1", "kite1.local", "localhost", "kite1.example.org", "127.0.0.1", "::1", "10.0.0.1",
    )  # fmt: skip
    assert own.issuer == "lab"
    assert (mode(pki / "ca.key"), mode(pki / "kite1.key"), mode(pki)) == (0o600, 0o600, 0o700)
    lasts = read_certificates(pki / "ca.pem")[0].not_after - datetime.now(UTC)
    assert timedelta(days=3649) < lasts <= timedelta(days=3650)


def test_the_printed_lines_are_valid_settings(cli: Cli, pki: Path) -> None:
    done = cli("tls", "issue", "kite1")
    config = check_raw(yaml.safe_load(done.out))
    assert config.api.tls is not None
    assert config.api.tls.enabled
    assert config.cluster.tls is not None
    assert config.cluster.tls.certificate == "~/tls/kite1.pem"
    assert f"scp -p {pki}/kite1.pem {pki}/kite1.key {pki}/ca.pem kite1:tls/" in done.err


def test_nothing_is_replaced_unless_it_must_be(cli: Cli, pki: Path) -> None:
    cli("tls", "issue", "kite1")
    before = {file.name: file.read_bytes() for file in pki.iterdir()}
    for command in (("init",), ("issue", "kite1")):
        done = cli("tls", *command)
        assert done.code == 4
        assert "already" in done.err
        assert "--renew" in done.err
        assert "--force" in done.err
    assert {file.name: file.read_bytes() for file in pki.iterdir()} == before
    assert cli("tls", "init", "--force").code == 0
    assert (pki / "ca.key").read_bytes() != before["ca.key"]


def test_a_renewed_certificate_has_the_same_names_and_more_time(cli: Cli, pki: Path) -> None:
    cli("tls", "issue", "kite1", "--ip", "10.0.0.1", "--days", "5")
    (old,) = read_certificates(pki / "kite1.pem")
    done = cli("tls", "issue", "kite1", "--renew", "-o", "json")
    (new,) = read_certificates(pki / "kite1.pem")
    assert set(new.names) == set(old.names)
    assert new.not_after > old.not_after + timedelta(days=300)
    assert json.loads(done.out)["fingerprint"] == new.fingerprint != old.fingerprint
    assert "skulkctl restart kite1" in done.err
    assert cli("tls", "issue", "kite7", "--renew").code == 3


def test_a_renewed_authority_keeps_its_key_and_its_nodes(cli: Cli, pki: Path) -> None:
    cli("tls", "issue", "kite1")
    key, certificate = ((pki / name).read_bytes() for name in ("ca.key", "ca.pem"))
    done = cli("tls", "init", "--renew")
    assert (done.code, (pki / "ca.key").read_bytes()) == (0, key)
    assert (pki / "ca.pem").read_bytes() != certificate
    assert "copy" in done.err
    shown = json.loads(cli("tls", "status", "-o", "json").out)["items"]
    assert [item["chain"] for item in shown] == [None, "verified"]
    assert [item["subject"] for item in shown] == ["lab", "kite1"]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("issue", "../x"), 2, "cannot name a node"),
        (("issue", "a" * 64), 2, "cannot name a node"),
        (("issue", "10.0.0.1"), 2, "add  --ip 10.0.0.1"),
        (("issue", "CA"), 2, "the CA's files"),
        (("issue", "kite1", "--host", "10.0.0.1"), 2, "give it with --ip"),
        (("issue", "kite1", "--host", "a_b/c"), 2, "is not a host name"),
        (("issue", "kite1", "--ip", "kite1"), 2, "is not an IP address"),
        (("issue", "kite1", "--days", "0"), 2, "--days"),
        (("init", "--name", " ", "--force"), 2, "--name"),
        (("status", "nothing-here"), 3, "no file, directory or address"),
        (("status", "http://127.0.0.1:9"), 2, "plain HTTP"),
        (("status", "--within", "soon"), 2, "--within"),
    ],
)
def test_bad_input_is_refused_and_changes_nothing(
    cli: Cli, pki: Path, arguments: tuple[str, ...], code: int, message: str
) -> None:
    before = {file.name: file.read_bytes() for file in pki.iterdir()}
    done = cli("tls", *arguments)
    assert (done.code, done.out) == (code, "")
    assert message in done.err
    assert {file.name: file.read_bytes() for file in pki.iterdir()} == before


def test_without_the_authority_nothing_is_issued(cli: Cli, home: Path, pki: Path) -> None:
    assert cli("tls", "issue", "kite1", "--dir", str(home / "other")).code == 3
    assert not (home / "other").exists()
    (pki / "ca.key").unlink()
    done = cli("tls", "issue", "kite1")
    assert (done.code, "the CA's private key is missing" in done.err) == (3, True)


def test_status_says_what_is_wrong_and_check_exits_for_cron(cli: Cli, tmp_path: Path) -> None:
    pki = tmp_path / "pki"
    make_certificates(pki)
    make_certificate(pki, "good", ["good"], days=100)
    make_certificate(pki, "soon", ["soon"], days=10)
    make_certificate(pki, "over", ["over"], days=1, now=datetime.now(UTC) - timedelta(days=9))
    make_certificate(pki, "swapped", ["swapped"], days=100)
    (pki / "swapped.key").write_bytes((pki / "good.key").read_bytes())
    make_certificates(tmp_path / "theirs", "foreign")
    (pki / "foreign.pem").write_bytes((tmp_path / "theirs" / "foreign.pem").read_bytes())
    (pki / "text.pem").write_text("hello")
    shown = json.loads(cli("tls", "status", str(pki), "-o", "json").out)["items"]
    states = {Path(item["source"]).stem: (item["state"], item["problem"]) for item in shown}
    assert next(iter(states)) == "ca"
    assert states["good"] == ("ok", None)
    assert states["soon"][0] == "expiring"
    assert states["over"][0] == "expired"
    assert states["swapped"] == ("invalid", f"{pki}/swapped.key is not its private key")
    assert states["foreign"] == ("invalid", f"not signed by {pki}/ca.pem")
    assert states["text"] == ("invalid", "is no PEM certificate")

    checked = cli("tls", "status", str(pki / "good.pem"), str(pki / "soon.pem"), "--check", "-q")
    assert (checked.code, checked.out, checked.err) == (7, f"{pki}/soon.pem\n", "")
    calm = cli("tls", "status", str(pki / "soon.pem"), "--check", "--within", "5d", "-q")
    assert (calm.code, calm.out, calm.err) == (0, "", "")
    table = cli("tls", "status", str(pki)).out
    assert "● ok" in table
    assert "▲ expiring" in table
    assert "✖ expired" in table


@pytest.mark.parametrize("where", [("127.0.0.1:9",), ("--endpoint", "127.0.0.1:9")])
def test_an_address_where_nobody_listens_is_a_row(
    cli: Cli, home: Path, where: tuple[str, ...]
) -> None:
    done = cli("tls", "status", *where, "--check", "-o", "json")
    (item,) = json.loads(done.out)["items"]
    assert (done.code, item["state"], item["source"]) == (7, "invalid", "https://127.0.0.1:9")
    assert item["problem"] == "connection refused"


def test_a_context_with_an_authority_speaks_https(cli: Cli, pki: Path) -> None:
    ca = str(pki / "ca.pem")
    added = cli("context", "add", "lab", "kite1", "http://kite2", "--ca", ca)
    assert added.code == 0
    assert "no effect on plain HTTP: http://kite2:52415" in added.err
    assert cli("context", "set", "lab", "kite3").code == 0
    (item,) = json.loads(cli("context", "list", "-o", "json").out)["items"]
    assert (item["endpoints"], item["ca"]) == (["https://kite3:52415"], ca)
    assert cli("context", "set", "lab", "kite3", "--no-ca").code == 0
    (item,) = json.loads(cli("context", "list", "-o", "json").out)["items"]
    assert (item["endpoints"], item["ca"]) == (["http://kite3:52415"], None)
    assert cli("context", "set", "lab", "--ca", ca, "--no-ca").code == 2
    assert cli("context", "set", "lab", "--ca", str(pki / "ca.key")).code == 4


def found(days: float) -> list[Finding]:
    ends = (NOW + timedelta(days=days)).isoformat()
    node = {"name": "kite1", "certificates": [{"use": "api", "expiresAt": ends}]}
    return list(TABLE["certificates"][0](Facts("", nodes=[node], now=NOW)))


def test_doctor_warns_before_and_fails_after_expiry() -> None:
    assert found(31) == []
    assert [one.result for one in found(29)] == ["warn"]
    (over,) = found(-2)
    assert over.result == "fail"
    assert over.message == "the api certificate of kite1 expired 2d ago"
    assert over.hint == "skulkctl tls issue kite1 --renew"
    assert TABLE["certificates"][1](Facts("")) == "no node uses TLS"
