"""Every interleaving of one call, to a bound, on the production fold.

A state is (call record, everything outside, answers on their way), each interned as a number; the answers are a set of
bits. From a state go: any answer on its way, delivered in any order, once or twice; any timeout, of anybody, at any
time; any step of the gateway, the tool or the compensator. The search is breadth-first, so that the first
counterexample is a shortest one.
"""

import time
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from epochfence.protocol.decisions import Dispatch
from epochfence.protocol.events import Compensation, Event, Result, ToolCall
from epochfence.protocol.records import CallRecord
from epochfence.protocol.vocabulary import Action, CommittedBy, Outcome, Status
from epochfence.simulation import asking
from epochfence.simulation.folding import NO_RECORD, Folding, Step
from epochfence.simulation.world import Answer, Asked, Executions, Outside, Settings, moves, start

NO_BOUND = 2**62
GHOST_WRITE = "ghost write: a result was committed after a compensation had been sent"

State = tuple[int, int, int]
"""(record, outside, answers on their way): two numbers and a set of bits."""


class Happened(NamedTuple):
    """One step of a counterexample: an event that the processor decided, or something that somebody did."""

    actor: str
    what: str
    event: Event | None
    step: Step | None


@dataclass(frozen=True, slots=True)
class Counterexample:
    """A shortest way to break a property."""

    why: str
    steps: tuple[Happened, ...]


@dataclass(slots=True)
class Explored:
    """What was found."""

    settings: Settings
    states: int = 0
    transitions: int = 0
    depth: int = 0
    """Steps from the start to the farthest state."""
    levels: list[int] = field(default_factory=lambda: [1])
    """How many states are first seen after 0, 1, 2 … steps."""
    complete: bool = False
    """No state was left out: the bounds alone made the space finite."""
    folds: int = 0
    records: int = 0
    seconds: float = 0.0
    rows: set[int] = field(default_factory=set)
    counterexample: Counterexample | None = None


class _Edge(NamedTuple):
    """A way out of a state: to which record, with what dispatched, and which property it breaks."""

    record: int
    dispatch: int
    answer: int
    """The bit of the answer that was delivered, 0 for none."""
    commits_result: bool
    broken: str | None
    hostile: bool


class Explorer:
    """One exploration. `run` may be called once."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.call = asking.tool_call(settings)
        # A hostile sender may well break the compensator's idempotency for it, and then that is named.
        self._folding = Folding(self.call, double_compensation_is_wrong=settings.hostile == 0)
        self._outsides: list[Outside] = []
        self._outside_numbers: dict[Outside, int] = {}
        self._dispatches: list[Dispatch | None] = [None]
        self._dispatch_numbers: dict[Dispatch, int] = {}
        self._answers: list[Event] = []
        self._answer_bits: dict[Answer, int] = {}
        # Everything that was worked out once.
        self._steps: dict[tuple[int, int], Step] = {}
        self._delivered: dict[tuple[int, int], list[_Edge]] = {}
        self._asked: dict[int, list[_Edge]] = {}
        self._moved: dict[int, list[tuple[int, int]]] = {}
        self._released: dict[tuple[int, int], int] = {}
        self._spent: dict[tuple[int, bool], int] = {}
        self._contradictions: dict[tuple[int, int], str | None] = {}
        self._at_rest: list[bool] = []
        self._compensating: list[bool] = []
        self.rows: set[int] = set()

    # ---- what two calls are made of ----------------------------------------------------------------------------------

    @property
    def start(self) -> State:
        """The state before anything happened."""
        return NO_RECORD, self._outside(start(self.settings)), 0

    def successors(self, state: State) -> Iterator[State]:
        """The states that are one step away."""
        return (after for after, _ in self._successors(state))

    def record(self, number: int) -> CallRecord | None:
        """A call record by its number."""
        return self._folding.records[number]

    def events(self, record: int) -> Iterator[Event]:
        """All that was said of a call that stood like this: by anybody, and in answers."""
        yield from (event for event, _ in self._said(record))
        yield from (self._answers[answer] for number, answer in self._steps if number == record)

    # ---- the search ---------------------------------------------------------------------------------------------

    def run(self, max_steps: int | None = None, max_states: int = NO_BOUND) -> Explored:
        """Explore. `max_steps` bounds the depth, `max_states` the size; without them the space ends by itself."""
        began = time.monotonic()
        explored = Explored(self.settings)
        first = self.start
        seen: dict[State, int] = {first: 0}
        parents = array("L", [0])
        frontier = [first]
        while frontier and explored.counterexample is None:
            if explored.depth == max_steps or len(seen) >= max_states:
                break
            frontier = self._level(frontier, seen, parents, explored, max_states)
            if frontier:
                explored.depth += 1
                explored.levels.append(len(frontier))
        explored.complete = not frontier and explored.counterexample is None and len(seen) < max_states
        explored.states = len(seen)
        explored.folds = self._folding.folds
        explored.records = len(self._folding.records)
        explored.rows = self.rows
        explored.seconds = time.monotonic() - began
        return explored

    def _level(
        self, frontier: list[State], seen: dict[State, int], parents: "array[int]", explored: Explored, max_states: int
    ) -> list[State]:
        """The states one step further that were not seen before."""
        found: list[State] = []
        for state in frontier:
            if len(seen) >= max_states:
                break
            number = seen[state]
            for after, broken in self._successors(state):
                explored.transitions += 1
                if broken is not None:
                    way = self._way(seen, parents, number)
                    explored.counterexample = Counterexample(broken, self._told(way, after, broken))
                    return found
                if after in seen:
                    continue
                seen[after] = len(parents)
                parents.append(number)
                found.append(after)
                if not after[2]:
                    contradiction = self._contradiction(after[0], after[1])
                    if contradiction is not None:
                        way = self._way(seen, parents, seen[after])
                        explored.counterexample = Counterexample(contradiction, self._told(way))
                        return found
        return found

    def _successors(self, state: State) -> Iterator[tuple[State, str | None]]:
        record, outside, answers = state
        if answers:
            duplicate = self._spend(outside, False)
            for edge in self._deliver(record, answers):
                broken = GHOST_WRITE if edge.commits_result and self._compensating[outside] else edge.broken
                if edge.dispatch:
                    after = self._release(outside, edge.dispatch)
                    yield (edge.record, after, answers & ~edge.answer), broken
                    if duplicate:
                        yield (edge.record, self._release(duplicate, edge.dispatch), answers), broken
                else:
                    yield (edge.record, outside, answers & ~edge.answer), broken
                    if duplicate:
                        yield (edge.record, duplicate, answers), broken
        for edge in self._ask(record):
            after = outside
            if edge.hostile:
                after = self._spend(outside, True)
                if not after:
                    continue
            if edge.dispatch:
                after = self._release(after, edge.dispatch)
            broken = GHOST_WRITE if edge.commits_result and self._compensating[outside] else edge.broken
            yield (edge.record, after, answers), broken
        for after, bits in self._move(outside):
            yield (record, after, answers | bits), None

    # ---- the processor ------------------------------------------------------------------------------------------

    def _deliver(self, record: int, answers: int) -> list[_Edge]:
        """Every answer on its way may come next."""
        edges = self._delivered.get((record, answers))
        if edges is None:
            edges = self._delivered[record, answers] = []
            for number in range(answers.bit_length()):
                if answers >> number & 1:
                    edges.append(self._edge(self._step(record, number), 1 << number))
        return edges

    def _step(self, record: int, answer: int) -> Step:
        step = self._steps.get((record, answer))
        if step is None:
            step = self._steps[record, answer] = self._folding.step(record, self._answers[answer])
            self.rows.add(step.row)
        return step

    def _edge(self, step: Step, answer: int = 0, hostile: bool = False) -> _Edge:
        return _Edge(step.after, self._dispatch(step.dispatch), answer, step.commits_result, step.broken, hostile)

    def _ask(self, record: int) -> list[_Edge]:
        """What planners, the watchdog, operators, and the hostile may say of a call that stands like this."""
        edges = self._asked.get(record)
        if edges is None:
            edges = self._asked[record] = []
            for event, hostile in self._said(record):
                step = self._folding.step(record, event)
                self.rows.add(step.row)
                edge = self._edge(step, hostile=hostile)
                # One that changes nothing leads back to the same state, and two with one outcome are one.
                changes = step.after != record or edge.dispatch or step.broken is not None
                if changes and edge not in edges:
                    edges.append(edge)
        return edges

    def _said(self, record: int) -> Iterator[tuple[Event, bool]]:
        stands = self._folding.records[record]
        for event in asking.honest(self.call, stands, self.settings):
            yield event, False
        if self.settings.hostile:
            for event in asking.hostile(self.call, stands):
                yield event, True

    # ---- the world ----------------------------------------------------------------------------------------------

    def _outside(self, outside: Outside) -> int:
        number = self._outside_numbers.get(outside)
        if number is None:
            if not self._outsides:
                self._outsides.append(outside)  # number 0 stands for "cannot"
                self._at_rest.append(True)
                self._compensating.append(False)
            number = self._outside_numbers[outside] = len(self._outsides)
            self._outsides.append(outside)
            self._at_rest.append(outside.at_rest)
            self._compensating.append(bool(outside.compensations))
        return number

    def _move(self, outside: int) -> list[tuple[int, int]]:
        moved = self._moved.get(outside)
        if moved is None:
            moved = self._moved[outside] = []
            for move in moves(self._outsides[outside], self.settings):
                bits = 0
                for answer in move.answers:
                    bits |= self._bit(answer)
                moved.append((self._outside(move.after), bits))
        return moved

    def _bit(self, answer: Answer) -> int:
        bit = self._answer_bits.get(answer)
        if bit is None:
            bit = self._answer_bits[answer] = 1 << len(self._answers)
            self._answers.append(asking.answer_event(self.call, answer))
        return bit

    def _dispatch(self, dispatch: Dispatch | None) -> int:
        if dispatch is None:
            return 0
        number = self._dispatch_numbers.get(dispatch)
        if number is None:
            number = self._dispatch_numbers[dispatch] = len(self._dispatches)
            self._dispatches.append(dispatch)
        return number

    def _release(self, outside: int, dispatch: int) -> int:
        """A committed decision is read back by who acts on it: this is the only way to make anybody act."""
        number = self._released.get((outside, dispatch))
        if number is None:
            released = self._dispatches[dispatch]
            assert released is not None
            number = self._released[outside, dispatch] = self._outside(_read_by(self._outsides[outside], released))
        return number

    def _spend(self, outside: int, hostile: bool) -> int:
        """One duplicate delivery, or one hostile event, less; 0 where none is left."""
        number = self._spent.get((outside, hostile))
        if number is None:
            has = self._outsides[outside]
            left = has.hostile if hostile else has.duplicates
            less = has._replace(hostile=left - 1) if hostile else has._replace(duplicates=left - 1)
            number = self._spent[outside, hostile] = self._outside(less) if left else 0
        return number

    # ---- at rest ------------------------------------------------------------------------------------------------

    def _contradiction(self, record: int, outside: int) -> str | None:
        """What is silently wrong where no answer is on its way and no execution moves. Hostile events may lie."""
        if not self._at_rest[outside] or self.settings.hostile:
            return None
        if (record, outside) not in self._contradictions:
            stands = self._folding.records[record]
            effects = self._outsides[outside].effects
            self._contradictions[record, outside] = None if stands is None else _contradiction(stands, effects)
        return self._contradictions[record, outside]

    # ---- telling ------------------------------------------------------------------------------------------------

    @staticmethod
    def _way(seen: dict[State, int], parents: "array[int]", last: int) -> list[State]:
        states = list(seen)
        way = [last]
        while way[-1]:
            way.append(parents[way[-1]])
        return [states[number] for number in reversed(way)]

    def _told(self, way: list[State], beyond: State | None = None, broken: str | None = None) -> tuple[Happened, ...]:
        path = way if beyond is None else [*way, beyond]
        last = len(path) - 2
        return tuple(self._happened(path[i], path[i + 1], broken if i == last else None) for i in range(len(path) - 1))

    def _happened(self, before: State, after: State, broken: str | None) -> Happened:
        """Which step leads from one state to the other."""
        record, outside, answers = before
        for move in moves(self._outsides[outside], self.settings):
            bits = sum(self._bit(answer) for answer in set(move.answers))
            if (record, self._outside(move.after), answers | bits) == after and broken is None:
                return Happened(move.actor, move.what, None, None)
        said = [(event, 0) for event, _ in self._said(record)]
        said += [(event, 1 << n) for n, event in enumerate(self._answers) if answers >> n & 1]
        for event, bit in said:
            step = self._folding.step(record, event)
            dispatch = self._dispatch(step.dispatch)
            outsides = {self._release(o, dispatch) if dispatch else o for o in self._reachable(outside)}
            fits = step.after == after[0] and after[1] in outsides and after[2] in (answers, answers & ~bit)
            if fits and (broken is None or step.broken == broken or (step.broken is None and step.commits_result)):
                return Happened(event.source, _what(event), event, step)
        raise AssertionError("a step of the counterexample cannot be found again")

    def _reachable(self, outside: int) -> set[int]:
        return {outside, self._spend(outside, False), self._spend(outside, True)} - {0}


def _what(event: Event) -> str:
    if type(event) is ToolCall:
        return "ToolCall"
    if type(event) is Result or type(event) is Compensation:
        return f"{type(event).__name__} {event.outcome}, epoch {event.epoch}"
    return f"Timeout {event.cause}, epoch {event.epoch}"


def _read_by(outside: Outside, dispatch: Dispatch) -> Outside:
    if dispatch.action is Action.CALL:
        calls = {call.epoch: call for call in outside.calls}
        calls.setdefault(dispatch.epoch, Executions(dispatch.epoch, False, ()))
        return outside._replace(calls=tuple(calls[epoch] for epoch in sorted(calls)))
    asked = {asked.epoch: asked for asked in outside.compensations}
    asked.setdefault(dispatch.epoch, Asked(dispatch.epoch, _key_number(dispatch), 0))
    return outside._replace(compensations=tuple(asked[epoch] for epoch in sorted(asked)))


def _key_number(dispatch: Dispatch) -> int:
    last = dispatch.idempotency_key.rpartition(":")[2]
    return int(last) if last.isdigit() else 1


def _contradiction(record: CallRecord, effects: int) -> str | None:
    if record.status is Status.CANCELLED:
        return f"the call was cancelled, and the world holds {effects} of its effects" if effects else None
    if record.status is not Status.COMMITTED or record.unsettled:
        return None
    owned = record.committed_by is CommittedBy.RESULT and record.committed_outcome is Outcome.SUCCESS
    if effects == int(owned):
        return None
    committed = f"a {record.committed_by} {record.committed_outcome} is committed"
    return f"{committed}, the world holds {effects} of its effects, and the call is not unsettled"
