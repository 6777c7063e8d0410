"""Why a node is not let in: whose certificate, whose secret, or a file that cannot be used."""

from __future__ import annotations

import socket
from dataclasses import replace
from pathlib import Path

import pytest

from skulkd.cluster.refusal_diagnosis import accepts_connections, diagnose_refusal, is_own_address
from skulkd.settings.tls import TlsFiles
from tests.cluster.certificates import make_certificates, tls_files
from tests.cluster.fabrics import fabrics, free_port

SECRET_FROM = "skulk.yaml:1"


async def test_the_reason_names_the_certificate_or_the_secret(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    make_certificates(ours, "a", "b")
    make_certificates(theirs, "x")
    mixed = replace(tls_files(theirs, "x"), authority=ours / "ca.pem")
    cases: dict[str, TlsFiles | None] = {
        "its links are encrypted; set cluster.tls": None,
        "its certificate is not of this node's authority": tls_files(theirs, "x"),
        "it does not accept this node's certificate": mixed,
        "its cluster secret or namespace is another one": tls_files(ours, "b"),
    }
    async with fabrics(tmp_path, "a", tls=tls_files(ours, "a")) as (a,):
        assert await accepts_connections(a.address)
        for reason, tls in cases.items():
            assert reason in await diagnose_refusal(a.address, tls, SECRET_FROM), reason
    assert not await accepts_connections(f"127.0.0.1:{free_port()}")


async def test_a_node_without_tls_is_told_apart_from_another_secret(tmp_path: Path) -> None:
    make_certificates(tmp_path, "b")
    async with fabrics(tmp_path, "a") as (a,):
        told = await diagnose_refusal(a.address, tls_files(tmp_path, "b"), SECRET_FROM)
        assert "its links are not encrypted" in told
        told = await diagnose_refusal(a.address, None, SECRET_FROM)
        assert f"secret or namespace is another one (this node's secret is from {SECRET_FROM})" in (
            told
        )


async def test_a_port_that_says_nothing_is_not_called_unencrypted(tmp_path: Path) -> None:
    make_certificates(tmp_path, "b")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        # Never accepted: the kernel takes the connections, and nobody answers.
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        told = await diagnose_refusal(address, tls_files(tmp_path, "b"), SECRET_FROM)
    assert "did not answer a TLS handshake" in told


@pytest.mark.parametrize(
    ("peer", "listen", "addresses", "own"),
    [
        ("127.0.0.1:52416", "127.0.0.1:52416", ["127.0.0.1:52416"], True),
        ("localhost:52416", "127.0.0.1:52416", ["127.0.0.1:52416"], True),
        ("127.0.0.1:52417", "127.0.0.1:52416", ["127.0.0.1:52416"], False),
        ("192.168.1.5:52416", "0.0.0.0:52416", ["192.168.1.5:52416"], True),
        ("127.0.0.1:52416", "0.0.0.0:52416", ["192.168.1.5:52416"], True),
        ("192.168.1.6:52416", "0.0.0.0:52416", ["192.168.1.5:52416"], False),
        ("127.0.0.1:52416", "192.168.1.5:52416", ["192.168.1.5:52416"], False),
    ],
)
async def test_a_node_knows_its_own_address_in_a_list_of_peers(
    peer: str, listen: str, addresses: list[str], own: bool
) -> None:
    assert await is_own_address(peer, listen, addresses) is own
