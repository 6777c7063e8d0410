"""Changing a settings file: what a put means, and that the rest of the text stays."""

from __future__ import annotations

import json
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from skulkd.settings.document import parse_document
from skulkd.settings.edit import (
    apply_put,
    changed_sections,
    holds_secret,
    parse_value,
    redact,
    set_key,
    unset_key,
)
from skulkd.settings.files import write_atomic
from skulkd.settings.load import read_document
from skulkd.settings.problems import SettingsError
from skulkd.settings.writer import rewrite, save_config, update_config
from tests.settings.mounts import tmpfs

SECRET = "correct-horse-battery"
STORE = {"store_host": "kite1", "store_path": "/srv"}
FULL: dict[str, Any] = {
    "model_store": STORE,
    "cluster": {"secret": SECRET, "namespace": "lab"},
    "tracing": {"retention_days": 7},
    "hf_token": "hf_abc",
}


class TestPut:
    def test_omitted_section_is_kept(self) -> None:
        put = apply_put(FULL, {"tracing": {"retention_days": 1}})
        assert put.raw == {**FULL, "tracing": {"retention_days": 1}}
        assert put.changed == {"tracing"}

    def test_null_removes_a_section_and_a_top_level_secret(self) -> None:
        put = apply_put(FULL, {"model_store": None, "hf_token": None, "logging": None})
        assert put.raw == {key: FULL[key] for key in ("cluster", "tracing")}
        assert put.changed == {"model_store", "hf_token"}

    def test_given_section_is_replaced_but_its_unseen_secret_stays(self) -> None:
        put = apply_put(FULL, {"cluster": {}})
        assert put.raw["cluster"] == {"secret": SECRET}
        assert put.changed == {"cluster"}

    def test_secret_is_replaced_or_removed_when_named(self) -> None:
        assert apply_put(FULL, {"cluster": {"secret": "x" * 16}}).raw["cluster"] == {
            "secret": "x" * 16
        }
        assert not holds_secret(
            apply_put(FULL, {"cluster": {"secret": None}, "hf_token": None}).raw
        )

    def test_what_get_shows_can_be_put_back_unchanged(self) -> None:
        put = apply_put(FULL, redact(FULL))
        assert put.raw == FULL
        assert put.changed == frozenset()

    def test_number_of_another_type_is_a_change(self) -> None:
        raw = {"model_store": {**STORE, "staging": {"staging_keep_recent_gb": 1}}}
        body = {"model_store": {**STORE, "staging": {"staging_keep_recent_gb": 1.0}}}
        assert apply_put(raw, body).changed == {"model_store"}

    @pytest.mark.parametrize(
        ("body", "message"),
        [
            ({"trcing": {}}, "trcing: unknown key"),
            ({"tracing": []}, "tracing: must be a section"),
            ({"model_store": {}}, "model_store.store_host: this key is required"),
            ({"api": {"max_body_mib": "8"}}, "api.max_body_mib: must be a whole number without"),
            ({"hf_token": 3}, "hf_token: must be text"),
        ],
    )
    def test_invalid_result_is_refused(self, body: dict[str, Any], message: str) -> None:
        with pytest.raises(SettingsError, match=message):
            apply_put(FULL, body)

    @pytest.mark.parametrize("key", ["api", "zzz", "model_store"])
    def test_body_nested_without_end_is_refused(self, key: str) -> None:
        deep: Any = []
        for _ in range(100_000):
            deep = [deep]
        with pytest.raises(SettingsError):
            apply_put(FULL, {key: deep})
        with pytest.raises(SettingsError):
            apply_put(FULL, {key: {"cors_origins": deep}})

    def test_arguments_are_never_changed(self) -> None:
        raw, body = {"cluster": {"secret": SECRET}}, {"cluster": {"namespace": "a"}}
        put = apply_put(raw, body)
        put.raw["cluster"]["namespace"] = "b"
        assert (raw, body) == ({"cluster": {"secret": SECRET}}, {"cluster": {"namespace": "a"}})


def test_redacted_data_has_no_secret() -> None:
    text = json.dumps(redact(FULL))
    assert SECRET not in text
    assert "hf_abc" not in text
    assert redact(FULL)["cluster"] == {"namespace": "lab"}
    assert holds_secret(FULL)
    assert not holds_secret(redact(FULL))
    assert redact({"cluster": None, "hf_token": None}) == {"cluster": None}


class TestOneKey:
    def test_set_creates_sections_on_the_way(self) -> None:
        raw = set_key({"api": None}, "api.listen", "kite1:1")
        raw = set_key(raw, 'model_store.node_overrides."kite3.lan".staging.enabled', False)
        assert raw == {
            "api": {"listen": "kite1:1"},
            "model_store": {"node_overrides": {"kite3.lan": {"staging": {"enabled": False}}}},
        }

    def test_unset_removes_a_key_or_a_section(self) -> None:
        assert unset_key(FULL, "cluster.secret")["cluster"] == {"namespace": "lab"}
        assert "model_store" not in unset_key(FULL, "model_store")
        assert unset_key(FULL, "api.listen") == FULL

    @pytest.mark.parametrize(
        ("key", "near"),
        [
            ("model_store.store_prt", "store_port"),
            ("modl_store.store_port", "model_store.store_port"),
            ("listen", "api.listen"),
        ],
    )
    def test_unknown_key_names_the_nearest(self, key: str, near: str) -> None:
        for call in (lambda: set_key({}, key, 1), lambda: unset_key({}, key)):
            with pytest.raises(SettingsError) as caught:
                call()
            assert caught.value.problems[0].suggestion == near

    @pytest.mark.parametrize(
        ("key", "text", "value"),
        [
            ("node.name", "12", "12"),
            ("node.name", "null", None),
            ("node.name", "~", None),
            ("logging.ingest_url", "null", "null"),
            ("api.token_on_loopback", "On", True),
            ("api.token_on_loopback", "0", False),
            ("api.max_body_mib", "16", 16),
            ("tracing.retention_days", "-1", -1),
            ("model_store.staging.staging_keep_recent_gb", "12", 12.0),
            ("model_store.staging.staging_keep_recent_gb", "1.5e1", 15.0),
            ("api.cors_origins", "http://a, http://b", ["http://a", "http://b"]),
            ("api.cors_origins", "[http://a]", ["http://a"]),
            ("api.cors_origins", "[]", []),
            ("api.cors_origins", "", []),
        ],
    )
    def test_text_becomes_the_type_of_the_key(self, key: str, text: str, value: object) -> None:
        parsed = parse_value(key, text)
        assert parsed == value
        assert type(parsed) is type(value)

    @pytest.mark.parametrize(
        ("key", "text", "message"),
        [
            ("api.token_on_loopback", "maybe", "must be true or false"),
            ("api.max_body_mib", '"16"', "must be a whole number"),
            ("api.max_body_mib", "1.0", "must be a whole number"),
            ("api.max_body_mib", "9" * 50, "must be a whole number"),
            ("model_store.staging.staging_keep_recent_gb", "nan", "must be a number"),
            ("api", "x", "this is a section; set one of its keys: listen, token_on"),
            ("model_store.node_overrides", "x", "set one of its keys: <node>"),
            ("api.lissten", "x", "unknown key; did you mean listen"),
        ],
    )
    def test_text_of_the_wrong_type_is_refused(self, key: str, text: str, message: str) -> None:
        with pytest.raises(SettingsError, match=message):
            parse_value(key, text)


TEXT = """\
# Lab cluster, do not edit at night.

# Storage
model_store:
  store_host: kite1   # the big one
  store_path: "/srv"

  # indented remark
# Traces
tracing: {retention_days: 7}
hf_token: hf_abc

# the end
"""


def _rewritten(text: str, raw: dict[str, Any]) -> str:
    return rewrite(parse_document(text, "skulk.yaml"), raw)


class TestRewrite:
    def test_changed_values_are_replaced_in_place(self) -> None:
        store = {**STORE, "store_host": "kite2"}
        raw = {"model_store": store, "tracing": {"retention_days": 1}, "hf_token": "hf_abc"}
        assert _rewritten(TEXT, raw) == TEXT.replace("kite1", "kite2").replace("7", "1")

    def test_removed_section_leaves_every_remark_outside_it(self) -> None:
        assert _rewritten(TEXT, {"hf_token": "hf_abc", "tracing": {"retention_days": 7}}) == (
            "# Lab cluster, do not edit at night.\n\n# Storage\n"
            "# Traces\ntracing: {retention_days: 7}\nhf_token: hf_abc\n\n# the end\n"
        )

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("", "api:\n  listen: a:1\n"),
            ("# only a remark", "# only a remark\napi:\n  listen: a:1\n"),
            ("---\n# x\n", "---\n# x\napi:\n  listen: a:1\n"),
            ("tracing:\n", "tracing:\napi:\n  listen: a:1\n"),
            ("tracing: {}", None),
            ("api: {listen: b:1}", "api: {listen: 'a:1'}"),
            ("api:\n  listen: b:1\n...\n", "api:\n  listen: a:1\n...\n"),
            ("{api: {listen: b:1}}", "{api: {listen: 'a:1'}}"),
            ("hf_token: x\napi: &a {listen: b:1}\n# end", None),
        ],
    )
    def test_section_is_added_or_replaced(self, text: str, expected: str | None) -> None:
        raw = {**parse_document(text, "f").data, "api": {"listen": "a:1"}}
        raw = {key: value for key, value in raw.items() if value is not None}
        new = _rewritten(text, raw)
        assert changed_sections(parse_document(new, "f").data, raw) == frozenset()
        if expected is not None:
            assert new == expected

    def test_dos_line_ends_stay(self) -> None:
        text = TEXT.replace("\n", "\r\n")
        raw = {"model_store": STORE, "tracing": {"retention_days": 1}, "hf_token": "hf_abc"}
        new = _rewritten(text, raw)
        assert new.count("\n") == new.count("\r\n")
        assert "# the big one\r\n" in new

    def test_anchor_of_a_changed_section_still_serves_the_others(self) -> None:
        text = (
            "model_store:\n  store_host: a\n  store_path: b\n  staging: &s {enabled: false}\n"
            "  node_overrides: {k: {staging: *s}}\ntracing: &t {enabled: true}\nlogging: *t\n"
        )
        document = parse_document(text, "f")
        raw = set_key(document.data, "tracing.enabled", False)
        assert parse_document(rewrite(document, raw), "f").data == raw

    def test_new_text_beyond_the_limits_is_refused(self) -> None:
        overrides = {f"n{number}": {"staging": {}} for number in range(4000)}
        with pytest.raises(SettingsError, match="too many values"):
            _rewritten("", {"model_store": {**STORE, "node_overrides": overrides}})


_awkward = st.sampled_from(
    [
        *("yes", "null", "~", "1.0", "0x1F", "2024-01-01", "1:30", "<<", "=", "...", "---"),
        *("# x", "a #b", "a: b", "- a", "!x", "*a", "&a", "'", '"', "%", "@", "`", "|", ">"),
        *("é", "😀", "x" * 300),
    ]
)
_text = _awkward | st.text(
    st.characters(exclude_categories=["Cc", "Cs"]), min_size=1, max_size=12
).filter(lambda text: text.strip() != "")
_name = _text.map(lambda text: text.replace("/", "").replace("\\", "").strip()).filter(bool)
_token = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=16, max_size=30)


def _section(**keys: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=keys)


_staging = _section(
    enabled=st.booleans(),
    node_cache_path=_text,
    staging_keep_recent_gb=st.integers(0, 9) | st.floats(0, 2**30),
)
_SECTIONS: dict[str, st.SearchStrategy[Any]] = {
    "node": _section(name=_name),
    "api": _section(token_on_loopback=st.booleans(), max_body_mib=st.integers(1, 1024)),
    "cluster": _section(secret=_token | st.none(), namespace=_name),
    "model_store": st.fixed_dictionaries(
        {"store_host": _text, "store_path": _text},
        optional={
            "staging": _staging,
            "node_overrides": st.dictionaries(
                _name, _section(staging=_staging | st.none()), max_size=3
            ),
        },
    ),
    "tracing": _section(retention_days=st.integers(-5, 36500)),
    "connectivity": st.fixed_dictionaries(
        {"tailscale": _section(bootstrap_peers=st.lists(_text, max_size=3))}
    ),
    "hf_token": _token,
}
_raw = _section(**_SECTIONS)
_body = _section(**{name: section | st.none() for name, section in _SECTIONS.items()})


@given(raw=_raw, body=_body, flow=st.booleans(), remark=st.sampled_from(["", "# remark\n", "\n"]))
@settings(max_examples=150, deadline=None)
def test_file_after_any_put_says_exactly_the_result(
    raw: dict[str, Any], body: dict[str, Any], flow: bool, remark: str
) -> None:
    chunks = {name: _chunk(name, value, flow) for name, value in raw.items()}
    text = "".join(f"{remark}{chunk}" for chunk in chunks.values()) + remark
    document = parse_document(text, "skulk.yaml")
    assert document.data == raw
    put = apply_put(raw, body)
    new = rewrite(document, put.raw)
    assert _typed(parse_document(new, "skulk.yaml").data) == _typed(put.raw)
    for name, chunk in chunks.items():
        if name not in put.changed:
            assert chunk in new
    assert new.count("# remark\n") == text.count("# remark\n")


def _chunk(name: str, value: object, flow: bool) -> str:
    if not flow:
        return str(yaml.safe_dump({name: value}, allow_unicode=True))
    one_line = yaml.safe_dump([value], default_flow_style=True, width=10_000).strip()
    return f"{name}:   {one_line[1:-1]}   # kept\n"


def _typed(raw: dict[str, Any]) -> str:
    return json.dumps(raw, sort_keys=True)


class TestSave:
    def _file(self, tmp_path: Path, text: str, mode: int = 0o644) -> Path:
        file = tmp_path / "skulk.yaml"
        file.write_text(text)
        file.chmod(mode)
        return file

    def test_write_keeps_the_version_before(self, tmp_path: Path) -> None:
        file = self._file(tmp_path, "# mine\ntracing: {enabled: true}\n", 0o640)
        changed = update_config(file, lambda raw: set_key(raw, "node.name", "kite"))
        assert changed == {"node"}
        assert file.read_text() == "# mine\ntracing: {enabled: true}\nnode:\n  name: kite\n"
        backup = tmp_path / "skulk.yaml.bak"
        assert backup.read_text() == "# mine\ntracing: {enabled: true}\n"
        assert (_mode(file), _mode(backup)) == (0o640, 0o640)

    def test_file_with_a_secret_becomes_private_with_its_backup(self, tmp_path: Path) -> None:
        file = self._file(tmp_path, "hf_token: hf_abc\n")
        update_config(file, lambda raw: set_key(raw, "node.name", "kite"))
        assert (_mode(file), _mode(tmp_path / "skulk.yaml.bak")) == (0o600, 0o600)
        update_config(file, lambda raw: unset_key(raw, "hf_token"))
        assert (_mode(file), _mode(tmp_path / "skulk.yaml.bak")) == (0o600, 0o600)

    def test_secret_added_makes_the_file_private(self, tmp_path: Path) -> None:
        file = self._file(tmp_path, "node: {name: a}\n")
        update_config(file, lambda raw: set_key(raw, "cluster.secret", SECRET))
        assert _mode(file) == 0o600

    def test_missing_file_and_directory_are_created(self, tmp_path: Path) -> None:
        file = tmp_path / "new" / "skulk.yaml"
        assert update_config(file, lambda raw: set_key(raw, "hf_token", "hf_a")) == {"hf_token"}
        assert (file.read_text(), _mode(file), _mode(file.parent)) == (
            "hf_token: hf_a\n",
            0o600,
            0o700,
        )
        assert not (tmp_path / "new" / "skulk.yaml.bak").exists()

    def test_no_change_writes_nothing(self, tmp_path: Path) -> None:
        file = self._file(tmp_path, "tracing:  {enabled: true}\n")
        before = file.stat()
        assert update_config(file, lambda raw: raw) == frozenset()
        assert (file.stat().st_ino, file.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)

    def test_invalid_data_writes_nothing(self, tmp_path: Path) -> None:
        file = self._file(tmp_path, "node: {name: a}\n")
        with pytest.raises(SettingsError, match=r"api\.max_body_mib: must be at least 1"):
            update_config(file, lambda raw: set_key(raw, "api.max_body_mib", 0))
        assert file.read_text() == "node: {name: a}\n"
        assert not (tmp_path / "skulk.yaml.bak").exists()

    def test_change_by_somebody_else_in_between_is_refused(self, tmp_path: Path) -> None:
        file = self._file(tmp_path, "node: {name: a}\n")
        before = read_document(file)
        write_atomic(file, b"node: {name: b}\n")
        with pytest.raises(SettingsError, match="somebody else changed the file; try again"):
            save_config(file, before, {"node": {"name": "c"}})
        assert file.read_text() == "node: {name: b}\n"

    def test_file_that_is_not_yaml_is_left_alone(self, tmp_path: Path) -> None:
        file = self._file(tmp_path, "node: {name: a\n")
        with pytest.raises(SettingsError, match="not valid YAML"):
            update_config(file, lambda raw: set_key(raw, "node.name", "b"))
        assert file.read_text() == "node: {name: a\n"

    def test_full_disk_keeps_the_file(self, tmp_path: Path) -> None:
        with tmpfs(tmp_path / "small", "size=64k") as disk:
            file = self._file(disk, "node: {name: a}\n")
            peers = ["x" * 1000] * 100
            with pytest.raises(OSError, match="No space left on device"):
                update_config(
                    file,
                    lambda raw: {**raw, "connectivity": {"tailscale": {"bootstrap_peers": peers}}},
                )
            assert file.read_text() == "node: {name: a}\n"

    def test_read_only_disk_keeps_the_file_and_names_it(self, tmp_path: Path) -> None:
        with tmpfs(tmp_path / "fixed", "size=64k") as disk:
            file = self._file(disk, "node: {name: a}\n")
            subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
            with pytest.raises(OSError, match="Read-only") as caught:
                update_config(file, lambda raw: set_key(raw, "node.name", "b"))
            assert str(caught.value.filename).startswith(str(file))
            assert file.read_text() == "node: {name: a}\n"


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)
