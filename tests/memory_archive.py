"""The topics of one partition in memory, decided by the processor's own task, to be read by an audit, and damaged."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from epochfence.engine.chain import START, RunningChain
from epochfence.engine.history import Bounds, LogRecord
from epochfence.engine.task import PartitionTask, TaskState, TopicFacts, event_decoders
from epochfence.protocol.admission import Parameters
from epochfence.protocol.decisions import Decision
from epochfence.protocol.events import Event
from epochfence.protocol.partition import Partition
from epochfence.wire.codec import DecisionEncoder, NoLookup, OutputDecoder, SchemaLookup, encode_event
from epochfence.wire.schemas import INPUT_TOPICS, TOPIC_OF_EVENT

PREFIX = "m."
NAMES = tuple(PREFIX + topic for topic in INPUT_TOPICS)
DECISIONS = PREFIX + "decisions"
TABLE = PREFIX + "epoch-table"
STEP_MS = 10
"""Broker time between two records."""


class MemoryArchive:
    """An Archive of one partition. Each `say` appends an event and decides it; each decision is a transaction."""

    def __init__(self, parameters: Parameters | None = None) -> None:
        self.prefix = PREFIX
        self.facts = TopicFacts(NAMES, tuple(f"id-{name}" for name in NAMES), DECISIONS, "id-d", TABLE, 1)
        self.lookup: SchemaLookup = NoLookup()
        self.topics: dict[str, list[LogRecord]] = {name: [] for name in (*NAMES, DECISIONS, TABLE)}
        self.now_ms = 1_000_000
        parameters = parameters or Parameters()
        state = TaskState(Partition(parameters), RunningChain(START), [0] * len(INPUT_TOPICS))
        self._task = PartitionTask(0, self.facts, parameters, event_decoders(self.lookup), state)

    def partition(self, number: int) -> MemoryArchive:
        assert number == 0
        return self

    def bounds(self, topic: str) -> Bounds:
        records = self.topics[topic]
        return Bounds(records[0].offset, records[-1].offset + 1) if records else Bounds(0, 0)

    def read(self, topic: str, start: int, end: int) -> Iterator[LogRecord]:
        return iter([record for record in self.topics[topic] if start <= record.offset < end])

    # ---- writing ------------------------------------------------------------------------------------------------

    def say(self, *events: Event | bytes, topic: str = "results") -> None:
        """Append events, or bytes to `topic`, and decide all of them in one transaction."""
        for event in events:
            name, key, value = (topic, b"7", event) if isinstance(event, bytes) else _as_record(event)
            number = INPUT_TOPICS.index(name)
            record = self._append(PREFIX + name, key, value)
            self._task.merge.offer(number, record.timestamp_ms, record.offset, key, value)
        for number in range(len(INPUT_TOPICS)):
            self._task.merge.reached_end(number)
        while self._task.decide(100, self.now_ms, self):
            pass
        self._task.seal(self.now_ms, self)
        self._task.committed()

    def say_undecided(self, event: Event) -> None:
        """Append an event that the processor never hears of."""
        name, key, value = _as_record(event)
        self._append(PREFIX + name, key, value)

    def decision(self, partition: int, key: bytes, value: bytes) -> None:
        self._append(DECISIONS, key, value)

    def table(self, partition: int, key: bytes, value: bytes | None) -> None:
        records = self.topics[TABLE]
        records.append(LogRecord(len(records), self.now_ms, key, value))

    def _append(self, topic: str, key: bytes, value: bytes) -> LogRecord:
        self.now_ms += STEP_MS
        records = self.topics[topic]
        record = LogRecord(records[-1].offset + 1 if records else 0, self.now_ms, key, value)
        records.append(record)
        return record

    # ---- damage -------------------------------------------------------------------------------------------------

    def decisions(self) -> Sequence[Decision]:
        return [OutputDecoder(self.lookup).decision(record.value) for record in self.topics[DECISIONS]]

    def edit(self, index: int, **fields: Any) -> None:
        """Rewrite a decision with other fields, its checkpoint as it was."""
        self.rewrite(index, lambda decision: replace(decision, **fields))

    def rewrite(self, index: int, change: Callable[[Decision], Decision]) -> None:
        record = self.topics[DECISIONS][index]
        decision = change(self.decisions()[index])
        encoder = DecisionEncoder()
        body = encoder.body(replace(decision, decided_at_ms=0, checkpoint=None))
        value = encoder.value(body, encoder.tail(decision.decided_at_ms, decision.checkpoint))
        self.topics[DECISIONS][index] = record._replace(value=value, key=decision.call_id.encode())


def _as_record(event: Event) -> tuple[str, bytes, bytes]:
    return TOPIC_OF_EVENT[type(event)], event.call_id.encode(), encode_event(event)
