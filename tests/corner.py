"""A corner of a cluster with topics of its own, and what the tests of the processor do there."""

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from confluent_kafka import OFFSET_BEGINNING, Consumer, IsolationLevel, KafkaError, Producer, TopicPartition, murmur2
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    OffsetSpec,
    ResourceType,
)

from epochfence.engine.kafka.client_config import admin_config, reader_config, sender_config
from epochfence.engine.topics.cluster import apply_topics
from epochfence.protocol.events import Event
from epochfence.settings import load_settings
from epochfence.wire.codec import encode_event
from epochfence.wire.schemas import TOPIC_OF_EVENT
from tests.cluster import Cluster
from tests.held_processor import HeldProcessor, OtherProcessor
from tests.independent.checker import Report, check
from tests.independent.log import Record
from tests.load import Load
from tests.processor_process import RunningProcessor

Processor = TypeVar("Processor", bound=RunningProcessor)

SILENCE_S = 45.0
"""A processor that decides nothing for so long, while there is something to decide, hangs."""
NOTHING = b"nothing"
"""The key of records without a value."""
USUAL: dict[str, int | bool] = {
    # The shortest that a cluster allows, so that a dead processor is soon missed.
    "session_timeout_ms": 6_000,
    "transaction_timeout_ms": 3_000,
    # Its events would be inputs that no test has counted.
    "watchdog": False,
}


class Corner:
    """Topics under a prefix, and the directory that processors started here have their settings in.

    As a context manager it leaves no process behind.
    """

    def __init__(self, cluster: Cluster, prefix: str, directory: Path, *, partitions: int = 4, **settings: Any) -> None:
        self.cluster, self.prefix, self.directory, self.partitions = cluster, prefix, directory, partitions
        self.bootstrap = cluster.bootstrap_servers
        self._settings = load_settings(bootstrap_servers=self.bootstrap, topic_prefix=prefix)
        self.admin = AdminClient(admin_config(self._settings, self.bootstrap))
        self._reader: Consumer | None = None
        self._sender = Producer({"bootstrap.servers": self.bootstrap, "partitioner": "murmur2_random", "acks": "all"})
        self._decided: set[tuple[int, int]] = set()
        self._processors: list[RunningProcessor] = []
        self.set(**settings)

    def __enter__(self) -> "Corner":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for processor in self._processors:
            processor.__exit__(None, None, None)
        if self._reader is not None:
            self._reader.close()

    def set(self, **settings: int | bool) -> None:
        """The settings of the processors that are started from now on, beyond the usual."""
        lines = [f"{name} = {str(value).lower()}\n" for name, value in {**USUAL, **settings}.items()]
        (self.directory / "epochfence.toml").write_text("".join(lines))

    def apply(self) -> "Corner":
        """Make the topics that are missing."""
        sender, reader = sender_config(self._settings, self.bootstrap), reader_config(self._settings, self.bootstrap)
        apply_topics(self.admin, sender, self.prefix, reader_config=reader, partitions=self.partitions)
        return self

    def load(self, seed: int) -> Load:
        """A load for these topics."""
        return Load(self.bootstrap, self.prefix, seed, self.partitions)

    def processor(self, *options: str, slot: str = "main", of: Cluster | None = None) -> RunningProcessor:
        """`epochfence run` on these topics, not started yet. The corner sees to its end."""
        where = self._own_directory()
        return self._see_to(
            RunningProcessor(of or self.cluster, self.prefix, where, *options, slot=slot, cwd=self.directory)
        )

    def held_processor(self, point: str, *, slot: str = "main") -> HeldProcessor:
        """The same with a point to hold it at."""
        where = self._own_directory()
        return self._see_to(HeldProcessor(self.cluster, self.prefix, where, point=point, slot=slot, cwd=self.directory))

    def broken_processor(self, call_id: str, *, slot: str = "main") -> OtherProcessor:
        """The same with a bug that only this call meets."""
        return self._see_to(
            OtherProcessor(
                self.cluster,
                self.prefix,
                self._own_directory(),
                module="tests.broken_fold",
                told=[call_id],
                slot=slot,
                cwd=self.directory,
            )
        )

    def _own_directory(self) -> Path:
        directory = self.directory / f"processor-{len(self._processors)}"
        directory.mkdir()
        return directory

    def _see_to(self, processor: Processor) -> Processor:
        self._processors.append(processor)
        return processor

    def send(self, event: Event) -> int:
        """Send one event. Returns its offset, when the cluster has it: so the broker dates them in this order."""
        offsets: list[int] = []
        self._sender.produce(
            self.prefix + TOPIC_OF_EVENT[type(event)],
            encode_event(event),
            event.call_id.encode(),
            on_delivery=lambda error, message: offsets.append(message.offset() or 0),
        )
        self._sender.flush(30)
        return offsets[0]

    def send_all(self, events: Iterable[Event]) -> list[int]:
        """Send events as fast as it goes. Returns their offsets in the order of `events`, when the cluster has all."""
        offsets: list[int] = []
        for event in events:
            # One topic's records that lie in one partition are acknowledged in their order.
            self._sender.produce(
                self.prefix + TOPIC_OF_EVENT[type(event)],
                encode_event(event),
                event.call_id.encode(),
                on_delivery=lambda error, message: offsets.append(message.offset() or 0),
            )
        assert self._sender.flush(30) == 0
        return offsets

    def send_nothing(self, count: int, to: str = "results") -> None:
        """Send records without a value: the shortest that must have a decision."""
        self.send_raw(to, ((NOTHING, None) for _ in range(count)))

    def send_raw(self, name: str, records: Iterable[tuple[bytes, bytes | None]], compression: str = "none") -> None:
        """Send keys and values as they are, to an input; compressed, they may be larger than the topic's limit."""
        lost: list[str] = []
        config = {"compression.type": compression, "message.max.bytes": 64 << 20, "linger.ms": 5}
        sender = Producer(
            {"bootstrap.servers": self.bootstrap, "partitioner": "murmur2_random", "acks": "all", **config}
        )
        for key, value in records:
            sender.produce(
                self.prefix + name, value, key, on_delivery=lambda error, _: lost.append(str(error)) if error else None
            )
        assert sender.flush(30) == 0
        assert lost == []

    def call_id_in(self, partition: int, name: str) -> str:
        """A call_id that lies in a partition."""
        call_ids = (f"{name}-{number}" for number in range(1_000))
        return next(one for one in call_ids if int(murmur2(one.encode(), self.partitions)) == partition)

    # ---- topics ---------------------------------------------------------------------------------------------------

    def delete(self, name: str) -> None:
        """Delete a topic and wait until it has gone."""
        topic = self.prefix + name
        self.admin.delete_topics([topic])[topic].result(timeout=10)
        until(lambda: topic not in self.admin.list_topics(timeout=10).topics, f"{topic} has gone")

    def alter(self, name: str, setting: str, value: str) -> None:
        """Set one of Kafka's settings of a topic."""
        entry = ConfigEntry(setting, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, self.prefix + name, incremental_configs=[entry])
        self.admin.incremental_alter_configs([resource])[resource].result(timeout=10)

    def add_partitions(self, name: str, count: int) -> None:
        """Let a topic have `count` partitions."""
        topic = self.prefix + name
        self.admin.create_partitions([NewPartitions(topic, count)])[topic].result(timeout=10)
        until(lambda: len(self.admin.list_topics(timeout=10).topics[topic].partitions) == count, f"{topic} has grown")

    def delete_records(self, name: str, partition: int, before: int) -> None:
        """Delete the records of a topic's partition before an offset."""
        place = TopicPartition(self.prefix + name, partition, before)
        self.admin.delete_records([place])[place].result(timeout=10)

    def end(self, name: str, partition: int, *, committed: bool = False) -> int:
        """The high watermark; with `committed` the last stable offset."""
        place = TopicPartition(self.prefix + name, partition)
        level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        spec: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        return int(self.admin.list_offsets({place: spec}, isolation_level=level)[place].result(timeout=10).offset)

    def ends(self) -> dict[tuple[str, int], int]:
        """The high watermarks of both outputs: they tell whether anything was written."""
        return {
            (name, partition): self.end(name, partition)
            for name in ("decisions", "epoch-table")
            for partition in range(self.partitions)
        }

    def transactional(self, name: str) -> Producer:
        """A producer of somebody else, ready to begin a transaction."""
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "transactional.id": f"{self.prefix}{name}",
                "transaction.timeout.ms": 120_000,
                "partitioner": "murmur2_random",
            }
        )
        producer.init_transactions(30)
        return producer

    def read(self, name: str) -> list[list[Record]]:
        """The committed records of a topic, a list for each partition."""
        consumer = Consumer(reader_config(self._settings, self.bootstrap))
        records: list[list[Record]] = [[] for _ in range(self.partitions)]
        unread = set(range(self.partitions))
        consumer.assign([TopicPartition(self.prefix + name, n, OFFSET_BEGINNING) for n in unread])
        deadline = time.monotonic() + SILENCE_S
        while unread:
            assert time.monotonic() < deadline, f"the ends of {unread} of {name} were not reached"
            for message in consumer.consume(10_000, 0.05):
                number = message.partition() or 0
                error = message.error()
                if error is None:
                    record = Record(message.offset() or 0, message.timestamp()[1], message.key(), message.value())
                    records[number].append(record)
                elif error.code() == KafkaError._PARTITION_EOF:
                    unread.discard(number)
        consumer.close()
        return records

    # ---- decisions ------------------------------------------------------------------------------------------------

    def decided(self) -> int:
        """Committed decisions so far; those that came since the last time are read."""
        if self._reader is None:
            self._reader = Consumer(reader_config(self._settings, self.bootstrap))
            self._reader.assign([TopicPartition(self.prefix + "decisions", n, 0) for n in range(self.partitions)])
        for message in self._reader.consume(10_000, 0.05):
            if message.error() is None:
                self._decided.add((message.partition() or 0, message.offset() or 0))
        return len(self._decided)

    def wait_decided(self, count: int, by: RunningProcessor | None = None) -> None:
        """Wait until there are so many committed decisions. Fails when none comes for SILENCE_S."""
        seen, deadline = -1, time.monotonic() + SILENCE_S
        while (now := self.decided()) < count:
            if now > seen:
                seen, deadline = now, time.monotonic() + SILENCE_S
            if by is not None and by.exit_code is not None:
                raise AssertionError(f"it ended with {by.exit_code} after {now} of {count} decisions{by.excerpt()}")
            if time.monotonic() > deadline:
                said = "" if by is None else by.excerpt()
                raise AssertionError(f"{now} of {count} decisions, and no more for {SILENCE_S:.0f} s{said}")

    def check(self, load: Load | None = None, *, merge_order: bool = False) -> Report:
        """The independent check of everything in the topics, which must hold."""
        report = check(self.bootstrap, self.prefix, merge_order=merge_order)
        assert report.ok, f"\n{report}"
        if load is not None:
            assert report.counts["inputs"] == load.total, "the checker has not seen what was sent"
            assert report.counts["decisions"] == load.total
        return report


def stays(so: Callable[[], bool], what: str, for_s: float = 3.0) -> None:
    """Watch that something does not happen. It cannot fail by chance, but may miss what happens later."""
    end = time.monotonic() + for_s
    while time.monotonic() < end:
        assert so(), what
        time.sleep(0.02)


def until(seen: Callable[[], bool], what: str, timeout_s: float = 30.0) -> None:
    """Wait for a condition. Fails with `what` when it does not come."""
    deadline = time.monotonic() + timeout_s
    while not seen():
        assert time.monotonic() < deadline, f"not within {timeout_s:.0f} s: {what}"
        time.sleep(0.02)
