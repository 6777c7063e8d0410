"""The store over TLS: both sides show a certificate that the cluster's authority signed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from skulkd.store.errors import StoreUnreachableError
from skulkd.store.host import StoreHost
from skulkd.store.registry import Registry
from skulkd.store.stage import StageJob, fetch_manifest, stage_model
from skulkd.store.staging_area import StagingArea
from skulkd.store.tiny import make_tiny_model
from skulkd.store.tls import StoreTls, store_tls
from skulkd.store.transfer import USUAL_PATIENCE
from tests.cluster.certificates import make_certificates, tls_files
from tests.storage.store_server import SECRET, NoHub, real_store

MODEL = "skulk/tiny-llama"


def contexts(folder: Path) -> StoreTls:
    """An authority of its own and a node's certificate signed by it."""
    make_certificates(folder, "node")
    return store_tls(tls_files(folder, "node"))


def test_members_stage_over_tls_and_strangers_do_not(tmp_path: Path) -> None:
    ours, theirs = (contexts(tmp_path / name) for name in ("ours", "theirs"))
    make_tiny_model(tmp_path / "store")
    host = StoreHost(Registry(tmp_path / "store"), SECRET, NoHub(), tls=ours.server)
    with real_store(tmp_path / "store", host) as plain:
        address = replace(plain, tls=ours.client)
        manifest = fetch_manifest(address, MODEL, StageJob(), USUAL_PATIENCE)
        area = StagingArea(tmp_path / "staging")
        stage_model(area, address, manifest, StageJob())
        assert area.is_complete(MODEL)
        for wrong in (replace(plain, tls=theirs.client), plain):
            with pytest.raises(StoreUnreachableError):
                fetch_manifest(wrong, MODEL, StageJob(), USUAL_PATIENCE)


def test_a_renewed_certificate_is_used_without_a_restart(tmp_path: Path) -> None:
    home = tmp_path / "pki"
    ours = contexts(home)
    make_tiny_model(tmp_path / "store")
    host = StoreHost(Registry(tmp_path / "store"), SECRET, NoHub(), tls=ours.server)
    with real_store(tmp_path / "store", host) as plain:
        make_certificates(home, "node")  # another authority, so that the old pair does not fit
        new = store_tls(tls_files(home, "node"))
        with pytest.raises(StoreUnreachableError):
            fetch_manifest(replace(plain, tls=new.client), MODEL, StageJob(), USUAL_PATIENCE)
        ours.reload()
        for client in (new.client, ours.client):
            fetch_manifest(replace(plain, tls=client), MODEL, StageJob(), USUAL_PATIENCE)
