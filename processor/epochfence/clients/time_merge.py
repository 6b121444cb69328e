"""Several partitions in one order: that of the broker's timestamps."""

from collections import deque
from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from typing import NamedTuple


class CommittedRecord(NamedTuple):
    """A record that is committed, and where it stands. `timestamp_ms` is the broker's."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None


class TimeMerge:
    """Takes the records of each partition in order, and gives those of all in the order of their timestamps.

    Partitions have no common order, but one line after another must be printed, and by the clock is how a person
    reads them. At the same millisecond the lower partition comes first. A record is held while a partition that is
    not at its end has nothing to compare it with. One that has been at its end is never waited for again.
    """

    def __init__(self, unfinished: Iterable[int]) -> None:
        self._unfinished = set(unfinished)
        self._missing = set(self._unfinished)
        """Partitions that a record may still come from which is earlier than those held."""
        self._held: dict[int, deque[CommittedRecord]] = {}
        self._held_bytes: dict[int, int] = {}
        self._heads: list[tuple[int, int]] = []
        """A heap of (timestamp_ms, partition), one for each partition that has a record here."""

    @property
    def unfinished(self) -> frozenset[int]:
        """Partitions that have not reached their end."""
        return frozenset(self._unfinished)

    @property
    def held(self) -> bool:
        """Whether a record waits here."""
        return bool(self._heads)

    @property
    def partitions(self) -> tuple[int, ...]:
        """Partitions that any record has come from."""
        return tuple(self._held)

    def held_of(self, partition: int) -> tuple[int, int]:
        """How many records of a partition wait here, and the bytes of their values."""
        return len(self._held.get(partition, ())), self._held_bytes.get(partition, 0)

    def offer(self, record: CommittedRecord) -> None:
        """The next record of its partition."""
        number = record.partition
        queue = self._held.setdefault(number, deque())
        if not queue:
            heappush(self._heads, (record.timestamp_ms, number))
            self._missing.discard(number)
        queue.append(record)
        self._held_bytes[number] = self._held_bytes.get(number, 0) + len(record.value or b"")

    def reached_end(self, partition: int) -> None:
        """Nothing more of the partition is waited for."""
        self._unfinished.discard(partition)
        self._missing.discard(partition)

    def take(self) -> Iterator[CommittedRecord]:
        """The records whose turn it is."""
        while self._heads and not self._missing:
            _, number = heappop(self._heads)
            queue = self._held[number]
            record = queue.popleft()
            self._held_bytes[number] -= len(record.value or b"")
            if queue:
                heappush(self._heads, (queue[0].timestamp_ms, number))
            elif number in self._unfinished:
                self._missing.add(number)
            yield record
