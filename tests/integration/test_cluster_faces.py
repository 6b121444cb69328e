"""Whatever face the test cluster shows, it is a real broker: what was aborted is not seen, and a zombie is fenced."""

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.cluster import Cluster

pytestmark = pytest.mark.integration


def test_the_broker_keeps_what_exactly_once_needs(cluster: Cluster, prefix: str) -> None:
    topic = f"{prefix}kept"
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(10)
    config = {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": topic}
    zombie, live = Producer(config), Producer(config)

    zombie.init_transactions(30)
    zombie.begin_transaction()
    zombie.produce(topic, b"aborted")
    zombie.flush(10)
    live.init_transactions(30)
    with pytest.raises(KafkaException) as fenced:
        zombie.commit_transaction(10)
    assert fenced.value.args[0].fatal()
    live.begin_transaction()
    live.produce(topic, b"committed")
    live.commit_transaction(10)

    assert _committed_values(cluster, topic) == [b"committed"]


def test_a_misspelt_topic_is_not_made(cluster: Cluster, prefix: str) -> None:
    if cluster.face == "given":
        pytest.skip("what a given cluster does with unknown topics is its owner's choice")
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "message.timeout.ms": 3_000})
    producer.produce(f"{prefix}misspelt", b"lost")
    producer.flush(10)
    topics = AdminClient({"bootstrap.servers": cluster.bootstrap_servers}).list_topics(timeout=10).topics
    assert f"{prefix}misspelt" not in topics


def _committed_values(cluster: Cluster, topic: str) -> list[bytes]:
    config = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "group.id": topic,
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
    }
    consumer = Consumer(config)
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        values: list[bytes] = []
        while True:
            message = consumer.poll(30)
            assert message is not None, "the end of the partition did not come"
            if message.error():
                return values
            values.append(message.value() or b"")
    finally:
        consumer.close()
