"""The topic `schemas`: every Avro schema that has been written with, by its fingerprint.

Key: 16 lower-case hex digits, the CRC-64-AVRO fingerprint of the schema's Parsing Canonical Form, in the byte order
of Avro's single-object header (little-endian), so that a reader looks up the eight bytes that it has read, in hex.
Value: the schema as JSON, whole, since the canonical form has neither defaults nor docs.
"""

import time
from collections.abc import Mapping
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition

from epochfence.engine.kafka.client_config import open_client
from epochfence.engine.kafka.cluster_calls import ANSWER_TIMEOUT_S, as_person_reads, ask, no_answer
from epochfence.engine.topics.schema_keys import is_under_its_key, schema_key
from epochfence.resources import schema_names, schema_text

# A topic that was made a moment ago is not known to every broker yet.
_SETTLING = {
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TRANSPORT,
}


def own_schemas() -> dict[str, str]:
    """Key in `schemas` -> name, of each schema of this program."""
    return {schema_key(schema_text(name)): name for name in schema_names()}


def missing_schemas(reader_config: Mapping[str, Any], topic: str) -> dict[str, str]:
    """Key -> name, of each schema of this program that `topic` has not, or has under a key that is not its own.

    Raises ClusterError where the topic cannot be read to its end within ANSWER_TIMEOUT_S.
    """
    there = read_schemas(reader_config, topic)
    return {key: name for key, name in own_schemas().items() if not is_under_its_key(key, there.get(key))}


def read_schemas(reader_config: Mapping[str, Any], topic: str) -> dict[str, str]:
    """Everything in `topic`: key -> JSON text, the newest of each key. Raises ClusterError as `missing_schemas`."""
    consumer = open_client(Consumer, dict(reader_config))
    try:
        found: dict[str, str] = {}
        for message in _read_to_end(consumer, topic):
            key = (message.key() or b"").decode("utf-8", "replace")
            value = message.value()
            if value is None:
                found.pop(key, None)
            else:
                found[key] = value.decode("utf-8", "replace")
        return found
    finally:
        consumer.close()


def write_schemas(producer_config: Mapping[str, Any], topic: str, schemas: Mapping[str, str]) -> None:
    """Write the schemas of `schemas` (key -> name). Returns when the cluster has acknowledged every one.

    Raises ClusterError where it did not within ANSWER_TIMEOUT_S.
    """
    producer = open_client(Producer, dict(producer_config))
    failed: list[KafkaError] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            failed.append(error)

    for key, name in schemas.items():
        producer.produce(topic, key=key, value=schema_text(name), on_delivery=delivered)
    unanswered = producer.flush(ANSWER_TIMEOUT_S)
    if failed:
        raise as_person_reads(f"write the schemas to {topic}", failed[0])
    if unanswered:
        raise no_answer(f"write the schemas to {topic}", f"{unanswered} of {len(schemas)} not acknowledged")


def _read_to_end(consumer: Consumer, topic: str) -> list[Message]:
    what = f"read {topic}"
    metadata = ask(what, lambda: consumer.list_topics(topic, timeout=ANSWER_TIMEOUT_S)).topics[topic]
    if metadata.error is not None:
        raise as_person_reads(what, metadata.error)
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in metadata.partitions])
    unread = set(metadata.partitions)
    messages: list[Message] = []
    deadline = time.monotonic() + ANSWER_TIMEOUT_S
    trouble: KafkaError | None = None
    while unread:
        if time.monotonic() > deadline:
            raise as_person_reads(what, trouble) if trouble else no_answer(what, "the end was not reached in time")
        message = consumer.poll(0.2)
        if message is None:
            continue
        error = message.error()
        if error is None:
            messages.append(message)
        elif error.code() == KafkaError._PARTITION_EOF:
            unread.discard(message.partition())
        elif error.code() in _SETTLING:
            trouble = error
        else:
            raise as_person_reads(what, error)
    return messages
