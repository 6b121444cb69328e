"""Topics of one test with what the processor would have written in them, put there by hand and at once.

For what a test cannot wait for a processor to do: transactions left open, damage, thousands of records.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from epochfence.engine.kafka.client_config import admin_config, reader_config, sender_config
from epochfence.engine.topics.cluster import apply_topics
from epochfence.protocol.decisions import Decision
from epochfence.protocol.records import CallRecord
from epochfence.settings import load_settings
from epochfence.wire.codec import DecisionEncoder, encode_record
from tests.builders import Log, call
from tests.cluster import Cluster


def make_topics(cluster: Cluster, prefix: str, partitions: int = 4) -> None:
    """What `topics apply` makes."""
    settings, bootstrap = load_settings(topic_prefix=prefix), cluster.bootstrap_servers
    apply_topics(
        AdminClient(admin_config(settings, bootstrap)),
        sender_config(settings, bootstrap),
        prefix,
        reader_config=reader_config(settings, bootstrap),
        partitions=partitions,
    )


def where(cluster: Cluster, prefix: str) -> list[str]:
    """The options that every verb has."""
    return ["--bootstrap-servers", cluster.bootstrap_servers, "--prefix", prefix]


def decision_value(decision: Decision) -> bytes:
    """As the processor writes it."""
    encoder = DecisionEncoder()
    return encoder.value(encoder.body(decision), encoder.tail(0, None))


def opened(call_id: str, seq: int = 1) -> Decision:
    """The decision that opens a call."""
    (decision,) = Log(call(call_id=call_id)).decisions
    return replace(decision, seq=seq)


def open_record(call_id: str, **changes: object) -> CallRecord:
    """The record of a call that is open, but for `changes`."""
    return replace(Log(call(call_id=call_id)).partition.calls[call_id], **changes)  # type: ignore[arg-type]


def record_value(record: CallRecord) -> bytes:
    """As the processor writes it."""
    return encode_record(record)


def write(cluster: Cluster, topic: str, partition: int, records: Iterable[tuple[bytes, bytes | None]]) -> None:
    """(key, value) pairs into one partition, without a transaction."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all", "linger.ms": 5})
    _produce(producer, topic, partition, records)


@contextmanager
def open_transaction(
    cluster: Cluster, topic: str, partition: int, records: Iterable[tuple[bytes, bytes | None]]
) -> Iterator[Producer]:
    """The same in a transaction that stays open, for the test to commit or abort."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": f"{topic}.by-hand"})
    producer.init_transactions(30)
    producer.begin_transaction()
    _produce(producer, topic, partition, records)
    yield producer


def _produce(producer: Producer, topic: str, partition: int, records: Iterable[tuple[bytes, bytes | None]]) -> None:
    for key, value in records:
        producer.produce(topic, value, key, partition)
        producer.poll(0)
    assert producer.flush(30) == 0
