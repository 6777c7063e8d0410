"""Addresses, the context file, and whom an invocation talks to."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skulkctl.contexts import (
    Context,
    ContextFile,
    Target,
    parse_contexts,
    read_contexts,
    resolve,
    to_toml,
    write_contexts,
)
from skulkctl.endpoints import is_loopback, is_own_network, parse_endpoint, start_command
from skulkctl.errors import CliError, NotFound, UsageMistake
from skulkd.settings.paths import Paths, find_paths
from tests.cli.conftest import Cli


@pytest.fixture
def paths(home: Path) -> Paths:
    return find_paths({"SKULK_HOME": str(home), "HOME": str(home)})


@pytest.mark.parametrize(
    ("typed", "url"),
    [
        ("kite1", "http://kite1:52415"),
        ("kite1:80", "http://kite1:80"),
        ("http://kite1", "http://kite1:52415"),
        ("https://kite1", "https://kite1"),
        ("https://kite1:8443/skulk/", "https://kite1:8443/skulk"),
        ("::1", "http://[::1]:52415"),
        ("[::1]:80", "http://[::1]:80"),
        (" HTTP://Kite1:81 ", "http://kite1:81"),
    ],
)
def test_an_address_may_be_typed_short(typed: str, url: str) -> None:
    assert parse_endpoint(typed) == url
    assert parse_endpoint(url) == url


@pytest.mark.parametrize(
    ("typed", "url"),
    [
        ("kite1", "https://kite1:52415"),
        ("kite1:80", "https://kite1:80"),
        ("::1", "https://[::1]:52415"),
        ("https://kite1", "https://kite1"),
        ("http://kite1", "http://kite1:52415"),
    ],
)
def test_a_short_address_with_an_authority_is_one_of_https(typed: str, url: str) -> None:
    assert parse_endpoint(typed, secure=True) == url


@pytest.mark.parametrize(
    "typed",
    ["", "http://", "ftp://kite1", "kite1:port", "kite1:99999", "kite1:0", "a b", "http://u:p@k",
     "http://k/?q=1", "http://[::1"],
)  # fmt: skip
def test_what_is_not_an_address_is_refused_in_a_sentence(typed: str) -> None:
    with pytest.raises(ValueError, match="address"):
        parse_endpoint(typed)


def test_a_password_in_an_address_is_not_repeated() -> None:
    with pytest.raises(ValueError, match="no user, password") as raised:
        parse_endpoint("http://me:hunter2@kite1")
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize(
    ("endpoint", "command"),
    [
        ("http://127.0.0.1:52415", "skulkd run"),
        ("http://127.0.0.1:80", "skulkd run --listen 127.0.0.1:80"),
        ("http://[::1]:80", "skulkd run --listen [::1]:80"),
        ("http://localhost:80", "skulkd run --listen 127.0.0.1:80"),
        ("http://kite2:52415", "skulkd run --listen 0.0.0.0:52415   (on kite2)"),
    ],
)
def test_the_hint_starts_a_daemon_at_that_address(endpoint: str, command: str) -> None:
    assert start_command(endpoint) == command


@pytest.mark.parametrize(
    ("peer", "own"),
    [("192.168.1.5", True), ("100.100.1.1", True), ("fd00::1", True), ("::ffff:10.0.0.1", True),
     ("fe80::1%eth0", True), ("8.8.8.8", False), ("2606:4700::1", False), ("kite1", False),
     ("127.0.0.1", False), ("::1", False), ("::ffff:127.0.0.1", False)],
)  # fmt: skip
def test_the_local_secret_is_shown_only_to_other_machines_of_our_network(
    peer: str, own: bool
) -> None:
    assert is_own_network(peer) is own
    target = Target(Context("lab", ("http://kite1:1",)), local_secret="secret")
    assert target.token_for(peer) == ("secret" if own else None)
    assert target._replace(token="given").token_for(peer) == "given"


def test_loopback_is_told_by_its_spelling() -> None:
    assert is_loopback("http://localhost:1")
    assert is_loopback("http://127.9.9.9:1")
    assert is_loopback("http://[::1]:1")
    assert not is_loopback("http://kite1:1")


NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True)
PATHS = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=1)
CONTEXTS = st.builds(
    Context,
    name=NAMES,
    endpoints=st.lists(st.sampled_from(["http://a:1", "https://b", "http://[::1]:2"]), min_size=1)
    .map(tuple),
    token_file=st.none() | PATHS,
    protected=st.booleans(),
    ca=st.none() | PATHS,
)  # fmt: skip


@settings(deadline=None)
@given(st.lists(CONTEXTS, unique_by=lambda context: context.name), st.data())
def test_a_context_file_survives_writing_and_reading(
    contexts: list[Context], data: st.DataObject
) -> None:
    names = [context.name for context in contexts]
    current = data.draw(st.none() | st.sampled_from(names)) if names else None
    file = ContextFile(current, {context.name: context for context in contexts})
    assert parse_contexts(to_toml(file).encode(), Path("skulkctl.toml")) == file


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("current = \n", "is not valid TOML"),
        ('\ncurrnt = "lab"\n', "skulkctl.toml:2: unknown key currnt"),
        ('current = "lab"\n', "skulkctl.toml:1: current is 'lab'"),
        ("[contexts.lab]\n\nendpoint = ['a']\n", "skulkctl.toml:3: contexts.lab: unknown key"),
        ("[contexts.lab]\nendpoints = []\n", "skulkctl.toml:1: contexts.lab.endpoints must be"),
        ("[contexts.lab]\nendpoints = ['a:b']\n", "skulkctl.toml:2: contexts.lab.endpoints: 'a:b'"),
        (
            "[contexts.lab]\nendpoints = ['a']\nprotected = 1\n",
            "skulkctl.toml:3: contexts.lab.prot",
        ),
        ("[contexts]\nlab = 'x'\n", "skulkctl.toml:2: contexts.lab must be a table"),
        ("contexts = 3\n", "skulkctl.toml:1: contexts must be a table"),
    ],
)
def test_a_bad_context_file_is_named_with_its_line(home: Path, text: str, message: str) -> None:
    path = home / "skulkctl.toml"
    path.write_text(text)
    with pytest.raises(CliError) as raised:
        read_contexts(path)
    assert message in raised.value.what


def test_a_toml_error_says_where_it_is(home: Path) -> None:
    (home / "skulkctl.toml").write_text("a = 1\nb = =\n")
    with pytest.raises(CliError) as raised:
        read_contexts(home / "skulkctl.toml")
    assert "line 2" in " ".join(raised.value.why)


@pytest.mark.parametrize(
    ("endpoint", "context", "environ", "expected"),
    [
        (None, None, {}, ("lab", "http://lab:1")),
        (None, "other", {}, ("other", "http://other:1")),
        (None, None, {"SKULK_CONTEXT": "other"}, ("other", "http://other:1")),
        (None, "lab", {"SKULK_CONTEXT": "other"}, ("lab", "http://lab:1")),
        ("kite9", None, {"SKULK_CONTEXT": "other"}, ("-", "http://kite9:52415")),
        (None, None, {"SKULK_ENDPOINT": "kite8", "SKULK_CONTEXT": "other"},
         ("-", "http://kite8:52415")),
        (None, "lab", {"SKULK_ENDPOINT": "kite8"}, ("lab", "http://lab:1")),
        ("kite9", "other", {}, ("other", "http://kite9:52415")),
    ],
)  # fmt: skip
def test_flags_beat_the_environment_which_beats_the_current_context(
    paths: Paths,
    endpoint: str | None,
    context: str | None,
    environ: dict[str, str],
    expected: tuple[str, str],
) -> None:
    contexts = {name: Context(name, (f"http://{name}:1",)) for name in ("lab", "other")}
    write_contexts(paths.contexts_file, ContextFile("lab", contexts))
    chosen = resolve(paths, environ, endpoint, context).context
    assert (chosen.name, chosen.endpoints[0]) == expected


def test_without_any_context_the_local_daemon_is_asked(paths: Paths) -> None:
    chosen = resolve(paths, {}, None, None).context
    assert (chosen.name, chosen.endpoints) == ("default", ("http://127.0.0.1:52415",))


def test_an_unknown_context_is_not_found_and_the_nearest_is_named(paths: Paths) -> None:
    write_contexts(paths.contexts_file, ContextFile(None, {"lab": Context("lab", ("http://a:1",))}))
    with pytest.raises(NotFound) as raised:
        resolve(paths, {}, None, "lap")
    assert raised.value.hints[0] == "did you mean lab?"


def test_a_bad_endpoint_names_where_it_was_given(paths: Paths) -> None:
    with pytest.raises(UsageMistake, match="SKULK_ENDPOINT: "):
        resolve(paths, {"SKULK_ENDPOINT": "a:b"}, None, None)
    with pytest.raises(UsageMistake, match="--endpoint: "):
        resolve(paths, {}, "a:b", None)


def test_the_token_comes_from_the_environment_or_the_context_and_never_leaks_to_a_one_off(
    paths: Paths, home: Path
) -> None:
    (home / "lab.token").write_text("from-file\n")
    lab = Context("lab", ("http://lab:1",), token_file="~/lab.token")
    write_contexts(paths.contexts_file, ContextFile("lab", {"lab": lab}))
    environ = {"HOME": str(home)}
    assert resolve(paths, environ, None, None).token == "from-file"
    assert resolve(paths, environ | {"SKULK_TOKEN": "x"}, None, None).token == "x"
    assert resolve(paths, environ, "elsewhere", None).token is None


def test_an_unreadable_token_file_is_an_error_and_not_silence(paths: Paths) -> None:
    lab = Context("lab", ("http://lab:1",), token_file="/nowhere/token")
    write_contexts(paths.contexts_file, ContextFile("lab", {"lab": lab}))
    with pytest.raises(CliError, match="context lab: no token file /nowhere/token"):
        resolve(paths, {}, None, None)


def test_the_local_secret_is_offered_only_without_a_token(paths: Paths) -> None:
    paths.secret_file.write_text("local-secret\n")
    assert resolve(paths, {}, None, None).local_secret == "local-secret"
    assert resolve(paths, {"SKULK_TOKEN": "x"}, None, None).local_secret is None


@pytest.mark.parametrize(
    ("content", "code", "words"),
    [
        (None, 3, "no token file"),
        (b"", 4, "is empty"),
        (b" \n", 4, "is empty"),
        (b"\xff\xfe", 4, "is not a text file"),
        ("gehe\u00efm".encode(), 4, "characters that HTTP cannot carry"),
    ],
)
@pytest.mark.parametrize("command", [("add", "new", "kite1"), ("set", "lab")])
def test_a_token_file_is_checked_before_it_is_kept(
    cli: Cli, home: Path, command: tuple[str, ...], content: bytes | None, code: int, words: str
) -> None:
    cli("context", "add", "lab", "kite1")
    before = (home / "skulkctl.toml").read_text()
    path = home / "some.token"
    if content is not None:
        path.write_bytes(content)
    result = cli("context", *command, "--token-file", str(path))
    assert (result.code, result.out) == (code, "")
    assert words in result.err and str(path) in result.err
    assert (home / "skulkctl.toml").read_text() == before


def test_a_token_file_that_others_can_read_is_kept_with_a_warning(
    cli: Cli, home: Path, tmp_path: Path
) -> None:
    token = tmp_path / "lab.token"
    token.write_text("secret\n")
    token.chmod(0o644)
    result = cli("context", "add", "lab", "kite1", "--token-file", "lab.token")
    assert result.code == 0
    assert f"warning: other users can read {token} (mode 0644)" in result.err
    # It is found from every directory.
    assert read_contexts(home / "skulkctl.toml").get("lab").token_file == str(token)
    token.chmod(0o600)
    assert "warning" not in cli("context", "set", "lab", "--token-file", str(token)).err


def test_a_context_can_be_changed_one_thing_at_a_time(cli: Cli, home: Path) -> None:
    (home / "token").write_text("secret")
    (home / "token").chmod(0o600)
    cli("context", "add", "lab", "kite1", "--use")
    told = cli("context", "set", "lab", "kite2", "kite3:80", "--protected")
    assert told == (
        0,
        "",
        "note: lab: endpoints: http://kite1:52415 -> http://kite2:52415, http://kite3:80\n"
        "note: lab: protected: no -> yes\n",
    )
    assert cli("context", "set", "lab", "--token-file", "~/token").code == 0
    endpoints = ("http://kite2:52415", "http://kite3:80")
    file = read_contexts(home / "skulkctl.toml")
    assert (file.current, file.get("lab")) == ("lab", Context("lab", endpoints, "~/token", True))
    assert cli("context", "set", "lab", "--no-token-file", "--no-protected").code == 0
    assert read_contexts(home / "skulkctl.toml").get("lab") == Context("lab", endpoints)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("lab",), 2),
        (("lab", "a:b"), 2),
        (("lab", "--token-file", "x", "--no-token-file"), 2),
        (("lub", "kite2"), 3),
    ],
)
def test_a_change_of_a_context_that_makes_no_sense_changes_nothing(
    cli: Cli, home: Path, arguments: tuple[str, ...], code: int
) -> None:
    cli("context", "add", "lab", "kite1")
    before = (home / "skulkctl.toml").read_text()
    assert cli("context", "set", *arguments).code == code
    assert (home / "skulkctl.toml").read_text() == before


def test_contexts_can_be_added_used_listed_and_removed(cli: Cli, home: Path) -> None:
    assert cli("context", "list") == (
        0,
        "CURRENT  NAME  ENDPOINTS  PROTECTED  TOKEN FILE  CA\n",
        "hint: no contexts yet:  skulkctl context add NAME HOST[:PORT]\n",
    )
    assert cli("context", "add", "lab", "kite1", "kite2:80", "--protected").code == 0
    assert cli("context", "add", "lab", "kite1").code == 4
    assert cli("context", "use", "lab").code == 0
    assert cli("context", "ls").out == (
        "CURRENT  NAME  ENDPOINTS                           PROTECTED  TOKEN FILE  CA\n"
        "yes      lab   http://kite1:52415,http://kite2:80  yes        -           -\n"
    )
    assert cli("context", "list", "-q").out == "lab\n"
    assert cli("context", "use", "nope").code == 3
    assert cli("context", "rm", "lab").code == 0
    assert cli("context", "list", "-q").out == ""
    assert cli("context", "rm", "lab").code == 3


@pytest.mark.parametrize("name", ["", "-x", "a b", "a/b", "bäd", "x" * 64])
def test_a_context_needs_a_name_that_can_be_typed(cli: Cli, name: str) -> None:
    assert cli("context", "add", "--", name, "kite1").code == 2


def test_a_context_file_that_cannot_be_read_is_an_error(cli: Cli, home: Path) -> None:
    (home / "skulkctl.toml").mkdir()
    result = cli("context", "add", "lab", "kite1")
    assert result.code == 1
    assert "cannot read" in result.err


@pytest.mark.skipif(sys.platform != "linux", reason="needs a place where root cannot write")
def test_a_context_file_that_cannot_be_written_is_an_error(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SKULK_HOME", "/proc/skulk")
    result = cli("context", "add", "lab", "kite1")
    assert result.code == 1
    assert "error: cannot write /proc/skulk/skulkctl.toml\n" in result.err
