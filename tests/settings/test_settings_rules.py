"""The rules for single values: what is accepted, and the one message for what is not."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skulkd.settings.check import check_raw
from skulkd.settings.edit import set_key
from skulkd.settings.load import check_config_text
from skulkd.settings.problems import SettingsError
from skulkd.settings.schema import Key, find, join_key, schema_keys, split_key
from skulkd.wire.config import SkulkConfig, parse_listen

STORE = {"store_host": "kite1", "store_path": "/srv/models"}
SECRET = "correct-horse-battery"


def _with(key: str, value: object) -> SkulkConfig:
    base: dict[str, Any] = {"model_store": dict(STORE)} if key.startswith("model_store") else {}
    return check_raw(set_key(base, key, value))


def _refusal(key: str, value: object) -> str:
    with pytest.raises(SettingsError) as caught:
        _with(key, value)
    (problem,) = caught.value.problems
    assert problem.key is not None
    assert problem.key.startswith(key)
    return problem.message


ACCEPTED = [
    ("model_store.store_path", "relative/path"),
    ("model_store.staging.staging_keep_recent_gb", 40),
    ("model_store.staging.staging_keep_recent_gb", 0),
    ("model_store.staging.staging_keep_recent_gb", 0.5),
    ("model_store.store_port", 1),
    ("model_store.store_port", 65535),
    ("model_store.store_http_host", None),
    ("model_store.node_overrides", {"n1": {}}),
    ("model_store.node_overrides", {"n1": {"staging": None}}),
    ("tracing.retention_days", -5),
    ("tracing.retention_days", 0),
    ("inference.kv_cache_backend", "turboquant_adaptive"),
    ("runtime.blas", "off"),
    ("runtime.blas", "bundled"),
    ("runtime.dequantize", "on"),
    ("runtime.dequantize", "off"),
    ("runtime.blas", "system"),
    ("runtime.blas", "/usr/lib/my libs/libopenblas.so.0"),
    ("logging.ingest_url", ""),
    ("logging.ingest_url", "http://logs.lan:9428/insert/jsonline?_stream_fields=a"),
    ("connectivity.tailscale.bootstrap_peers", ["/ip4/10.0.0.5/tcp/52416"]),
    ("hf_token", "hf_abc"),
    ("cluster.secret", SECRET),
    ("node.name", "Kite eins"),
    ("api.listen", "127.0.0.1:0"),
    ("api.listen", "[::1]:52415"),
    ("api.listen", "[fe80::1%en0]:52415"),
    ("api.listen", "kite3.lan:52415"),
    ("api.cors_origins", ["http://localhost:5173", "https://a.example", "http://[::1]:8080"]),
    ("api.max_body_mib", 1024),
]


@pytest.mark.parametrize(("key", "value"), ACCEPTED)
def test_possible_value_is_accepted(key: str, value: object) -> None:
    config: Any = _with(key, value)
    for part in split_key(key):
        config = getattr(config, part)
    if not isinstance(value, dict):
        assert config == value


REFUSED = [
    ("model_store.enabled", "yes", "must be true or false without quotes"),
    ("model_store.enabled", 1, "must be true or false"),
    ("model_store.store_host", "", "must not be empty"),
    ("model_store.store_host", None, "must be text; put it in quotes"),
    ("model_store.store_port", "58080", "must be a whole number without quotes"),
    ("model_store.store_port", True, "must be a whole number"),
    ("model_store.store_port", 58080.0, "must be a whole number"),
    ("model_store.store_port", 0, "must be at least 1"),
    ("model_store.store_port", 65536, "must be at most 65535"),
    ("model_store.store_path", 7, "must be text; put it in quotes"),
    ("model_store.store_path", "a\0b", "must not contain control characters"),
    ("model_store.store_path", "\ud800", "must be valid Unicode text"),
    ("model_store.staging", None, "must be a section with keys of its own"),
    ("model_store.staging.staging_keep_recent_gb", -1, "must be at least 0"),
    ("model_store.staging.staging_keep_recent_gb", "40", "must be a number without quotes"),
    ("model_store.staging.staging_keep_recent_gb", True, "must be a number"),
    ("model_store.staging.staging_keep_recent_gb", float("nan"), "must be a finite number"),
    ("model_store.staging.staging_keep_recent_gb", float("inf"), "must be a finite number"),
    ("model_store.staging.staging_keep_recent_gb", 1e300, "must be at most 1073741824"),
    ("model_store.node_overrides", {"n1": None}, "must be a section with keys of its own"),
    ("model_store.node_overrides", [], "must be a section with keys of its own"),
    ("model_store.node_overrides", {"a/b": {}}, "must not contain slashes"),
    ("tracing.retention_days", 1.0, "must be a whole number"),
    ("tracing.retention_days", 10**9, "must be at most 36500"),
    (
        "inference.kv_cache_backend",
        "turbo",
        "must be one of default, mlx_quantized, turboquant, turboquant_adaptive, optiq",
    ),
    (
        "logging.ingest_url",
        "logs.lan:9428",
        "must be empty or a URL that begins with http:// or https://",
    ),
    (
        "logging.ingest_url",
        "http://[::1/x",
        "must be empty or a URL that begins with http:// or https://",
    ),
    (
        "logging.ingest_url",
        "http://me:hunter2@logs.lan/insert",
        "must not hold a user name or password; give them to the log shipper",
    ),
    ("runtime.dequantize", "yes", "must be one of auto, on, off"),
    (
        "runtime.blas",
        "libopenblas.so",
        "must be auto, bundled, system, off, or a library's absolute path",
    ),
    ("connectivity.tailscale.bootstrap_peers", "a,b", "must be a list"),
    ("connectivity.tailscale.bootstrap_peers", [""], "must not be empty"),
    ("hf_token", "hf abc", "must be visible ASCII characters without spaces"),
    ("cluster.secret", "short", "must have at least 16 characters, has 5"),
    ("cluster.secret", "s" * 1025, "must have at most 1024 characters"),
    ("cluster.secret", "sechzehn Zeichen!", "must be visible ASCII characters without spaces"),
    ("cluster.namespace", " ", "must not be empty"),
    ("node.name", "a/b", "must not contain slashes"),
    ("node.name", "a\\b", "must not contain slashes"),
    ("node.name", " kite", "must not begin or end with a space"),
    ("node.name", "a\x1b[31m", "must not contain control characters"),
    ("node.name", "a\x85b", "must not contain control characters"),
    ("api.max_body_mib", 0, "must be at least 1"),
    ("api.max_body_mib", 1025, "must be at most 1024"),
    ("api.cors_origins", [1], "must be text; put it in quotes"),
    ("api", [], "must be a section with keys of its own"),
]


@pytest.mark.parametrize(("key", "value", "message"), REFUSED, ids=ascii)
def test_impossible_value_is_refused_with_one_message(
    key: str, value: object, message: str
) -> None:
    assert _refusal(key, value) == message


def test_number_too_long_to_print_is_refused() -> None:
    assert _refusal("model_store.store_port", 1 << 70000) == "must be at most 65535"


LISTEN_REFUSED = [
    ("52415", "must be HOST:PORT"),
    (":52415", "0.0.0.0:52415 listens on every interface"),
    ("127.0.0.1:", "must end in a port from 0 to 65535"),
    ("127.0.0.1:65536", "must end in a port from 0 to 65535"),
    ("127.0.0.1:-1", "must end in a port from 0 to 65535"),
    ("127.0.0.1:٣", "must end in a port from 0 to 65535"),
    ("127.0.0.1:1_0", "must end in a port from 0 to 65535"),
    ("::1:52415", "must write an IPv6 address in brackets"),
    ("[::1]", "must"),
    ("[kite3]:1", "must hold an IPv6 address between the brackets"),
    ("256.1.1.1:1", "must begin with an IP address or a host name"),
    ("1.2.3:1", "must begin with an IP address or a host name"),
    ("http://kite3:1", "must"),
    ("kite 3:1", "must begin with an IP address or a host name"),
    ("-kite3:1", "must begin with an IP address or a host name"),
    ("*:1", "must begin with an IP address or a host name"),
]


@pytest.mark.parametrize(("value", "message"), LISTEN_REFUSED)
def test_impossible_address_is_refused(value: str, message: str) -> None:
    assert message in _refusal("api.listen", value)


@pytest.mark.parametrize(
    ("text", "parts"),
    [("[::1]:0", ("::1", 0)), ("kite3:65535", ("kite3", 65535)), ("0.0.0.0:1", ("0.0.0.0", 1))],
)
def test_address_is_split_into_host_and_port(text: str, parts: tuple[str, int]) -> None:
    assert parse_listen(text) == parts


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("*", "must name each origin"),
        ("null", "must be an origin"),
        ("https://a.example/", "must be written as https://a.example"),
        ("https://A.example", "must be written as https://a.example"),
        ("http://a.example:80", "must be written as http://a.example"),
        ("https://a.example/x?y", "must be written as https://a.example"),
        ("https://me@a.example", "must be an origin"),
        ("https://a.example:99999", "must be an origin"),
        ("ftp://a.example", "must be an origin"),
        ("http://[::1", "must be an origin"),
    ],
)
def test_origin_no_browser_would_send_is_refused(value: str, message: str) -> None:
    assert message in _refusal("api.cors_origins", [value])


def test_yaml_boolean_word_is_true_but_quoted_one_is_refused() -> None:
    text = "model_store: {{store_host: a, store_path: b, enabled: {}}}"
    config = check_config_text(text.format("yes"), "skulk.yaml")
    assert config.model_store is not None
    assert config.model_store.enabled is True
    with pytest.raises(SettingsError, match="must be true or false without quotes"):
        check_config_text(text.format("'yes'"), "skulk.yaml")


@pytest.mark.parametrize("section", ["node", "api", "cluster", "inference", "logging", "tracing"])
def test_null_section_means_its_defaults(section: str) -> None:
    assert check_raw({section: None}) == SkulkConfig()


def test_absent_store_and_connectivity_are_off() -> None:
    config = check_raw({})
    assert config.model_store is None
    assert config.connectivity is None
    present = check_raw({"connectivity": {}})
    assert present.connectivity is not None
    assert present.connectivity.tailscale.enabled is True


def test_defaults_are_those_of_the_contract() -> None:
    defaults = {key.name: key.default for key in schema_keys() if not key.required}
    assert defaults == {
        "node.name": None,
        "api.listen": "127.0.0.1:52415",
        "api.token_on_loopback": False,
        "api.secret_for_operators": True,
        "api.cors_origins": [],
        "api.max_body_mib": 8,
        "api.tls.enabled": True,
        "api.tls.certificate": None,
        "api.tls.key": None,
        "api.tls.authority": None,
        "api.tls.minimum_version": "1.2",
        "api.tls.names": [],
        "cluster.secret": None,
        "cluster.namespace": None,
        "cluster.listen": None,
        "cluster.peers": [],
        "cluster.multicast": True,
        "cluster.on_node_loss": "replace",
        "model_store.enabled": True,
        "model_store.store_http_host": None,
        "model_store.store_port": 58080,
        "model_store.download.allow_hf_fallback": True,
        "model_store.staging.enabled": True,
        "model_store.staging.node_cache_path": "~/.skulk/staging",
        "model_store.staging.cleanup_on_deactivate": True,
        "model_store.staging.staging_keep_recent_gb": 40.0,
        "model_store.node_overrides.<node>.staging.enabled": None,
        "model_store.node_overrides.<node>.staging.node_cache_path": None,
        "model_store.node_overrides.<node>.staging.cleanup_on_deactivate": None,
        "model_store.node_overrides.<node>.staging.staging_keep_recent_gb": None,
        "inference.kv_cache_backend": "default",
        "runtime.blas": "auto",
        "runtime.dequantize": "auto",
        "runtime.cores": 0,
        "runtime.max_concurrent_requests": 8,
        "runtime.queue": 128,
        "runtime.max_output_tokens": 4096,
        "runtime.prefix_cache_mib": 1024,
        "runtime.prefix_routing": True,
        "runtime.warmup_deadline_seconds": 300.0,
        "runtime.group_connect_deadline_seconds": 120.0,
        "event_log.enabled": True,
        "event_log.ring_mib": 256,
        "event_log.keep_events": 20_000,
        "event_log.archives": 5,
        "event_log.archives_mib": 1024,
        "event_log.floor_mib": 2048,
        "logging.enabled": False,
        "logging.ingest_url": "",
        "logging.file": True,
        "logging.file_mib": 16,
        "logging.files": 5,
        "tracing.enabled": False,
        "tracing.retention_days": 3,
        "models.on_demand": False,
        "models.idle_ttl": "5m",
        "swarm.generic_runners": [],
        "connectivity.tailscale.enabled": True,
        "connectivity.tailscale.bootstrap_peers": [],
        "hf_token": None,
    }
    required = {key.name for key in schema_keys() if key.required}
    tls = {f"cluster.tls.{name}" for name in ("certificate", "key", "authority")}
    assert required == {"model_store.store_host", "model_store.store_path", *tls}


def test_every_key_has_a_description_and_is_found_again() -> None:
    for key in schema_keys():
        assert key.description, key.name
        assert find(split_key(key.name)) == key


def test_only_the_two_secrets_are_secret() -> None:
    assert [key.name for key in schema_keys() if key.secret] == ["cluster.secret", "hf_token"]


def test_secrets_are_not_in_the_repr() -> None:
    config = check_raw({"hf_token": "hf_abcdef", "cluster": {"secret": SECRET}})
    assert SECRET not in repr(config)
    assert "hf_abcdef" not in repr(config)


def test_name_with_dots_survives_the_dotted_form() -> None:
    path = ("model_store", "node_overrides", "kite3.lan", "staging", "enabled")
    text = 'model_store.node_overrides."kite3.lan".staging.enabled'
    assert join_key(path) == text
    assert split_key(text) == path
    assert isinstance(find(path), Key)


@pytest.mark.parametrize("name", ["", ".", "a.", ".a", "a..b", '"a', 'a."b"c'])
def test_broken_dotted_key_is_refused(name: str) -> None:
    with pytest.raises(SettingsError, match="not a key"):
        split_key(name)


_word = st.sampled_from(
    sorted({part for key in schema_keys() for part in key.path} | {"a\nb", "\ud800", "", "x" * 999})
)
_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_word, inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(_word, _json, max_size=4))
@settings(max_examples=300, deadline=None)
def test_any_data_is_a_config_or_problems_of_one_line(raw: dict[str, Any]) -> None:
    try:
        check_raw(raw)
    except SettingsError as error:
        assert error.problems
        for problem in error.problems:
            line = problem.render()
            assert line.isprintable()
            assert len(line) < 600


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("192.168.1.6:52416", "192.168.1.6:52416"),
        ("kite1.lan:7", "kite1.lan:7"),
        ("[fe80::1]:52416", "[fe80::1]:52416"),
        ("/ip4/192.168.1.6/tcp/52416", "192.168.1.6:52416"),
        ("/ip6/fe80::1/tcp/52416/p2p/12D3Koo", "[fe80::1]:52416"),
    ],
)
def test_peers_may_be_written_in_both_ways(text: str, meant: str) -> None:
    assert SkulkConfig.model_validate({"cluster": {"peers": [text]}}).cluster.peers == [meant]


@pytest.mark.parametrize("text", ["kite1", "kite1:0", ":52416", "/ip4/1.2.3.4/udp/9"])
def test_a_peer_needs_host_and_port(text: str) -> None:
    with pytest.raises(ValueError, match="must"):
        SkulkConfig.model_validate({"cluster": {"peers": [text]}})
