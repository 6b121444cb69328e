"""Two calls in one partition: whatever is interleaved, each goes on as if it were alone.

The production partition decides the events of both. After each event the call that it names must stand where it would
stand alone, by the same decision, and the other's record must be the very same object. As no call can then hold the
other up, the states of two calls are exactly the pairs of the states of one, and are as many steps away as both
together: that is counted in the end.
"""

import time
from dataclasses import dataclass, replace

from epochfence.protocol.admission import Parameters
from epochfence.protocol.decisions import Decision
from epochfence.protocol.events import Event
from epochfence.protocol.partition import Partition
from epochfence.protocol.records import CallRecord
from epochfence.simulation.explorer import NO_BOUND, Explorer, State
from epochfence.simulation.folding import decide
from epochfence.simulation.world import Settings

OTHER_CALL_ID = "8"


@dataclass(frozen=True, slots=True)
class Independence:
    """What was found of two calls."""

    states: int
    """Of both together."""
    expected: int
    """How many there must be: the pairs of the states of one, as far as the search went."""
    depth: int
    complete: bool
    """No bound but those of the settings was met."""
    seconds: float
    broken: str | None


def explore_two(settings: Settings, max_steps: int | None = None, max_states: int = NO_BOUND) -> Independence:
    """Every interleaving of two calls, each within the bounds of `settings`.

    It ends after the first number of steps that leads to `max_states` or more.
    """
    began = time.monotonic()
    one = Explorer(settings)
    levels = one.run().levels
    watched = _Watched(one)
    frontier = [(one.start, one.start)]
    seen: set[tuple[State, State]] = set(frontier)
    depth, broken = 0, None
    while frontier and broken is None and depth != max_steps and len(seen) < max_states:
        frontier, broken = _level(frontier, seen, one, watched)
        depth += bool(frontier)
    pairs = sum(a * b for i, a in enumerate(levels) for j, b in enumerate(levels) if i + j <= depth)
    if broken is None and len(seen) != pairs:
        broken = f"the states of two calls are {len(seen)}, and the pairs of the states of one are {pairs}"
    return Independence(len(seen), pairs, depth, not frontier, time.monotonic() - began, broken)


Pair = tuple[State, State]


def _level(frontier: list[Pair], seen: set[Pair], one: Explorer, watched: "_Watched") -> tuple[list[Pair], str | None]:
    """The pairs one step further that were not seen before, and what was broken."""
    found: list[Pair] = []
    for left, right in frontier:
        broken = watched.pair(left[0], right[0]) or watched.pair(right[0], left[0])
        if broken is not None:
            return found, broken
        pairs = [(after, right) for after in one.successors(left)]
        pairs += [(left, after) for after in one.successors(right)]
        for pair in pairs:
            if pair not in seen:
                seen.add(pair)
                found.append(pair)
    return found, None


class _Watched:
    """The steps of one call, decided in a partition where the other one is too, each pair of records once."""

    def __init__(self, explorer: Explorer) -> None:
        self._explorer = explorer
        self._call = explorer.call
        self._known: dict[tuple[int, int], str | None] = {}

    def pair(self, mine: int, other: int) -> str | None:
        """What is wrong with any event on `mine` while the other call stands at `other`."""
        if (mine, other) not in self._known:
            self._known[mine, other] = self._all_events(mine, other)
        return self._known[mine, other]

    def _all_events(self, mine: int, other: int) -> str | None:
        for event in self._explorer.events(mine):
            broken = self._one(event, self._explorer.record(mine), self._explorer.record(other))
            if broken is not None:
                return broken
        return None

    def _one(self, event: Event, mine: CallRecord | None, other: CallRecord | None) -> str | None:
        alone, together = Partition(Parameters()), Partition(Parameters())
        neighbour = None if other is None else replace(other, call_id=OTHER_CALL_ID)
        alone.load([record for record in (mine,) if record is not None])
        together.load([record for record in (mine, neighbour) if record is not None])
        decided: list[Decision] = [decide(alone, event), decide(together, event)]
        if decided[0] != decided[1] or alone.calls.get(self._call.call_id) != together.calls.get(self._call.call_id):
            return f"{type(event).__name__} of call {self._call.call_id} is decided otherwise beside another call"
        if together.calls.get(OTHER_CALL_ID) is not neighbour:
            return f"{type(event).__name__} of call {self._call.call_id} changed call {OTHER_CALL_ID}"
        return None
