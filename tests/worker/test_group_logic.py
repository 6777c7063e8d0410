"""A group under any order of messages, ends, losses and restarts, without processes or clocks.

The real leader, memberships and plan; only what they would start is pretended.
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
from skulkd.worker.causes import Blame, Ending
from skulkd.worker.crash_window import CrashWindow
from skulkd.worker.group_lead import GroupLead, Seat
from skulkd.worker.group_messages import Goal, Report
from skulkd.worker.group_seat import GroupSeat
from skulkd.worker.options import CrashPolicy, GroupLimits
from skulkd.worker.plan import (
    Action,
    Connect,
    EndAttempt,
    Join,
    Load,
    Local,
    LocalRunner,
    StartRunner,
    WarmUp,
    plan,
)
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
    """One rank: its seat, and the process it would have."""

    def __init__(self, group: Any, rank: int, clock: Any) -> None:
        self.group = group
        self.node_id = NodeId(f"node-{rank}")
        self.runner_id = RunnerId(f"runner-{rank}")
        self.seat = GroupSeat(group, rank, clock)
        self.seat.prepared = cast(Any, object())
        self.status: RunnerStatus = RunnerIdle()
        self.asked: set[type] = set()

    def report(self) -> Report:
        return self.seat.report(type(self.status).__name__)

    def act(self, port: int) -> Action | None:
        """The next action of the real plan, done."""
        runner = LocalRunner(
            self.group.instance_id,
            "up" if self.seat.has_process else "down",
            self.status,
            frozenset(self.asked),
            group=self.seat.view(None),
        )
        local = Local(self.node_id, 0.0, {self.runner_id: runner})
        actions = plan(State(instances={self.group.instance_id: self.group}), local)
        if not actions:
            return None
        (action,) = actions
        match action:
            case Join():
                self.seat.hold(cast(Any, Port(port)))
            case StartRunner():
                assert self.seat.joined
                assert self.seat.membership.ports[self.seat.rank] == self.seat.port.port  # type: ignore[union-attr]
                self.seat.has_process = True
                self.seat.process_attempt = self.seat.membership.attempt
                self.status, self.asked = RunnerIdle(), set()
            case EndAttempt():
                self.end(Ending("ended with its group", restart_helps=True))
            case Connect():
                self.status = RunnerConnecting()
            case Load():
                self.status = RunnerLoaded()
            case WarmUp():
                self.status = RunnerReady()
            case _:
                raise AssertionError(action)
        return action

    def end(self, ending: Ending) -> None:
        """Its process is gone and reaped."""
        self.seat.has_process = False
        self.status = RunnerFailed()
        if self.seat.process_attempt == self.seat.membership.attempt:
            self.seat.close(ending)


class Groups(RuleBasedStateMachine):
    @initialize(size=st.integers(2, 3))
    def begin(self, size: int) -> None:
        self.now = 0.0
        self.ports = 0
        self.group = a_group([NodeId(f"node-{rank}") for rank in range(size)])
        self.nodes = [Node(self.group, rank, self.clock) for rank in range(size)]
        self.goals: list[Goal] = []
        self.reports: list[Report] = []
        self.lead = self.new_lead()

    def clock(self) -> float:
        return self.now

    def new_lead(self) -> GroupLead:
        seats = [Seat(rank, node.node_id, node.node_id) for rank, node in enumerate(self.nodes)]
        crashes = CrashWindow(CrashPolicy(limit=10**9, first_delay_s=0.1), self.clock)
        limits = GroupLimits(join_s=50, settle_s=1)
        return GroupLead(self.group.instance_id, seats, crashes, limits, self.clock)

    def node(self, pick: int) -> Node:
        return self.nodes[pick % len(self.nodes)]

    # Messages travel in any order, are doubled, and some never arrive.

    @rule(pick=PICK)
    def lead_speaks(self, pick: int) -> None:
        self.lead.look()
        self.goals.append(self.lead.goal(pick % len(self.nodes)))

    @rule(pick=PICK)
    def rank_speaks(self, pick: int) -> None:
        self.reports.append(self.node(pick).report())

    @precondition(lambda self: self.goals)
    @rule(pick=PICK, again=st.booleans())
    def goal_arrives(self, pick: int, again: bool) -> None:
        index = pick % len(self.goals)
        goal = self.goals[index] if again else self.goals.pop(index)
        self.nodes[goal.rank].seat.membership.obey(goal)

    @precondition(lambda self: self.reports)
    @rule(pick=PICK, again=st.booleans())
    def report_arrives(self, pick: int, again: bool) -> None:
        index = pick % len(self.reports)
        self.lead.hear(self.reports[index] if again else self.reports.pop(index))

    @rule(pick=PICK)
    def lead_asks(self, pick: int) -> None:
        """A question and its answer; unlike news, answers do not come late."""
        rank = pick % len(self.nodes)
        node = self.nodes[rank]
        node.seat.membership.obey(self.lead.goal(rank))
        self.lead.hear(node.report(), asked=True)

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
        if node.seat.has_process:
            node.end(CRASH)

    @rule(pick=PICK)
    def rank_is_lost(self, pick: int) -> None:
        self.lead.lose(pick % len(self.nodes), "lost")

    @rule(pick=PICK)
    def node_starts_anew(self, pick: int) -> None:
        rank = pick % len(self.nodes)
        self.nodes[rank] = Node(self.group, rank, self.clock)
        if rank == 0:
            self.lead = self.new_lead()

    @rule(seconds=st.sampled_from([0.1, 2.0, 100.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.lead.look()

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
            self.lead.hear(node.report(), asked=True)
        self.lead.look()
        for rank, node in enumerate(self.nodes):
            node.seat.membership.obey(self.lead.goal(rank))

    @invariant()
    def one_attempt_at_most(self) -> None:
        if not hasattr(self, "nodes"):
            return
        running = {node.seat.process_attempt for node in self.nodes if node.seat.has_process}
        assert len(running) <= 1, running

    def teardown(self) -> None:
        """When the trouble ends the group serves again, all of it in one attempt."""
        if not hasattr(self, "nodes"):
            return
        for _ in range(80):
            self.exchange()
        assert self.lead.serving, (self.lead.phase, [node.report() for node in self.nodes])
        assert {node.seat.process_attempt for node in self.nodes} == {self.lead.attempt}
        assert all(node.seat.has_process for node in self.nodes)


def test_a_rank_that_says_nothing_is_the_reason_when_all_others_followed() -> None:
    machine = Groups()
    machine.begin(size=3)
    machine.all_goes_well()
    assert machine.lead.serving
    echo = Ending("another rank was lost", restart_helps=True, blame=Blame.FOLLOWED)
    for rank in (0, 2):
        machine.nodes[rank].end(echo)
        machine.lead.hear(machine.nodes[rank].report(), asked=True)
    assert machine.lead.take_verdict() is None
    machine.time_passes(2.0)
    assert machine.lead.take_verdict() == "rank 1 on node-1: does not answer"


class TestGroups(Groups.TestCase):
    settings = settings(max_examples=60, stateful_step_count=40, deadline=None, derandomize=True)
