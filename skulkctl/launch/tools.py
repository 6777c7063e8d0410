"""The programs that `skulkctl launch` knows, and the settings each of them needs. Pure.

Knows neither a daemon nor a token: the key is an environment variable whose value comes later.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import NamedTuple


class Tool(StrEnum):
    """Values of the argument."""

    OPENAI = "openai"
    CLAUDE_CODE = "claude-code"
    OPEN_WEBUI = "open-webui"
    CONTINUE = "continue"
    AIDER = "aider"
    LANGCHAIN = "langchain"


class Cluster(NamedTuple):
    """What a program has to know of the cluster, besides its key."""

    url: str
    model: str
    ca: str | None = None
    """PEM file of the authority of its certificate."""

    @property
    def openai_url(self) -> str:
        return f"{self.url}/v1"


class Recipe(NamedTuple):
    """How to run one program with this cluster."""

    key: str
    """The environment variable of its API key."""
    environment: Callable[[Cluster], dict[str, str]]
    command: tuple[str, ...] = ()
    """Empty for a library, which some other program uses."""
    install: str = ""
    ca: str = "SSL_CERT_FILE"
    """The environment variable of the authority's certificate."""
    config: Callable[[Cluster], str] | None = None
    """The text of its configuration file; `command` ends with the file's path then."""
    note: str = ""


def settings(tool: Tool, cluster: Cluster) -> dict[str, str]:
    """The environment of the program, without its key."""
    recipe = RECIPES[tool]
    found = recipe.environment(cluster)
    return found if cluster.ca is None else {**found, recipe.ca: cluster.ca}


def _openai(cluster: Cluster) -> dict[str, str]:
    return {"OPENAI_BASE_URL": cluster.openai_url}


def _langchain(cluster: Cluster) -> dict[str, str]:
    return {"OPENAI_BASE_URL": cluster.openai_url, "OPENAI_API_BASE": cluster.openai_url}


def _claude_code(cluster: Cluster) -> dict[str, str]:
    sizes = ("OPUS", "SONNET", "HAIKU")
    return {
        "ANTHROPIC_BASE_URL": cluster.url,
        "ANTHROPIC_MODEL": cluster.model,
        **{f"ANTHROPIC_DEFAULT_{size}_MODEL": cluster.model for size in sizes},
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }


def _open_webui(cluster: Cluster) -> dict[str, str]:
    return {
        "OPENAI_API_BASE_URL": cluster.openai_url,
        "ENABLE_OLLAMA_API": "False",
        "DEFAULT_MODELS": cluster.model,
    }


def _aider(cluster: Cluster) -> dict[str, str]:
    return {"OPENAI_API_BASE": cluster.openai_url, "AIDER_MODEL": f"openai/{cluster.model}"}


CONTINUE_KEY = "SKULK_API_KEY"


def _continue(cluster: Cluster) -> str:
    import yaml

    model = {
        "name": cluster.model,
        "provider": "openai",
        "model": cluster.model,
        "apiBase": cluster.openai_url,
        "apiKey": f"${{{{ secrets.{CONTINUE_KEY} }}}}",
        "roles": ["chat", "edit", "apply"],
    }
    document = {"name": "skulk", "version": "1.0.0", "schema": "v1", "models": [model]}
    return str(yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=1000))


RECIPES: Mapping[Tool, Recipe] = {
    Tool.OPENAI: Recipe(
        "OPENAI_API_KEY",
        _openai,
        note="for programs that use OpenAI's library; they choose the model",
    ),
    Tool.CLAUDE_CODE: Recipe(
        "ANTHROPIC_AUTH_TOKEN",
        _claude_code,
        ("claude",),
        "npm install -g @anthropic-ai/claude-code",
        ca="NODE_EXTRA_CA_CERTS",
    ),
    Tool.OPEN_WEBUI: Recipe(
        "OPENAI_API_KEY",
        _open_webui,
        ("open-webui", "serve"),
        "pip install open-webui",
        note="read at the first start; later changes are made in its settings",
    ),
    Tool.CONTINUE: Recipe(
        CONTINUE_KEY,
        lambda _: {},
        ("cn", "--config"),
        "npm install -g @continuedev/cli",
        ca="NODE_EXTRA_CA_CERTS",
        config=_continue,
        note="the file is for the extension (~/.continue/config.yaml) and for cn --config FILE",
    ),
    Tool.AIDER: Recipe(
        "OPENAI_API_KEY",
        _aider,
        ("aider",),
        "python -m pip install aider-install && aider-install",
    ),
    Tool.LANGCHAIN: Recipe(
        "OPENAI_API_KEY",
        _langchain,
        note="for programs that use langchain_openai.ChatOpenAI; they choose the model",
    ),
}
