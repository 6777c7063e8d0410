"""Model ids and their directory names."""

from __future__ import annotations

from pathlib import Path, PurePath

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skulkd.store.errors import BadModelIdError
from skulkd.store.model_ids import (
    check_model_id,
    directory_name,
    model_id_of_directory,
    suggest_model_id,
)

nasty = st.text("ab.-_/1\\ \0\né~", max_size=12) | st.text(max_size=12)


@pytest.mark.parametrize(
    ("model_id", "name"),
    [
        ("mlx-community/Qwen3-0.6B-4bit", "mlx-community--Qwen3-0.6B-4bit"),
        ("BAAI/bge-small-en-v1.5", "BAAI--bge-small-en-v1.5"),
        ("a/b", "a--b"),
        ("_x/y_", "_x--y_"),
    ],
)
def test_an_id_and_its_directory_map_to_each_other(model_id: str, name: str) -> None:
    assert directory_name(model_id) == name
    assert model_id_of_directory(name) == model_id


@pytest.mark.parametrize(
    "text",
    [
        "", "/", "name", "a/b/c", "/b", "a/", "../etc", "a/..", "a/b..c", "a/.hidden", "a/b.",
        "a--b/c", "a/-b", "a-/b", "a/b\n", "a/b c", "a/b\0", "a\\b", "~/b", "a/é", "a/" + "b" * 97,
    ],
)  # fmt: skip
def test_an_unsafe_id_is_refused(text: str) -> None:
    with pytest.raises(BadModelIdError, match="cannot be used"):
        check_model_id(text)
    with pytest.raises(BadModelIdError):
        directory_name(text)


def test_a_refusal_shows_control_characters_escaped() -> None:
    with pytest.raises(BadModelIdError) as caught:
        check_model_id("a/\x1b[31m")
    assert "\x1b" not in caught.value.message


@settings(deadline=None)
@given(nasty)
def test_every_accepted_id_has_one_safe_directory_of_its_own(text: str) -> None:
    try:
        name = directory_name(text)
    except BadModelIdError:
        return
    assert PurePath(name).name == name
    assert not name.startswith((".", "-"))
    assert model_id_of_directory(name) == text


@settings(deadline=None)
@given(nasty)
def test_every_directory_name_belongs_to_one_id_or_none(name: str) -> None:
    model_id = model_id_of_directory(name)
    assert model_id is None or directory_name(model_id) == name


@pytest.mark.parametrize(
    ("path", "model_id"),
    [
        ("/x/SmolLM2-135M.Q4_1.gguf", "local/SmolLM2-135M.Q4_1"),
        ("/x/org--name", "org/name"),
        ("/x/my model (new)", "local/my-model-new"),
        ("/x/..gguf", "local/model"),
    ],
)
def test_a_path_suggests_an_id(path: str, model_id: str) -> None:
    assert suggest_model_id(Path(path)) == model_id


@settings(deadline=None)
@given(nasty)
def test_every_suggested_id_is_usable(name: str) -> None:
    assert check_model_id(suggest_model_id(PurePath(name)))
