"""Participants as real Kafka clients, one thread each: a consumer that sees committed records only, and a producer."""

import threading
import time
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from epochfence.demo.journal import Journal, Place
from epochfence.demo.world import World
from epochfence.engine.kafka.client_config import open_client, reader_config, sender_config
from epochfence.engine.kafka.cluster_calls import ANSWER_TIMEOUT_S, as_person_reads, no_answer
from epochfence.engine.kafka.faults import fetch_fault, is_end_of_partition
from epochfence.engine.topics.specs import DECISIONS, topic_name
from epochfence.errors import EpochfenceError
from epochfence.protocol.events import Event
from epochfence.settings import Settings
from epochfence.wire.codec import EventDecoder, NoLookup, OutputDecoder, encode_event
from epochfence.wire.schemas import TOPIC_OF_EVENT

_TICK_S = 0.02


@dataclass(frozen=True)
class Scene:
    """What the participants of one half share: the topics, the world and the journal."""

    settings: Settings
    """Its topic_prefix is the half's own."""
    bootstrap: str
    partition_count: int
    world: World
    journal: Journal


class Participant:
    """Reads `topics` from their beginning and hands each record over; now and then looks at the clock."""

    topics: tuple[str, ...] = (DECISIONS,)

    def __init__(self, scene: Scene) -> None:
        self._thread = threading.Thread(target=self._run, name=type(self).__name__, daemon=True)
        self.scene = scene
        self._stop_asked = threading.Event()
        self._prefix = scene.settings.topic_prefix
        self._producer: Producer = open_client(Producer, sender_config(scene.settings, scene.bootstrap))
        self._events = {topic: EventDecoder(topic, NoLookup()) for topic in self.topics if topic != DECISIONS}
        self._decisions = OutputDecoder(NoLookup())

    # ---- for the roles ------------------------------------------------------------------------------------------

    def handle(self, value: Any, place: Place) -> None:
        """A record was read: a Decision from `decisions`, an event from elsewhere."""

    def tick(self) -> None:
        """Some time has passed."""

    def send(self, event: Event) -> Place:
        """Write an event to its topic and return where it lies, once the cluster has acknowledged it."""
        outcome: list[KafkaError | Place] = []

        def delivered(error: KafkaError | None, message: Message) -> None:
            outcome.append(error or Place(topic, message.partition() or 0, message.offset() or 0))

        topic = TOPIC_OF_EVENT[type(event)]
        self._producer.produce(
            topic_name(self._prefix, topic), key=event.call_id, value=encode_event(event), on_delivery=delivered
        )
        self._producer.flush(ANSWER_TIMEOUT_S)
        answer = outcome[0] if outcome else None
        if isinstance(answer, Place):
            return answer
        what = f"write to {topic_name(self._prefix, topic)}"
        raise as_person_reads(what, answer) if answer is not None else no_answer(what, "it was not acknowledged")

    # ---- the thread ---------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def ask_to_leave(self) -> None:
        """It leaves within a tick; `wait_until_left` waits for that."""
        self._stop_asked.set()

    def wait_until_left(self) -> None:
        """Wait until its thread has ended, if it ever began."""
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        try:
            self._read()
        except EpochfenceError as error:
            self.scene.journal.fail(error)

    def _read(self) -> None:
        consumer = open_client(Consumer, reader_config(self.scene.settings, self.scene.bootstrap))
        try:
            names = {topic_name(self._prefix, topic): topic for topic in self.topics}
            consumer.assign([TopicPartition(name, n, 0) for name in names for n in range(self.scene.partition_count)])
            while not self._stop_asked.is_set():
                message = consumer.poll(_TICK_S)
                if message is not None:
                    self._take(message, names[message.topic() or ""] if message.topic() else "")
                self.tick()
        finally:
            consumer.close()

    def _take(self, message: Message, topic: str) -> None:
        if message.error() is not None:
            fault = None if is_end_of_partition(message) else fetch_fault(message)
            if fault is not None:
                raise fault
            return
        place = Place(topic, message.partition() or 0, message.offset() or 0)
        if topic == DECISIONS:
            decision = self._decisions.decision(message.value())
            self.scene.journal.tell_decision(decision, place)
            self.handle(decision, place)
        else:
            self.handle(self._events[topic](message.key(), message.value()), place)


def now_ms() -> int:
    """The participant's own clock, milliseconds since 1970."""
    return time.time_ns() // 1_000_000
