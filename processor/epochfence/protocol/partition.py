"""The fold of one partition: the epoch table, forgetting, and a way back.

A partition is decided in transactions. Between `decide` calls nothing is final: `end_transaction` moves the stream
time and forgets, then either `commit` keeps all of it or `undo` takes all of it back. In `fold` on the command line
each event is a transaction.
"""

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from epochfence.protocol.admission import Parameters, refusal
from epochfence.protocol.decisions import Decision, about_no_record
from epochfence.protocol.events import Event, Input
from epochfence.protocol.fold import fold
from epochfence.protocol.invariants import check_step
from epochfence.protocol.records import CallRecord


class Ended(NamedTuple):
    """What a transaction changed in the table: records that are new or other than before, and calls forgotten."""

    changed: dict[str, CallRecord]
    forgotten: list[str]


class _Saved(NamedTuple):
    seq: int
    stream_time_ms: int
    parameters: Parameters


class Partition:
    """The folded state of one partition. Not safe for threads; one task owns it."""

    def __init__(self, parameters: Parameters, seq: int = 0, stream_time_ms: int = 0) -> None:
        self.parameters = parameters
        self.seq = seq
        """The seq of the last decision."""
        self.stream_time_ms = stream_time_ms
        self.calls: dict[str, CallRecord] = {}
        self._closed: deque[tuple[int, str]] = deque()
        """(closed_at_ms, call_id), oldest first: stream time never falls, so appending keeps the order."""
        self._before: dict[str, CallRecord | None] = {}
        """What each call was before the transaction, for those that it touched."""
        self._saved = _Saved(seq, stream_time_ms, parameters)
        self._newest_ms: int | None = None
        self._dequeued: list[tuple[int, str]] = []
        self._enqueued = 0

    def load(self, records: Iterable[CallRecord]) -> None:
        """Take over the records of a restored table."""
        self.calls = {record.call_id: record for record in records}
        self._closed = deque(
            sorted((r.closed_at_ms, r.call_id) for r in self.calls.values() if r.closed_at_ms is not None)
        )

    def decide(
        self,
        event: Event | None,
        key: bytes | None,
        call_id: str,
        in_its_partition: bool,
        at: Input,
        counts_for_stream_time: bool = True,
    ) -> Decision:
        """The decision about one input record; see `admission.refusal` for the arguments.

        `call_id` names an input whose bytes do not decode.
        """
        seq = self.seq + 1
        reason = refusal(event, key, in_its_partition, at, self.parameters)
        if event is None or reason is not None:
            assert reason is not None
            named = call_id if event is None else event.call_id
            decision = about_no_record(event, named, at, seq, reason, False)
        else:
            before = self.calls.get(event.call_id)
            after, decision = fold(before, event, at, seq, self.parameters.max_body_bytes)
            check_step(before, after, decision)
            if after is not None:
                self._before.setdefault(event.call_id, before)
                self.calls[event.call_id] = after
        self.seq = seq
        if counts_for_stream_time and (self._newest_ms is None or at.timestamp_ms > self._newest_ms):
            self._newest_ms = at.timestamp_ms
        return decision

    def end_transaction(self, now_ms: int | None, parameters: Parameters | None = None) -> Ended:
        """Move the stream time, stamp what has become closed, forget what is old enough.

        `now_ms` is the processor's own clock, beyond which stream time does not go; None where there is no clock.
        `parameters`, if given, are in force from here on: a change takes effect at a transaction's end.
        """
        if self._newest_ms is not None:
            newest = self._newest_ms if now_ms is None else min(self._newest_ms, now_ms)
            self.stream_time_ms = max(self.stream_time_ms, newest)
        for call_id in self._before:
            record = self.calls[call_id]
            if record.closed_at_ms is None and record.closed:
                # The record was made in this transaction and nobody else has it yet, so it is still ours to change.
                record.closed_at_ms = self.stream_time_ms
                self._closed.append((self.stream_time_ms, call_id))
                self._enqueued += 1
        forgotten = self._forget()
        if parameters is not None:
            self.parameters = parameters
        changed = {call_id: self.calls[call_id] for call_id in self._before if call_id in self.calls}
        return Ended(changed, forgotten)

    def _forget(self) -> list[str]:
        forgotten = []
        while self._closed and self._closed[0][0] + self.parameters.retention_ms < self.stream_time_ms:
            entry = self._closed.popleft()
            self._dequeued.append(entry)
            closed_at_ms, call_id = entry
            record = self.calls.get(call_id)
            # A call that was raised again and closed again has a younger entry further back.
            if record is not None and record.closed_at_ms == closed_at_ms:
                self._before.setdefault(call_id, record)
                del self.calls[call_id]
                forgotten.append(call_id)
        return forgotten

    def commit(self) -> None:
        """Keep what the transaction did."""
        self._saved = _Saved(self.seq, self.stream_time_ms, self.parameters)
        self._clear()

    def undo(self) -> None:
        """Take back all that was done since the last commit, forgotten calls and stream time included."""
        for call_id, record in self._before.items():
            if record is None:
                self.calls.pop(call_id, None)
            else:
                self.calls[call_id] = record
        # An entry that was both appended and taken in this transaction lies in both lists: put back, then drop.
        self._closed.extendleft(reversed(self._dequeued))
        for _ in range(self._enqueued):
            self._closed.pop()
        self.seq, self.stream_time_ms, self.parameters = self._saved
        self._clear()

    def _clear(self) -> None:
        self._before = {}
        self._newest_ms = None
        self._dequeued = []
        self._enqueued = 0
