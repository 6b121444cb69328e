"""Fetched records on their way from librdkafka into the merges, and the back-pressure that bounds them."""

import time
from collections.abc import Callable, Mapping

from confluent_kafka import Consumer, Message, TopicPartition

from epochfence.engine.kafka.faults import fetch_fault, is_end_of_partition
from epochfence.engine.task import PartitionTask
from epochfence.errors import LogError

_BATCH = 4_000
_BUFFERED_MAX_RECORDS = 50_000
_BUFFERED_MAX_BYTES = 32 << 20
_STALL_S = 60.0

Tasks = Mapping[int, PartitionTask]


class Fetcher:
    """Feeds the merges of the partitions that a worker owns. `input_topics` in the order of INPUT_TOPICS."""

    def __init__(self, consumer: Consumer, input_topics: tuple[str, ...]) -> None:
        self._consumer = consumer
        self._topics = input_topics
        self._number_of = {topic: number for number, topic in enumerate(input_topics)}
        self._paused: set[tuple[int, int]] = set()
        """(input, partition) whose records piled up."""
        self._progressed_at = time.monotonic()

    def progressed(self) -> None:
        """Something was decided, or partitions arrived: a head that is waited for is not stalled."""
        self._progressed_at = time.monotonic()

    def fetch(self, tasks: Tasks, patience_s: float, assigned: Callable[[], bool]) -> int:
        """Offer what has come to the tasks' merges; wait at most `patience_s` for the first. Returns how many came.

        `assigned` is asked after each call that may have rebalanced. True: what the call brought belongs to an
        assignment that has gone, and is dropped. Raises EpochfenceError for a fault that does not pass.
        """
        message = self._consumer.poll(patience_s)
        if assigned() or message is None:
            return 0
        self._take(tasks, message)
        messages = self._consumer.consume(_BATCH, 0)
        if assigned():
            return 0
        for message in messages:
            self._take(tasks, message)
        return 1 + len(messages)

    def _take(self, tasks: Tasks, message: Message) -> None:
        task = tasks.get(message.partition() or 0)
        if message.error() is not None:
            if not is_end_of_partition(message):
                fault = fetch_fault(message)
                if fault is not None:
                    raise fault
            elif task is not None:
                task.merge.reached_end(self._number_of[message.topic() or ""])
            return
        if task is not None:
            number = self._number_of[message.topic() or ""]
            task.merge.offer(number, message.timestamp()[1], message.offset() or 0, message.key(), message.value())

    def look_for_ends(self, task: PartitionTask) -> None:
        """A head that is not known, but whose last fetch brought everything up to the high watermark, is at its end.

        The end-of-partition event says the same, up to a fetch's wait later. Raises LogError where records are there
        and none of them comes: a batch that librdkafka cannot read must not be waited for for ever, nor skipped.
        """
        for number in task.merge.waiting_for():
            partition = TopicPartition(self._topics[number], task.number)
            high_watermark = self._consumer.get_watermark_offsets(partition, cached=True)[1]
            position = task.merge.position(number)
            if position == high_watermark:
                task.merge.reached_end(number)
            elif position < high_watermark and time.monotonic() - self._progressed_at > _STALL_S:
                raise LogError(
                    f"{partition.topic}[{task.number}]: there are records up to offset {high_watermark}, but nothing "
                    f"from {position} on could be read for {_STALL_S:.0f} s: a batch there may be damaged. Nothing was "
                    "skipped"
                )

    def balance(self, tasks: Tasks) -> None:
        """Pause an input whose records pile up while its merge waits for another; go on when they are used up."""
        for task in tasks.values():
            for number in range(len(self._topics)):
                records, size = task.merge.buffered(number)
                here = (number, task.number)
                if here not in self._paused:
                    if records > _BUFFERED_MAX_RECORDS or size > _BUFFERED_MAX_BYTES:
                        self._consumer.pause([self._partition(here)])
                        self._paused.add(here)
                elif records < _BUFFERED_MAX_RECORDS // 4 and size < _BUFFERED_MAX_BYTES // 4:
                    self._consumer.resume([self._partition(here)])
                    self._paused.discard(here)

    def rewound(self) -> None:
        """The merges are empty: nothing has piled up any more."""
        if self._paused:
            self._consumer.resume([self._partition(here) for here in self._paused])
            self._paused.clear()

    def gone(self) -> None:
        """The partitions are no longer ours."""
        self._paused.clear()

    def stop(self, number: int) -> None:
        """Fetch nothing more of this partition."""
        self._consumer.pause([TopicPartition(topic, number) for topic in self._topics])

    def _partition(self, here: tuple[int, int]) -> TopicPartition:
        return TopicPartition(self._topics[here[0]], here[1])
