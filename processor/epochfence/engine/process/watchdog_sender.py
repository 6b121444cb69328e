"""How the watchdog speaks: Timeout events into `timeouts`, by a producer of its own, outside the transaction.

It is a sender like any other. What it sends is decided in its turn, behind everything that was appended before.
"""

import time
from collections.abc import Iterable

import structlog
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from epochfence.engine.task import PartitionTask
from epochfence.engine.watchdog import Watchdog
from epochfence.protocol.events import Timeout
from epochfence.protocol.partition import Ended
from epochfence.protocol.records import CallRecord
from epochfence.protocol.vocabulary import Cause
from epochfence.wire.codec import encode_event

log = structlog.get_logger()

_LOOK_EVERY_S = 0.25


class Watchdogs:
    """The watchdogs of the partitions that a worker owns."""

    def __init__(self, producer: Producer, topic: str, slot: str, grace_ms: int) -> None:
        self._producer = producer
        self._topic = topic
        self._source = f"watchdog {slot}"
        self._grace_ms = grace_ms
        self._dogs: dict[int, Watchdog] = {}
        self._looked_at = 0.0

    def arrived(self, tasks: Iterable[PartitionTask]) -> None:
        """These are the partitions now; those of before are gone."""
        now_s = time.monotonic()
        self._dogs = {task.number: Watchdog(self._grace_ms, task.records, now_s) for task in tasks}

    def committed(self, number: int, ended: Ended) -> None:
        """A transaction of this partition is committed."""
        dog = self._dogs.get(number)
        if dog is not None:
            dog.observe(ended.changed.values(), time.monotonic())
            dog.forget(ended.forgotten)

    def look(self, tasks: dict[int, PartitionTask]) -> None:
        """Send what is due, a few times a second at most. What is not delivered is due again after a grace."""
        now_s = time.monotonic()
        if now_s - self._looked_at < _LOOK_EVERY_S:
            return
        self._looked_at = now_s
        for number, dog in self._dogs.items():
            task = tasks.get(number)
            if task is not None:
                for record in dog.due(now_s, task.stream_time_ms):
                    self._send(number, record)
        self._producer.poll(0)

    def _send(self, number: int, record: CallRecord) -> None:
        event = Timeout(
            event_id=f"{record.call_id}@{record.incarnation}:watchdog:{record.live_epoch}",
            call_id=record.call_id,
            epoch=record.live_epoch,
            incarnation=record.incarnation,
            cause=Cause.WATCHDOG,
            source=self._source,
            occurred_at_ms=time.time_ns() // 1_000_000,
        )
        log.info("watchdog asks for a fence", partition=number, call_id=record.call_id, epoch=record.live_epoch)
        try:
            self._producer.produce(
                self._topic, encode_event(event), record.call_id.encode(), number, on_delivery=_delivered
            )
        except (BufferError, KafkaException) as error:
            log.warning("watchdog could not send", call_id=record.call_id, why=str(error))


def _delivered(error: KafkaError | None, message: Message) -> None:
    if error is not None:
        log.warning("watchdog could not send", partition=message.partition(), why=error.str())
