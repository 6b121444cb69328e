"""What happened to one call: every event about it and its decision, in the order of `seq`.

Only the partition that the call's key lies in is read, and of the inputs only the records that its decisions answer.
Memory: the call's own decisions and events.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from epochfence.audit.history import Archive
from epochfence.audit.sentences import released, sentence
from epochfence.engine.history import History, LogRecord
from epochfence.engine.task import event_decoders
from epochfence.errors import LogError
from epochfence.protocol.decisions import Decision
from epochfence.protocol.events import Event, ToolCall
from epochfence.protocol.vocabulary import Cause, EventType
from epochfence.wire.codec import OutputDecoder
from epochfence.wire.errors import DecodeError
from epochfence.wire.jsonl import to_json
from epochfence.wire.routing import partition_of

_NEAR = 2_000
"""Records that lie so near to each other are fetched in one go."""


class Speaker(StrEnum):
    """Whose event it is, by its type and cause. Who really sent it is for the cluster's ACLs to say."""

    PLANNER = "planner"
    WATCHDOG = "watchdog"
    OPERATOR = "operator"
    GATEWAY = "gateway"
    COMPENSATOR = "compensator"
    UNKNOWN = "sender"


_SPEAKERS = {
    EventType.TOOL_CALL: Speaker.PLANNER,
    EventType.TIMEOUT: Speaker.PLANNER,
    EventType.RESULT: Speaker.GATEWAY,
    EventType.COMPENSATION: Speaker.COMPENSATOR,
}
_CAUSES = {Cause.WATCHDOG: Speaker.WATCHDOG, Cause.OPERATOR: Speaker.OPERATOR}


@dataclass(frozen=True, slots=True)
class Moment:
    """An event and its decision. `offset` and `timestamp_ms` (the broker's) are those of the decision's record."""

    decision: Decision
    offset: int
    timestamp_ms: int
    event: Event | None
    lost: str | None
    """Why there is no event."""

    @property
    def speaker(self) -> Speaker:
        """Whose event it is."""
        by_cause = _CAUSES.get(self.decision.cause) if self.decision.cause is not None else None
        return by_cause or _SPEAKERS.get(self.decision.event, Speaker.UNKNOWN)

    @property
    def source(self) -> str | None:
        """What the sender calls itself: hearsay."""
        return None if self.event is None else self.event.source

    @property
    def token(self) -> str:
        """The fence token under which it was said: (incarnation, epoch), `?` for what was not said."""
        if isinstance(self.event, ToolCall) or self.decision.event in (EventType.TOOL_CALL, EventType.NONE):
            return "none"
        incarnation = None if self.event is None else self.event.incarnation
        return f"({_or_unsaid(incarnation)}, {_or_unsaid(self.decision.epoch)})"

    @property
    def said(self) -> str:
        """What was said, in a few words."""
        decision = self.decision
        if decision.event is EventType.NONE:
            return "what does not decode"
        detail = decision.outcome or decision.cause
        return " ".join(filter(None, (str(decision.event), None if detail is None else str(detail))))

    def to_json(self) -> dict[str, Any]:
        """All of it, bodies too."""
        return {
            "speaker": str(self.speaker),
            "source": self.source,
            "token": self.token,
            "sentence": sentence(self.decision),
            "released": None if self.decision.dispatch is None else released(self.decision.dispatch),
            "event": to_json(self.event),
            "event_lost": self.lost,
            "decision": to_json(self.decision),
            "offset": self.offset,
            "timestamp_ms": self.timestamp_ms,
        }


@dataclass(frozen=True, slots=True)
class Timeline:
    """Everything that was decided about a call_id, all its incarnations."""

    call_id: str
    partition: int
    moments: tuple[Moment, ...]

    @property
    def standing(self) -> Decision | None:
        """The last decision that tells how the call stands; None where it never had a record."""
        told = (moment.decision for moment in reversed(self.moments) if moment.decision.status is not None)
        return next(told, None)

    def to_json(self) -> dict[str, Any]:
        """All of it, bodies too."""
        moments = [moment.to_json() for moment in self.moments]
        return {"type": "timeline", "call_id": self.call_id, "partition": self.partition, "moments": moments}


def read_timeline(archive: Archive, call_id: str) -> Timeline | None:
    """The call's timeline; None where nothing was ever decided about it.

    What was said of it in another partition was MISROUTED, and stands there. Raises ClusterError where the cluster
    does not answer, LogError where one of its decisions cannot be read.
    """
    key = call_id.encode()
    number = partition_of(key, archive.facts.partition_count)
    history = archive.partition(number)
    found = [(record, _decision(archive, number, record)) for record in _of_key(archive, history, key)]
    if not found:
        return None
    inputs = _inputs(archive, history, [decision for _, decision in found])
    decoders = dict(zip(archive.facts.input_topics, event_decoders(archive.lookup), strict=True))
    moments = []
    for record, decision in found:
        at = decision.input
        answered = inputs.get((at.topic, at.offset))
        event = None if answered is None else decoders[at.topic](answered.key, answered.value)
        lost = None if event is not None else "it does not decode" if answered is not None else "it was deleted"
        moments.append(Moment(decision, record.offset, record.timestamp_ms, event, lost))
    return Timeline(call_id, number, tuple(moments))


def _of_key(archive: Archive, history: History, key: bytes) -> Iterator[LogRecord]:
    topic = archive.facts.decisions_topic
    return (record for record in history.read(topic, *history.bounds(topic)) if record.key == key)


def _decision(archive: Archive, number: int, record: LogRecord) -> Decision:
    try:
        return OutputDecoder(archive.lookup).decision(record.value)
    except DecodeError as error:
        raise LogError(
            f"{archive.facts.decisions_topic}[{number}]@{record.offset} is no decision: {error}. Only the processor "
            "may write there; `epochfence audit verify` finds what else is wrong"
        ) from None


def _inputs(archive: Archive, history: History, decisions: Iterable[Decision]) -> dict[tuple[str, int], LogRecord]:
    """The records that these decisions answer, those that are still there."""
    wanted: dict[str, set[int]] = {topic: set() for topic in archive.facts.input_topics}
    for decision in decisions:
        if decision.input.topic in wanted:
            wanted[decision.input.topic].add(decision.input.offset)
    found = {}
    for topic, offsets in wanted.items():
        if not offsets:
            continue
        earliest, end = history.bounds(topic)
        for start, stop in _runs(sorted(offset for offset in offsets if earliest <= offset < end)):
            for record in history.read(topic, start, stop):
                if record.offset in offsets:
                    found[topic, record.offset] = record
    return found


def _runs(offsets: list[int]) -> Iterator[tuple[int, int]]:
    """(start, end) of the reads that fetch these offsets."""
    start = previous = None
    for offset in offsets:
        if start is None or previous is None:
            start = offset
        elif offset - previous > _NEAR:
            yield start, previous + 1
            start = offset
        previous = offset
    if start is not None and previous is not None:
        yield start, previous + 1


def _or_unsaid(value: int | None) -> str:
    return "?" if value is None else str(value)
