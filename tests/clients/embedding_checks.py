"""Embeddings by the `openai` and the `ollama` package, of a tiny encoder."""

from __future__ import annotations

import base64
import struct
from collections.abc import Sequence
from typing import Any

import ollama
import openai
import pytest

from tests.clients.checks import check
from tests.clients.ollama_checks import client_of as ollama_of
from tests.clients.openai_checks import client_of as openai_of
from tests.embedding.models import ENCODER_ID, HIDDEN, LIMIT
from tests.inference.served import Served

TEXTS = ["hello there", "a", "the quick brown fox"]
LONG = "a " * LIMIT


def _close(one: Sequence[float], other: Sequence[float]) -> bool:
    return len(one) == HIDDEN and one == pytest.approx(list(other), abs=1e-5)


@check("openai", "embeddings.create, one text, lists and token ids, float and base64")
def _openai(served: Served) -> None:
    with openai_of(served) as client:
        # Without a format the package asks for base64 and decodes it.
        default = client.embeddings.create(model=ENCODER_ID, input=TEXTS, user="me")
        numbers = client.embeddings.create(model=ENCODER_ID, input=TEXTS, encoding_format="float")
        raw: Any = client.embeddings.create(
            model=ENCODER_ID, input=TEXTS[0], encoding_format="base64"
        )
        tokens = client.embeddings.create(model=ENCODER_ID, input=[5, 6], encoding_format="float")
        several = client.embeddings.create(
            model=ENCODER_ID, input=[[7], [5, 6]], encoding_format="float"
        )
    assert [item.index for item in numbers.data] == [0, 1, 2]
    assert numbers.object == "list"
    for one, other in zip(default.data, numbers.data, strict=True):
        assert _close(one.embedding, other.embedding)
    decoded = struct.unpack(f"<{HIDDEN}f", base64.b64decode(raw.data[0].embedding))
    assert _close(decoded, numbers.data[0].embedding)
    assert sum(number**2 for number in decoded) == pytest.approx(1, abs=1e-4)
    assert _close(several.data[1].embedding, tokens.data[0].embedding)
    assert (tokens.usage.prompt_tokens, tokens.usage.total_tokens) == (4, 4)
    assert tokens.model == ENCODER_ID


@check("openai", "embeddings errors: unknown and chat model, empty, overlong and too many inputs")
def _openai_errors(served: Served) -> None:
    with openai_of(served) as client:
        bad: list[tuple[dict[str, Any], int, str]] = [
            ({"model": "x/y"}, 404, "x/y"),
            ({"model": served.model}, 400, "is not an embedding model"),
            ({"input": ""}, 400, "input must not be empty"),
            ({"input": []}, 400, "input must not be empty"),
            ({"input": ["a", ""]}, 400, "input[1]"),
            ({"input": ["a"] * 2049}, 400, "2049"),
            ({"input": ["a", LONG]}, 400, "context_length_exceeded: input[1]"),
            ({"input": [100_000]}, 400, "token 100000"),
            ({"dimensions": 8}, 400, "dimensions"),
            ({"encoding_format": "hex"}, 422, "encoding_format"),
            ({"input": {"a": 1}}, 422, "input"),
        ]
        for change, status, named in bad:
            with pytest.raises(openai.APIStatusError) as failed:
                client.embeddings.create(**{"model": ENCODER_ID, "input": "a", **change})
            assert failed.value.status_code == status
            assert named in failed.value.response.text
        with pytest.raises(openai.BadRequestError, match="use POST /v1/embeddings"):
            client.chat.completions.create(
                model=ENCODER_ID, messages=[{"role": "user", "content": "hello"}]
            )
        with pytest.raises(openai.BadRequestError, match="use POST /v1/embeddings"):
            client.completions.create(model=ENCODER_ID, prompt="hello")


@check("ollama", "embed, embeddings, at `/api` and `/ollama/api`, and their errors")
def _ollama(served: Served) -> None:
    with ollama_of(served) as client, ollama_of(served, "/ollama") as prefixed:
        several = client.embed(f"{ENCODER_ID}:latest", TEXTS)
        one = prefixed.embed(ENCODER_ID, TEXTS[0])
        older = [each.embeddings(ENCODER_ID, TEXTS[0]) for each in (client, prefixed)]
        cut = client.embed(ENCODER_ID, LONG)
        nothing = client.embed(ENCODER_ID, "")
        assert client.show(ENCODER_ID).capabilities == ["embedding"]
        bad: list[tuple[Any, int, str]] = [
            (lambda: client.embed("x/y", "a"), 404, "x/y"),
            (lambda: client.embed(served.model, "a"), 400, "is not an embedding model"),
            (lambda: client.embeddings(served.model, ""), 400, "is not an embedding model"),
            (lambda: client.embed(ENCODER_ID, LONG, truncate=False), 400, "context_length"),
            (lambda: client.embed(ENCODER_ID, "a", dimensions=3), 400, "dimensions"),
            (lambda: client.generate(ENCODER_ID, "a"), 400, "embedding model"),
        ]
        for call, status, named in bad:
            with pytest.raises(ollama.ResponseError, match=named) as failed:
                call()
            assert failed.value.status_code == status
    assert _close(one.embeddings[0], several.embeddings[0])
    assert all(_close(each.embedding, one.embeddings[0]) for each in older)
    assert len(several.embeddings) == len(TEXTS)
    assert several.total_duration
    assert several.load_duration is not None
    assert several.prompt_eval_count
    assert several.prompt_eval_count > len(TEXTS)
    assert (len(cut.embeddings), cut.prompt_eval_count) == (1, LIMIT)
    assert nothing.embeddings == []


@check("openai", "giving up on an embedding request")
def _hang_up(served: Served) -> None:
    """The request of a client that has gone does not stay in the runner."""
    with openai_of(served) as client:
        impatient = client.with_options(timeout=0.2)
        with pytest.raises(openai.APITimeoutError):
            while impatient.embeddings.create(model=ENCODER_ID, input=["x" * 40] * 2000):
                continue
        served.wait_idle()
        assert client.embeddings.create(model=ENCODER_ID, input="a").data
