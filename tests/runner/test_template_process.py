"""Chat templates are guests: their limits end a request, never the runner."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from skulkd.runner.errors import BadRequest
from skulkd.runner.prompts.template_process import TemplateJob, TemplateProcess
from tests.runner.runner_process import Runner

CHILD = """import sys
from skulkd.runner.prompts.template_process import run_child
run_child(int(sys.argv[1]))"""
NESTED = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
HELLO = [{"role": "user", "content": "hello"}]


@pytest.fixture(scope="module")
def templates() -> Iterator[TemplateProcess]:
    """In a process of its own: a fork of a test process with threads would not be safe."""
    ours, theirs = socket.socketpair()
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(theirs.fileno())], pass_fds=[theirs.fileno()]
    )
    theirs.close()
    process = TemplateProcess(ours)
    yield process
    process.close()
    assert child.wait(timeout=60) == 0


def job(template: str, **variables: Any) -> TemplateJob:
    return TemplateJob(template, HELLO, None, True, variables)


def test_a_template_sees_messages_variables_and_the_generation_prompt(
    templates: TemplateProcess,
) -> None:
    text = "{{ bos_token }}{{ messages[0].content }}{% if add_generation_prompt %}>{% endif %}"
    assert templates.render(job(text, bos_token="<s>")) == "<s>hello>"


@pytest.mark.parametrize(
    ("template", "why"),
    [
        pytest.param(NESTED, "CPU time", id="loops in Python"),
        pytest.param("{% set x = 9 %}{{ (x ** (x ** x)) % 7 }}", "CPU time", id="one long C call"),
        pytest.param("{{ 'x' * 10 ** 10 }}", "memory", id="one large string"),
        pytest.param("{{ 'x' * 2 ** 27 }}", "memory", id="a prompt too large to send"),
        pytest.param(
            "{{ raise_exception('roles') }}", "rejected the messages: roles", id="refusal"
        ),
        pytest.param("{% if %}", "rejected the messages", id="no template at all"),
        pytest.param("{{ 1 // 0 }}", "rejected the messages", id="arithmetic"),
        pytest.param("{{ ''.__class__.__mro__ }}", "rejected the messages", id="sandbox"),
    ],
)
def test_a_failing_template_fails_its_job_and_the_next_one_is_rendered(
    templates: TemplateProcess, template: str, why: str
) -> None:
    with pytest.raises(BadRequest, match=why):
        templates.render(job(template))
    assert templates.render(job("{{ messages[0].role }}")) == "user"


def test_surrogates_survive_the_way(templates: TemplateProcess) -> None:
    assert templates.render(job("{{ bos_token }}", bos_token="\ud83d")) == "\ud83d"


def test_a_runner_outlives_a_template_without_end(fork: Callable[[], Runner], broken: Path) -> None:
    """`hello` is rendered, `loop` meets a template that does not end."""
    text = (
        "{% if messages[0].content == 'loop' %}" + NESTED + "{% endif %}{{ messages[0].content }}"
    )
    (broken / "chat_template.jinja").write_text(text)
    runner = fork()
    runner.configure(broken)
    runner.become_ready()
    refused = runner.chat("loop", max_output_tokens=2)
    assert refused.status.status == "Failed"
    assert "CPU time" in (refused.status.error_message or "")
    assert runner.chat("hello", max_output_tokens=2).status.status == "Complete"
    assert runner.stop() == 0
