"""Hides secrets in command lines and in text that goes to logs. Pure.

It judges names and shapes only: a secret that looks like an ordinary word and has no telling
name before it cannot be seen here. In doubt it hides.
"""

import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import PurePosixPath

HIDDEN = "***"

# A name is cut into words first, so that `max-tokens` and `tokenizer` stay readable.
_SECRET_WORD = re.compile(
    r".*(token|password|passwd|passphrase|secret|apikey|authkey|accesskey)"
    r"|secrets|passwords|pwd|private|authorization|credentials?|bearer|cookie"
)
_KEY_QUALIFIERS = {
    "api", "access", "auth", "account", "encryption", "license", "master", "secret", "session",
    "shared", "signing", "ssh",
}  # fmt: skip
# `--token-file PATH` names a place, not a secret.
_PLACE_WORDS = {"file", "path", "dir", "directory"}

# Options that carry a password in one program but mean other things elsewhere.
_PROGRAM_OPTIONS = {
    "sshpass": ("-p",),
    "mysql": ("-p",),
    "mysqldump": ("-p",),
    "mysqladmin": ("-p",),
    "mariadb": ("-p",),
    "redis-cli": ("-a",),
    "curl": ("-u", "-U", "--user", "--proxy-user"),
}

# `name=`, `name: `, `"name": ` in front of a value, with escaped quotes inside of another JSON
# text; possessive, so that bad input stays cheap.
_ASSIGNED = r"(?<![\w./-])(-{0,2}[A-Za-z_][\w.-]*+)(?:\\*+[\"'])?\s*+[=:]\s*+"
_ASSIGNMENT = re.compile(_ASSIGNED)
_NAMED = re.compile(rf"{_ASSIGNED}|(?<![\w./-])(--?[A-Za-z][\w-]*+)\s++")
_ESCAPED_VALUE = re.compile(r"(\\++[\"']).*?(\1|\Z)", re.DOTALL)
_VALUE = re.compile(r"\"(?:[^\"\\]|\\.)*+\"?|'(?:[^'\\]|\\.)*+'?|[^\s&]+", re.DOTALL)

_AUTHORIZATION = re.compile(
    r"(?i)\b((?:proxy-)?authorization[\"']?\s*+[=:]\s*+[\"']?)"
    r"(?:(?:basic|bearer|token|digest)\s++)?[^\s\"']+"
)
_BEARER = re.compile(r"(?i)\b(bearer\s++)(?!token\b)[^\s\"',;]+")
_USER_INFO = re.compile(r"(?<![A-Za-z0-9+.-])([A-Za-z][A-Za-z0-9+.-]*+)://([^\s/\"]*)@")
_PRIVATE_KEY_BLOCK = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL
)
_KNOWN_TOKEN = re.compile(
    r"(?<![\w-])(?:hf_[A-Za-z0-9]{20,}"
    r"|skt_[\w-]{20,}"
    r"|sk-(?=[\w-]{0,64}\d)[\w-]{16,}"
    r"|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}"
    r"|xox[abceoprs]-[\w-]{8,}"
    r"|A(?:KIA|SIA)[A-Z0-9]{16}|AIza[\w-]{30,}"
    r"|tskey-[\w-]{8,}|npm_[A-Za-z0-9]{30,}|pypi-AgE[\w-]{16,}"
    r"|eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*)"
)


def is_secret_name(name: str) -> bool:
    """Whether an option, variable or header of this name usually carries a secret."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name)
    words = [word for word in re.split(r"[^A-Za-z0-9]+", spaced.lower()) if word]
    if not words or words[-1] in _PLACE_WORDS:
        return False
    if any(_SECRET_WORD.fullmatch(word) for word in words):
        return True
    return any(one in _KEY_QUALIFIERS and two == "key" for one, two in pairwise(words))


def redact_command(argv: Sequence[str]) -> str:
    """The command line as one string with every secret-looking value hidden."""
    shown: list[str] = []
    options: tuple[str, ...] = ()
    hide = False
    for argument in argv:
        shown.append(HIDDEN if hide else _redact_argument(argument, options))
        # Asked for hidden arguments as well: `--no-token --password X` must hide X.
        hide = _announces_secret(argument, options)
        options = _PROGRAM_OPTIONS.get(PurePosixPath(argument).name, options)
    return " ".join(shown)


def redact_text(text: str) -> str:
    """Free text, such as a log line, with every secret-looking value hidden."""
    text = _PRIVATE_KEY_BLOCK.sub(HIDDEN, text)
    text = _USER_INFO.sub(_hide_user_info, text)
    text = _AUTHORIZATION.sub(rf"\1{HIDDEN}", text)
    text = _BEARER.sub(rf"\1{HIDDEN}", text)
    text = _KNOWN_TOKEN.sub(HIDDEN, text)
    return _hide_named_values(text)


def _redact_argument(argument: str, options: tuple[str, ...]) -> str:
    for option in options:
        attached = option if len(option) == 2 else f"{option}="
        if argument.startswith(attached) and argument != option:
            return attached + HIDDEN
    # One argument is one value: `--env=TOKEN=a b` is hidden to its end, spaces and all.
    start = 0
    while match := _ASSIGNMENT.match(argument, start):
        start = match.end()
        if is_secret_name(match[1]) and argument[start:]:
            return argument[:start] + HIDDEN
    return redact_text(argument)


def _announces_secret(argument: str, options: tuple[str, ...]) -> bool:
    """Whether the next argument is the value of a secret option or header."""
    if argument in options or argument.lower() == "bearer":
        return True
    bare = re.fullmatch(r"--?[A-Za-z][\w.-]*|[A-Za-z][\w-]*:", argument)
    return bare is not None and is_secret_name(argument)


def _hide_named_values(text: str) -> str:
    """Hide the value behind every secret name; other values are searched themselves."""
    parts: list[str] = []
    start = 0
    while match := _NAMED.search(text, start):
        parts.append(text[start : match.end()])
        start = match.end()
        if not is_secret_name(match[1] or match[2]):
            continue
        if escaped := _ESCAPED_VALUE.match(text, start):
            parts.append(escaped[1] + HIDDEN + escaped[2])
            start = escaped.end()
        elif value := _VALUE.match(text, start):
            parts.append(_hidden_like(value[0]))
            start = value.end()
    parts.append(text[start:])
    return "".join(parts)


def _hidden_like(value: str) -> str:
    """HIDDEN in the quotes of the value, or with the punctuation that ends it."""
    if value[0] in "\"'":
        return value[0] + HIDDEN + (value[0] if len(value) > 1 and value[-1] == value[0] else "")
    return HIDDEN + value[len(value.rstrip(",;)]}")) :]


def _hide_user_info(match: re.Match[str]) -> str:
    scheme, user_info = match.groups()
    # `ssh://git@host` names an account; a key file does the rest.
    if scheme.endswith("ssh") and ":" not in user_info:
        return match[0]
    return f"{scheme}://{HIDDEN}@"
