"""Certificates on disk: what is read from them, and which files are refused with which words."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from skulkctl.certificates.authority import (
    check_address,
    check_host,
    issue,
    make_authority,
    usual_names,
)
from skulkctl.certificates.files import authority_of, write_pair
from skulkd.settings.certificates import (
    CertificateError,
    check_files,
    is_pair,
    is_signed_by,
    parse_certificate,
    read_certificates,
    read_key,
)
from skulkd.settings.check import check_raw
from skulkd.settings.problems import SettingsError
from skulkd.settings.tls import api_files, cluster_files, store_files
from tests.cluster.certificates import make_certificate, make_certificates

LONG_AGO = datetime.now(UTC) - timedelta(days=30)


@pytest.fixture
def pki(tmp_path: Path) -> Path:
    make_certificates(tmp_path, "kite1", "kite2")
    return tmp_path


def test_a_certificate_tells_for_whom_by_whom_and_how_long(pki: Path) -> None:
    make_certificate(pki, "kite3", ["kite3", "10.0.0.3", "fd00::3", "*.lan"], days=397)
    (own,) = read_certificates(pki / "kite3.pem")
    assert (own.subject, own.issuer, own.is_authority) == ("kite3", "tests", False)
    assert own.names == ("kite3", "*.lan", "10.0.0.3", "fd00::3")
    assert own.purposes == {"server", "client"}
    assert own.days_left(datetime.now(UTC)) in (396, 397)
    assert own.validity_problem(datetime.now(UTC)) is None
    assert "expired on" in (own.validity_problem(own.not_after) or "")
    assert "not valid before" in (own.validity_problem(own.not_before - timedelta(1)) or "")
    (authority,) = read_certificates(pki / "ca.pem")
    assert authority.is_authority
    assert is_signed_by([own], [authority])
    assert not is_signed_by([own], read_certificates(pki / "kite1.pem"))
    assert is_pair(own, read_key(pki / "kite3.key"))
    assert not is_pair(own, read_key(pki / "kite1.key"))


@pytest.mark.parametrize(
    ("host", "covered"),
    [
        ("kite1", True),
        ("KITE1.", True),
        ("kite1.lan", True),
        ("a.b.lan", False),
        ("lan", False),
        ("kite2", False),
        ("10.0.0.1", True),
        ("10.0.0.2", False),
        ("fd00:0::1", True),
        ("fe80::1%eth0", True),
    ],
)
def test_names_are_compared_as_clients_do(pki: Path, host: str, covered: bool) -> None:
    names = ["kite1", "*.lan", "10.0.0.1", "fd00::1", "fe80::1"]
    make_certificate(pki, "kite1", names)
    assert read_certificates(pki / "kite1.pem")[0].covers(host) is covered


def test_a_renewed_authority_accepts_what_it_signed_before(pki: Path) -> None:
    old = read_certificates(pki / "kite1.pem")
    pair = authority_of(pki)
    write_pair(pair, make_authority("tests", pair.key.read_bytes()), replace=True)
    assert is_signed_by(old, read_certificates(pki / "ca.pem"))
    write_pair(pair, make_authority("tests"), replace=True)
    assert not is_signed_by(old, read_certificates(pki / "ca.pem"))


def test_no_certificate_outlives_its_authority_or_is_signed_by_a_dead_one() -> None:
    authority = make_authority("old", now=datetime.now(UTC) - timedelta(days=3640))
    issued = issue(authority, "kite1", ["kite1"], 397)
    from cryptography import x509

    signer = x509.load_pem_x509_certificate(authority.certificate)
    assert x509.load_pem_x509_certificate(issued.certificate).not_valid_after_utc == (
        signer.not_valid_after_utc
    )
    dead = make_authority("dead", now=datetime.now(UTC) - timedelta(days=3651))
    with pytest.raises(ValueError, match="has expired"):
        issue(dead, "kite1", ["kite1"], 1)


def test_a_file_with_two_authorities_accepts_certificates_of_either(pki: Path) -> None:
    """For the time in which nodes change from one to the other."""
    other = make_authority("other")
    (pki / "ca.pem").write_bytes((pki / "ca.pem").read_bytes() + other.certificate)
    both = read_certificates(pki / "ca.pem")
    assert is_signed_by(read_certificates(pki / "kite1.pem"), both)
    assert not is_signed_by(read_certificates(pki / "kite1.pem"), both[1:])


def _bad_files(pki: Path) -> dict[str, tuple[str, str, str | None]]:
    (pki / "text").write_text("hello")
    make_certificates(pki / "theirs", "x")
    make_certificate(pki, "expired", ["expired"], days=1, now=LONG_AGO)
    return {
        r"certificate: .*/nowhere: No such file": ("nowhere", "kite1.key", "ca.pem"),
        r"certificate: .*/text: is no PEM certificate": ("text", "kite1.key", "ca.pem"),
        r"certificate: .*expired\.pem: expired on": ("expired.pem", "expired.key", "ca.pem"),
        r"key: .*/text: is no PEM private key": ("kite1.pem", "text", "ca.pem"),
        r"key: .*kite2\.key: is not the private key of .*kite1": ("kite1.pem", "kite2.key", None),
        r"authority: .*/text: is no PEM certificate": ("kite1.pem", "kite1.key", "text"),
        r"authority: .*theirs/ca\.pem: has not signed .*kite1\.pem": (
            "kite1.pem", "kite1.key", "theirs/ca.pem",
        ),
    }  # fmt: skip


def test_files_that_cannot_be_used_are_named_with_the_reason(pki: Path) -> None:
    good = (pki / "kite1.pem", pki / "kite1.key", pki / "ca.pem")
    assert check_files(*good, purposes=("server", "client")).subject == "kite1"
    for message, (certificate, key, authority) in _bad_files(pki).items():
        with pytest.raises(CertificateError, match=message):
            check_files(
                pki / certificate,
                pki / key,
                None if authority is None else pki / authority,
                ("server",),
            )


def test_bytes_that_are_no_certificate_are_a_value_error() -> None:
    with pytest.raises(ValueError):
        parse_certificate(b"nonsense")


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({"enabled": True}, "api.tls.certificate: this key is required, because there is no"),
        ({"certificate": "a"}, "api.tls.key: this key is required"),
        ({"key": "a"}, "api.tls.certificate: this key is required, because api.tls.key"),
        ({"certificate": "a", "key": "b", "minimum_version": 1.1}, "must be one of 1.2, 1.3"),
        ({"certificate": "", "key": "b"}, "api.tls.certificate: must not be empty"),
    ],
)
def test_half_a_section_is_refused(raw: dict[str, object], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        check_raw({"api": {"tls": raw}})


CLUSTER = {"certificate": "~/c.pem", "key": "/c.key", "authority": "/ca.pem"}


@pytest.mark.parametrize(
    ("api", "cluster", "expected"),
    [
        (None, None, (None, None, None)),
        (None, CLUSTER, (None, "/h/c.pem", "/h/c.pem")),
        ({}, CLUSTER, ("/h/c.pem", "/h/c.pem", "/h/c.pem")),
        ({"enabled": False}, None, (None, None, None)),
        ({"certificate": "/a", "key": "/k"}, CLUSTER, ("/a", "/h/c.pem", "/h/c.pem")),
        ({"certificate": "/a", "key": "/k"}, None, ("/a", None, None)),
        ({"certificate": "/a", "key": "/k", "authority": "/ca"}, None, ("/a", None, "/a")),
    ],
)
def test_which_certificate_api_links_and_store_use(
    api: dict[str, object] | None,
    cluster: dict[str, object] | None,
    expected: tuple[str | None, ...],
) -> None:
    raw: dict[str, object] = {"api": {"tls": api}, "cluster": {"tls": cluster}}
    config, environ = check_raw(raw), {"HOME": "/h"}
    found = [files(config, environ) for files in (api_files, cluster_files, store_files)]
    assert tuple(one and str(one.certificate) for one in found) == expected


@pytest.mark.parametrize("typed", ["", "a b", "-a", "a..b", "a/b", "x" * 254, "ä"])
def test_what_is_no_host_name_is_refused(typed: str) -> None:
    with pytest.raises(ValueError, match="is not a host name"):
        check_host(typed)


def test_names_and_addresses_are_told_apart() -> None:
    assert check_host("Kite1.Example.org") == "kite1.example.org"
    assert check_address("fd00:0::1") == "fd00::1"
    with pytest.raises(ValueError, match="give it with --ip"):
        check_host("10.0.0.1")
    with pytest.raises(ValueError, match="is not an IP address"):
        check_address("kite1")
    assert usual_names("kite1") == ["kite1", "kite1.local", "localhost", "127.0.0.1", "::1"]
    assert usual_names("kite1.local") == ["kite1.local", "localhost", "127.0.0.1", "::1"]
