"""One hand-made timeline per signature, and what must be said about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.timeline.builders import (
    TASK,
    admitted,
    enter,
    leave,
    pulse,
    rank,
    step,
    timeline,
    unstarted,
)


@dataclass(frozen=True)
class Situation:
    rule: str
    state: str
    culprit: int | None
    timeline: dict[str, Any]
    why: str = ""


PIPE = "prefill_pipeline"
READY = [step(540, "idle", "runner_ready")]
RECV = "pipeline_first_eval_recv"
EVAL = "pipeline_last_eval_output"
SEND = "pipeline_last_send"


def warming(number: int, *steps: Any, live: Any = None) -> dict[str, Any]:
    return rank(number, list(steps), status="RunnerWarmingUp", task=None, live=live)


def d1() -> dict[str, Any]:
    begin = admitted(52)
    return timeline(
        rank(0, [*begin, enter(47, PIPE, EVAL), leave(43, PIPE, EVAL), enter(42.1, PIPE, SEND),
                 leave(42, PIPE, SEND)]),
        rank(1, [*begin, enter(47, PIPE, RECV, src=0), leave(42.4, PIPE, RECV),
                 enter(41, PIPE, EVAL, prefill=True)]),
        rank(2, [*begin, enter(47, PIPE, RECV, src=1)]),
        rank(3, [*begin, enter(47, PIPE, RECV, src=2)]),
    )  # fmt: skip


def decoding(ago_s: float, tokens: int) -> list[Any]:
    return [
        *admitted(ago_s + 5),
        step(ago_s + 1, "decode_stream", "first_token"),
        step(ago_s, "decode_stream", "decode_token_progress", completion_tokens=tokens),
    ]


def by_pulse() -> list[Situation]:
    """What entries alone do not tell: who is in the collective, and who should be."""
    barrier = enter(40, "prefill_barrier", "prefill_mx_barrier")
    generating = enter(40, "warmup", "warmup_mlx_generate")
    connecting = enter(40, "connect_group", "initialize_mlx")
    waits = pulse(40, "mx_barrier")
    stage = pulse(40, "pipeline_step")
    return [
        Situation("D2", "HANG", 1, timeline(
            *(rank(number, [*admitted(50), barrier], live=pulse(40) if number == 1 else waits)
              for number in range(3))), "entered the barrier, not in it"),
        Situation("D2", "HANG", None, timeline(
            *(rank(number, [*admitted(50), barrier], live=waits) for number in range(2))),
            "all are in it: nobody can be named"),
        Situation("D1", "HANG", 1, timeline(
            *(rank(number, decoding(41, 2), live=pulse(40) if number == 1 else stage)
              for number in range(3))), "in no wait, in the middle of a pipeline"),
        Situation("D1", "HANG", 2, timeline(
            *(rank(number, [*decoding(41, 2), enter(40, "decode_stream", EVAL)],
                   live=pulse(40, EVAL)) for number in range(3))),
            "handing over is part of it: the last that computes holds up the others"),
        Situation("D1", "HANG", 1, timeline(
            rank(0, decoding(41, 2), live=stage),
            rank(1, decoding(41, 2), live=pulse(40)),
            rank(2, decoding(41, 2), live=pulse(40, EVAL))),
            "who is in no wait comes before who computes, however late in the pipeline"),
        Situation("D14", "HANG", 1, timeline(
            warming(0, generating, live=stage), warming(1, generating, live=pulse(40)),
            warming(2, generating, live=stage)), "all generate, one does not compute"),
        Situation("D15", "HANG", 1, timeline(
            *(rank(number, [connecting], status="RunnerConnecting", task=None,
                   live=pulse(40) if number == 1 else pulse(40, "group_handshake"))
              for number in range(2))), "connecting, not in the handshake"),
        Situation("D26", "HANG", 1, timeline(
            *(rank(number, decoding(41, 2),
                   live=pulse(40) if number == 1 else pulse(40, "model_step"))
              for number in range(2))), "tensor: no pipeline details"),
        Situation("FROZEN", "HANG", 1, timeline(
            rank(0, decoding(41, 2), live=stage),
            rank(1, decoding(41, 2), live=pulse(40, "pipeline_step", silent_s=40.0))),
            "at work without a pulse"),
        Situation("D21", "HANG", 0, timeline(
            rank(0, READY, status="RunnerReady", task=None, pending_s=31.0)),
            "at rest, with a task that it never took"),
        Situation("D21", "WAITING", 0, timeline(
            rank(0, READY, status="RunnerReady", task=None, pending_s=6.0))),
    ]  # fmt: skip


def by_waiting() -> list[Situation]:
    """Ranks that wait for something known: never a hang, however long it takes."""
    copying = {"doneBytes": 3 << 30, "totalBytes": 6 << 30, "stillSeconds": 0.2}
    stopped = {**copying, "stillSeconds": 400.0, "detail": "the store does not answer"}
    return [
        Situation("FILES", "WAITING", 1, timeline(
            unstarted(0, "ranks", 900), unstarted(1, "files", 900, **copying)), "a long copy"),
        Situation("FILES", "WAITING", 0, timeline(unstarted(0, "files", 3)), "told at once"),
        Situation("FILES", "WAITING", 1, timeline(
            unstarted(0, "ranks", 900), unstarted(1, "files", 900, **stopped)), "no bytes come"),
        Situation("FILES", "WAITING", 0, timeline(
            unstarted(0, "files", 900, **copying), unstarted(1, "memory", 90)), "files come first"),
        Situation("MEMORY", "WAITING", 1, timeline(
            unstarted(0, "ranks", 90), unstarted(1, "memory", 90, detail="2.00 GiB short"))),
        Situation("START", "WAITING", None, timeline(
            unstarted(0, "ranks", 8), unstarted(1, "ranks", 8)), "all are ready to start"),
        Situation("START", "HANG", None, timeline(
            unstarted(0, "ranks", 60), unstarted(1, "ranks", 31)), "and nobody starts them"),
        Situation("DRAIN", "WAITING", None, timeline(
            rank(0, [step(90, "shutdown_cleanup", "shutdown")], status="RunnerShuttingDown",
                 task=None)), "on its way out"),
    ]  # fmt: skip


def situations() -> list[Situation]:
    """Every rule that a timeline can show, by entries alone where they suffice."""
    return [*by_entries(), *by_pulse(), *by_waiting()]


def by_entries() -> list[Situation]:
    """A timeline without pulses, as other versions tell it."""
    agree = "mx_all_gather_tasks"
    barrier = "prefill_mx_barrier"
    kv = step(63, "kv_cache_lookup", "kv_cache_result", prefix_hit_length=0)
    return [
        Situation("D1", "HANG", 1, d1()),
        Situation("D2", "HANG", 0, timeline(
            rank(0, [*admitted(50), leave(40, PIPE, SEND)]),
            rank(1, [*admitted(50), enter(41, PIPE, RECV)]))),
        Situation("D3", "HANG", 1, timeline(
            rank(0, [*decoding(60, 50), leave(40, "decode_stream", SEND)]),
            rank(1, [*decoding(60, 49), leave(40, "decode_stream", SEND)]),
            rank(2, [*decoding(60, 50), leave(40, "decode_stream", EVAL)]))),
        Situation("D4", "WAITING", 1, timeline(
            rank(0, [*admitted(50), enter(40, "prefill_barrier", barrier)]),
            rank(1, [*admitted(50), enter(39, "vision_preprocess", "prepare_vision")])),
            "a straggler is no hang before 60 s"),
        Situation("D4", "HANG", 1, timeline(
            rank(0, [*admitted(80), kv, enter(62, "prefill_barrier", barrier)]),
            rank(1, [*admitted(80), kv]))),
        Situation("D5", "HANG", 1, timeline(
            rank(0, [*admitted(50), enter(40, "prefill_stream", "stream_generate_prefill")]),
            rank(1, [*admitted(50), enter(39, "decode_barrier", "decode_mx_barrier")]),
            rank(2, [*admitted(50), enter(40, "prefill_stream", "stream_generate_prefill")]))),
        Situation("D6", "HANG", 1, timeline(
            rank(0, [*admitted(50), enter(45, PIPE, "pipeline_parallel_prefill"),
                     enter(40, PIPE, RECV)]),
            rank(1, [*admitted(50), enter(40, "prefill_stream", "stream_generate_prefill")]),
            rank(2, [*admitted(50), enter(45, PIPE, "pipeline_parallel_prefill"),
                     enter(40, PIPE, RECV)]))),
        Situation("D7", "HANG", 2, timeline(
            rank(0, [*READY, step(64, "task_submission", "submit_text_generation"),
                     enter(63, "task_agreement", agree, candidate_count=1)]),
            rank(1, [*READY, step(64, "task_submission", "submit_text_generation"),
                     enter(63, "task_agreement", agree, candidate_count=1)]),
            rank(2, READY, status="RunnerReady", task=None))),
        Situation("D8", "HANG", None, timeline(
            *(rank(number, [step(50, "task_agreement", "tasks_agreed", different_count=1),
                            step(45, "task_agreement", "tasks_agreed", different_count=1),
                            enter(40, "task_agreement", agree)]) for number in (0, 1)))),
        Situation("D9", "HANG", 0, timeline(
            rank(0, [*decoding(50, 100), enter(40, "task_agreement", agree)]),
            rank(1, [*decoding(50, 99), enter(40, "decode_stream", RECV)]),
            rank(2, [*decoding(50, 99), enter(40, "decode_stream", RECV)]))),
        Situation("D10", "HANG", 0, timeline(
            rank(0, [*decoding(50, 100), step(41, "completion", "generation_complete"),
                     enter(40, "decode_barrier", "decode_final_barrier")]),
            rank(1, [*decoding(50, 100), enter(40, "decode_stream", RECV)]))),
        Situation("D11", "RANK MISSING", 1, timeline(
            rank(0, [*decoding(50, 10),
                     enter(40, "decode_stream", "mtp_draft_exchange")]),
            rank(1, decoding(50, 10), alive=False, status="RunnerFailed"))),
        Situation("D12", "HANG", 1, timeline(
            rank(0, [*admitted(50), step(45, "task_submission", "batch_queue_admitted"),
                     enter(40, "prefill_barrier", barrier)]),
            rank(1, [*admitted(50), step(45, "task_submission", "queue_admitted"),
                     enter(40, "prefill_barrier", barrier)]))),
        Situation("D13", "HANG", 0, timeline(
            rank(0, [step(60, "load_model", "loaded")], status="RunnerLoaded", task=None),
            warming(1, enter(40, "prefill_barrier", "warmup_pre_generation_barrier")))),
        Situation("D14", "HANG", 1, timeline(
            warming(0, enter(40, "decode_barrier", "decode_mx_barrier")),
            warming(1, enter(41, "prefill_stream", "stream_generate_prefill")))),
        Situation("D15", "HANG", None, timeline(
            *(rank(number, [enter(40, "connect_group", "initialize_mlx")],
                   status="RunnerConnecting", task=None) for number in (0, 1)))),
        Situation("D16", "HANG", 1, timeline(
            rank(0, [enter(40, "connect_group", "initialize_mlx")],
                 status="RunnerConnecting", task=None),
            rank(1, [step(60, "created", "process_started")], status="RunnerIdle", task=None))),
        Situation("D17", "HANG", 1, timeline(
            rank(0, [enter(40, "connect_group", "initialize_mlx")],
                 status="RunnerConnecting", task=None),
            rank(1, [], status="RunnerIdle", task=None))),
        Situation("D18", "WAITING", None, timeline(
            *(rank(number, [leave(400, "connect_group", "initialize_mlx")],
                   status="RunnerConnected", task=None) for number in (0, 1)))),
        Situation("D20", "HANG", 1, timeline(
            rank(0, [*decoding(50, 10),
                     step(45, "cancel_requested", "cancel_pipe_observed"),
                     enter(40, "task_agreement", agree)]),
            rank(1, [*decoding(50, 10), enter(40, "task_agreement", agree)]))),
        Situation("D22", "RANK MISSING", 1, timeline(
            rank(0, [*admitted(50), enter(3, PIPE, RECV)]),
            rank(1, admitted(50), alive=False, status="RunnerFailed"))),
        Situation("D22", "RANK MISSING", None, timeline(
            rank(0, [*admitted(50), enter(20, PIPE, RECV)]), size=2)),
        Situation("D23", "HANG", 1, timeline(
            rank(0, [*decoding(45, 25), leave(40, "decode_stream", EVAL)]),
            rank(1, [*admitted(50), enter(45, "decode_wait_first_token", "first")]))),
        Situation("D24", "NODE GONE", 1, timeline(
            rank(0, [*admitted(50), enter(20, PIPE, RECV)]), size=2,
            silent={"node-1": "no answer in 2 s"})),
        Situation("D25", "HANG", 1, timeline(
            rank(0, [*admitted(50), enter(40, "prefill_barrier", barrier)]),
            rank(1, [*admitted(50), step(40, "completion", "context_admission_rejected")]))),
        Situation("D26", "HANG", 1, timeline(
            rank(0, [step(42, "decode_stream", "generator_step_enter", step_count=50)]),
            rank(1, [step(44, "decode_stream", "generator_step_enter", step_count=25)]),
            rank(2, [step(42, "decode_stream", "generator_step_enter", step_count=50)]))),
        Situation("D0", "HANG", 0, timeline(
            rank(0, [*admitted(90), enter(70, "prefill_stream", "stream_generate_prefill")])),
            "one rank alone gets the whole eval limit"),
        Situation("D19", "WAITING", 0, timeline(
            rank(0, [*decoding(50, 25),
                     step(40, "cancel_requested", "supervisor_cancel_requested", TASK),
                     step(1, "decode_stream", "decode_token_progress", completion_tokens=50)]))),
        Situation("EVAL", "RECOVERED", 0, timeline(
            rank(0, [step(90, "decode_stream", "pipeline_eval_timeout", EVAL),
                     step(30, "idle", "runner_ready")], status="RunnerReady", task=None))),
        Situation("EVAL", "RECOVERED", None, timeline(
            rank(0, [step(90, "decode_stream", "pipeline_eval_timeout", RECV),
                     step(30, "idle", "runner_ready")], status="RunnerReady", task=None)),
            "who waited for data is a victim"),
        Situation("LOAD", "WAITING", 0, timeline(
            rank(0, [enter(200, "load_model", "load_mlx_items")], status="RunnerLoading",
                 task=None))),
    ]  # fmt: skip
