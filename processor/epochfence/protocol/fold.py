"""The fold: every transition of a call, in the order of the protocol's table.

    fold(record | None, event, at, seq, max_body_bytes) -> (record | None, decision)

It is total: every event on every record gets exactly one decision, never an exception. It is pure: the same
arguments give the same answer, and the record that was given is not changed.

Theory of operation
-------------------
A call has one *live epoch*. It is raised, never lowered; raising it is the *fence* that makes every older epoch
stale. An epoch's *kind* says who may speak in it: the tool (CALL) or the compensator (COMPENSATION). Once a
COMPENSATION epoch was raised no CALL epoch follows. At most one epoch commits, and only while it is live; an epoch
raised after the commit is a *clean-up*, which can settle but never commit.

How a step goes:

1. `first_row` finds the first row of the table that fits. It is the one place where epochs are compared.
2. The row acts on a copy of the record. The row says what it decides (verdict, reason), and whether the event, when
   it is a rejected Result that tells of an effect, is an *orphan*.
3. Orphans: evidence of an effect that no commit owns makes the call suspected, or flagged and perhaps unsettled.
4. Double compensation: a second execution of one compensation key is named, whatever the verdict.

`ROWS` is the table. docs/protocol.md is made from it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from epochfence.protocol.decisions import Decision, Dispatch, about_no_record, about_record
from epochfence.protocol.events import Compensation, Event, Input, Result, Timeout, ToolCall
from epochfence.protocol.records import (
    REMEMBERED_ORPHANS,
    CallRecord,
    RememberedOrphan,
    body_digest,
    call_digest,
    cancelled,
    copy_record,
    digest,
    opened,
)
from epochfence.protocol.vocabulary import (
    Action,
    Cause,
    CommittedBy,
    Kind,
    Orphans,
    Outcome,
    Policy,
    Reason,
    Status,
    Verdict,
)

Answer = tuple[Verdict, Reason, Dispatch | None]
Act = Callable[[CallRecord, Event, Input, int], Answer]
"""What a row does to the (copied) record, given (record, event, at, max_body_bytes)."""


class Orphan(Enum):
    """What a row makes of a rejected Result that tells of an effect; the value is what the table says."""

    NO = ""
    FLAG = "*flag*"
    ORPHAN = "*orphan?*"


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """One row of the table. `event`, `record` and `effect` are its words; verdict and reason are what it decides.

    A row without `act` rejects, for `reason`, and changes no state of the call.
    """

    number: int
    event: str
    record: str
    verdict: Verdict
    reason: Reason
    effect: str = ""
    orphan: Orphan = Orphan.NO
    act: Act | None = None


# ---- what the rows do -------------------------------------------------------------------------------------------


def _raise(after: CallRecord, kind: Kind, at: Input) -> Dispatch:
    """*Raise(kind)*: live + 1 with that kind, and a dispatch for it. On a committed call that is a clean-up."""
    after.live_epoch += 1
    after.live_since_ms = at.timestamp_ms
    after.kind = kind
    after.closed_at_ms = None
    if kind is Kind.CALL:
        return _dispatch_call(after)
    if after.status is not Status.COMMITTED:
        after.status = Status.COMPENSATING
    if after.key_first_epoch is None or (
        after.orphan_epoch is not None and after.orphan_epoch >= after.key_first_epoch
    ):
        # The first key, or an orphan came after the current one was sent: the new dispatch must undo an effect that
        # may have landed later than what the current key already undid.
        after.key_number += 1
        after.key_first_epoch = after.live_epoch
        after.first_ok_execution = None
    after.compensations_sent += 1
    return Dispatch(
        Action.COMPENSATE,
        after.tool,
        after.arguments,
        after.live_epoch,
        _incarnation(after),
        None,
        after.compensation_key,
        after.effective_key,
        after.evidence,
        after.timeout_ms,
        after.compensations_sent,
    )


def _dispatch_call(after: CallRecord) -> Dispatch:
    after.calls_sent += 1
    return Dispatch(
        Action.CALL,
        after.tool,
        after.arguments,
        after.live_epoch,
        _incarnation(after),
        after.runner,
        after.effective_key,
        None,
        None,
        after.timeout_ms,
        after.calls_sent,
    )


def _incarnation(record: CallRecord) -> int:
    assert record.incarnation is not None, "only a call that was opened is dispatched"
    return record.incarnation


def _commit(after: CallRecord, by: CommittedBy, outcome: Outcome) -> None:
    after.status = Status.COMMITTED
    after.committed_epoch = after.live_epoch
    after.committed_by = by
    after.committed_outcome = outcome
    after.commit_seq = after.seq


def _settle_orphans(after: CallRecord) -> None:
    """An OK was accepted: it settles what was orphaned before its epoch was raised, and nothing later."""
    if after.orphan_epoch is None or after.live_epoch > after.orphan_epoch:
        after.unsettled = False


def _reject_ill_formed(after: CallRecord, event: Event, at: Input, max_body_bytes: int) -> Answer:
    return Verdict.REJECT, ill_formed(event, max_body_bytes) or Reason.MALFORMED, None


def _raise_compensation(after: CallRecord, event: Event, at: Input, max_body_bytes: int) -> Answer:
    return Verdict.FENCE, Reason.NONE, _raise(after, Kind.COMPENSATION, at)


def _raise_call(after: CallRecord, event: Event, at: Input, max_body_bytes: int) -> Answer:
    return Verdict.FENCE, Reason.NONE, _raise(after, Kind.CALL, at)


def _escalate(after: CallRecord, event: Event, at: Input, max_body_bytes: int) -> Answer:
    if after.status is not Status.COMMITTED:
        after.status = Status.ESCALATED
    return Verdict.ESCALATE, Reason.EPOCHS_EXHAUSTED, None


def _raise_for_possible_effect(after: CallRecord, event: Event, at: Input, max_body_bytes: int) -> Answer:
    assert type(event) is Result
    if event.outcome is Outcome.UNKNOWN:
        _note_evidence(after, event, max_body_bytes)
    kind = Kind.CALL if _may_replay(after, Cause.DEADLINE) else Kind.COMPENSATION
    return Verdict.FENCE, Reason.OUTCOME_UNKNOWN, _raise(after, kind, at)


def _commit_result(after: CallRecord, event: Event, at: Input, max_body_bytes: int) -> Answer:
    assert type(event) is Result
    _commit(after, CommittedBy.RESULT, event.outcome)
    after.content_digest = body_digest(event.payload)
    return Verdict.COMMIT, Reason.NONE, None


def _commit_compensation(after: CallRecord, event: Event, at: Input, max_body_bytes: int) -> Answer:
    _commit(after, CommittedBy.COMPENSATION, Outcome.OK)
    _settle_orphans(after)
    return Verdict.COMMIT, Reason.NONE, None


def _settle(after: CallRecord, event: Event, at: Input, max_body_bytes: int) -> Answer:
    after.settled_epoch = after.live_epoch
    _settle_orphans(after)
    return Verdict.SETTLE, Reason.NONE, None


def _retry_compensation(after: CallRecord, event: Event, at: Input, max_body_bytes: int) -> Answer:
    if after.live_epoch >= after.max_epochs:
        return _escalate(after, event, at, max_body_bytes)
    return Verdict.FENCE, Reason.COMPENSATION_FAILED, _raise(after, Kind.COMPENSATION, at)


# ---- the table --------------------------------------------------------------------------------------------------

_V, _R = Verdict, Reason
_NONE = "none"

# fmt: off
R1 = Row(1, "ToolCall", _NONE, _V.OPEN, _R.NONE, "live 1 (CALL), INFLIGHT; dispatch CALL")
R2 = Row(2, "ToolCall", "CANCELLED", _V.REJECT, _R.FENCED_BEFORE_OPEN)
R3 = Row(3, "ToolCall", "any, same tool, arguments and idempotency_key", _V.REJECT, _R.DUPLICATE,
         "(the decision tells where the call stands)")
R4 = Row(4, "ToolCall", "any", _V.REJECT, _R.CONFLICT)
R5 = Row(5, "Timeout, epoch 1, no incarnation", _NONE, _V.FENCE, _R.FENCED_BEFORE_OPEN,
         "live 2 (COMPENSATION), CANCELLED; no dispatch: nothing was sent")
R6 = Row(6, "ill-formed", _NONE, _V.REJECT, _R.MALFORMED, "", Orphan.FLAG, _reject_ill_formed)
R7 = Row(7, "any", _NONE, _V.REJECT, _R.UNKNOWN_CALL, "", Orphan.FLAG)
R8 = Row(8, "any with an incarnation that is not the record's (a CANCELLED one has none); any Result or Compensation "
         "on CANCELLED", "any", _V.REJECT, _R.WRONG_INCARNATION, "", Orphan.FLAG)
R9 = Row(9, "ill-formed", "any", _V.REJECT, _R.MALFORMED, "", Orphan.ORPHAN, _reject_ill_formed)
R10 = Row(10, "any", "epoch > live", _V.REJECT, _R.FUTURE_EPOCH, "", Orphan.ORPHAN)
R11 = Row(11, "any", "epoch < live", _V.REJECT, _R.STALE_EPOCH, "", Orphan.ORPHAN)
R12 = Row(12, "Timeout", "CANCELLED", _V.REJECT, _R.CLOSED)
R13 = Row(13, "Timeout, cause OPERATOR", "ESCALATED or unsettled", _V.FENCE, _R.NONE,
          "Raise(COMPENSATION), whatever the budget", Orphan.NO, _raise_compensation)
R14 = Row(14, "Timeout", "COMMITTED, no clean-up in flight", _V.REJECT, _R.ALREADY_COMMITTED,
          "the epoch is **not** raised")
R15 = Row(15, "Timeout", "live = max_epochs or more", _V.ESCALATE, _R.EPOCHS_EXHAUSTED,
          "ESCALATED (COMMITTED stays so)", Orphan.NO, _escalate)
R16 = Row(16, "Timeout, cause DEADLINE or WATCHDOG", "INFLIGHT, REPLAY, live + 2 ≤ max_epochs", _V.FENCE, _R.NONE,
          "Raise(CALL)", Orphan.NO, _raise_call)
R17 = Row(17, "Timeout", "any", _V.FENCE, _R.NONE, "Raise(COMPENSATION)", Orphan.NO, _raise_compensation)
R18 = Row(18, "Result", "live epoch is a COMPENSATION", _V.REJECT, _R.WRONG_SPEAKER, "", Orphan.ORPHAN)
R19 = Row(19, "Compensation", "live epoch is a CALL", _V.REJECT, _R.WRONG_SPEAKER)
R20 = Row(20, "Result", "COMMITTED, same outcome and payload", _V.REJECT, _R.DUPLICATE)
R21 = Row(21, "Result", "COMMITTED", _V.REJECT, _R.CONFLICT, "", Orphan.ORPHAN)
R22 = Row(22, "Result UNKNOWN; or FAILURE with epoch > 1 or on a suspected record", "INFLIGHT", _V.FENCE,
          _R.OUTCOME_UNKNOWN, "as rows 16 and 17 with cause DEADLINE: an effect is possible", Orphan.NO,
          _raise_for_possible_effect)
R23 = Row(23, "Result SUCCESS or FAILURE", "INFLIGHT", _V.COMMIT, _R.NONE, "committed = live, COMMITTED", Orphan.NO,
          _commit_result)
R24 = Row(24, "Compensation", "the live epoch is done", _V.REJECT, _R.DUPLICATE)
R25 = Row(25, "Compensation OK", "COMPENSATING or ESCALATED", _V.COMMIT, _R.NONE, "committed = live, COMMITTED",
          Orphan.NO, _commit_compensation)
R26 = Row(26, "Compensation OK", "a clean-up in flight", _V.SETTLE, _R.NONE, "the commit stands", Orphan.NO, _settle)
R27 = Row(27, "Compensation", "any", _V.FENCE, _R.COMPENSATION_FAILED, "as rows 15 and 17 (15 keeps its own reason)",
          Orphan.NO, _retry_compensation)
# fmt: on

# fmt: off
ROWS = (
    R1, R2, R3, R4, R5, R6, R7, R8, R9, R10, R11, R12, R13, R14,
    R15, R16, R17, R18, R19, R20, R21, R22, R23, R24, R25, R26, R27,
)
# fmt: on
"""The table, in order. The first row that fits decides."""


def first_row(record: CallRecord | None, event: Event, max_body_bytes: int) -> Row:
    """The first row that fits. Read it beside the table: the order of the tests is the order of the rows."""
    if type(event) is ToolCall:
        if record is None:
            return R1
        if record.status is Status.CANCELLED:
            return R2
        same = record.call_digest == call_digest(event.tool, event.arguments, event.idempotency_key)
        return R3 if same else R4
    if record is None:
        if type(event) is Timeout and event.epoch == 1 and event.incarnation is None:
            return R5
        return R7 if ill_formed(event, max_body_bytes) is None else R6
    if event.incarnation != record.incarnation and not (type(event) is Timeout and event.incarnation is None):
        return R8
    if ill_formed(event, max_body_bytes) is not None:
        return R9
    epoch = event.epoch
    assert epoch is not None, "an event without an epoch is ill-formed"
    # The one place where epochs are compared, and all three ways: >, <, and what follows is ==.
    if epoch > record.live_epoch:
        return R10
    if epoch < record.live_epoch:
        return R11
    if type(event) is Timeout:
        return _timeout_row(record, event)
    if type(event) is Result:
        return _result_row(record, event)
    return _compensation_row(record, event)


def _timeout_row(record: CallRecord, event: Timeout) -> Row:
    if record.status is Status.CANCELLED:
        return R12
    if event.cause is Cause.OPERATOR and (record.status is Status.ESCALATED or record.unsettled):
        return R13
    if record.status is Status.COMMITTED and record.live_epoch_is_done:
        return R14
    if record.live_epoch >= record.max_epochs:
        return R15
    return R16 if _may_replay(record, event.cause) else R17


def _result_row(record: CallRecord, event: Result) -> Row:
    if record.kind is Kind.COMPENSATION:
        return R18
    if record.status is Status.COMMITTED:
        same = event.outcome is record.committed_outcome and body_digest(event.payload) == record.content_digest
        return R20 if same else R21
    if event.outcome is Outcome.UNKNOWN:
        return R22
    if event.outcome is Outcome.FAILURE and (event.epoch != 1 or record.suspected):
        return R22
    return R23


def _compensation_row(record: CallRecord, event: Compensation) -> Row:
    if record.kind is Kind.CALL:
        return R19
    if record.live_epoch_is_done:
        return R24
    if event.outcome is Outcome.OK:
        return R26 if record.status is Status.COMMITTED else R25
    return R27


def ill_formed(event: Event, max_body_bytes: int) -> Reason | None:
    """Why an event is ill-formed (MALFORMED or OVERSIZED), or None. A ToolCall never is: admission has seen to it."""
    if type(event) is ToolCall:
        return None
    if event.epoch is None or event.epoch < 1:
        return Reason.MALFORMED
    if type(event) is Timeout:
        return None
    if not event.execution_id:
        return Reason.MALFORMED
    if event.payload is None:
        return Reason.MALFORMED if event.outcome is Outcome.SUCCESS else None
    return Reason.OVERSIZED if len(event.payload) > max_body_bytes else None


def _may_replay(record: CallRecord, cause: Cause) -> bool:
    """Whether the next epoch sends the call again (row 16). One epoch is always left for its compensation."""
    return (
        record.policy is Policy.REPLAY
        and record.status is Status.INFLIGHT
        and (cause is Cause.DEADLINE or cause is Cause.WATCHDOG)
        and record.live_epoch + 2 <= record.max_epochs
    )


# ---- orphans and double compensation ----------------------------------------------------------------------------


def _tells_of_effect(event: Event) -> bool:
    return type(event) is Result and (event.outcome is Outcome.SUCCESS or event.outcome is Outcome.UNKNOWN)


def _note_evidence(after: CallRecord, event: Result, max_body_bytes: int) -> None:
    """The newest payload that told of an effect. One over the limit is passed by: an older one is better than none."""
    if event.payload is not None and len(event.payload) <= max_body_bytes:
        after.evidence = event.payload


def _orphan(after: CallRecord, event: Result, at: Input, max_body_bytes: int) -> tuple[bool, Dispatch | None]:
    """A rejected Result told of an effect. Is it flagged, and what is dispatched for it?"""
    if after.status is Status.COMMITTED and after.committed_outcome is Outcome.SUCCESS:
        return False, None  # the effect is the one that was committed
    _note_evidence(after, event, max_body_bytes)
    if after.status is Status.INFLIGHT:
        after.suspected = True
        return False, None
    orphan = RememberedOrphan(digest(event.execution_id), event.outcome)
    if orphan in after.remembered_orphans:
        return False, None
    after.remembered_orphans = (*after.remembered_orphans, orphan)[-REMEMBERED_ORPHANS:]
    if after.orphans is not Orphans.COMPENSATE:
        return True, None
    after.unsettled = True
    after.orphan_epoch = after.live_epoch
    after.closed_at_ms = None
    if after.live_epoch < after.max_epochs:
        return True, _raise(after, Kind.COMPENSATION, at)
    if after.status is not Status.COMMITTED:
        after.status = Status.ESCALATED
    return True, None


def _is_double_compensation(after: CallRecord, event: Compensation) -> bool:
    """Whether a well-formed OK is under another execution than the first one under the current key; notes the first."""
    epoch, first = event.epoch, after.key_first_epoch
    if event.outcome is not Outcome.OK or epoch is None or first is None or not first <= epoch <= after.live_epoch:
        return False
    execution = digest(event.execution_id)
    if after.first_ok_execution is None:
        after.first_ok_execution = execution
        return False
    return after.first_ok_execution != execution


# ---- a step -----------------------------------------------------------------------------------------------------


def fold(
    record: CallRecord | None, event: Event, at: Input, seq: int, max_body_bytes: int
) -> tuple[CallRecord | None, Decision]:
    """Decide an admitted event on the record of its call.

    `at` is the record that the event came in (its timestamp is the broker's, in ms), `seq` the number of the
    decision in its partition. Returns the record after it, None where there is still none, and the decision.
    """
    row = first_row(record, event, max_body_bytes)
    if row is R1:
        assert type(event) is ToolCall
        after = opened(event, at, seq)
        return after, about_record(after, event, at, _V.OPEN, _R.NONE, _dispatch_call(after), False)
    if row is R5:
        after = cancelled(event, at, seq)
        return after, about_record(after, event, at, _V.FENCE, _R.FENCED_BEFORE_OPEN, None, False)
    if record is None:
        reason = ill_formed(event, max_body_bytes) or row.reason
        return None, about_no_record(event, event.call_id, at, seq, reason, _tells_of_effect(event))
    after = copy_record(record)
    after.seq = seq
    after.call_seq += 1
    orphaned = False
    if row.act is None:
        verdict, reason, dispatch = _V.REJECT, row.reason, None
    else:
        verdict, reason, dispatch = row.act(after, event, at, max_body_bytes)
    if row.orphan is not Orphan.NO and _tells_of_effect(event):
        assert type(event) is Result
        if row.orphan is Orphan.FLAG:
            orphaned = True
        else:
            orphaned, dispatch = _orphan(after, event, at, max_body_bytes)
    elif type(event) is Compensation and row is not R8 and row is not R9 and _is_double_compensation(after, event):
        reason = Reason.DOUBLE_COMPENSATION
    if after.arguments is not None and after.orphans is not Orphans.COMPENSATE and after.closed:
        after.arguments = None  # nothing will be dispatched for it any more
    return after, about_record(after, event, at, verdict, reason, dispatch, orphaned)
