"""The merge order of a partition's four inputs (protocol, *Merge order*).

Four topics have no common order, so the task makes one: it keeps the head of each input, waits until each has a
record or is at its end, and takes the one with the lowest broker timestamp; at the same millisecond ToolCall, Result,
Compensation, Timeout. Reading topic by topic instead would find every timeout before the result that was in time.
"""

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from epochfence.wire.schemas import INPUT_TOPICS

_TIE_ORDER = ("tool-calls", "results", "compensations", "timeouts")
_RANK = tuple(_TIE_ORDER.index(topic) for topic in INPUT_TOPICS)
"""Of each input, by its index in INPUT_TOPICS, its place among records of the same millisecond."""


class InputRecord(NamedTuple):
    """A record of one of the four inputs, by its topic's index in INPUT_TOPICS. They sort in merge order."""

    timestamp_ms: int
    rank: int
    input: int
    offset: int
    key: bytes | None
    value: bytes | None


class Merge:
    """The four heads of one partition. Records are offered as they are fetched and taken in merge order."""

    def __init__(self, positions: Sequence[int]) -> None:
        """`positions`: of each input the offset that is fetched first."""
        self._queues: tuple[deque[InputRecord], ...] = tuple(deque() for _ in INPUT_TOPICS)
        self._at_end = [False] * len(INPUT_TOPICS)
        self._bytes = [0] * len(INPUT_TOPICS)
        self._positions = list(positions)

    def offer(self, input: int, timestamp_ms: int, offset: int, key: bytes | None, value: bytes | None) -> None:
        """A record has been fetched; its input is not known to be at its end any more."""
        self._queues[input].append(InputRecord(timestamp_ms, _RANK[input], input, offset, key, value))
        self._bytes[input] += len(key or b"") + len(value or b"")
        self._at_end[input] = False
        self._positions[input] = offset + 1

    def position(self, input: int) -> int:
        """The offset after the newest record that was offered."""
        return self._positions[input]

    def has_records(self) -> bool:
        """Whether any input has a record that waits for its turn."""
        return any(self._queues)

    def reached_end(self, input: int) -> None:
        """Everything that the input has for now was offered: the end-of-partition event says so, or a position that
        is the high watermark. (Offsets alone do not: control records hide the end from them.)"""
        self._at_end[input] = True

    def is_at_end(self, input: int) -> bool:
        """Whether nothing waits in the input's queue, and its end is believed to be reached."""
        return self._at_end[input] and not self._queues[input]

    def doubt_end(self, input: int) -> None:
        """There may be more than was offered: the head is not known until a record comes or the end is told again."""
        self._at_end[input] = False

    def waiting_for(self) -> list[int]:
        """The inputs whose head is not known: neither a record nor the end. Nothing is taken while there is one."""
        return [i for i, queue in enumerate(self._queues) if not queue and not self._at_end[i]]

    def buffered(self, input: int) -> tuple[int, int]:
        """(records, bytes) that wait in an input's queue."""
        return len(self._queues[input]), self._bytes[input]

    def take(self, limit: int) -> list[InputRecord]:
        """At most `limit` records in merge order, as far as all four heads are known."""
        taken: list[InputRecord] = []
        if self.waiting_for():
            return taken
        heads = [queue for queue in self._queues if queue]
        while heads and len(taken) < limit:
            queue = min(heads, key=_head) if len(heads) > 1 else heads[0]
            record = queue.popleft()
            self._bytes[record.input] -= len(record.key or b"") + len(record.value or b"")
            taken.append(record)
            if not queue:
                if not self._at_end[record.input]:
                    break
                heads.remove(queue)
        return taken

    def put_back(self, records: list[InputRecord]) -> None:
        """Records that were taken, the last ones of a `take`, and could not be decided yet."""
        for record in reversed(records):
            self._queues[record.input].appendleft(record)
            self._bytes[record.input] += len(record.key or b"") + len(record.value or b"")

    def clear(self, positions: Sequence[int]) -> None:
        """Forget all that was offered: the inputs will be fetched again from these offsets."""
        for queue in self._queues:
            queue.clear()
        self._at_end = [False] * len(INPUT_TOPICS)
        self._bytes = [0] * len(INPUT_TOPICS)
        self._positions = list(positions)


def _head(queue: deque[InputRecord]) -> tuple[int, int]:
    return queue[0][:2]
