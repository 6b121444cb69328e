"""The watchdog: asks to end epochs that stay open, so that every call ends or is escalated though its planner be dead.

It never decides. It sends a Timeout like anyone's, with the cause WATCHDOG, and again until a decision is seen.
Which epochs are due (protocol, *Watchdog*): those open for longer than timeout_ms + grace, of a call that is INFLIGHT,
COMPENSATING, or has a clean-up in flight. Open for how long is counted on the monotonic clock from when the partition
arrived or the epoch was raised, or by stream time since the epoch began if that is more; but nothing is due before the
grace is over on the own clock: what the epoch waits for may lie in a backlog that has not been read.
"""

import heapq
from collections.abc import Iterable
from dataclasses import dataclass

from epochfence.protocol.records import CallRecord
from epochfence.protocol.vocabulary import Status


@dataclass(slots=True)
class _Watched:
    record: CallRecord
    seen_s: float
    """When this epoch was first seen, on the monotonic clock."""


class Watchdog:
    """Watches the open epochs of one partition. `grace_ms` is watchdog_grace_ms; `now_s` the monotonic clock."""

    def __init__(self, grace_ms: int, records: Iterable[CallRecord], now_s: float) -> None:
        self._grace_ms = grace_ms
        self._open: dict[str, _Watched] = {}
        self._by_clock: list[tuple[float, str]] = []
        """(when due on the monotonic clock, call_id). May hold entries of epochs that have ended."""
        self._by_stream_time: list[tuple[int, str]] = []
        """(when due in stream time, call_id), likewise."""
        self.observe(records, now_s)

    def observe(self, records: Iterable[CallRecord], now_s: float) -> None:
        """These records are committed as they are now."""
        for record in records:
            if not is_open(record):
                self._open.pop(record.call_id, None)
                continue
            watched = self._open.get(record.call_id)
            if watched is not None and _same_epoch(watched.record, record):
                watched.record = record
                continue
            self._open[record.call_id] = _Watched(record, now_s)
            allowed_ms = record.timeout_ms + self._grace_ms
            heapq.heappush(self._by_clock, (now_s + allowed_ms / 1000, record.call_id))
            heapq.heappush(self._by_stream_time, (record.live_since_ms + allowed_ms, record.call_id))

    def forget(self, call_ids: Iterable[str]) -> None:
        """These calls are in the table no more."""
        for call_id in call_ids:
            self._open.pop(call_id, None)

    def due(self, now_s: float, stream_time_ms: int) -> list[CallRecord]:
        """The records whose live epoch is to be asked to end now. Each is due again after another grace."""
        while self._by_stream_time and self._by_stream_time[0][0] <= stream_time_ms:
            call_id = heapq.heappop(self._by_stream_time)[1]
            watched = self._open.get(call_id)
            if watched is not None and self._allowed_until_ms(watched.record) <= stream_time_ms:
                heapq.heappush(self._by_clock, (watched.seen_s + self._grace_ms / 1000, call_id))
        due: dict[str, CallRecord] = {}
        while self._by_clock and self._by_clock[0][0] <= now_s:
            call_id = heapq.heappop(self._by_clock)[1]
            watched = self._open.get(call_id)
            if watched is None or call_id in due or not self._is_due(watched, now_s, stream_time_ms):
                continue
            due[call_id] = watched.record
        for call_id, record in due.items():
            # A clean-up that has used up its epochs is escalated and stays in flight: once is enough.
            if record.status is not Status.COMMITTED or record.live_epoch < record.max_epochs:
                heapq.heappush(self._by_clock, (now_s + self._grace_ms / 1000, call_id))
        return list(due.values())

    def _is_due(self, watched: _Watched, now_s: float, stream_time_ms: int) -> bool:
        """An entry may be that of an epoch which has ended: the one that is open now has its own time."""
        own_ms = (now_s - watched.seen_s) * 1000
        allowed_ms = watched.record.timeout_ms + self._grace_ms
        by_stream_time = stream_time_ms >= self._allowed_until_ms(watched.record)
        return own_ms >= self._grace_ms and (own_ms >= allowed_ms or by_stream_time)

    def _allowed_until_ms(self, record: CallRecord) -> int:
        return record.live_since_ms + record.timeout_ms + self._grace_ms


def is_open(record: CallRecord) -> bool:
    """Whether something is expected in the live epoch. An ESCALATED call waits for a person."""
    return record.status in (Status.INFLIGHT, Status.COMPENSATING) or record.cleanup_in_flight


def _same_epoch(one: CallRecord, other: CallRecord) -> bool:
    return (one.incarnation, one.live_epoch) == (other.incarnation, other.live_epoch)
