"""The explorer's processor: the production fold of a partition, with what it cannot tell apart taken away.

A record is interned without its numbering and times, which no row looks at, so that the same situation is one state
however it came about. Each (record, event) is then folded once and remembered: the exploration walks over numbers.
"""

from collections.abc import Callable
from typing import NamedTuple

from epochfence.protocol.admission import Parameters
from epochfence.protocol.decisions import Decision, Dispatch
from epochfence.protocol.events import Event, Input, ToolCall
from epochfence.protocol.fold import first_row
from epochfence.protocol.invariants import InvariantError
from epochfence.protocol.partition import Partition
from epochfence.protocol.records import CallRecord, copy_record
from epochfence.protocol.vocabulary import Action, Kind, Outcome, Reason, Status, Verdict
from epochfence.simulation.simulate import snapshot
from epochfence.wire.schemas import TOPIC_OF_EVENT

NO_RECORD = 0
"""The number of a call that has no record yet."""


class Step(NamedTuple):
    """What the fold made of an event."""

    after: int
    """The record after it, by its number."""
    dispatch: Dispatch | None
    commits_result: bool
    row: int
    """The row of the table that decided; 0 where the event was not admitted."""
    broken: str | None
    """Which property of the log this step breaks."""
    said: str
    """The decision in short, as `simulate` prints it; empty where an invariant broke."""


class Folding:
    """Interned records, and the fold over them."""

    def __init__(self, call: ToolCall, double_compensation_is_wrong: bool) -> None:
        self.call = call
        self._double_is_wrong = double_compensation_is_wrong
        self._numbers: dict[tuple[object, ...], int] = {}
        self.records: list[CallRecord | None] = [None]
        self._parameters = Parameters()
        self.folds = 0
        """How often the production fold was asked."""

    def step(self, number: int, event: Event) -> Step:
        """Decide an event on a record. Never raises: an InvariantError is a broken property like others."""
        before = self.records[number]
        self.folds += 1
        partition = Partition(self._parameters)
        if before is not None:
            # Forgetting is not explored: stream time stands still, and nothing that is closed grows old.
            partition.load([before])
        row = first_row(before, event, self._parameters.max_body_bytes)
        try:
            decision = decide(partition, event)
        except InvariantError as error:
            why = str(error).rpartition(" (")[0]  # without the place in the log: there is none here
            return Step(number, None, False, row.number, f"an invariant of the fold: {why}", "")
        after = partition.calls.get(self.call.call_id)
        admitted = decision.call_seq > 0 or row.number in (6, 7)
        return Step(
            self.number_of(after),
            decision.dispatch,
            decision.verdict is Verdict.COMMIT and decision.committed_outcome is not Outcome.OK,
            row.number if admitted else 0,
            self._broken(before, after, decision),
            snapshot(decision),
        )

    def number_of(self, record: CallRecord | None) -> int:
        """The number of a record, the same for all that the fold cannot tell apart."""
        if record is None:
            return NO_RECORD
        plain = _without_numbering(record)
        values = tuple(getattr(plain, name) for name in CallRecord.__slots__)
        number = self._numbers.get(values)
        if number is None:
            number = self._numbers[values] = len(self.records)
            self.records.append(plain)
        return number

    def _broken(self, before: CallRecord | None, after: CallRecord | None, decision: Decision) -> str | None:
        for prop in LOG_PROPERTIES:
            broken = prop(before, after, decision)
            if broken is not None:
                return broken
        if self._double_is_wrong and decision.reason is Reason.DOUBLE_COMPENSATION:
            return "an honest compensator was told of a double compensation"
        dispatch = decision.dispatch
        if dispatch is not None and (dispatch.tool, dispatch.arguments) != (self.call.tool, self.call.arguments):
            return "a dispatch asks for something else than the call did"
        return None


def decide(partition: Partition, event: Event) -> Decision:
    """One event, in a transaction of its own, as `epochfence fold` does."""
    # A call that opens has offset 0 as its incarnation, so that lives are told apart by the honest and hostile alike.
    at = Input("epochfence." + TOPIC_OF_EVENT[type(event)], 0, 0, 0, event.event_id)
    decision = partition.decide(event, event.call_id.encode(), event.call_id, True, at)
    partition.end_transaction(None)
    partition.commit()
    return decision


def _without_numbering(record: CallRecord) -> CallRecord:
    plain = copy_record(record)
    plain.seq = plain.call_seq = plain.opened_at_ms = plain.live_since_ms = 0
    plain.commit_seq = None if record.commit_seq is None else 0
    plain.closed_at_ms = None if record.closed_at_ms is None else 0
    # These only ride along to the dispatch.
    plain.evidence = None
    plain.calls_sent = plain.compensations_sent = 0
    # Their order only tells which is forgotten first, and there are never as many here.
    plain.remembered_orphans = tuple(sorted(record.remembered_orphans))
    return plain


# ---- what must hold of every step -------------------------------------------------------------------------------

LogProperty = Callable[[CallRecord | None, CallRecord | None, Decision], str | None]


def _one_commit(before: CallRecord | None, after: CallRecord | None, decision: Decision) -> str | None:
    if before is None or before.committed_epoch is None:
        return None
    if decision.verdict is Verdict.COMMIT or after is None or after.committed_epoch != before.committed_epoch:
        return "a second epoch committed"
    return None


def _epochs_never_fall(before: CallRecord | None, after: CallRecord | None, decision: Decision) -> str | None:
    if before is not None and (after is None or after.live_epoch < before.live_epoch):
        return "the live epoch fell"
    return None


def _a_fence_before_every_act(before: CallRecord | None, after: CallRecord | None, decision: Decision) -> str | None:
    dispatch = decision.dispatch
    if dispatch is None:
        return None
    was = 0 if before is None else before.live_epoch
    if not was < dispatch.epoch == decision.live_epoch:
        return f"a {dispatch.action} was dispatched in epoch {dispatch.epoch}, and no fence ended epoch {was} before"
    if dispatch.action is Action.CALL and before is not None and before.kind is Kind.COMPENSATION:
        return "a CALL was dispatched after a compensation"
    return None


def _only_the_live_epoch_commits(before: CallRecord | None, after: CallRecord | None, decision: Decision) -> str | None:
    if decision.verdict is not Verdict.COMMIT or before is None:
        return None
    if decision.epoch != before.live_epoch:
        return f"epoch {decision.epoch} committed while {before.live_epoch} was live"
    return None


def _nobody_is_left_waiting(before: CallRecord | None, after: CallRecord | None, decision: Decision) -> str | None:
    raised = after is not None and before is not None and after.live_epoch > before.live_epoch
    if raised and decision.dispatch is None and decision.status is not Status.CANCELLED:
        return "an epoch was raised, and nobody was asked to act in it"
    return None


LOG_PROPERTIES: tuple[LogProperty, ...] = (
    _one_commit,
    _epochs_never_fall,
    _a_fence_before_every_act,
    _only_the_live_epoch_commits,
    _nobody_is_left_waiting,
)
"""Said here without the fold's own invariants, which are checked beside them."""
