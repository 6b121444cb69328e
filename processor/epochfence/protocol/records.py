"""The call record: the folded state of one call, schemas/call_record.avsc field for field.

A record is never changed once `fold` has returned it: the fold copies, changes the copy and hands it out, so that an
abort can go back to the record before by keeping a reference to it.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from hashlib import sha256
from typing import NamedTuple

from epochfence.protocol.events import Event, Input, ToolCall
from epochfence.protocol.vocabulary import CommittedBy, Kind, Orphans, Outcome, Policy, Status

REMEMBERED_ORPHANS = 32


class RememberedOrphan(NamedTuple):
    """An orphan that has been flagged already. Its execution_id, which may be long, is kept as its SHA-256."""

    execution_digest: bytes
    outcome: Outcome


@dataclass(slots=True)
class CallRecord:
    """The folded state of one call. Times in ms, digests 32 bytes."""

    call_id: str
    incarnation: int | None
    seq: int
    call_seq: int
    opened_at_ms: int
    live_epoch: int
    live_since_ms: int
    kind: Kind
    status: Status
    committed_epoch: int | None
    committed_by: CommittedBy | None
    committed_outcome: Outcome | None
    commit_seq: int | None
    content_digest: bytes | None
    call_digest: bytes | None
    tool: str
    arguments: bytes | None
    idempotency_key: str
    policy: Policy
    orphans: Orphans
    timeout_ms: int
    max_epochs: int
    runner: str
    suspected: bool
    evidence: bytes | None
    unsettled: bool
    orphan_epoch: int | None
    remembered_orphans: tuple[RememberedOrphan, ...]
    key_number: int
    key_first_epoch: int | None
    first_ok_execution: bytes | None
    settled_epoch: int | None
    calls_sent: int
    compensations_sent: int
    closed_at_ms: int | None

    @property
    def live_epoch_is_done(self) -> bool:
        """The live epoch is the committed one, or a clean-up that has settled."""
        return self.live_epoch == self.committed_epoch or self.live_epoch == self.settled_epoch

    @property
    def cleanup_in_flight(self) -> bool:
        """The call is committed, and an epoch raised after the commit has not settled yet."""
        return self.status is Status.COMMITTED and not self.live_epoch_is_done

    @property
    def closed(self) -> bool:
        """Nothing is expected any more: the call may be forgotten when it is old enough."""
        if self.status is Status.CANCELLED:
            return True
        return self.status is Status.COMMITTED and not self.unsettled and self.live_epoch_is_done

    @property
    def effective_key(self) -> str:
        """The key of the call's own effect: the planner's, or `<call_id>@<incarnation>`."""
        return self.idempotency_key or f"{self.call_id}@{self.incarnation}"

    @property
    def compensation_key(self) -> str:
        """The key of the current compensation: the same until an orphan may have landed after it was sent."""
        suffix = f":{self.key_number}" if self.key_number > 1 else ""
        return f"{self.call_id}@{self.incarnation}:compensate{suffix}"


def _copier() -> Callable[[CallRecord], CallRecord]:
    # Written out field by field, as a person would, but from the field list: copying through the constructor takes
    # twice as long, dataclasses.replace ten times, and a record is copied for every event.
    lines = "".join(f"    copy.{field.name} = record.{field.name}\n" for field in fields(CallRecord))
    scope: dict[str, Callable[[CallRecord], CallRecord]] = {}
    exec(  # the text is made here, from the names above
        f"def copy_record(record, new=new, cls=cls):\n    copy = new(cls)\n{lines}    return copy\n",
        {"new": object.__new__, "cls": CallRecord},
        scope,
    )
    return scope["copy_record"]


copy_record = _copier()
"""A new record, equal to the one given."""


def digest(text: str) -> bytes:
    """SHA-256 of an id: ids may be as long as a message, what remembers them may not."""
    return sha256(text.encode()).digest()


def body_digest(body: bytes | None) -> bytes:
    """SHA-256 of a body, null and empty apart."""
    return sha256(b"\0" if body is None else b"\1" + body).digest()


def call_digest(tool: str, arguments: bytes | None, idempotency_key: str) -> bytes:
    """SHA-256 of what makes two ToolCalls the same. Each part is preceded by its length, so that none can slide."""
    hasher = sha256()
    for part in (tool.encode(), idempotency_key.encode()):
        hasher.update(len(part).to_bytes(8, "big"))
        hasher.update(part)
    hasher.update(body_digest(arguments))
    return hasher.digest()


def opened(event: ToolCall, at: Input, seq: int) -> CallRecord:
    """The record of a call that a ToolCall opens, before its first dispatch. Its incarnation is the event's offset."""
    return CallRecord(
        call_id=event.call_id,
        incarnation=at.offset,
        seq=seq,
        call_seq=1,
        opened_at_ms=at.timestamp_ms,
        live_epoch=1,
        live_since_ms=at.timestamp_ms,
        kind=Kind.CALL,
        status=Status.INFLIGHT,
        committed_epoch=None,
        committed_by=None,
        committed_outcome=None,
        commit_seq=None,
        content_digest=None,
        call_digest=call_digest(event.tool, event.arguments, event.idempotency_key),
        tool=event.tool,
        arguments=event.arguments,
        idempotency_key=event.idempotency_key,
        policy=event.policy,
        orphans=event.orphans,
        timeout_ms=event.timeout_ms,
        max_epochs=event.max_epochs,
        runner=event.runner,
        suspected=False,
        evidence=None,
        unsettled=False,
        orphan_epoch=None,
        remembered_orphans=(),
        key_number=0,
        key_first_epoch=None,
        first_ok_execution=None,
        settled_epoch=None,
        calls_sent=0,
        compensations_sent=0,
        closed_at_ms=None,
    )


def cancelled(event: Event, at: Input, seq: int) -> CallRecord:
    """The call was ended before it opened. Nothing was sent, so there is nothing to undo."""
    nothing = ToolCall(
        "", event.call_id, "", None, "", 0, Policy.COMPENSATE, Orphans.REPORT, 0, "", "", event.occurred_at_ms
    )
    record = opened(nothing, at, seq)
    record.incarnation = None
    record.call_digest = None
    record.live_epoch = 2
    record.kind = Kind.COMPENSATION
    record.status = Status.CANCELLED
    return record
