"""One letter for each of the 22 phases, and one fill for each kind of passing time."""

from __future__ import annotations

from skulkctl.verdict.waits import Wait

LETTERS = {
    "created": "c",
    "idle": ".",
    "connect_group": "G",
    "load_model": "L",
    "warmup": "W",
    "task_submission": "s",
    "task_agreement": "a",
    "prompt_build": "t",
    "vision_preprocess": "v",
    "kv_cache_lookup": "k",
    "prefill_barrier": "[",
    "prefill_pipeline": "P",
    "prefill_stream": "p",
    "decode_barrier": "]",
    "decode_wait_first_token": "1",
    "decode_stream": "=",
    "parser": "r",
    "cancel_requested": "x",
    "cancel_observed": "X",
    "completion": "*",
    "error": "!",
    "shutdown_cleanup": "z",
}

FILLS = {
    Wait.LOCAL: "own work",
    Wait.RECV: "waits for data from the rank below",
    Wait.SEND: "waits for a peer to take data",
    Wait.GATHER: "gathers with all ranks",
    Wait.BARRIER: "barrier",
    Wait.AGREEMENT: "agreement",
    Wait.PLANNER: "waits for the planner",
    Wait.STEP: "inside a step of the pipeline",
    Wait.AFTER: "after an exit, not instrumented",
    Wait.REST: "nothing to do",
}

WRAPPED = "…"
"""Older than the recorder remembers."""

ROLES = {
    "!": "problem",
    "x": "attention",
    "X": "attention",
    Wait.RECV.value: "attention",
    Wait.SEND.value: "attention",
    Wait.GATHER.value: "attention",
    Wait.BARRIER.value: "attention",
    Wait.AGREEMENT.value: "attention",
    Wait.LOCAL.value: "ok",
    Wait.STEP.value: "ok",
    Wait.REST.value: "muted",
    WRAPPED: "muted",
}


def legend() -> list[str]:
    """The alphabet for the help screen."""
    letters = [f"{letter} {phase}" for phase, letter in LETTERS.items()]
    fills = [f"{wait.value} {meaning}" for wait, meaning in FILLS.items()]
    return [*letters, *fills, f"{WRAPPED} older than the recorder remembers"]
