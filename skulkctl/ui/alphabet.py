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

SHORT = {
    "connect_group": "connect",
    "load_model": "load",
    "task_submission": "submit",
    "task_agreement": "agree",
    "prompt_build": "prompt",
    "vision_preprocess": "vision",
    "kv_cache_lookup": "kv cache",
    "prefill_barrier": "barrier",
    "prefill_pipeline": "prefill",
    "prefill_stream": "prefill",
    "decode_barrier": "barrier",
    "decode_wait_first_token": "1st token",
    "decode_stream": "decode",
    "cancel_requested": "cancel",
    "cancel_observed": "cancel",
    "shutdown_cleanup": "stopping",
}
"""Names of phases for narrow columns; the others are short already."""

START, COMPUTE, WAIT, IDLE, ERROR, CANCEL, UNKNOWN = (
    "start", "compute", "wait", "idle", "error", "cancel", "none",
)  # fmt: skip
"""Families of phases; each is also the role that colours it."""

PATTERNS = {
    COMPUTE: "█",
    WAIT: "░",
    START: "▓",
    IDLE: "·",
    ERROR: "✖",
    CANCEL: "✕",
    UNKNOWN: " ",
}
_FAMILY_LETTERS = {
    COMPUTE: "C compute", WAIT: "W wait for a rank", START: "S start", IDLE: "idle",
    ERROR: "E error", CANCEL: "X cancel",
}  # fmt: skip
_STARTING = frozenset({"created", "connect_group", "load_model", "warmup"})
_WAITS = frozenset({Wait.RECV, Wait.SEND, Wait.GATHER, Wait.BARRIER, Wait.AGREEMENT, Wait.PLANNER})
_FILL_FAMILIES = {
    Wait.LOCAL: COMPUTE, Wait.STEP: COMPUTE, Wait.AFTER: COMPUTE, Wait.REST: IDLE,
    **dict.fromkeys(_WAITS, WAIT),
}  # fmt: skip


def family(wait: Wait, phase: str) -> str:
    """What kind of time passes, as one of few colours."""
    if phase == "error":
        return ERROR
    if phase.startswith("cancel_"):
        return CANCEL
    if wait in _WAITS:
        return WAIT
    if wait is Wait.REST:
        return IDLE
    return START if phase in _STARTING else COMPUTE


def cell_role(cell: str) -> str | None:
    """The colour of a cell of letters and fills."""
    if cell in ("!", "x", "X"):
        return ERROR if cell == "!" else CANCEL
    if cell in (WRAPPED, " "):
        return "muted"
    fills = {wait.value: role for wait, role in _FILL_FAMILIES.items()}
    return fills.get(cell)


def family_legend() -> list[tuple[str, str | None]]:
    """The families with their patterns, for one line under the lanes."""
    pieces: list[tuple[str, str | None]] = []
    for name, label in _FAMILY_LETTERS.items():
        pieces += [(f" {PATTERNS[name]} ", name), (f"{label} ", "muted")]
    return pieces


def fill_legend() -> list[tuple[str, str | None]]:
    """The same for lanes of letters and fills."""
    words = {
        Wait.LOCAL: "own work", Wait.RECV: "waits for data", Wait.SEND: "hands over",
        Wait.GATHER: "gathers", Wait.BARRIER: "barrier", Wait.AGREEMENT: "agreement",
        Wait.STEP: "step", Wait.REST: "idle",
    }  # fmt: skip
    return [(f" {wait.value} {word}", "muted") for wait, word in words.items()]


def legend() -> list[str]:
    """The alphabet for the help screen."""
    letters = [f"{letter} {phase}" for phase, letter in LETTERS.items()]
    fills = [f"{wait.value} {meaning}" for wait, meaning in FILLS.items()]
    return [*letters, *fills, f"{WRAPPED} older than the recorder remembers"]
