"""What is in a topic, read with nothing of this project: plain confluent-kafka, committed records only."""

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition


def read_topic(bootstrap_servers: str, topic: str) -> list[Message]:
    """Every committed record of every partition, each partition in the order of its offsets."""
    config = {
        "bootstrap.servers": bootstrap_servers,
        "group.id": "nobody",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "isolation.level": "read_committed",
        "fetch.wait.max.ms": 20,
    }
    consumer = Consumer(config)
    try:
        unread = set(consumer.list_topics(topic, timeout=30).topics[topic].partitions)
        assert unread, f"there is no topic {topic}"
        consumer.assign([TopicPartition(topic, partition, 0) for partition in unread])
        records = []
        while unread:
            message = consumer.poll(30)
            assert message is not None, f"{topic} cannot be read to its end"
            error = message.error()
            if error is None:
                records.append(message)
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                unread.discard(message.partition())
        return sorted(records, key=lambda m: (m.partition() or 0, m.offset() or 0))
    finally:
        consumer.close()
