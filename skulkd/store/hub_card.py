"""The card of a model on the hub, from its `config.json` and file list; no weights are fetched.

Runs in a child process, `python -m skulkd.store describe`, like everything that uses the hub.
"""

import tempfile
from collections.abc import Mapping
from pathlib import Path

from huggingface_hub import HfApi

from skulkd.store.card_from_config import card_from_config
from skulkd.store.errors import UnknownModelError, UnsupportedModelError
from skulkd.store.hub import HubFile, hub_api, list_files, told_error
from skulkd.store.model_directory import chat_template, read_json_object
from skulkd.store.model_documents import CONFIG_FILE
from skulkd.store.model_ids import check_model_id
from skulkd.wire.cards import ModelCard

_DOCUMENTS = (CONFIG_FILE, "tokenizer_config.json", "chat_template.jinja")


def describe_model(model_id: str, environ: Mapping[str, str]) -> ModelCard:
    """Raises StoreError; nothing is tried twice, because somebody waits for the answer."""
    check_model_id(model_id)
    hub = hub_api(environ)
    try:
        files = list_files(hub, model_id)
        size_bytes = _weight_bytes(model_id, files)
        with tempfile.TemporaryDirectory() as place:
            names = _download(hub, model_id, files, Path(place))
            config = read_json_object(Path(place) / CONFIG_FILE)
            template = chat_template(Path(place), names)
    except Exception as error:
        raise told_error(error) from error
    return card_from_config(model_id, config, size_bytes, template)


def _weight_bytes(model_id: str, files: list[HubFile]) -> int:
    if not any(file.path == CONFIG_FILE for file in files):
        raise UnknownModelError(f"the hub has no {CONFIG_FILE} of {model_id}")
    size_bytes = sum(file.size for file in files if file.path.endswith(".safetensors"))
    if size_bytes == 0:
        raise UnsupportedModelError(
            f"{model_id} has no safetensors weights on the hub",
            hint="a GGUF file can be imported:  skulkctl model import FILE.gguf",
        )
    return size_bytes


def _download(hub: HfApi, model_id: str, files: list[HubFile], place: Path) -> set[str]:
    wanted = {file.path for file in files} & set(_DOCUMENTS)
    for path in wanted:
        hub.hf_hub_download(model_id, path, local_dir=place)
    return wanted
