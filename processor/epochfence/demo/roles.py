"""Who takes part, and what each does: the tool and the compensator are the same in both halves.

In the naive half each acts on what another *asked*. In the fenced half each acts on a committed decision that it has
read back, and on nothing else.
"""

import time
import uuid
from typing import Any, NamedTuple

from epochfence.demo.journal import Place
from epochfence.demo.participants import Participant, Scene, now_ms
from epochfence.demo.world import Record
from epochfence.engine.topics.specs import DECISIONS
from epochfence.protocol.decisions import Decision
from epochfence.protocol.events import Compensation, Event, Result, Timeout, ToolCall
from epochfence.protocol.vocabulary import (
    Action,
    Cause,
    CommittedBy,
    EventType,
    Orphans,
    Outcome,
    Policy,
    Verdict,
)

DEADLINE_MS = 800
SLOW_ANSWER_MS = 1_600
"""The slow tool's answer is on its way for at least so long, and until the release of the seat is written down: on
every machine it comes after the compensation. Nothing else in the demo is arranged."""
TOOL = "reserve-seat"
GATEWAY = "gateway"


class Call(NamedTuple):
    """A call of the story."""

    call_id: str
    seat: str
    tool_is_slow: bool


IN_TIME = Call("6", "seat 11", tool_is_slow=False)
LATE = Call("7", "seat 12", tool_is_slow=True)
CALLS = {call.call_id: call for call in (IN_TIME, LATE)}


class Token(NamedTuple):
    """What an answer echoes. In the naive half there is no epoch."""

    incarnation: int
    epoch: int | None

    def __str__(self) -> str:
        return "" if self.epoch is None else f" for epoch {self.epoch}"


# ---- planners ---------------------------------------------------------------------------------------------------


class Planner(Participant):
    """Asks for a call. When its deadline is over and it knows of no end, it asks for the call to be ended."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._deadlines: dict[str, tuple[float, Token]] = {}
        """Monotonic seconds, and what to end, of each call that has not ended."""

    def ask(self, call: Call) -> None:
        """Send the ToolCall."""
        event = ToolCall(
            _new_id(),
            call.call_id,
            TOOL,
            call.seat.encode(),
            "",
            DEADLINE_MS,
            Policy.COMPENSATE,
            Orphans.REPORT,
            8,
            GATEWAY,
            "planner",
            now_ms(),
        )
        what = f"asks for {call.seat}, deadline {DEADLINE_MS} ms"
        self.scene.journal.tell(call.call_id, "planner", what, send=lambda: self.send(event))

    def tick(self) -> None:
        for call_id, (deadline, token) in list(self._deadlines.items()):
            if time.monotonic() >= deadline:
                del self._deadlines[call_id]
                self._end(call_id, token)

    def _end(self, call_id: str, token: Token) -> None:
        event = Timeout(_new_id(), call_id, token.epoch, token.incarnation, Cause.DEADLINE, "planner", now_ms())
        asks = "asks to compensate" if token.epoch is None else f"asks to end epoch {token.epoch}"
        self.scene.journal.tell(call_id, "planner", f"deadline is over: {asks}", send=lambda: self.send(event))

    def _opened(self, call_id: str, token: Token) -> None:
        self._deadlines[call_id] = (time.monotonic() + DEADLINE_MS / 1000, token)

    def _ended(self, call_id: str) -> None:
        self._deadlines.pop(call_id, None)


class NaivePlanner(Planner):
    """Its deadline runs from what it sent; an answer of the tool ends it."""

    topics = ("tool-calls", "results")

    def handle(self, value: Event, place: Place) -> None:
        if isinstance(value, ToolCall):
            self._opened(value.call_id, Token(place.offset, None))
        else:
            self._ended(value.call_id)


class FencedPlanner(Planner):
    """Its deadline runs from the decision that opened the call; a commit ends it."""

    topics = (DECISIONS,)

    def handle(self, value: Decision, place: Place) -> None:
        dispatch = value.dispatch
        if dispatch is not None and dispatch.action is Action.CALL:
            self._opened(value.call_id, Token(dispatch.incarnation, dispatch.epoch))
        elif value.verdict is not Verdict.REJECT:
            self._ended(value.call_id)


# ---- tools ------------------------------------------------------------------------------------------------------


class Tool(Participant):
    """Takes the seat at once. Its answer may be long on its way."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._under_way: list[tuple[float, Result, Token]] = []
        self._started: set[tuple[str, Token]] = set()

    def _reserve(self, call_id: str, key: str, token: Token) -> None:
        if (call_id, token) in self._started:
            return  # a dispatch is started at most once
        self._started.add((call_id, token))
        call, hold = CALLS[call_id], self.scene.world.hold_seat
        event_id = _new_id()
        answer = Result(
            event_id,
            call_id,
            token.epoch,
            token.incarnation,
            event_id,
            Outcome.SUCCESS,
            f"{call.seat} is yours".encode(),
            "tool",
            now_ms(),
        )
        if call.tool_is_slow:
            what = f"takes {call.seat}; its answer is held up"
            self.scene.journal.tell(call_id, "tool", what, act=lambda: hold(call_id, key))
            self._under_way.append((time.monotonic() + SLOW_ANSWER_MS / 1000, answer, token))
        else:
            what = f"takes {call.seat}, answers SUCCESS{token}"
            self.scene.journal.tell(
                call_id, "tool", what, act=lambda: hold(call_id, key), send=lambda: self.send(answer)
            )

    def tick(self) -> None:
        for waiting in list(self._under_way):
            due, answer, token = waiting
            if time.monotonic() >= due and self.scene.world.seen_by(answer.call_id).record is Record.RELEASED:
                self._under_way.remove(waiting)
                self._deliver(answer, token)

    def _deliver(self, answer: Result, token: Token) -> None:
        what = f"the late answer arrives: SUCCESS{token}"
        self.scene.journal.tell(answer.call_id, "tool", what, send=lambda: self.send(answer))


class NaiveTool(Tool):
    """Works for whoever asks."""

    topics = ("tool-calls",)

    def handle(self, value: ToolCall, place: Place) -> None:
        self._reserve(value.call_id, f"{value.call_id}@{place.offset}", Token(place.offset, None))


class FencedTool(Tool):
    """A gateway in front of the tool: it works for a committed decision that releases a CALL."""

    topics = (DECISIONS,)

    def handle(self, value: Decision, place: Place) -> None:
        dispatch = value.dispatch
        if dispatch is not None and dispatch.action is Action.CALL and dispatch.runner == GATEWAY:
            self._reserve(value.call_id, dispatch.idempotency_key, Token(dispatch.incarnation, dispatch.epoch))


# ---- compensators -----------------------------------------------------------------------------------------------


class Compensator(Participant):
    """Frees the seat that the call's own key took. Its OK is final."""

    def _undo(self, call_id: str, key: str, execution_id: str, token: Token) -> None:
        answer = Compensation(
            _new_id(),
            call_id,
            token.epoch,
            token.incarnation,
            execution_id,
            Outcome.OK,
            None,
            "compensator",
            now_ms(),
        )
        free, what = self.scene.world.free_seat, f"frees {CALLS[call_id].seat}, answers OK{token}"
        self.scene.journal.tell(
            call_id, "compensator", what, act=lambda: free(call_id, key), send=lambda: self.send(answer)
        )


class NaiveCompensator(Compensator):
    """Works for whoever asks."""

    topics = ("timeouts",)

    def handle(self, value: Timeout, place: Place) -> None:
        assert value.incarnation is not None, "the naive planner tells it"
        key = f"{value.call_id}@{value.incarnation}"
        self._undo(value.call_id, key, _new_id(), Token(value.incarnation, None))


class FencedCompensator(Compensator):
    """Works for a committed decision that releases a COMPENSATE, which only a fence does."""

    topics = (DECISIONS,)

    def handle(self, value: Decision, place: Place) -> None:
        dispatch = value.dispatch
        if dispatch is not None and dispatch.action is Action.COMPENSATE:
            key = dispatch.call_idempotency_key or ""
            # One execution for each key: asked again under the same key it would answer with the same id.
            self._undo(value.call_id, key, dispatch.idempotency_key, Token(dispatch.incarnation, dispatch.epoch))


# ---- the application that keeps the record ----------------------------------------------------------------------


class LastWriter(Participant):
    """Writes down whatever arrives last."""

    topics = ("results", "compensations")

    def handle(self, value: Any, place: Place) -> None:
        _write(self.scene, value.call_id, Record.HELD if isinstance(value, Result) else Record.RELEASED)


class RecordKeeper(Participant):
    """Writes down what a committed decision has committed."""

    topics = (DECISIONS,)

    def handle(self, value: Decision, place: Place) -> None:
        if value.verdict is Verdict.COMMIT:
            by_result = value.committed_by is CommittedBy.RESULT
            held = by_result and value.committed_outcome is Outcome.SUCCESS
            _write(self.scene, value.call_id, Record.HELD if held else Record.RELEASED)
        elif value.verdict is Verdict.REJECT and value.event is EventType.RESULT:
            self.scene.journal.tell(value.call_id, "application", "writes nothing: a rejection commits nothing")


def _write(scene: Scene, call_id: str, record: Record) -> None:
    ghost = scene.world.seen_by(call_id)._replace(record=record).is_ghost
    what = f"writes {record}{': a ghost write' if ghost else ''}"
    scene.journal.tell(call_id, "application", what, act=lambda: scene.world.write_record(call_id, record))


def _new_id() -> str:
    return uuid.uuid4().hex
