"""A log in memory, with transactions: what a task and a recovery see of Kafka, without Kafka.

One partition. Control records and aborted ones take offsets and are never read, as on a broker.
"""

import json
from collections.abc import Iterator

from epochfence.engine.history import Bounds, LogRecord
from epochfence.engine.task import TopicFacts
from epochfence.wire.codec import frame
from epochfence.wire.schemas import INPUT_TOPICS, load_schema
from tests.independent.log import Log, Record

PREFIX = "m."
FACTS = TopicFacts(
    tuple(PREFIX + topic for topic in INPUT_TOPICS),
    tuple(f"id-of-{topic}" for topic in INPUT_TOPICS),
    PREFIX + "decisions",
    "id-of-decisions",
    PREFIX + "epoch-table",
    1,
)


class MemoryLog:
    """A History and a Sink at once."""

    def __init__(self) -> None:
        names = (*FACTS.input_topics, FACTS.decisions_topic, FACTS.table_topic)
        self.topics: dict[str, list[LogRecord]] = {name: [] for name in names}
        self.ends = dict.fromkeys(names, 0)
        self.pending: list[tuple[str, bytes, bytes | None]] = []

    def append(self, topic: str, offset: int, timestamp_ms: int, key: bytes | None, value: bytes | None) -> None:
        """An input record, at an offset of the caller's choice."""
        assert offset >= self.ends[topic]
        self.topics[topic].append(LogRecord(offset, timestamp_ms, key, value))
        self.ends[topic] = offset + 1

    # ---- Sink

    def decision(self, partition: int, key: bytes, value: bytes) -> None:
        self.pending.append((FACTS.decisions_topic, key, value))

    def table(self, partition: int, key: bytes, value: bytes | None) -> None:
        self.pending.append((FACTS.table_topic, key, value))

    def commit(self) -> None:
        self._end_transaction(committed=True)

    def abort(self) -> None:
        self._end_transaction(committed=False)

    def _end_transaction(self, committed: bool) -> None:
        for topic, key, value in self.pending:
            if committed:
                self.topics[topic].append(LogRecord(self.ends[topic], 0, key, value))
            self.ends[topic] += 1
        for topic in {topic for topic, _, _ in self.pending}:
            self.ends[topic] += 1  # the control record
        self.pending = []

    # ---- History

    def bounds(self, topic: str) -> Bounds:
        return Bounds(0, self.ends[topic])

    def read(self, topic: str, start: int, end: int) -> Iterator[LogRecord]:
        return iter([record for record in self.topics[topic] if start <= record.offset < end])

    # ---- for the independent checker

    def as_checked(self) -> Log:
        topics = {
            name.removeprefix(PREFIX): [[Record(*record) for record in records]]
            for name, records in self.topics.items()
        }
        topics["schemas"] = [
            [self._schema(i, name) for i, name in enumerate(("decision", "call_record", "checkpoint"))]
        ]
        ids = dict(zip(INPUT_TOPICS, FACTS.input_topic_ids, strict=True)) | {"decisions": FACTS.decisions_topic_id}
        return Log(PREFIX, topics, ids)

    @staticmethod
    def _schema(offset: int, name: str) -> Record:
        return Record(offset, 0, frame(name)[2:].hex().encode(), json.dumps(load_schema(name)).encode())
