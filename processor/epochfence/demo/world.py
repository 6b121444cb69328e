"""The world of the story: a seat map, where the effect is, and a record, where the application notes it."""

import threading
from enum import StrEnum
from typing import NamedTuple


class Record(StrEnum):
    """What the application has written down about a call's reservation."""

    NOTHING = "-"
    HELD = "HELD"
    RELEASED = "RELEASED"


class Sight(NamedTuple):
    """The world as one call sees it."""

    seat_is_held: bool
    record: Record

    @property
    def is_ghost(self) -> bool:
        """The record says that a seat is held which nobody holds: nobody will ever release it."""
        return self.record is Record.HELD and not self.seat_is_held


class World:
    """A seat for each call. Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: set[str] = set()
        self._cancelled: set[str] = set()
        self._records: dict[str, Record] = {}

    def hold_seat(self, call_id: str, key: str) -> None:
        """The tool's effect. A key that was cancelled is refused: the compensator's OK is final."""
        with self._lock:
            if key not in self._cancelled:
                self._held.add(call_id)

    def free_seat(self, call_id: str, key: str) -> None:
        """The compensator's effect: what the key did is absent, and stays so."""
        with self._lock:
            self._cancelled.add(key)
            self._held.discard(call_id)

    def write_record(self, call_id: str, record: Record) -> None:
        """The application notes how the reservation stands."""
        with self._lock:
            self._records[call_id] = record

    def seen_by(self, call_id: str) -> Sight:
        """How it stands for a call."""
        with self._lock:
            return Sight(call_id in self._held, self._records.get(call_id, Record.NOTHING))
