"""The control: a planner that lets the last writer win, keyed by call_id, with no epochs.

Every event writes the state of its call, and the newest write stands:

| event | writes |
|---|---|
| ToolCall | OPEN |
| Timeout | RELEASED: the planner compensates locally, whatever became of the call |
| Result SUCCESS | HELD: the effect is written back, whatever epoch it answers |
| Result FAILURE, UNKNOWN | FAILED, UNKNOWN |
| Compensation OK | RELEASED |
| Compensation FAILED, UNKNOWN | nothing |

It is *broken* by a trace if at any time there was a ghost write: a Result SUCCESS written after a Timeout or a
Compensation OK had released the call, with no ToolCall between them. A later release does not mend it: whoever read
in between saw an effect that nobody owns. It knows no policy, incarnation or admission; a line that is no event writes
nothing.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from epochfence.protocol.events import Event, Result, Timeout, ToolCall
from epochfence.protocol.vocabulary import Outcome


class NaiveState(StrEnum):
    """What the last write said."""

    OPEN = "OPEN"
    HELD = "HELD"
    FAILED = "FAILED"
    UNKNOWN = "UNKNOWN"
    RELEASED = "RELEASED"


class NaiveWrite(NamedTuple):
    """What stands after one event: the state of its call, and whether this event was a ghost write.

    `call_id` and `state` are None after a line that is no event, and `state` too while nothing was written.
    """

    call_id: str | None
    state: NaiveState | None
    ghost: bool


_RESULTS = {
    Outcome.SUCCESS: NaiveState.HELD,
    Outcome.FAILURE: NaiveState.FAILED,
    Outcome.UNKNOWN: NaiveState.UNKNOWN,
}


def last_writer(events: Sequence[Event | None]) -> list[NaiveWrite]:
    """What the naive planner's state is after every event; None stands for a line that is no event."""
    states: dict[str, NaiveState] = {}
    released: set[str] = set()
    """Calls that were released and not opened again since."""
    writes = []
    for event in events:
        if event is None:
            writes.append(NaiveWrite(None, None, False))
            continue
        call_id, wrote = event.call_id, _written_by(event)
        ghost = wrote is NaiveState.HELD and call_id in released
        if wrote is NaiveState.OPEN:
            released.discard(call_id)
        elif wrote is NaiveState.RELEASED:
            released.add(call_id)
        if wrote is not None:
            states[call_id] = wrote
        writes.append(NaiveWrite(call_id, states.get(call_id), ghost))
    return writes


def _written_by(event: Event) -> NaiveState | None:
    if type(event) is ToolCall:
        return NaiveState.OPEN
    if type(event) is Timeout:
        return NaiveState.RELEASED
    if type(event) is Result:
        return _RESULTS[event.outcome]
    return NaiveState.RELEASED if event.outcome is Outcome.OK else None


def is_broken(writes: Sequence[NaiveWrite]) -> bool:
    """Whether there was a ghost write at any time."""
    return any(write.ghost for write in writes)
