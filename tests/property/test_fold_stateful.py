"""The fold of a partition under any events, in any order, with commits and aborts between them.

Three oracles stand beside it, none of which knows the table: the properties of `simulation.properties`, a twin
partition to which only what was committed is said (an abort must look as if it had never happened), and a few rules
that are said here.
"""

from __future__ import annotations

import copy
import os
from typing import Any, NamedTuple

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from epochfence.protocol.admission import Parameters
from epochfence.protocol.decisions import Decision
from epochfence.protocol.events import Compensation, Event, Input, Result, Timeout, ToolCall
from epochfence.protocol.partition import Partition
from epochfence.protocol.records import REMEMBERED_ORPHANS, CallRecord
from epochfence.protocol.vocabulary import Cause, Kind, Orphans, Outcome, Policy, Reason, Status, Verdict
from epochfence.simulation.properties import check
from tests.builders import call, compensation, result, timeout

RETENTION_MS = 50
MAX_BODY_BYTES = 4
CALL_IDS = ("7", "8", "9")
FAR_EPOCHS = (None, -1, 0, 1, 2, 3, 99, 2**63 - 1, -(2**63))

call_ids = st.sampled_from(CALL_IDS)
bodies = st.sampled_from([None, b"", b"a", b"b", b"abcd", b"abcde"])
executions = st.sampled_from(["", "x", "y"])
causes = st.sampled_from([Cause.DEADLINE, Cause.CANCELLED, Cause.WATCHDOG, Cause.OPERATOR])
near = st.sampled_from([0, 0, 0, 0, 0, -1, 1, None])
"""How far from the live epoch an event speaks; None: anywhere."""
steps_ms = st.sampled_from([0, 0, 0, 1, 1, 7, 7, 60, -3])


class Said(NamedTuple):
    event: Event | None
    decision: Decision


class Answer(NamedTuple):
    """How an event claims its token, drawn before the call is known."""

    near: int | None
    far: int | None
    stranger: bool
    """It answers another incarnation."""


answers = st.builds(Answer, near, st.sampled_from(FAR_EPOCHS), st.sampled_from([False] * 9 + [True]))


class FoldMachine(RuleBasedStateMachine):
    @initialize()
    def start(self) -> None:
        self.parameters = Parameters(RETENTION_MS, MAX_BODY_BYTES)
        self.partition = Partition(self.parameters)
        self.twin = Partition(self.parameters)
        self.now_ms = 0
        self.committed: list[Said] = []
        self.pending: list[tuple[Event | None, Input, Said]] = []

    # ---- events ----------------------------------------------------------------------------------------------

    def say(self, event: Event | None, step_ms: int) -> Decision:
        self.now_ms = max(0, self.now_ms + step_ms)
        if type(event) is ToolCall:
            event.occurred_at_ms = self.now_ms
        call_id = "" if event is None else event.call_id
        at = Input("epochfence.x", 0, self.partition.seq, self.now_ms, "")
        before = self.partition.calls.get(call_id)
        kept = copy.deepcopy(before)
        decision = self.partition.decide(event, call_id.encode(), call_id, True, at)
        assert before == kept, "the record that was given is changed"
        self.pending.append((event, at, Said(event, copy.deepcopy(decision))))
        assert_rules(before, self.partition.calls.get(call_id), decision)
        return decision

    def epoch(self, call_id: str, answer: Answer) -> int | None:
        record = self.partition.calls.get(call_id)
        if answer.near is None or record is None:
            return answer.far
        return record.live_epoch + answer.near

    def incarnation(self, call_id: str, answer: Answer) -> int:
        record = self.partition.calls.get(call_id)
        own = None if record is None else record.incarnation
        return -2 if answer.stranger or own is None else own

    @rule(
        call_id=call_ids,
        arguments=bodies,
        key=st.sampled_from(["", "k"]),
        policy=st.sampled_from([Policy.COMPENSATE, Policy.REPLAY]),
        orphans=st.sampled_from([Orphans.REPORT, Orphans.COMPENSATE]),
        max_epochs=st.sampled_from([2, 3, 4, 8, 101]),
        step_ms=steps_ms,
    )
    def tool_call(self, step_ms: int, **fields: Any) -> None:
        key = fields.pop("key")
        self.say(call(idempotency_key=key, **fields), step_ms)

    @rule(call_id=call_ids, answer=answers, cause=causes, named=st.booleans(), step_ms=steps_ms)
    def timeout(self, call_id: str, answer: Answer, cause: Cause, named: bool, step_ms: int) -> None:
        incarnation = self.incarnation(call_id, answer) if named else None
        self.say(timeout(self.epoch(call_id, answer), cause, incarnation, call_id), step_ms)

    @rule(
        call_id=call_ids,
        answer=answers,
        outcome=st.sampled_from([Outcome.SUCCESS, Outcome.FAILURE, Outcome.UNKNOWN]),
        payload=bodies,
        execution_id=executions,
        step_ms=steps_ms,
    )
    def result(self, call_id: str, answer: Answer, outcome: Outcome, step_ms: int, **more: Any) -> None:
        token = {"call_id": call_id, "incarnation": self.incarnation(call_id, answer)}
        self.say(result(self.epoch(call_id, answer), outcome, **token, **more), step_ms)

    @rule(
        call_id=call_ids,
        answer=answers,
        outcome=st.sampled_from([Outcome.OK, Outcome.OK, Outcome.FAILED, Outcome.UNKNOWN]),
        payload=bodies,
        execution_id=executions,
        step_ms=steps_ms,
    )
    def compensation(self, call_id: str, answer: Answer, outcome: Outcome, step_ms: int, **more: Any) -> None:
        token = {"call_id": call_id, "incarnation": self.incarnation(call_id, answer)}
        self.say(compensation(self.epoch(call_id, answer), outcome, **token, **more), step_ms)

    @rule(
        call_id=st.sampled_from(["7", "8"]),
        orphans=st.sampled_from([Orphans.REPORT, Orphans.COMPENSATE]),
        max_epochs=st.sampled_from([2, 3, 8]),
    )
    def committed_by_a_compensation(self, call_id: str, **more: Any) -> None:
        """A history that chance alone seldom finds, after which late answers are orphans."""
        self.say(call(call_id=call_id, arguments=b"a", **more), 0)
        for make in (timeout, compensation):
            record = self.partition.calls[call_id]
            event = make(record.live_epoch)
            event.call_id, event.incarnation = call_id, record.incarnation
            if record.incarnation is not None:
                self.say(event, 0)

    @rule(call_id=call_ids, count=st.integers(1, 40))
    def many_late_executions(self, call_id: str, count: int) -> None:
        """More orphans than are remembered."""
        record = self.partition.calls.get(call_id)
        if record is not None and record.incarnation is not None:
            for number in range(count):
                more = {"call_id": call_id, "incarnation": record.incarnation, "execution_id": f"late {number}"}
                self.say(result(1, Outcome.UNKNOWN, **more), 0)

    @rule(step_ms=steps_ms)
    def poison(self, step_ms: int) -> None:
        assert self.say(None, step_ms).reason is Reason.UNDECODABLE

    # ---- transactions ----------------------------------------------------------------------------------------

    def end(self) -> None:
        waiting = (Status.INFLIGHT, Status.COMPENSATING, Status.ESCALATED)
        open_before = {c for c, record in self.partition.calls.items() if record.unsettled or record.status in waiting}
        stream_time_ms = self.partition.stream_time_ms
        ended = self.partition.end_transaction(None)
        assert self.partition.stream_time_ms >= stream_time_ms
        for call_id in ended.forgotten:
            assert call_id not in open_before, "a call that is open was forgotten"
            assert call_id not in self.partition.calls
        for call_id, record in ended.changed.items():
            assert self.partition.calls[call_id] is record
        for record in self.partition.calls.values():
            assert (record.closed_at_ms is not None) == record.closed
            assert not record.closed or not (record.unsettled or record.status in waiting), "an open call is closed"
            if record.closed_at_ms is not None:
                assert record.closed_at_ms + RETENTION_MS >= self.partition.stream_time_ms, "kept too long"

    @rule()
    def commit(self) -> None:
        self.end()
        self.partition.commit()
        for event, at, said in self.pending:
            call_id = "" if event is None else event.call_id
            assert self.twin.decide(event, call_id.encode(), call_id, True, at) == said.decision
            self.committed.append(said)
        self.twin.end_transaction(None)
        self.twin.commit()
        self.pending = []
        assert contents(self.partition) == contents(self.twin)

    @precondition(lambda self: self.pending)
    @rule(at_the_end=st.booleans())
    def abort(self, at_the_end: bool) -> None:
        if at_the_end:
            self.end()
        self.partition.undo()
        self.pending = []
        assert contents(self.partition) == contents(self.twin), "an abort left something behind"

    @invariant()
    def seq_counts_every_input(self) -> None:
        assert self.partition.seq == len(self.committed) + len(self.pending)

    def teardown(self) -> None:
        """What was committed, read as a log by somebody who knows none of the fold."""
        said = [*self.committed, *(said for _, _, said in self.pending)]
        assert check([each.event for each in said], [each.decision for each in said], MAX_BODY_BYTES) == []


def contents(partition: Partition) -> Any:
    return partition.seq, partition.stream_time_ms, partition.parameters, partition.calls, list(partition._closed)


def assert_rules(before: CallRecord | None, after: CallRecord | None, decision: Decision) -> None:
    """What holds of every step, said of records."""
    if after is None or decision.call_seq == 0:
        assert after is before, "a decision about no record touches none"
        return
    assert after.seq == decision.seq
    assert after.call_seq == decision.call_seq
    assert len(after.remembered_orphans) <= REMEMBERED_ORPHANS
    assert after.evidence is None or len(after.evidence) <= MAX_BODY_BYTES
    assert not (after.cleanup_in_flight and not after.unsettled), "a clean-up is for what is unsettled"
    assert not (after.unsettled and after.orphans is Orphans.REPORT)
    if after.status is Status.ESCALATED:
        assert after.live_epoch >= after.max_epochs
    if after.status is Status.INFLIGHT:
        assert after.kind is Kind.CALL
        assert not after.remembered_orphans, "an orphan of an INFLIGHT call only makes it suspected"
    if decision.verdict in (Verdict.REJECT, Verdict.ESCALATE) and decision.dispatch is None and before is not None:
        assert after.live_epoch == before.live_epoch
        assert after.status in (before.status, Status.ESCALATED)
    if decision.dispatch is not None:
        assert decision.dispatch.evidence is None or decision.dispatch.evidence == after.evidence
        assert after.arguments is not None or decision.dispatch.arguments is None
        assert decision.dispatch.attempt == after.calls_sent + after.compensations_sent - (
            after.compensations_sent if decision.dispatch.action == "CALL" else after.calls_sent
        )


assert set(Event.__args__) == {ToolCall, Timeout, Result, Compensation}, "a new kind of event needs a rule here"  # type: ignore[attr-defined]

# About 10 s on a core of its own; EPOCHFENCE_TEST_DEPTH multiplies the number of runs.
FoldMachine.TestCase.settings = settings(
    max_examples=300 * int(os.environ.get("EPOCHFENCE_TEST_DEPTH", "1")),
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestFold = FoldMachine.TestCase
