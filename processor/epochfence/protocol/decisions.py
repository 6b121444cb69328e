"""Decisions, dispatches and checkpoints, as values: schemas/decision.avsc and checkpoint.avsc, field for field."""

from dataclasses import dataclass
from typing import NamedTuple

from epochfence.protocol.events import Compensation, Event, Input, Result, Timeout, ToolCall
from epochfence.protocol.records import CallRecord
from epochfence.protocol.vocabulary import (
    RULES_VERSION,
    Action,
    Cause,
    CommittedBy,
    EventType,
    Outcome,
    Reason,
    Status,
    Verdict,
)


class Dispatch(NamedTuple):
    """What a decision releases to be sent, once it is committed. (incarnation, epoch) is the fence token."""

    action: Action
    tool: str
    arguments: bytes | None
    epoch: int
    incarnation: int
    runner: str | None
    idempotency_key: str
    call_idempotency_key: str | None
    evidence: bytes | None
    timeout_ms: int
    attempt: int


class InputPosition(NamedTuple):
    """How far one input topic has been decided: `next_offset` is the first record not decided yet."""

    topic: str
    topic_id: str
    next_offset: int


class Chain(NamedTuple):
    """Two running SHA-256 values (32 bytes each), over the decisions and over the inputs that they answer."""

    decisions: bytes
    inputs: bytes


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Where a partition stood at the end of a transaction. Times in ms, sizes in bytes."""

    seq: int
    inputs: tuple[InputPosition, ...]
    decisions_topic_id: str
    partition_count: int
    stream_time_ms: int
    retention_ms: int
    max_body_bytes: int
    chain: Chain


@dataclass(slots=True)
class Decision:
    """The durable answer to exactly one input record. Not changed once made, but for the two advisory last fields."""

    seq: int
    call_id: str
    call_seq: int
    verdict: Verdict
    reason: Reason
    event: EventType
    epoch: int | None
    outcome: Outcome | None
    cause: Cause | None
    execution_id: str | None
    input: Input
    incarnation: int | None
    live_epoch: int
    status: Status | None
    committed_epoch: int | None
    committed_by: CommittedBy | None
    committed_outcome: Outcome | None
    commit_seq: int | None
    unsettled: bool
    orphaned_effect: bool
    payload: bytes | None
    dispatch: Dispatch | None
    rules_version: int
    decided_at_ms: int
    checkpoint: Checkpoint | None


_EVENT_TYPES = {
    ToolCall: EventType.TOOL_CALL,
    Timeout: EventType.TIMEOUT,
    Result: EventType.RESULT,
    Compensation: EventType.COMPENSATION,
}

Claims = tuple[EventType, int | None, Outcome | None, Cause | None, str | None]


def _claims(event: Event) -> Claims:
    """What was said: (event, epoch, outcome, cause, execution_id), None where the event has no such field."""
    if type(event) is ToolCall:
        return EventType.TOOL_CALL, None, None, None, None
    if type(event) is Timeout:
        return EventType.TIMEOUT, event.epoch, None, event.cause, None
    return _EVENT_TYPES[type(event)], event.epoch, event.outcome, None, event.execution_id


def about_record(
    after: CallRecord,
    event: Event,
    at: Input,
    verdict: Verdict,
    reason: Reason,
    dispatch: Dispatch | None,
    orphaned_effect: bool,
) -> Decision:
    """The decision about a call, which tells how the call stands after it."""
    kind, epoch, outcome, cause, execution_id = _claims(event)
    payload = event.payload if verdict is Verdict.COMMIT and type(event) is Result else None
    return Decision(
        after.seq,
        after.call_id,
        after.call_seq,
        verdict,
        reason,
        kind,
        epoch,
        outcome,
        cause,
        execution_id,
        at,
        after.incarnation,
        after.live_epoch,
        after.status,
        after.committed_epoch,
        after.committed_by,
        after.committed_outcome,
        after.commit_seq,
        after.unsettled,
        orphaned_effect,
        payload,
        dispatch,
        RULES_VERSION,
        0,
        None,
    )


_NO_CLAIMS: Claims = (EventType.NONE, None, None, None, None)


def about_no_record(
    event: Event | None, call_id: str, at: Input, seq: int, reason: Reason, orphaned_effect: bool
) -> Decision:
    """A rejection that touches no record: admission's, and rows 6 and 7. `event` is None where bytes do not decode."""
    kind, epoch, outcome, cause, execution_id = _NO_CLAIMS if event is None else _claims(event)
    return Decision(
        seq,
        call_id,
        0,
        Verdict.REJECT,
        reason,
        kind,
        epoch,
        outcome,
        cause,
        execution_id,
        at,
        None,
        0,
        None,
        None,
        None,
        None,
        None,
        False,
        orphaned_effect,
        None,
        None,
        RULES_VERSION,
        0,
        None,
    )
