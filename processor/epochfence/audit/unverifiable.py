"""Calls that cannot be folded again, because an input of theirs was deleted. What the log says of them is followed.

Memory: an entry for each such call that the processor itself still remembers; forgetting follows the protocol's rule.
"""

from collections import deque
from dataclasses import dataclass

from epochfence.protocol.decisions import Decision
from epochfence.protocol.records import CallRecord
from epochfence.protocol.vocabulary import Status, Verdict


@dataclass(slots=True)
class _Call:
    settled_epoch: int | None = None
    closed_at_ms: int | None = None
    """Stream time when it became closed."""
    closes: bool = False
    """It became closed in the transaction that is being read."""


class Unverifiable:
    """The calls of one partition. Tell it every decision about one, and every transaction's end."""

    def __init__(self) -> None:
        self._calls: dict[str, _Call] = {}
        self._closed: deque[tuple[int, str]] = deque()
        self._new: list[str] = []
        self.seen = 0
        """How many there were in all."""

    def __contains__(self, call_id: str) -> bool:
        return call_id in self._calls

    def add(self, call_id: str, record: CallRecord | None) -> None:
        """An input of this call is gone; `record` is what was folded of it before."""
        if call_id in self._calls:
            return
        self.seen += 1
        self._new.append(call_id)
        call = self._calls[call_id] = _Call()
        if record is not None:
            call.settled_epoch, call.closed_at_ms = record.settled_epoch, record.closed_at_ms
            if record.closed_at_ms is not None:
                self._closed.append((record.closed_at_ms, call_id))

    def follow(self, decision: Decision) -> None:
        """A decision about one of these calls."""
        call = self._calls[decision.call_id]
        if decision.verdict is Verdict.SETTLE:
            call.settled_epoch = decision.live_epoch
        done = decision.live_epoch in (decision.committed_epoch, call.settled_epoch)
        closed = decision.status is Status.CANCELLED or (
            decision.status is Status.COMMITTED and not decision.unsettled and done
        )
        call.closes = closed and call.closed_at_ms is None
        if call.closes:
            self._new.append(decision.call_id)
        elif not closed:
            call.closed_at_ms = None

    def end_transaction(self, stream_time_ms: int, retention_ms: int) -> tuple[list[str], list[str]]:
        """(calls that are new among these, calls that the processor forgets now)."""
        new, self._new = self._new, []
        for call_id in new:
            call = self._calls.get(call_id)
            if call is not None and call.closes:
                call.closed_at_ms, call.closes = stream_time_ms, False
                self._closed.append((stream_time_ms, call_id))
        forgotten = []
        while self._closed and self._closed[0][0] + retention_ms < stream_time_ms:
            closed_at_ms, call_id = self._closed.popleft()
            call = self._calls.get(call_id)
            if call is not None and call.closed_at_ms == closed_at_ms:
                del self._calls[call_id]
                forgotten.append(call_id)
        return new, forgotten
