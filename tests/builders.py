"""Events of one call, with everything that a test does not care about filled in, and a partition to say them to."""

from __future__ import annotations

from typing import Any

from epochfence.protocol.admission import Parameters
from epochfence.protocol.decisions import Decision
from epochfence.protocol.events import Compensation, Event, Input, Result, Timeout, ToolCall
from epochfence.protocol.fold import first_row
from epochfence.protocol.partition import Partition
from epochfence.protocol.records import CallRecord
from epochfence.protocol.vocabulary import Cause, Orphans, Outcome, Policy
from epochfence.wire.schemas import TOPIC_OF_EVENT

CALL_ID = "7"
HELD = b"seat 12 held"


def call(**more: Any) -> ToolCall:
    """S. The first event of a history has offset 0, and so the call's incarnation is 0."""
    fields: dict[str, Any] = {
        "event_id": "s",
        "call_id": CALL_ID,
        "tool": "reserve",
        "arguments": b"seat 12",
        "idempotency_key": "",
        "timeout_ms": 1000,
        "policy": Policy.COMPENSATE,
        "orphans": Orphans.REPORT,
        "max_epochs": 8,
        "runner": "gateway",
        "source": "planner",
        "occurred_at_ms": 0,
    }
    return ToolCall(**{**fields, **more})


def timeout(
    epoch: int | None, cause: Cause = Cause.DEADLINE, incarnation: int | None = None, call_id: str = CALL_ID
) -> Timeout:
    """T, that does not know the incarnation."""
    return Timeout("t", call_id, epoch, incarnation, cause, "planner", 0)


def result(epoch: int | None, outcome: Outcome = Outcome.SUCCESS, **more: Any) -> Result:
    """R, with a payload if it is a success."""
    return Result(**_answer(epoch, outcome, HELD if outcome is Outcome.SUCCESS else None, more))


def compensation(epoch: int | None, outcome: Outcome = Outcome.OK, **more: Any) -> Compensation:
    """C."""
    return Compensation(**_answer(epoch, outcome, None, more))


def _answer(epoch: int | None, outcome: Outcome, payload: bytes | None, more: dict[str, Any]) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "event_id": "a",
        "call_id": CALL_ID,
        "epoch": epoch,
        "incarnation": 0,
        "execution_id": "x",
        "outcome": outcome,
        "payload": payload,
        "source": "gateway",
        "occurred_at_ms": 0,
    }
    return {**fields, **more}


class Log:
    """One partition: each event said to it is a transaction, its offset the number of events before it."""

    def __init__(self, *events: Event, parameters: Parameters | None = None) -> None:
        self.partition = Partition(parameters or Parameters())
        self.decisions: list[Decision] = []
        self.row = 0
        """The number of the row that decided the last event; 0 for admission's rejections."""
        for event in events:
            self.say(event)

    @property
    def record(self) -> CallRecord:
        """Call 7 as it stands."""
        return self.partition.calls[CALL_ID]

    def at(self, event: Event, timestamp_ms: int) -> Input:
        """Where the next event would stand."""
        topic = "epochfence." + TOPIC_OF_EVENT[type(event)]
        return Input(topic, 0, len(self.decisions), timestamp_ms, event.event_id)

    def say(self, event: Event, timestamp_ms: int = 0) -> Decision:
        """Decide an event and commit."""
        before = self.partition.calls.get(event.call_id)
        row = first_row(before, event, self.partition.parameters.max_body_bytes)
        at = self.at(event, timestamp_ms)
        decision = self.partition.decide(event, event.call_id.encode(), event.call_id, True, at)
        self.partition.end_transaction(None)
        self.partition.commit()
        admitted = decision.call_seq > 0 or row.number in (6, 7)
        self.row = row.number if admitted else 0
        self.decisions.append(decision)
        return decision
