"""The rules of one call, checked over its decisions without the fold: what a reader of the topic could check by hand.

Memory: one small entry for each call that the processor itself still remembers.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from epochfence.audit.findings import FindingKind
from epochfence.protocol.decisions import Decision
from epochfence.protocol.events import Compensation, Event, Result
from epochfence.protocol.vocabulary import Action, Reason, Verdict

Report = Callable[[FindingKind, str], None]
"""(kind, detail): something is wrong with the decision that is being checked."""

_ACCEPTING = frozenset({Verdict.COMMIT, Verdict.SETTLE})
_OPENING = frozenset({Verdict.OPEN, Verdict.FENCE})


@dataclass(slots=True)
class _Release:
    """The committed decision that released the live epoch's send: its offset, and the broker's time of it in ms."""

    action: Action
    epoch: int
    offset: int
    timestamp_ms: int


@dataclass(slots=True)
class _Call:
    incarnation: int | None
    call_seq: int = 0
    live_epoch: int = 0
    committed_epoch: int | None = None
    release: _Release | None = None


class CallRules:
    """Every decision of a partition, in order. `forget` what the processor forgets."""

    def __init__(self) -> None:
        self._calls: dict[str, _Call] = {}

    def check(
        self, decision: Decision, event: Event | None, offset: int, timestamp_ms: int, report: Report
    ) -> str | None:
        """One decision, the event that it answers, and where and when it was appended.

        Returns what should be counted: "late_answers" for an answer that was not of the live epoch, else None.
        """
        if decision.call_seq == 0:
            return None  # about no record
        call = self._call(decision, report)
        late = False
        if isinstance(event, Result | Compensation):
            late = self._answer(call, decision, event, report)
        self._commit(call, decision, report)
        if decision.dispatch is not None:
            call.release = _Release(decision.dispatch.action, decision.dispatch.epoch, offset, timestamp_ms)
        call.call_seq, call.live_epoch = decision.call_seq, decision.live_epoch
        return "late_answers" if late else None

    def __len__(self) -> int:
        """How many calls are remembered."""
        return len(self._calls)

    def forget(self, call_ids: Iterable[str]) -> None:
        """The processor has forgotten these calls."""
        for call_id in call_ids:
            self._calls.pop(call_id, None)

    def _call(self, decision: Decision, report: Report) -> _Call:
        call = self._calls.get(decision.call_id)
        begins = call is None or (decision.call_seq == 1 and decision.verdict in _OPENING)
        if begins:
            call = self._calls[decision.call_id] = _Call(decision.incarnation)
        assert call is not None
        if decision.call_seq != call.call_seq + 1:
            report(FindingKind.CALL_SEQ_GAP, f"call_seq {decision.call_seq} follows {call.call_seq}")
        if begins and decision.call_seq != 1:
            # Its beginning is missing, and was reported. Take the state of the call as this decision tells it.
            call.live_epoch, call.committed_epoch = decision.live_epoch, decision.committed_epoch
            if decision.verdict is Verdict.COMMIT:
                call.committed_epoch = None
        return call

    def _answer(self, call: _Call, decision: Decision, event: Result | Compensation, report: Report) -> bool:
        """Whether the answer was late (or early): its fence token was not the live one."""
        live = event.epoch == call.live_epoch and event.incarnation == call.incarnation
        if not live and (decision.verdict is not Verdict.REJECT or decision.reason is Reason.NONE):
            report(
                FindingKind.STALE_ACCEPTED,
                f"an answer of ({event.incarnation}, {event.epoch}) while ({call.incarnation}, {call.live_epoch}) was "
                f"live: {decision.verdict} {decision.reason}",
            )
        if decision.verdict in _ACCEPTING:
            self._released(call, event, decision, report)
        return not live

    def _released(self, call: _Call, event: Result | Compensation, decision: Decision, report: Report) -> None:
        """Nobody acts before the commit. Broker times of two partitions are compared, so brokers' clocks must agree."""
        action = Action.CALL if isinstance(event, Result) else Action.COMPENSATE
        release, answered_ms = call.release, decision.input.timestamp_ms
        if release is None or (release.action, release.epoch) != (action, event.epoch):
            report(FindingKind.UNRELEASED_ACCEPTED, f"no decision released {action} in epoch {event.epoch}")
        elif release.timestamp_ms > answered_ms:
            report(
                FindingKind.ANSWERED_EARLY,
                f"{action} of epoch {event.epoch} was released at {release.timestamp_ms} ms (offset {release.offset}), "
                f"its answer was written at {answered_ms} ms",
            )

    def _commit(self, call: _Call, decision: Decision, report: Report) -> None:
        if decision.verdict is Verdict.COMMIT and call.committed_epoch is not None:
            report(
                FindingKind.SECOND_COMMIT,
                f"epoch {decision.committed_epoch} commits, and epoch {call.committed_epoch} did before",
            )
        elif decision.verdict is not Verdict.COMMIT and decision.committed_epoch != call.committed_epoch:
            report(
                FindingKind.SECOND_COMMIT,
                f"the committed epoch is {decision.committed_epoch}, and was {call.committed_epoch}",
            )
        call.committed_epoch = decision.committed_epoch
