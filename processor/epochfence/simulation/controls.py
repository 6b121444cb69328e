"""Controls: the fold with one thing left out, so that a person sees a property go red before it goes green.

They change what the fold returned, never the fold.
"""

from enum import StrEnum

from epochfence.protocol.admission import Parameters
from epochfence.protocol.decisions import Decision
from epochfence.protocol.records import CallRecord, copy_record
from epochfence.protocol.vocabulary import EventType
from epochfence.simulation.lines import LineFold


class Control(StrEnum):
    """What is left out."""

    NO_FENCE = "no-fence"


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


def line_fold(control: Control | None, parameters: Parameters) -> LineFold:
    """The fold over lines, with what the control leaves out."""
    return LineFold(parameters) if control is None else NoFence(parameters)
