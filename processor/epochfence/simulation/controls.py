"""Controls: the fold with one thing wrong, so that a person sees a property go red before it goes green.

They change what the fold was given or what it returned, never the fold.
"""

from enum import StrEnum

from epochfence.protocol.admission import Parameters
from epochfence.protocol.decisions import Decision
from epochfence.protocol.events import Compensation, Event, Result
from epochfence.protocol.records import CallRecord, copy_record
from epochfence.protocol.vocabulary import Action, EventType
from epochfence.simulation.lines import LineFold
from epochfence.wire.jsonl import EventLine


class Control(StrEnum):
    """What is wrong."""

    NO_FENCE = "no-fence"
    EARLY_COMPENSATION = "early-compensation"
    MISSING_EPOCH = "missing-epoch"
    ONE_KEY = "one-key"
    FORGET_UNSETTLED = "forget-unsettled"


WHAT_IS_WRONG = {
    Control.NO_FENCE: "a timeout raises no epoch",
    Control.EARLY_COMPENSATION: "a compensation is sent before the bump, in the epoch that it ends",
    Control.MISSING_EPOCH: "an answer without an epoch is taken for the live one",
    Control.ONE_KEY: "a clean-up repeats the key of the compensation before it",
    Control.FORGET_UNSETTLED: "a late success is not remembered as unsettled",
}


class NoFence(LineFold):
    """The fold with the bump left out: a timeout dispatches what it would, and the epoch stays as it was.

    That is a planner that compensates without a fence. The epoch that the timeout wanted to end is still live, so a
    late success commits in it, after the compensation was sent. (A timeout that comes before its call has nothing to
    fence, and is left alone.)
    """

    def __init__(self, parameters: Parameters) -> None:
        super().__init__(parameters)
        self._records: dict[str, CallRecord] = {}
        """Each call as it stood after its last event."""

    def decide(self, line: bytes) -> Decision:
        decision = super().decide(line)
        calls = self.partition.calls
        after = calls.get(decision.call_id)
        if after is None:
            self._records.pop(decision.call_id, None)
            return decision
        before = self._records.get(decision.call_id)
        if before is not None and decision.event is EventType.TIMEOUT and decision.dispatch is not None:
            after = calls[decision.call_id] = _without_the_fence(before, after)
            decision.live_epoch, decision.status = after.live_epoch, after.status
            decision.dispatch = decision.dispatch._replace(epoch=after.live_epoch)
        self._records[decision.call_id] = after
        return decision


def _without_the_fence(before: CallRecord, after: CallRecord) -> CallRecord:
    unfenced = copy_record(after)
    unfenced.live_epoch, unfenced.live_since_ms = before.live_epoch, before.live_since_ms
    unfenced.kind, unfenced.status = before.kind, before.status
    return unfenced


class EarlyCompensation(LineFold):
    """A compensation carries the epoch that it is to end: it was sent before the fence, and is stale or too early."""

    def decide(self, line: bytes) -> Decision:
        decision = super().decide(line)
        dispatch = decision.dispatch
        if dispatch is not None and dispatch.action is Action.COMPENSATE:
            decision.dispatch = dispatch._replace(epoch=dispatch.epoch - 1)
        return decision


class MissingEpoch(LineFold):
    """An answer that echoes no epoch is heard as if it had named the live one."""

    def _with_incarnation(self, read: EventLine) -> Event:
        event = super()._with_incarnation(read)
        record = self.partition.calls.get(event.call_id)
        if (type(event) is Result or type(event) is Compensation) and event.epoch is None and record is not None:
            event.epoch = record.live_epoch
        return event


class OneKey(LineFold):
    """Every compensation of a call has one key, so that a compensator skips the clean-up of a later effect as done."""

    def decide(self, line: bytes) -> Decision:
        decision = super().decide(line)
        dispatch = decision.dispatch
        if dispatch is not None and dispatch.action is Action.COMPENSATE:
            first_key = f"{decision.call_id}@{dispatch.incarnation}:compensate"
            decision.dispatch = dispatch._replace(idempotency_key=first_key)
        return decision


class ForgetUnsettled(LineFold):
    """A late success is cleaned up like any, but the call does not stand out until that is done, and is forgotten."""

    def decide(self, line: bytes) -> Decision:
        decision = super().decide(line)
        record = self.partition.calls.get(decision.call_id)
        if record is not None and record.unsettled:
            settled = self.partition.calls[decision.call_id] = copy_record(record)
            settled.unsettled = False
        decision.unsettled = False
        return decision


_FOLDS: dict[Control, type[LineFold]] = {
    Control.NO_FENCE: NoFence,
    Control.EARLY_COMPENSATION: EarlyCompensation,
    Control.MISSING_EPOCH: MissingEpoch,
    Control.ONE_KEY: OneKey,
    Control.FORGET_UNSETTLED: ForgetUnsettled,
}


def line_fold(control: Control | None, parameters: Parameters) -> LineFold:
    """The fold over lines, with what the control makes wrong."""
    return LineFold(parameters) if control is None else _FOLDS[control](parameters)
