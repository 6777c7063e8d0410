"""Secrets never show in command lines or log text; ordinary ones stay as they are."""

from __future__ import annotations

import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skulkd.machine.redact import is_secret_name, redact_command, redact_text

SECRET = "hunter2secret"
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9P"


@pytest.mark.parametrize(
    ("argv", "shown"),
    [
        (["skulkctl", "--token", SECRET, "status"], "skulkctl --token *** status"),
        (["skulkctl", f"--token={SECRET}", "-v"], "skulkctl --token=*** -v"),
        (["x", "--token", f"{SECRET} with spaces"], "x --token ***"),
        (["x", f"--hf-token={SECRET} with spaces"], "x --hf-token=***"),
        (["x", "-password", SECRET], "x -password ***"),
        (["x", "--no-token", "--password", SECRET], "x --no-token *** ***"),
        (["env", f"HF_TOKEN={SECRET}", "skulkd"], "env HF_TOKEN=*** skulkd"),
        (["docker", "run", f"--env=API_KEY={SECRET}"], "docker run --env=API_KEY=***"),
        (["docker", "run", "-e", f"apiKey={SECRET}"], "docker run -e apiKey=***"),
        (["curl", "-H", f"Authorization: Bearer {SECRET} x"], "curl -H Authorization: ***"),
        (["curl", f"--header=X-Api-Key: {SECRET} x"], "curl --header=X-Api-Key: ***"),
        (["x", "Authorization:", "Bearer", SECRET], "x Authorization: *** ***"),
        (["x", "bearer", SECRET], "x bearer ***"),
        (["curl", "-u", f"me:{SECRET}", "--user-agent", "x"], "curl -u *** --user-agent x"),
        (["curl", f"--user=me:{SECRET}"], "curl --user=***"),
        (["sudo", "/usr/bin/mysql", f"-p{SECRET}"], "sudo /usr/bin/mysql -p***"),
        (["sshpass", "-p", SECRET, "ssh", "host"], "sshpass -p *** ssh host"),
        (["sh", "-c", f"run --token '{SECRET} x' --port 5"], "sh -c run --token '***' --port 5"),
        (["x", "--json", f'{{"hf_token": "{SECRET}", "n": 1}}'],
         'x --json {"hf_token": "***", "n": 1}'),
        (["x", f"postgres://me:{SECRET}@db.local/x"], "x postgres://***@db.local/x"),
        (["x", f"redis://:{SECRET}#1@db.local"], "x redis://***@db.local"),
        (["x", f"https://{SECRET}@host/x"], "x https://***@host/x"),
        (["x", f"http://h/p?token={SECRET}&n=1"], "x http://h/p?token=***&n=1"),
        (["x", "hf_" + "a1B2" * 8], "x ***"),
        (["x", "sk-proj-" + "a1B2" * 8], "x ***"),
        (["x", "ghp_" + "a1B2" * 9], "x ***"),
        (["x", "xoxb-123456789-abcdef"], "x ***"),
        (["x", "AKIAIOSFODNN7EXAMPLE"], "x ***"),
        (["x", JWT], "x ***"),
        ([], ""),
    ],
)  # fmt: skip
def test_secrets_in_commands_are_hidden(argv: list[str], shown: str) -> None:
    assert redact_command(argv) == shown


ORDINARY = [
    "python -m skulkd run --listen 127.0.0.1:52415 --name kite1 -v",
    "python -m skulkd.runner --model mlx-community/SmolLM2-135M-Instruct --max-tokens 512",
    "x --tokenizer /models/qwen3 --num-tokens=7 --revision 4f3c2b1a9d8e7f605142332415069788",
    "x --id 123e4567-e89b-12d3-a456-426614174000 sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b",
    "docker run -p 8080:80 --name db mysql",
    "ssh -p 22 -i /home/me/.ssh/id_ed25519 git@host:repo.git",
    "pip install git+https://github.com/org/repo@main hf_transfer sk-learn",
    "git clone ssh://git@host/repo.git",
    "x --token-file /run/secrets/token --key 2 --keys a,b /opt/secrets/token:latest",
    "x --user me -u me http://[::1]:52415/v1/models?limit=5&sort=name",
]


@pytest.mark.parametrize("command", ORDINARY)
def test_ordinary_commands_are_unchanged(command: str) -> None:
    assert redact_command(command.split(" ")) == command
    assert redact_text(command) == command


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"error: token={SECRET}, user=me", "error: token=***, user=me"),
        (f'refused {{"Authorization": "Bearer {SECRET}"}}', 'refused {"Authorization": "***"}'),
        (f"GET / Authorization: Basic {SECRET} 401", "GET / Authorization: *** 401"),
        (f"sent Bearer {SECRET}, got 401", "sent Bearer ***, got 401"),
        ("the bearer token is missing", "the bearer token is missing"),
        (f'password = "{SECRET} not closed', 'password = "***'),
        (f'secret: "a\\"{SECRET}" end', 'secret: "***" end'),
        (f"--env=HF_TOKEN={SECRET} x", "--env=HF_TOKEN=*** x"),
        (
            f"key:\n-----BEGIN RSA PRIVATE KEY-----\n{SECRET}\n-----END RSA PRIVATE KEY-----\nend",
            "key:\n***\nend",
        ),
    ],
)
def test_secrets_in_text_are_hidden(text: str, shown: str) -> None:
    assert redact_text(text) == shown


def test_quoted_names_inside_of_other_json() -> None:
    said = r'said: "{\"api_key\":\"hunter2 secret\",\"n\":1}"'
    assert redact_text(said) == r'said: "{\"api_key\":\"***\",\"n\":1}"'
    assert redact_text('{"api_key":"hunter2"}') == '{"api_key":"***"}'


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("HF_TOKEN", True), ("authtoken", True), ("secretAccessKey", True), ("api-key", True),
        ("APIKey", True), ("--private-key", True), ("db.password", True), ("credentials", True),
        ("max_tokens", False), ("tokenizer", False), ("key", False), ("keyboard", False),
        ("token_file", False), ("password-path", False), ("", False), ("--", False),
    ],
)  # fmt: skip
def test_secret_names(name: str, secret: bool) -> None:
    assert is_secret_name(name) == secret


_secrets = st.text(string.ascii_letters + string.digits + "-_=+/.:@#!$%*,; '\"", min_size=12).map(
    lambda text: f"q{text}Z9"
)
_words = st.sampled_from(
    [
        "token", "secret", "password", "passwd", "api-key", "api_key", "apikey", "authorization",
        "credential", "access-key", "accessKey", "private", "hf-token", "CLUSTER_SECRET",
    ]
)  # fmt: skip
_prefixes = st.sampled_from(["", "my-", "hf_", "db.", "x-"])
_names = st.tuples(_prefixes, _words).map("".join)


def _shapes(name: str, secret: str) -> list[list[str]]:
    return [
        [f"--{name}", secret],
        [f"-{name}", secret],
        [f"--{name}={secret}"],
        [f"{name}={secret}"],
        [f"--env={name}={secret}"],
        ["-H", f"{name}: {secret}"],
    ]


@settings(deadline=None)
@given(name=_names, secret=_secrets, before=st.sampled_from(ORDINARY), data=st.data())
def test_secret_behind_any_secret_name_never_shows(
    name: str, secret: str, before: str, data: st.DataObject
) -> None:
    argv = data.draw(st.sampled_from(_shapes(name, secret)))
    shown = redact_command([*before.split(" "), *argv, "--last"])
    assert secret not in shown
    assert secret[3:-3] not in shown
    assert shown.startswith(before)
    assert shown.endswith("--last")


@settings(deadline=None)
@given(name=_names, secret=st.text(string.ascii_letters + string.digits, min_size=8))
def test_secret_word_behind_any_secret_name_never_shows_in_text(name: str, secret: str) -> None:
    for sign in ("=", ": ", ' = "', '": "', ":'"):
        text = f'it failed with "{name}{sign}{secret}" today'
        assert secret not in redact_text(text).replace(name, "")


@settings(deadline=None)
@given(st.text())
def test_redacting_twice_changes_nothing_more(text: str) -> None:
    once = redact_text(text)
    assert redact_text(once) == once
