"""The store over TLS: both sides show a certificate that the cluster's authority signed."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from skulkd.store.errors import StoreError, StoreUnreachableError
from skulkd.store.host import StoreHost
from skulkd.store.registry import Registry
from skulkd.store.stage import StageJob, fetch_manifest, stage_model
from skulkd.store.staging_area import StagingArea
from skulkd.store.tiny import make_tiny_model
from skulkd.store.tls import tls_contexts
from skulkd.store.transfer import USUAL_PATIENCE
from skulkd.wire.config import TlsSection
from tests.storage.store_server import SECRET, NoHub, real_store

MODEL = "skulk/tiny-llama"

if shutil.which("openssl") is None:
    pytest.skip("needs openssl", allow_module_level=True)


def certificates(folder: Path, name: str) -> TlsSection:
    """An authority of its own and a node's certificate signed by it."""
    folder.mkdir()

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    openssl("req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.pem", "-subj", f"/CN={name}",
            "-days", "3650")  # fmt: skip
    openssl("req", *key, "-keyout", "node.key", "-out", "node.csr", "-subj", "/CN=node")
    openssl("x509", "-req", "-in", "node.csr", "-CA", "ca.pem", "-CAkey", "ca.key",
            "-CAcreateserial", "-out", "node.pem", "-days", "3650")  # fmt: skip
    return TlsSection(
        certificate=str(folder / "node.pem"),
        key=str(folder / "node.key"),
        authority=str(folder / "ca.pem"),
    )


def test_members_stage_over_tls_and_strangers_do_not(tmp_path: Path) -> None:
    ours, theirs = (certificates(tmp_path / name, name) for name in ("ours", "theirs"))
    server, client = tls_contexts(ours, {})
    _, stranger = tls_contexts(theirs, {})
    make_tiny_model(tmp_path / "store")
    host = StoreHost(Registry(tmp_path / "store"), SECRET, NoHub(), tls=server)
    with real_store(tmp_path / "store", host) as plain:
        address = replace(plain, tls=client)
        manifest = fetch_manifest(address, MODEL, StageJob(), USUAL_PATIENCE)
        area = StagingArea(tmp_path / "staging")
        stage_model(area, address, manifest, StageJob())
        assert area.is_complete(MODEL)
        for wrong in (replace(plain, tls=stranger), plain):
            with pytest.raises(StoreUnreachableError):
                fetch_manifest(wrong, MODEL, StageJob(), USUAL_PATIENCE)


def test_certificates_that_cannot_be_read_are_said_at_once(tmp_path: Path) -> None:
    missing = TlsSection(certificate="/no/cert", key="/no/key", authority="/no/ca")
    with pytest.raises(StoreError, match=r"cluster\.tls cannot be used"):
        tls_contexts(missing, {})
    assert tls_contexts(None, {}) == (None, None)
