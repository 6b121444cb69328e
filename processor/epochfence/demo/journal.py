"""What happened, in order: every step of every participant, with the record that it wrote and how the world stood."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from epochfence.demo.world import Sight, World
from epochfence.errors import ClusterError, EpochfenceError
from epochfence.protocol.decisions import Decision
from epochfence.protocol.vocabulary import CommittedBy, Reason, Verdict

_LOOK_S = 0.2


class Tone(Enum):
    """How a step is told."""

    PLAIN = "plain"
    GOOD = "good"
    BAD = "bad"


class Place(NamedTuple):
    """A record: topic without its prefix, partition, offset."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}]@{self.offset}"


@dataclass(frozen=True)
class Step:
    """One participant did one thing. `at_ms` counts from the scene's beginning."""

    at_ms: int
    call_id: str
    who: str
    what: str
    place: Place | None
    sight: Sight
    tone: Tone


class Journal:
    """The steps of one scene. `show` gets each as it happens; `check` raises where the scene cannot go on."""

    def __init__(self, world: World, show: Callable[[Step], None], check: Callable[[], None] = lambda: None) -> None:
        self.steps: list[Step] = []
        self._world = world
        self._show = show
        self._check = check
        self._began = time.monotonic()
        self._changed = threading.Condition()
        self._decided: set[Place] = set()
        self._failure: EpochfenceError | None = None

    def tell(
        self,
        call_id: str,
        who: str,
        what: str,
        *,
        act: Callable[[], None] = lambda: None,
        send: Callable[[], Place] | None = None,
    ) -> None:
        """A participant does something: `act` changes the world, `send` writes a record.

        The journal is held meanwhile, so that nobody tells of an answer before what it answers was told.
        """
        with self._changed:
            act()
            place = None if send is None else send()
            self._add(call_id, who, what, place, Tone.PLAIN)

    def tell_decision(self, decision: Decision, place: Place) -> None:
        """A decision was read back. Whoever reads it first tells of it, before acting on it."""
        with self._changed:
            if place not in self._decided:
                self._decided.add(place)
                tone = Tone.GOOD if decision.verdict in (Verdict.COMMIT, Verdict.REJECT) else Tone.PLAIN
                self._add(decision.call_id, "processor", _in_words(decision), place, tone)

    def _add(self, call_id: str, who: str, what: str, place: Place | None, tone: Tone) -> None:
        at_ms = int((time.monotonic() - self._began) * 1000)
        sight = self._world.seen_by(call_id)
        step = Step(at_ms, call_id, who, what, place, sight, Tone.BAD if sight.is_ghost else tone)
        self.steps.append(step)
        self._show(step)
        self._changed.notify_all()

    def fail(self, error: EpochfenceError) -> None:
        """A participant cannot go on, and so nor can the scene."""
        with self._changed:
            self._failure = self._failure or error
            self._changed.notify_all()

    def wait_until(self, seen: Callable[[], bool], what: str, timeout_s: float) -> None:
        """Wait for something that steps bring about. Raises ClusterError where it does not come in time."""
        deadline = time.monotonic() + timeout_s
        with self._changed:
            while not seen():
                self._check()
                if self._failure is not None:
                    raise self._failure
                if time.monotonic() > deadline:
                    raise ClusterError(f"the demo waited {timeout_s:.0f} s in vain for {what}")
                self._changed.wait(_LOOK_S)


def _in_words(decision: Decision) -> str:
    if decision.dispatch is not None:
        dispatch = decision.dispatch
        return f"{decision.verdict}: epoch {dispatch.epoch} is live, {dispatch.action} released"
    if decision.verdict is Verdict.COMMIT:
        by = "compensation" if decision.committed_by is CommittedBy.COMPENSATION else "result"
        return f"COMMIT of epoch {decision.committed_epoch}, by the {by}"
    reason = "" if decision.reason is Reason.NONE else f" {decision.reason}"
    return f"{decision.verdict}{reason}{', orphaned effect' if decision.orphaned_effect else ''}"
