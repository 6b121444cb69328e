"""What a checker reads: the committed records of the topics, as plain lists, and how to get them from Kafka."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

INPUTS = {"tool-calls": "tool_call", "timeouts": "timeout", "results": "result", "compensations": "compensation"}
"""The four inputs in the order of the checkpoint, and the record type of each."""
PARTITIONED = (*INPUTS, "decisions", "epoch-table")
STALL_S = 60.0
MAX_RECORD_BYTES = 1_048_576
"""The key and the value of an input together. What is larger is not read, so that it has no call_id either."""


class LogError(Exception):
    """The topics cannot be read as they must be."""


@dataclass(frozen=True)
class Record:
    """A committed record. Timestamps are the broker's, in milliseconds since 1970."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None

    @property
    def is_oversize(self) -> bool:
        return len(self.key or b"") + len(self.value or b"") > MAX_RECORD_BYTES


@dataclass
class Log:
    """The topics by name without prefix, each a list of partitions, each a list of records in offset order."""

    prefix: str
    topics: dict[str, list[list[Record]]]
    topic_ids: dict[str, str] = field(default_factory=dict)  # empty: not known, not checked

    @property
    def partition_count(self) -> int:
        return len(self.topics["decisions"])


def read_log(bootstrap_servers: str, prefix: str) -> Log:
    """Every topic from offset 0 to the last stable offset, read_committed. Raises LogError.

    Meant for a log at rest: an input that arrives after its topic was read is not seen, but its decision may be.
    """
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    counts = {}
    metadata = admin.list_topics(timeout=30).topics
    for name in (*PARTITIONED, "schemas"):
        if prefix + name not in metadata:
            raise LogError(f"there is no topic {prefix}{name}")
        counts[name] = len(metadata[prefix + name].partitions)
    # Decisions first: what is decided after that is then at worst an input too many, never a decision too many.
    names = ["decisions", "epoch-table", "schemas", *INPUTS]
    topics = {name: _read_topic(bootstrap_servers, prefix + name, counts[name]) for name in names}
    return Log(prefix, topics, _topic_ids(admin, prefix))


def _topic_ids(admin: Any, prefix: str) -> dict[str, str]:
    from confluent_kafka import TopicCollection

    wanted = TopicCollection([prefix + name for name in (*INPUTS, "decisions")])
    futures = admin.describe_topics(wanted, request_timeout=30)
    return {name.removeprefix(prefix): str(future.result().topic_id) for name, future in futures.items()}


def _read_topic(bootstrap_servers: str, topic: str, partition_count: int) -> list[list[Record]]:
    from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": f"independent-checker-{topic}",  # required by the client; nothing is committed under it
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "check.crcs": True,
            "fetch.wait.max.ms": 20,  # an end is told after an empty fetch, which waits at the broker
        }
    )
    compacted = topic.endswith(("epoch-table", "schemas"))
    first = OFFSET_BEGINNING if compacted else 0
    records: list[list[Record]] = [[] for _ in range(partition_count)]
    at_end: set[int] = set()
    try:
        consumer.assign([TopicPartition(topic, p, first) for p in range(partition_count)])
        deadline = time.monotonic() + STALL_S
        while len(at_end) < partition_count:
            # consume() waits for a full batch, so the timeout is what the end of every topic costs.
            for message in consumer.consume(10_000, timeout=0.05):
                deadline = time.monotonic() + STALL_S
                error, partition, offset = message.error(), message.partition(), message.offset()
                assert partition is not None
                if error is None:
                    assert offset is not None
                    record = Record(offset, int(message.timestamp()[1]), message.key(), message.value())
                    records[partition].append(record)
                elif error.code() == KafkaError._PARTITION_EOF:
                    at_end.add(partition)
                else:
                    raise LogError(f"{topic}[{partition}]: {error.str()}")
            if time.monotonic() > deadline:
                raise LogError(
                    f"{topic}: no record and no end for {STALL_S:.0f} s in {set(range(partition_count)) - at_end}"
                )
    finally:
        consumer.close()
    return records
