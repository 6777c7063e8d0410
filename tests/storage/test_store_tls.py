"""The store over TLS: both sides show a certificate that the cluster's authority signed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from skulkd.store.client.connection import DEFAULT_RETRY
from skulkd.store.errors import StoreUnreachableError
from skulkd.store.host.registry import Registry
from skulkd.store.host.server import StoreServer
from skulkd.store.imports.tiny_model import make_tiny_model
from skulkd.store.security import StoreTls, store_tls
from skulkd.store.staging.area import StagingArea
from skulkd.store.staging.copy_job import CopyJob, copy_model, fetch_manifest
from tests.cluster.certificates import make_certificates, tls_files
from tests.storage.store_server import SECRET, no_hub, real_store

MODEL = "skulk/tiny-llama"


def contexts(folder: Path) -> StoreTls:
    """An authority of its own and a node's certificate signed by it."""
    make_certificates(folder, "node")
    return store_tls(tls_files(folder, "node"))


def test_members_stage_over_tls_and_strangers_do_not(tmp_path: Path) -> None:
    ours, theirs = (contexts(tmp_path / name) for name in ("ours", "theirs"))
    make_tiny_model(tmp_path / "store")
    host = StoreServer(Registry(tmp_path / "store"), SECRET, no_hub(tmp_path), tls=ours.server)
    with real_store(tmp_path / "store", host) as plain:
        address = replace(plain, tls=ours.client)
        manifest = fetch_manifest(address, MODEL, CopyJob(), DEFAULT_RETRY)
        area = StagingArea(tmp_path / "staging")
        copy_model(area, address, manifest, CopyJob())
        assert area.is_complete(MODEL)
        for wrong in (replace(plain, tls=theirs.client), plain):
            with pytest.raises(StoreUnreachableError):
                fetch_manifest(wrong, MODEL, CopyJob(), DEFAULT_RETRY)


def test_a_renewed_certificate_is_used_without_a_restart(tmp_path: Path) -> None:
    home = tmp_path / "pki"
    ours = contexts(home)
    make_tiny_model(tmp_path / "store")
    host = StoreServer(Registry(tmp_path / "store"), SECRET, no_hub(tmp_path), tls=ours.server)
    with real_store(tmp_path / "store", host) as plain:
        make_certificates(home, "node")  # another authority, so that the old pair does not fit
        new = store_tls(tls_files(home, "node"))
        with pytest.raises(StoreUnreachableError):
            fetch_manifest(replace(plain, tls=new.client), MODEL, CopyJob(), DEFAULT_RETRY)
        ours.reload()
        for client in (new.client, ours.client):
            fetch_manifest(replace(plain, tls=client), MODEL, CopyJob(), DEFAULT_RETRY)
