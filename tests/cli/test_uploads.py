"""Sending a model to a node: only what is missing, and nothing that is there already."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from skulkctl.cli import Invocation
from skulkctl.cli.command import Command
from skulkctl.daemon.client import Daemon
from skulkctl.errors import Refused
from skulkctl.models.destinations import Destination
from skulkctl.models.upload import ModelFile, describe, upload
from skulkd.wire.errors import ErrorBody, ErrorEnvelope
from skulkd.wire.ids import ModelId, NodeId
from skulkd.wire.uploads import UploadedBytes, UploadedModel, UploadPlace, UploadState
from tests.cli.builders import as_json
from tests.cli.stock import Reply, StockNode

PATH = "/v1/model-uploads"
MODEL = ModelId("me/tiny")
SIZE, THERE = 300_000, 100_000


@pytest.fixture
def call(stock: StockNode, home: Path) -> Invocation:
    """A command that was given the node's address; `home` is in the environment."""
    call = Invocation(Command("model"))
    call.params = {"endpoint": stock.url}
    return call


@pytest.fixture
def node(call: Invocation, stock: StockNode) -> Iterator[Destination]:
    place = UploadPlace(node_id=NodeId("n1"), name="kite1", target="models")
    with closing(Daemon(call.target)) as daemon:
        yield Destination(daemon, place, is_this_machine=False)


@pytest.fixture
def files(call: Invocation, tmp_path: Path) -> list[ModelFile]:
    (tmp_path / "model.safetensors").write_bytes(random.Random(7).randbytes(SIZE))
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "program.py").write_text("data only")
    (tmp_path / ".hidden.json").write_text("{}")
    return describe(call, tmp_path)


def refusal(kind: str) -> Reply:
    body = ErrorBody(message=f"{kind}, says the node", type="x", code=409, refusal={"kind": kind})
    return Reply(409, as_json(ErrorEnvelope(error=body)))


def test_only_data_is_sent_and_each_file_has_its_checksum(files: list[ModelFile]) -> None:
    assert [(file.path, file.size) for file in files] == [
        ("config.json", 2), ("model.safetensors", SIZE),
    ]  # fmt: skip
    whole = files[1].place.read_bytes()
    assert files[1].sha256 == hashlib.sha256(whole).hexdigest()


def test_what_has_arrived_is_not_sent_again(
    call: Invocation,
    node: Destination,
    stock: StockNode,
    files: list[ModelFile],
    capsys: pytest.CaptureFixture[str],
) -> None:
    received = {"config.json": 2, "model.safetensors": THERE}
    stock.on("POST", PATH, as_json(UploadState(model_id=MODEL, received=received)))
    stock.on("PUT", f"{PATH}/file", as_json(UploadedBytes(path="x", received_bytes=SIZE)))
    done = UploadedModel(model_id=MODEL, target="models", size_bytes=SIZE + 2)
    stock.on("POST", f"{PATH}/commit", as_json(done))
    upload(call, node, MODEL, files, replaces=True)
    begin, sent, commit = stock.seen
    assert b'"replace":true' in begin.body
    assert sent.path == (f"{PATH}/file?model_id=me%2Ftiny&path=model.safetensors&offset={THERE}")
    assert sent.body == files[1].place.read_bytes()[THERE:]
    assert (commit.path, commit.body) == (f"{PATH}/commit?replace=true", b'{"modelId":"me/tiny"}')
    assert "sending to kite1 100 %" in capsys.readouterr().err
    assert call.if_interrupted == "kite1 may still register me/tiny"


def test_a_model_that_is_there_is_left_alone(
    call: Invocation, node: Destination, stock: StockNode, files: list[ModelFile]
) -> None:
    stock.on("POST", PATH, refusal("model_exists"))
    upload(call, node, MODEL, files)
    assert [seen.method for seen in stock.seen] == ["POST"]
    stock.on("POST", PATH, refusal("no_space"))
    with pytest.raises(Refused, match="refused POST"):
        upload(call, node, MODEL, files)
