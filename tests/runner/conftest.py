"""Models and runners that the tests of this folder share."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from skulkd.store.imports.tiny_model import make_tiny_model
from tests.runner.rank_group import MakeGroup, RankGroupOfRunners, free_hosts
from tests.runner.reference import Reference
from tests.runner.runner_process import ForkServer, Runner, spawn, start_server

THINKING_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "<|im_start|>assistant\n{% if enable_thinking %}<think>\n{% endif %}"
)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="session")
def thinking_model(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same weights with a template that opens the reasoning itself."""
    copy = tmp_path_factory.mktemp("thinking") / "model"
    shutil.copytree(tiny, copy)
    (copy / "chat_template.jinja").write_text(THINKING_TEMPLATE)
    return copy


@pytest.fixture
def broken(tiny: Path, tmp_path: Path) -> Path:
    """A copy to break."""
    return Path(shutil.copytree(tiny, tmp_path / "broken"))


@pytest.fixture(scope="session")
def forks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkServer]:
    server = start_server(tmp_path_factory.mktemp("runners"))
    yield server
    server.close()


@pytest.fixture
def fork(forks: ForkServer) -> Iterator[Callable[..., Runner]]:
    """A factory of runners that end with the test."""
    started: list[Runner] = []

    def start(**environ: str) -> Runner:
        started.append(forks.fork(**environ))
        return started[-1]

    yield start
    for runner in started:
        forks.end(runner)


@pytest.fixture
def idle_ranks(fork: Callable[..., Runner]) -> Callable[..., RankGroupOfRunners]:
    """A factory of ranks that know nothing yet; `faults` are for all of them."""

    def start(size: int, faults: str = "") -> RankGroupOfRunners:
        made = [fork(SKULK_FAULTS=faults) for _ in range(size)]
        return RankGroupOfRunners(made, free_hosts(size))

    return start


@pytest.fixture
def group(idle_ranks: Callable[..., RankGroupOfRunners]) -> MakeGroup:
    """A factory of groups whose ranks end with the test."""

    def start(
        size: int, model: Path, *, tensor: bool = False, faults: str = "", **options: object
    ) -> RankGroupOfRunners:
        made = idle_ranks(size, faults)
        made.configure(model, tensor=tensor, **options)
        made.become_ready()
        return made

    return start


@pytest.fixture(scope="module")
def pair(forks: ForkServer, tiny: Path) -> Iterator[RankGroupOfRunners]:
    """Two stages of a pipeline that the tests of one module share."""
    made = RankGroupOfRunners([forks.fork() for _ in range(2)], free_hosts(2))
    made.configure(tiny, prefill_step=64)
    made.become_ready()
    yield made
    for runner in made.ranks:
        forks.end(runner)


@pytest.fixture
def spawned(tmp_path: Path) -> Iterator[Runner]:
    with spawn(tmp_path) as runner:
        yield runner


@pytest.fixture(scope="module")
def runner(forks: ForkServer, tiny: Path) -> Iterator[Runner]:
    """A ready runner that the tests of one module share."""
    shared = forks.fork()
    shared.configure(tiny, context_token_limit=2048)
    shared.become_ready()
    yield shared
    forks.end(shared)


@pytest.fixture(scope="session")
def reference(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reference]:
    served = Reference(tiny, tmp_path_factory.mktemp("reference"))
    yield served
    served.close()
