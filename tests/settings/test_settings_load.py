"""Flag over environment over file over default, with origins, and every problem in one error."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from skulkd.settings.edit import set_key
from skulkd.settings.load import Settings, check_config_text, load_settings
from skulkd.settings.paths import Paths, find_paths
from skulkd.settings.problems import Problem, SettingsError, nearest, printable, shown
from skulkd.settings.sources import ENVIRONMENT

SECRET = "correct-horse-battery"


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    (tmp_path / "home").mkdir()
    (tmp_path / "cwd").mkdir()
    return find_paths({"SKULK_HOME": str(tmp_path / "home")})


def _load(paths: Paths, environ: Mapping[str, str] | None = None, **more: Any) -> Settings:
    more.setdefault("cwd", paths.config.parent / "cwd")
    return load_settings(paths, environ or {}, hostname="kite3.lan", **more)


def _problems(paths: Paths, environ: Mapping[str, str] | None = None, **more: Any) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        _load(paths, environ, **more)
    return [problem.render() for problem in caught.value.problems]


def test_nothing_configured_gives_defaults(paths: Paths) -> None:
    loaded = _load(paths)
    assert (loaded.file, loaded.file_exists, loaded.raw) == (paths.config_file, False, {})
    assert loaded.config.api.listen == "127.0.0.1:52415"
    assert loaded.node_name == "kite3.lan"
    assert {origin.kind for origin in loaded.origins.values()} == {"default"}
    assert dict(loaded.values()).keys() == loaded.origins.keys()


def test_origins_name_line_variable_flag_or_default(paths: Paths) -> None:
    paths.config_file.write_text(
        "# lab\napi:\n  listen: 127.0.0.1:1\n  max_body_mib: 4\nnode: {name: a}\n"
        "model_store:\n  store_host: kite1\n  store_path: /s\n"
        "  node_overrides:\n    kite3.lan:\n      staging:\n        enabled: no\n"
    )
    loaded = _load(
        paths,
        {"SKULK_API_LISTEN": "127.0.0.1:2", "SKULK_NODE_NAME": "b", "HF_TOKEN": "hf_x"},
        flags={"node.name": "c", "api.listen": None},
    )
    file = str(paths.config_file)
    origins = {key: (origin.kind, origin.text) for key, origin in loaded.origins.items()}
    expected = {
        "api.listen": ("env", "SKULK_API_LISTEN"),
        "api.max_body_mib": ("file", f"{file}:4"),
        "api.token_on_loopback": ("default", "default"),
        "node.name": ("flag", "--name"),
        "hf_token": ("env", "HF_TOKEN"),
        "model_store.store_host": ("file", f"{file}:7"),
        "model_store.staging.enabled": ("default", "default"),
        "model_store.staging.node_cache_path": ("env", "SKULK_HOME"),
        'model_store.node_overrides."kite3.lan".staging.enabled': ("file", f"{file}:12"),
        "connectivity": ("default", "default"),
    }
    assert {key: origins[key] for key in expected} == expected
    assert loaded.node_name == "c"
    values = dict(loaded.values())
    assert values["api.listen"] == "127.0.0.1:2"
    assert values["model_store.staging.node_cache_path"] == str(paths.staging)
    assert loaded.raw["node"] == {"name": "a"}


CANDIDATES: dict[str, list[tuple[str, object]]] = {
    "api.listen": [("kite1:1", "kite1:1"), ("kite2:2", "kite2:2"), ("kite3:3", "kite3:3")],
    "node.name": [("a", "a"), ("yes", "yes"), ("12", "12")],
    "tracing.enabled": [("on", True), ("0", False), ("TRUE", True), ("no", False)],
    "logging.enabled": [("1", True), ("off", False)],
    "inference.kv_cache_backend": [("optiq", "optiq"), ("turboquant", "turboquant")],
    "cluster.secret": [(SECRET, SECRET), ("x" * 16, "x" * 16)],
    "hf_token": [("hf_a", "hf_a"), ("hf_b", "hf_b")],
}
VARIABLES = {key: variable for variable, key in ENVIRONMENT.items()}


@st.composite
def _choices(draw: st.DrawFn) -> dict[str, dict[str, tuple[str, object]]]:
    return {
        key: {
            source: draw(st.sampled_from(values))
            for source in ("flag", "env", "file")
            if draw(st.booleans())
        }
        for key, values in CANDIDATES.items()
    }


@given(_choices())
@settings(max_examples=60, deadline=None)
def test_first_source_in_order_decides(
    tmp_path_factory: pytest.TempPathFactory, choices: dict[str, dict[str, tuple[str, object]]]
) -> None:
    home = tmp_path_factory.mktemp("home")
    raw: dict[str, Any] = {}
    for key, sources in choices.items():
        if "file" in sources:
            raw = set_key(raw, key, sources["file"][1])
    (home / "skulk.yaml").write_text(yaml.safe_dump(raw))
    environ = {VARIABLES[key]: by["env"][0] for key, by in choices.items() if "env" in by}
    flags = {key: by["flag"][0] for key, by in choices.items() if "flag" in by}
    loaded = load_settings(find_paths({"SKULK_HOME": str(home)}), environ, flags, cwd=home)
    values = dict(loaded.values())
    for key, by in choices.items():
        winner = next((source for source in ("flag", "env", "file") if source in by), "default")
        assert loaded.origins[key].kind == winner
        if winner != "default":
            assert values[key] == by[winner][1]


def test_every_problem_of_the_file_is_one_line_with_its_place() -> None:
    text = (
        "model_store:\n"
        "  store_prt: 58080\n"
        "  store_path: 7\n"
        "inference: {kv_cache_backend: turbo_quant}\n"
        "hf_tokn: hf_1234\n"
        "cluster:\n  secret: short\n  sceret: long-enough-to-be-one\n"
        "listen: kite3:1\n"
        "api: {cors_origins: [http://a, 'http://a/']}\n"
        "loging: {enabled: true}\n"
    )
    with pytest.raises(SettingsError) as caught:
        check_config_text(text, "skulk.yaml")
    assert str(caught.value).splitlines() == [
        "skulk.yaml:1: model_store.store_host: this key is required",
        "skulk.yaml:2: model_store.store_prt: unknown key (value 58080); did you mean store_port?",
        "skulk.yaml:3: model_store.store_path: must be text; put it in quotes (value 7)",
        "skulk.yaml:4: inference.kv_cache_backend: must be one of default, mlx_quantized, "
        "turboquant, turboquant_adaptive, optiq (value turbo_quant); did you mean turboquant?",
        "skulk.yaml:5: hf_tokn: unknown key; did you mean hf_token?",
        "skulk.yaml:7: cluster.secret: must have at least 16 characters, has 5",
        "skulk.yaml:8: cluster.sceret: unknown key; did you mean secret?",
        "skulk.yaml:9: listen: unknown key (value kite3:1); did you mean api.listen?",
        'skulk.yaml:10: api.cors_origins[1]: must be written as http://a (value "http://a/")',
        "skulk.yaml:11: loging: unknown key; did you mean logging?",
    ]


def test_problems_of_all_sources_come_together(paths: Paths) -> None:
    paths.config_file.write_text("trcing: {}\n")
    environ = {
        "SKULK_TRACING_ENABLED": "maybe",
        "SKULK_CLUSTER_SECRET": "hush",
        "SKULK_KV_CACHE_BACKEND": "turboqant",
        "SKULK_LIBP2P_NAMESPACE": "a\udcff",
    }
    assert _problems(paths, environ, flags={"api.listen": "nowhere", "node.name": "a/b"}) == [
        f"{paths.config_file}:1: trcing: unknown key (value {{}}); did you mean tracing?",
        "SKULK_TRACING_ENABLED: tracing.enabled: "
        'must be true or false (also yes, no, on, off, 1, 0) (value "maybe")',
        '--name: node.name: must not contain slashes (value "a/b")',
        '--listen: api.listen: must be HOST:PORT, for example 127.0.0.1:52415 (value "nowhere")',
        "SKULK_CLUSTER_SECRET: cluster.secret: must have at least 16 characters, has 4",
        r'SKULK_LIBP2P_NAMESPACE: cluster.namespace: must be valid Unicode text (value "a\udcff")',
        "SKULK_KV_CACHE_BACKEND: inference.kv_cache_backend: must be one of default, "
        "mlx_quantized, turboquant, turboquant_adaptive, optiq "
        '(value "turboqant"); did you mean turboquant?',
    ]


def test_empty_variable_counts_as_not_set(paths: Paths) -> None:
    loaded = _load(paths, dict.fromkeys(ENVIRONMENT, ""))
    assert {origin.kind for origin in loaded.origins.values()} == {"default"}


def test_file_that_is_not_yaml_still_shows_the_other_problems(paths: Paths) -> None:
    paths.config_file.write_bytes(b"api:\n\tlisten: x\n")
    assert _problems(paths, {"SKULK_API_LISTEN": "x"}) == [
        f"{paths.config_file}:2: tab used for indentation; use spaces",
        'SKULK_API_LISTEN: api.listen: must be HOST:PORT, for example 127.0.0.1:52415 (value "x")',
    ]


def test_section_set_to_null_in_the_file_takes_the_variable(paths: Paths) -> None:
    paths.config_file.write_text("api:\ntracing: null\n")
    loaded = _load(paths, {"SKULK_API_LISTEN": "kite1:1"})
    assert loaded.config.api.listen == "kite1:1"


def test_staging_named_in_the_file_is_not_moved(paths: Paths) -> None:
    paths.config_file.write_text(
        "model_store: {store_host: a, store_path: b, staging: {node_cache_path: /n}}\n"
    )
    store = _load(paths).config.model_store
    assert store is not None
    assert store.staging.node_cache_path == "/n"


def test_home_not_moved_keeps_the_reference_staging(tmp_path: Path) -> None:
    (tmp_path / "skulk.yaml").write_text("model_store: {store_host: a, store_path: b}\n")
    plain = find_paths({"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)})
    store = load_settings(plain, {}, cwd=tmp_path).config.model_store
    assert store is not None
    assert store.staging.node_cache_path == "~/.skulk/staging"


class TestWhichFile:
    def test_flag_wins_over_variable_and_places(self, paths: Paths, tmp_path: Path) -> None:
        for name, listen in [("flag.yaml", 1), ("variable.yaml", 2), ("cwd/skulk.yaml", 3)]:
            (tmp_path / name).write_text(f"api: {{listen: 'kite1:{listen}'}}\n")
        paths.config_file.write_text("api: {listen: 'kite1:4'}\n")
        environ = {"SKULK_CONFIG": str(tmp_path / "variable.yaml")}
        by_flag = _load(paths, environ, config_file=tmp_path / "flag.yaml")
        assert by_flag.config.api.listen == "kite1:1"
        assert _load(paths, environ).config.api.listen == "kite1:2"
        assert _load(paths).config.api.listen == "kite1:3"
        (tmp_path / "cwd" / "skulk.yaml").unlink()
        assert _load(paths).config.api.listen == "kite1:4"

    def test_named_file_that_is_missing_is_refused(self, paths: Paths, tmp_path: Path) -> None:
        missing = tmp_path / "no.yaml"
        assert _problems(paths, config_file=missing) == [f"--config: {missing} does not exist"]
        assert _problems(paths, {"SKULK_CONFIG": str(missing)}) == [
            f"SKULK_CONFIG: {missing} does not exist"
        ]

    @pytest.mark.parametrize("place", ["cwd", "home"])
    def test_only_the_old_name_asks_for_a_rename(
        self, paths: Paths, tmp_path: Path, place: str
    ) -> None:
        legacy = tmp_path / place / "exo.yaml"
        legacy.write_text("{}")
        assert _problems(paths) == [
            f"{legacy}: this name is no longer read; rename the file to skulk.yaml"
        ]
        paths.config_file.write_text("")
        assert _load(paths).file_exists

    def test_link_that_leads_nowhere_is_refused(self, paths: Paths) -> None:
        paths.config_file.symlink_to("nowhere")
        assert _problems(paths) == [
            f"{paths.config_file}: cannot be read: No such file or directory"
        ]

    def test_directory_in_place_of_the_file_is_refused(self, paths: Paths) -> None:
        paths.config_file.mkdir()
        assert _problems(paths) == [f"{paths.config_file}: cannot be read: Is a directory"]

    def test_endless_file_is_refused_without_reading_it_all(self, paths: Paths) -> None:
        assert _problems(paths, config_file=Path("/dev/zero")) == [
            "/dev/zero: too big: the limit is 1 MiB"
        ]

    def test_no_device_means_no_settings(self, paths: Paths) -> None:
        assert _load(paths, config_file=Path(os.devnull)).raw == {}


def test_secrets_stay_out_of_the_repr_of_settings(paths: Paths) -> None:
    paths.config_file.write_text(f"hf_token: hf_1234\ncluster: {{secret: {SECRET}}}\n")
    text = repr(_load(paths))
    assert "hf_1234" not in text
    assert SECRET not in text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (False, "false"),
        (1.5, "1.5"),
        ({}, "{}"),
        ([], "[]"),
        ([1], "a list"),
        ({"a": 1}, "a mapping"),
        ("a\x1b[2J\n\u202e", r'"a\x1b[2J\n\u202e"'),
        (1 << 70000, "a number of more than 77 digits"),
        ("x" * 500, '"' + "x" * 78 + "…"),
    ],
    ids=range(10),
)
def test_value_is_shown_short_and_harmless(value: object, text: str) -> None:
    assert shown(value) == text


def test_problem_without_a_place_is_only_its_message() -> None:
    assert Problem("no").render() == "no"
    assert Problem("no", key="a.b", source="f", line=3, value="1").render() == (
        "f:3: a.b: no (value 1)"
    )
    assert printable("") == ""
    assert nearest("STORE_PRT", ["store_port", "store_path"]) == "store_port"
    assert nearest("zzz", ["store_port"]) is None


def test_password_in_a_url_is_refused_without_being_shown() -> None:
    with pytest.raises(SettingsError) as caught:
        check_config_text("logging: {ingest_url: 'http://me:hunter2@logs.lan/x'}", "skulk.yaml")
    assert "skulk.yaml:1: logging.ingest_url: must not hold" in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_endless_problems_are_counted_and_not_all_printed() -> None:
    junk = "\n".join(f"key{number}: 1" for number in range(200))
    with pytest.raises(SettingsError) as caught:
        check_config_text(junk, "skulk.yaml")
    assert len(caught.value.problems) == 200
    assert str(caught.value).splitlines()[-1] == "and 150 more problems"


@pytest.mark.parametrize("text", ["runtime: {blas: off}", "runtime: {blas: 'off'}"])
def test_off_means_off_with_and_without_quotes(text: str) -> None:
    assert check_config_text(text, "skulk.yaml").runtime.blas == "off"


@pytest.mark.parametrize("value", ["on", "off", "auto", "'on'"])
def test_on_and_off_are_no_booleans_of_yaml(value: str) -> None:
    runtime = check_config_text(f"runtime: {{dequantize: {value}}}", "skulk.yaml").runtime
    assert runtime.dequantize == value.strip("'")
