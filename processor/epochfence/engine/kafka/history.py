"""Reading the log with librdkafka, for a start."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import structlog
from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from epochfence.engine.history import Bounds, LogRecord
from epochfence.engine.kafka.client_config import open_client
from epochfence.engine.kafka.cluster_calls import ANSWER_TIMEOUT_S, as_person_reads, wait
from epochfence.errors import LogError

log = structlog.get_logger()

_BATCH = 10_000
_SILENCE_S = 15.0
"""After so long without a record a wait is explained in the log: most often it is for somebody's open transaction."""
_EARLIEST: OffsetSpec = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_LATEST: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
_BUFFERED = {"queued.min.messages": 100_000}


class Stopped(Exception):  # noqa: N818 - nothing is wrong: we were asked to leave
    """The process was asked to stop while it was reading."""


class KafkaHistory:
    """Partition `number` of the topics. `stop` is asked now and then; True ends a read with Stopped."""

    def __init__(
        self,
        number: int,
        admin: AdminClient,
        reader_config: dict[str, Any],
        stop: Callable[[], bool] = lambda: False,
        answer_timeout_s: float = ANSWER_TIMEOUT_S,
    ) -> None:
        self._number = number
        self._admin = admin
        self._config = {**reader_config, **_BUFFERED}
        self._stop = stop
        self._answer_timeout_s = answer_timeout_s

    def bounds(self, topic: str) -> Bounds:
        """See History. A read_committed consumer would be told the last stable offset, so the admin client is asked."""
        return Bounds(self._offset(topic, _EARLIEST), self._offset(topic, _LATEST))

    def _offset(self, topic: str, spec: OffsetSpec) -> int:
        asked = TopicPartition(topic, self._number)
        futures = self._admin.list_offsets(
            {asked: spec},
            isolation_level=IsolationLevel.READ_UNCOMMITTED,
            request_timeout=self._answer_timeout_s,
        )
        return int(wait(f"ask for the offsets of {topic}[{self._number}]", futures[asked]).offset)

    def read(self, topic: str, start: int, end: int) -> Iterator[LogRecord]:
        """See History. The end is known from the end-of-partition event: control records hide it from offsets."""
        if start >= end:
            return
        consumer = open_client(Consumer, self._config)
        try:
            consumer.assign([TopicPartition(topic, self._number, start)])
            heard = time.monotonic()
            while True:
                messages = _next_batch(consumer)
                if self._stop():
                    raise Stopped
                if messages:
                    heard = time.monotonic()
                elif time.monotonic() - heard > _SILENCE_S:
                    heard = time.monotonic()
                    self._explain_silence(consumer, topic, end)
                for message in messages:
                    offset = message.offset()
                    assert offset is not None
                    if message.error() is not None:
                        if self._ended(message, topic, end):
                            return
                        continue
                    if offset >= end:
                        return
                    yield LogRecord(offset, message.timestamp()[1], message.key(), message.value())
                    if offset + 1 >= end:
                        return
        finally:
            consumer.close()

    def _ended(self, message: Message, topic: str, end: int) -> bool:
        """Whether this error event is the end that was looked for. Raises for any other than a passing one."""
        error = message.error()
        assert error is not None
        if error.code() == KafkaError._PARTITION_EOF:
            # A read_committed consumer meets the end at the last stable offset: below `end` a transaction is open.
            return (message.offset() or 0) >= end
        if error.code() in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT):
            return False
        if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            raise LogError(f"{topic}[{self._number}]: records were deleted while they were read: {error.str()}")
        raise as_person_reads(f"read {topic}[{self._number}]", error)

    def _explain_silence(self, consumer: Consumer, topic: str, end: int) -> None:
        try:
            position = consumer.position([TopicPartition(topic, self._number)])[0].offset
        except KafkaException:
            position = None
        log.warning(
            "waiting for an open transaction, or for the cluster",
            topic=topic,
            partition=self._number,
            at_offset=position,
            until_offset=end,
            hint="somebody's transaction begins at at_offset and has not ended; its timeout will end it",
        )


def _next_batch(consumer: Consumer) -> list[Message]:
    """What has come, waiting only while nothing has: consume() alone waits until a batch is full."""
    first = consumer.poll(0.05)
    return [] if first is None else [first, *consumer.consume(_BATCH, 0)]
