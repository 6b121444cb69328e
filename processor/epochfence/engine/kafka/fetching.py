"""Fetched records on their way from librdkafka into the merges, what is known of ends, and the back-pressure.

When is a head empty for good (protocol, *Merge order*)? The end-of-partition event says so once, for that moment. After
it, more may have come that has not been fetched, so an end is believed only while

1. the last fetch's high watermark is not beyond it. Where it is, records are on their way: they are waited for, but not
   longer than DOUBT_S, for somebody's open transaction looks the same;
2. the process did not stand still. After a pause everybody may have written, and the first fetch to come back decides
   nothing alone: every end is asked for again.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import structlog
from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from epochfence.engine.kafka.faults import PartitionFaultError, fetch_fault, is_end_of_partition
from epochfence.engine.task import PartitionTask

log = structlog.get_logger()

DOUBT_S = 1.0
"""So long a record that the high watermark promises is waited for, once its input was at its end."""
STANDSTILL_S = 1.0
"""A pause between two fetches from which on nothing is believed of ends."""
_BATCH = 4_000
_BUFFERED_MAX_RECORDS = 400_000
_BUFFERED_MAX_BYTES = 256 << 20
"""Over all merges of the process."""
_STALL_S = 60.0
_ASK_TIMEOUT_S = 5.0
_UNTOLD_S = 10.0

Tasks = Mapping[int, PartitionTask]
Here = tuple[int, int]
"""(input, partition)."""


@dataclass(slots=True)
class _Doubt:
    """An end that the high watermark contradicts."""

    high_watermark: int
    since_s: float


class Fetcher:
    """Feeds the merges of the partitions that a worker owns. `input_topics` in the order of INPUT_TOPICS."""

    def __init__(self, consumer: Consumer, input_topics: tuple[str, ...]) -> None:
        self._consumer = consumer
        self._topics = input_topics
        self._number_of = {topic: number for number, topic in enumerate(input_topics)}
        self._paused: set[Here] = set()
        """Whose records piled up."""
        self._ends: dict[Here, int] = {}
        """The offset at which the end was told."""
        self._doubts: dict[Here, _Doubt] = {}
        self._untold_since_s: dict[Here, float] = {}
        """Since when an end was asked for after a standstill, and not told yet."""
        self._waiting_since_s: dict[Here, float] = {}
        """Since when records are there by the high watermark, and none comes."""
        self._fetched_at_s = time.monotonic()

    def fetch(self, tasks: Tasks, patience_s: float, assigned: Callable[[], bool]) -> int:
        """Offer what has come to the tasks' merges; wait at most `patience_s` for the first. Returns how many came.

        `assigned` is asked after each call that may have rebalanced. True: what the call brought belongs to an
        assignment that has gone, and is dropped. Raises EpochfenceError for a fault that does not pass.
        """
        fetched = self._fetch(tasks, patience_s, assigned)
        now_s, before_s = time.monotonic(), self._fetched_at_s
        self._fetched_at_s = now_s
        if now_s - before_s - patience_s > STANDSTILL_S:
            self._ask_for_every_end(tasks)
        return fetched

    def _fetch(self, tasks: Tasks, patience_s: float, assigned: Callable[[], bool]) -> int:
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
        partition = message.partition() or 0
        task = tasks.get(partition)
        if message.error() is not None:
            if not is_end_of_partition(message):
                fault = fetch_fault(message)
                if fault is not None and not (task is None and isinstance(fault, PartitionFaultError)):
                    raise fault
            elif task is not None:
                number = self._number_of[message.topic() or ""]
                self._ends[number, partition] = message.offset() or 0
                self._untold_since_s.pop((number, partition), None)
                task.merge.reached_end(number)
            return
        if task is not None:
            number = self._number_of[message.topic() or ""]
            task.merge.offer(number, message.timestamp()[1], message.offset() or 0, message.key(), message.value())

    # ---- ends -----------------------------------------------------------------------------------------------------

    def look_at_ends(self, task: PartitionTask) -> None:
        """Believe or doubt the ends of a partition's empty heads, by the high watermark of their last fetch.

        Raises PartitionFaultError where records are there and none of them comes: a batch that librdkafka cannot
        read must neither be waited for for ever nor skipped.
        """
        now_s = time.monotonic()
        for number in range(len(self._topics)):
            here = (number, task.number)
            if task.merge.buffered(number)[0]:
                for moments in (self._waiting_since_s, self._doubts, self._untold_since_s):
                    moments.pop(here, None)
                continue
            if now_s - self._untold_since_s.get(here, -_UNTOLD_S) < _UNTOLD_S:
                continue  # the high watermark that we have is of before the standstill
            high_watermark = self._consumer.get_watermark_offsets(self._partition(here), cached=True)[1]
            known = max(task.merge.position(number), self._ends.get(here, 0))
            if high_watermark <= known:
                self._waiting_since_s.pop(here, None)
                if task.merge.position(number) == high_watermark:
                    task.merge.reached_end(number)
                continue
            self._refuse_to_wait_for_ever(here, known, now_s)
            if task.merge.is_at_end(number):
                if self._is_doubtful(here, high_watermark, now_s):
                    task.merge.doubt_end(number)
            elif self._has_doubted_enough(here, now_s):
                task.merge.reached_end(number)

    def _is_doubtful(self, here: Here, high_watermark: int, now_s: float) -> bool:
        doubt = self._doubts.get(here)
        if doubt is not None and doubt.high_watermark == high_watermark:
            return False  # waited for already: somebody's transaction is open there
        self._doubts[here] = _Doubt(high_watermark, now_s)
        return True

    def _has_doubted_enough(self, here: Here, now_s: float) -> bool:
        doubt = self._doubts.get(here)
        return doubt is not None and now_s - doubt.since_s > DOUBT_S

    def _refuse_to_wait_for_ever(self, here: Here, known: int, now_s: float) -> None:
        """Records are there by the high watermark, from offset `known` on. For how long has none come?"""
        since_s = self._waiting_since_s.setdefault(here, now_s)
        if now_s - since_s <= _STALL_S:
            return
        partition = self._partition(here)
        self._waiting_since_s.pop(here)
        try:
            # A read_committed consumer is told the last stable offset. What lies beyond it is in somebody's open
            # transaction and cannot come yet; a cluster that is away is waited for.
            stable = self._consumer.get_watermark_offsets(partition, _ASK_TIMEOUT_S, cached=False)[1]
        except KafkaException as error:
            log.warning("waiting for the cluster", topic=partition.topic, partition=here[1], why=error.args[0].str())
            return
        if stable > known:
            raise PartitionFaultError(
                here[1],
                f"{partition.topic}[{here[1]}]: there are records up to offset {stable}, but nothing from {known} on "
                f"could be read for {_STALL_S:.0f} s: a batch there may be damaged. Nothing was skipped",
            )

    def _ask_for_every_end(self, tasks: Tasks) -> None:
        """Nothing is known of ends after a standstill: have each told again, by fetching anew from where it was."""
        self._waiting_since_s.clear()
        self._doubts.clear()
        log.info("stood still: asking for every end again")
        for task in tasks.values():
            for number in range(len(self._topics)):
                if not task.merge.is_at_end(number):
                    continue
                here = (number, task.number)
                partition = self._partition(here)
                partition.offset = max(task.merge.position(number), self._ends.pop(here, 0))
                try:
                    self._consumer.seek(partition)
                except KafkaException as error:
                    log.warning("an end could not be asked for again", partition=task.number, why=error.args[0].str())
                    continue
                task.merge.doubt_end(number)
                self._untold_since_s[here] = self._fetched_at_s

    # ---- back-pressure --------------------------------------------------------------------------------------------

    def balance(self, tasks: Tasks) -> None:
        """Pause an input whose records pile up while its merge waits for another; go on when they are used up."""
        share = max(1, len(tasks) * len(self._topics))
        max_records, max_bytes = _BUFFERED_MAX_RECORDS // share, _BUFFERED_MAX_BYTES // share
        for task in tasks.values():
            for number in range(len(self._topics)):
                records, size = task.merge.buffered(number)
                here = (number, task.number)
                if here not in self._paused:
                    if records > max_records or size > max_bytes:
                        self._consumer.pause([self._partition(here)])
                        self._paused.add(here)
                elif records < max_records // 4 and size < max_bytes // 4:
                    self._consumer.resume([self._partition(here)])
                    self._paused.discard(here)

    # ---- what happened to the partitions --------------------------------------------------------------------------

    def arrived(self) -> None:
        """Partitions were assigned: nothing is known of them."""
        self._paused.clear()
        self._forget_ends()

    def rewound(self) -> None:
        """The merges are empty and the partitions are fetched from their last commit."""
        if self._paused:
            self._consumer.resume([self._partition(here) for here in self._paused])
            self._paused.clear()
        self._forget_ends()

    def _forget_ends(self) -> None:
        self._ends.clear()
        self._doubts.clear()
        self._untold_since_s.clear()
        self._waiting_since_s.clear()
        self._fetched_at_s = time.monotonic()

    def stop(self, number: int) -> None:
        """Fetch nothing more of this partition."""
        self._consumer.pause([TopicPartition(topic, number) for topic in self._topics])

    def _partition(self, here: Here) -> TopicPartition:
        return TopicPartition(self._topics[here[0]], here[1])
