"""What must hold after every step. One that breaks is a bug in the fold: the partition stops and says so."""

from epochfence.protocol.decisions import Decision
from epochfence.protocol.records import CallRecord
from epochfence.protocol.vocabulary import Action, Kind, Reason, Status, Verdict


class InvariantError(AssertionError):
    """The fold contradicted the protocol. Never a sender's fault."""


def check_step(before: CallRecord | None, after: CallRecord | None, decision: Decision) -> None:
    """Raise InvariantError if the step from `before` to `after`, answered by `decision`, breaks the protocol."""
    broken = _broken(before, after, decision)
    if broken:
        where = decision.input
        raise InvariantError(
            f"{broken} (call {decision.call_id!r}, seq {decision.seq}, {where.topic}[{where.partition}]@{where.offset})"
        )


def _broken(before: CallRecord | None, after: CallRecord | None, decision: Decision) -> str | None:
    if after is None:
        if before is not None:
            return "a step took a record away"
        if decision.dispatch is not None or decision.verdict is not Verdict.REJECT or decision.call_seq:
            return "a decision about no record did more than reject"
        return None
    if before is None:
        if decision.call_seq != 1 or decision.verdict not in (Verdict.OPEN, Verdict.FENCE):
            return "a record began with something else than OPEN or a fence before it"
    elif after is not before:
        broken = _broken_transition(before, after, decision)
        if broken:
            return broken
    return _broken_state(after, decision)


def _broken_transition(before: CallRecord, after: CallRecord, decision: Decision) -> str | None:
    if after.live_epoch < before.live_epoch:
        return "the live epoch fell"
    if after.live_epoch > before.live_epoch + 1:
        return "the live epoch was raised by more than one"
    if before.kind is Kind.COMPENSATION and after.kind is Kind.CALL:
        return "a CALL epoch followed a COMPENSATION epoch"
    if before.committed_epoch is not None and after.committed_epoch != before.committed_epoch:
        return "a second epoch committed"
    if after.incarnation != before.incarnation:
        return "the incarnation changed"
    if after.call_seq != before.call_seq + 1:
        return "call_seq has a gap"
    committed_now = before.committed_epoch is None and after.committed_epoch is not None
    if committed_now != (decision.verdict is Verdict.COMMIT):
        return "a COMMIT and the record's commit do not go together"
    if committed_now and after.committed_epoch != before.live_epoch:
        return "an epoch committed that was not live"
    raised = after.live_epoch > before.live_epoch
    if raised != (decision.dispatch is not None):
        return "an epoch was raised without a dispatch, or a dispatch without a fence"
    return None


def _broken_state(after: CallRecord, decision: Decision) -> str | None:
    dispatch = decision.dispatch
    if decision.live_epoch != after.live_epoch or decision.status is not after.status:
        return "the decision tells another state than the record's"
    if (after.committed_epoch is None) != (after.status is not Status.COMMITTED):
        return "COMMITTED and a committed epoch do not go together"
    if after.status is Status.INFLIGHT and (after.kind is not Kind.CALL or after.live_epoch >= after.max_epochs):
        return "an INFLIGHT call has no epoch left for its compensation"
    if after.status in (Status.COMPENSATING, Status.ESCALATED) and after.kind is not Kind.COMPENSATION:
        return "a call is compensated in a CALL epoch"
    if dispatch is None:
        return None
    if (dispatch.epoch, dispatch.incarnation) != (after.live_epoch, after.incarnation):
        return "a dispatch carries another fence token than the live one"
    if (dispatch.action is Action.CALL) != (after.kind is Kind.CALL):
        return "a dispatch asks for what its epoch does not allow"
    if decision.verdict is Verdict.REJECT and not decision.orphaned_effect:
        return "a rejection dispatched something, and not for an orphan"
    if decision.reason is Reason.DUPLICATE:
        return "a duplicate dispatched something"
    return None
