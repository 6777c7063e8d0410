"""A group under any order of messages, ends, losses and restarts, without processes or clocks.

The real leader, lifecycles and plan; only what they would start is pretended.
"""

from __future__ import annotations

from typing import Any, cast

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from skulkd.wire.ids import NodeId, RunnerId
from skulkd.wire.runners import (
    RunnerConnected,
    RunnerConnecting,
    RunnerFailed,
    RunnerIdle,
    RunnerLoaded,
    RunnerReady,
    RunnerStatus,
)
from skulkd.wire.state import State
from skulkd.worker.endings import Blame, CrashWindow, Ending
from skulkd.worker.group_leader import AttemptFailure, GroupLeader, GroupRank
from skulkd.worker.group_messages import GroupGoal, Report
from skulkd.worker.lifecycle import RunnerLifecycle, RunnerState
from skulkd.worker.options import CrashPolicy, GroupLimits
from skulkd.worker.plan import RunnerView, Step, TakeStep, plan
from tests.worker.group_rig import a_group

PICK = st.sampled_from(range(60))
CRASH = Ending("crashed", restart_helps=True)


class Port:
    """A port that nobody opens."""

    def __init__(self, port: int) -> None:
        self.port = port

    def release(self) -> None:
        return


class Node:
    """One rank: its lifecycle, and the process it would have."""

    def __init__(self, group: Any, rank: int, clock: Any) -> None:
        self.group = group
        self.node_id = NodeId(f"node-{rank}")
        self.runner_id = RunnerId(f"runner-{rank}")
        self.life = RunnerLifecycle(group, rank, clock)
        self.life.prepared = cast(Any, object())
        self.status: RunnerStatus = RunnerIdle()

    @property
    def has_process(self) -> bool:
        return self.life.process_attempt is not None

    def report(self) -> Report:
        return self.life.report(type(self.status).__name__)

    def act(self, port: int) -> None:
        """Take the next step of the real plan."""
        life = self.life
        view = RunnerView(
            life.state,
            self.status,
            life.rank,
            len(life.nodes),
            life.level,
            attempt_over=life.attempt_over,
        )
        state = State(instances={self.group.instance_id: self.group})
        for action in plan(state, self.node_id, {self.runner_id: view}, 0.0):
            assert isinstance(action, TakeStep)
            self.take_step(action.step, port)

    def take_step(self, step: Step, port: int) -> None:
        life = self.life
        match step:
            case Step.JOIN:
                life.join(None if life.alone else cast(Any, Port(port)))
            case Step.START:
                assert life.joined_attempt == life.attempt
                assert life.alone or life.ports[life.rank] == life.port.port  # type: ignore[union-attr]
                life.process_started()
                life.process_reported()
                self.status = RunnerIdle()
            case Step.END_ATTEMPT:
                self.end(Ending("ended with its group", restart_helps=True))
            case Step.CONNECT:
                self.status = RunnerConnecting()
            case Step.LOAD:
                self.status = RunnerLoaded()
            case Step.WARM_UP:
                self.status = RunnerReady()
            case Step.PREPARE:
                raise AssertionError(step)

    def end(self, ending: Ending) -> None:
        """Its process is gone and reaped."""
        self.status = RunnerFailed()
        self.life.process_ended(ending)


class Groups(RuleBasedStateMachine):
    @initialize(size=st.integers(1, 3))
    def begin(self, size: int) -> None:
        self.now = 0.0
        self.ports = 0
        self.group = a_group([NodeId(f"node-{rank}") for rank in range(size)])
        self.nodes = [Node(self.group, rank, self.clock) for rank in range(size)]
        self.goals: list[GroupGoal] = []
        self.reports: list[Report] = []
        self.leader = self.new_leader()

    def clock(self) -> float:
        return self.now

    def new_leader(self) -> GroupLeader:
        ranks = [
            GroupRank(rank, node.node_id, node.node_id) for rank, node in enumerate(self.nodes)
        ]
        crashes = CrashWindow(CrashPolicy(limit=10**9, first_delay_s=0.1), self.clock)
        limits = GroupLimits(join_s=50, settle_s=1)
        return GroupLeader(self.group.instance_id, ranks, crashes, limits, self.clock)

    def node(self, pick: int) -> Node:
        return self.nodes[pick % len(self.nodes)]

    # Messages travel in any order, are doubled, and some never arrive.

    @rule(pick=PICK)
    def leader_sends(self, pick: int) -> None:
        self.leader.advance()
        self.goals.append(self.leader.goal(pick % len(self.nodes)))

    @rule(pick=PICK)
    def rank_sends(self, pick: int) -> None:
        self.reports.append(self.node(pick).report())

    @precondition(lambda self: self.goals)
    @rule(pick=PICK, again=st.booleans())
    def goal_arrives(self, pick: int, again: bool) -> None:
        index = pick % len(self.goals)
        goal = self.goals[index] if again else self.goals.pop(index)
        self.nodes[goal.rank].life.apply_goal(goal)

    @precondition(lambda self: self.reports)
    @rule(pick=PICK, again=st.booleans())
    def report_arrives(self, pick: int, again: bool) -> None:
        index = pick % len(self.reports)
        self.leader.receive(self.reports[index] if again else self.reports.pop(index))

    @rule(pick=PICK)
    def leader_asks(self, pick: int) -> None:
        """A question and its answer; unlike news, answers do not come late."""
        rank = pick % len(self.nodes)
        node = self.nodes[rank]
        node.life.apply_goal(self.leader.goal(rank))
        self.leader.receive(node.report(), solicited=True)

    # Life

    @rule(pick=PICK)
    def rank_acts(self, pick: int) -> None:
        self.ports += 1
        self.node(pick).act(self.ports)

    @rule(pick=PICK)
    def rank_connects(self, pick: int) -> None:
        node = self.node(pick)
        if isinstance(node.status, RunnerConnecting):
            node.status = RunnerConnected()

    @rule(pick=PICK)
    def rank_crashes(self, pick: int) -> None:
        node = self.node(pick)
        if node.has_process:
            node.end(CRASH)

    @rule(pick=PICK)
    def rank_is_lost(self, pick: int) -> None:
        self.leader.lose(pick % len(self.nodes), "lost")

    @rule(pick=PICK)
    def node_starts_anew(self, pick: int) -> None:
        rank = pick % len(self.nodes)
        self.nodes[rank] = Node(self.group, rank, self.clock)
        if rank == 0:
            self.leader = self.new_leader()

    @rule(seconds=st.sampled_from([0.1, 2.0, 100.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.leader.advance()

    @rule()
    def all_goes_well(self) -> None:
        """Often enough that later steps meet a group that is up."""
        for _ in range(12):
            self.exchange()

    # What must hold

    def exchange(self) -> None:
        self.now += 1.0
        for node in self.nodes:
            self.ports += 1
            node.act(self.ports)
            if isinstance(node.status, RunnerConnecting):
                node.status = RunnerConnected()
            self.leader.receive(node.report(), solicited=True)
        self.leader.advance()
        for rank, node in enumerate(self.nodes):
            node.life.apply_goal(self.leader.goal(rank))

    @invariant()
    def one_attempt_at_most(self) -> None:
        if not hasattr(self, "nodes"):
            return
        running = {node.life.process_attempt for node in self.nodes if node.has_process}
        assert len(running) <= 1, running

    def teardown(self) -> None:
        """When the trouble ends the group serves again, all of it in one attempt."""
        if not hasattr(self, "nodes"):
            return
        for _ in range(80):
            self.exchange()
        assert self.leader.serving, (self.leader.phase, [node.report() for node in self.nodes])
        assert {node.life.process_attempt for node in self.nodes} == {self.leader.attempt}


def test_a_rank_that_says_nothing_is_the_reason_when_all_others_followed() -> None:
    machine = Groups()
    machine.begin(size=3)
    machine.all_goes_well()
    assert machine.leader.serving
    echo = Ending("another rank was lost", restart_helps=True, blame=Blame.FOLLOWED)
    for rank in (0, 2):
        machine.nodes[rank].end(echo)
        machine.leader.receive(machine.nodes[rank].report(), solicited=True)
    assert machine.leader.pop_failure() is None
    machine.time_passes(2.0)
    cause = "rank 1 on node-1: does not answer"
    assert machine.leader.pop_failure() == AttemptFailure(cause, cause)


def serving_alone() -> Groups:
    machine = Groups()
    machine.begin(size=1)
    machine.all_goes_well()
    assert machine.leader.serving
    return machine


def test_a_group_of_one_shows_its_own_reason_without_a_rank() -> None:
    machine = serving_alone()
    machine.nodes[0].end(Ending("signal=9", True, "decode_stream"))
    machine.leader.receive(machine.nodes[0].report(), solicited=True)
    failure = machine.leader.pop_failure()
    expected = ("Terminated (signal=9) during decode_stream", "signal=9, during decode_stream")
    assert failure == AttemptFailure(*expected)


def test_a_group_of_one_never_waits_for_another_rank_so_its_wedge_is_final() -> None:
    machine = serving_alone()
    machine.nodes[0].end(Ending("wedge", False, "warmup", blame=Blame.WAITED))
    machine.leader.receive(machine.nodes[0].report(), solicited=True)
    assert machine.leader.phase == "failed"
    assert "another start would not help" in str(machine.leader.cause)
    machine.leader.restart()
    machine.all_goes_well()
    assert machine.leader.serving


def test_the_files_of_a_group_of_one_may_take_longer_than_joining_a_group() -> None:
    machine = Groups()
    machine.begin(size=1)
    machine.leader_asks(0)
    machine.leader_asks(0)
    assert machine.nodes[0].life.state is RunnerState.JOINING
    machine.time_passes(100.0)
    assert machine.leader.phase == "joining"


class TestGroups(Groups.TestCase):
    settings = settings(max_examples=60, stateful_step_count=40, deadline=None, derandomize=True)
