"""Records that are there and do not come: somebody's open transaction is waited out, anything else is said loudly."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition

from epochfence.engine.chain import RunningChain
from epochfence.engine.kafka import fetching
from epochfence.engine.kafka.client_config import reader_config
from epochfence.engine.kafka.faults import PartitionFaultError
from epochfence.engine.kafka.fetching import Fetcher
from epochfence.engine.task import PartitionTask, TaskState, TopicFacts, event_decoders
from epochfence.protocol.admission import Parameters
from epochfence.protocol.partition import Partition
from epochfence.settings import load_settings
from epochfence.wire.codec import NoLookup
from epochfence.wire.schemas import INPUT_TOPICS
from tests.cluster import Cluster
from tests.corner import Corner

STALL_S = 2.0
RESULTS = INPUT_TOPICS.index("results")


class _Deaf(Consumer):
    """librdkafka, as it is with a batch that it cannot read: records of `results` are there and never come."""

    def poll(self, *arguments: Any, **options: Any) -> Message | None:
        message = super().poll(*arguments, **options)
        return None if message is None or _is_a_result(message) else message

    def consume(self, *arguments: Any, **options: Any) -> list[Message]:
        return [message for message in super().consume(*arguments, **options) if not _is_a_result(message)]


def _is_a_result(message: Message) -> bool:
    topic = message.topic() or ""
    return topic.endswith("results") and (message.error() is None or (message.offset() or 0) > 0)


class Fetching:
    """A fetcher on the inputs of partition 0, from offset 0, with a task that decides nothing."""

    def __init__(self, kind: type[Consumer], corner: Corner) -> None:
        topics = tuple(corner.prefix + topic for topic in INPUT_TOPICS)
        self.consumer = kind(reader_config(load_settings(topic_prefix=corner.prefix), corner.bootstrap))
        self.consumer.assign([TopicPartition(topic, 0, 0) for topic in topics])
        state = TaskState(Partition(Parameters()), RunningChain(), [0] * len(topics))
        facts = TopicFacts(topics, topics, "", "", "", 1)
        self.task = PartitionTask(0, facts, Parameters(), event_decoders(NoLookup()), state)
        self.fetcher = Fetcher(self.consumer, topics)

    def go_on(self) -> None:
        self.fetcher.fetch({0: self.task}, 0.02, lambda: False)
        self.fetcher.look_at_ends(self.task)

    def go_on_for(self, seconds: float) -> None:
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            self.go_on()

    def until_at_end(self) -> None:
        deadline = time.monotonic() + 30
        while not all(self.task.merge.is_at_end(number) for number in range(len(INPUT_TOPICS))):
            assert time.monotonic() < deadline
            self.go_on()


@pytest.fixture
def corner(cluster: Cluster, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Corner]:
    monkeypatch.setattr(fetching, "_STALL_S", STALL_S)
    with Corner(cluster, prefix, tmp_path, partitions=1) as corner:
        corner.apply()
        yield corner


def test_somebodys_open_transaction_is_no_damage_and_holds_up_no_other_input(corner: Corner) -> None:
    held = Producer({"bootstrap.servers": corner.bootstrap, "transactional.id": corner.prefix + "somebody"})
    held.init_transactions(30)
    fetch = Fetching(Consumer, corner)
    fetch.until_at_end()
    held.begin_transaction()
    held.produce(corner.prefix + "results", b"later", b"7", 0)
    assert held.flush(30) == 0
    fetch.go_on_for(2 * STALL_S)  # twice as long as it takes to be called damaged
    fetch.until_at_end()
    held.abort_transaction(30)
    fetch.consumer.close()


def test_records_that_do_not_come_though_their_input_was_at_its_end_are_said_loudly(corner: Corner) -> None:
    fetch = Fetching(_Deaf, corner)
    fetch.until_at_end()
    corner.send_nothing(3)
    with pytest.raises(
        PartitionFaultError, match=r"results\[0\]: there are records up to offset 3, but nothing from 0"
    ):
        fetch.go_on_for(30)
    assert fetch.task.merge.buffered(RESULTS) == (0, 0)
    fetch.consumer.close()
