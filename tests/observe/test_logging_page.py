"""docs/logging.md: the Vector config is valid YAML and names fields that our lines have."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml

from skulkd.log import JsonFormatter
from skulkd.settings.check import check_raw
from skulkd.settings.paths import find_paths

PAGE = (Path(__file__).parents[2] / "docs" / "logging.md").read_text(encoding="utf-8")


def block(name: str) -> Any:
    found = re.search(rf"```yaml\n# {re.escape(name)}\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    return yaml.safe_load(found[1])


def a_line() -> dict[str, Any]:
    record = logging.LogRecord("skulkd.api.app", logging.INFO, "app.py", 7, "hello", None, None)
    told: dict[str, Any] = json.loads(JsonFormatter(str, "kite1").format(record))
    return told


def test_the_stream_fields_are_fields_of_our_lines() -> None:
    sink = block("vector.yaml")["sinks"]["victorialogs"]
    query = parse_qs(urlsplit(sink["uri"]).query)
    named = [*query["_stream_fields"][0].split(","), *query["_msg_field"], *query["_time_field"]]
    assert set(named) <= a_line().keys()
    assert sink["buffer"] == {"type": "disk", "max_size": 512 * 2**20, "when_full": "drop_newest"}


def test_source_transform_and_sink_are_connected() -> None:
    vector = block("vector.yaml")
    [source], [transform], [sink] = (vector[one] for one in ("sources", "transforms", "sinks"))
    assert vector["transforms"][transform]["inputs"] == [source]
    assert vector["sinks"][sink]["inputs"] == [transform]
    # The file source gives each line as `.message`; it must be taken apart before it is shipped.
    assert "parse_json!(string!(.message))" in vector["transforms"][transform]["source"]


@pytest.mark.parametrize(
    ("system", "named"), [("linux", 'include: ["{}"]'), ("darwin", "# macOS: {}")]
)
def test_the_file_is_the_one_that_the_daemon_writes(
    system: str, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.platform", system)
    monkeypatch.setenv("HOME", "/home/me")
    for variable in ("XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(variable, raising=False)
    file = find_paths({"HOME": "/home/me"}).log_file
    assert named.format(str(file).replace("/home/me", "${HOME}")) in PAGE


def test_the_table_of_fields_is_complete_and_in_order() -> None:
    rows = re.findall(r"^\| (`[^|]+`) \|", PAGE, re.MULTILINE)
    named = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    fields = list(a_line())
    assert named[: len(fields)] == fields
    assert set(named[len(fields) :]) == {"exception", "request_id", "audit"}


def test_the_settings_are_accepted() -> None:
    config = check_raw(block("skulk.yaml"))
    assert config.logging.enabled
