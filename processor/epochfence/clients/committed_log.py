"""Reading what is committed in the topics that the processor writes: all of it as it stands, or for as long as asked.

Read committed, always. The protocol's second rule: nobody acts on a thing that is not yet durable. A record that is
still in a transaction may be aborted, and then it was never decided.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import NamedTuple

from confluent_kafka import Consumer, IsolationLevel, KafkaError, Message, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from epochfence.clients.time_merge import CommittedRecord, TimeMerge
from epochfence.engine.kafka.client_config import admin_config, open_client, reader_config
from epochfence.engine.kafka.cluster_calls import ANSWER_TIMEOUT_S, as_person_reads, failed_with, wait
from epochfence.engine.topics.specs import topic_name
from epochfence.errors import EpochfenceError, LogError, UsageError
from epochfence.settings import Settings

_BATCH = 2_000
_PATIENCE_S = 0.1
"""Longest time from a call of `stop` to the next."""
_SILENCE_S = 5.0
"""After so long without a record, where one should come, the cluster is asked whether it is still there."""
_HELD_MAX_RECORDS = 10_000
_HELD_MAX_BYTES = 4 << 20
"""More than this of one partition is not held while the merge waits for another."""
_EARLIEST: OffsetSpec = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_LATEST: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
_PASSING = frozenset(
    {
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TIMED_OUT,
        KafkaError._RESOLVE,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
    }
)
_GONE = frozenset({KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE})
_NO_TOPIC = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION})


class Span(NamedTuple):
    """The offsets of one partition from `start` up to, not including, `end`."""

    start: int
    end: int


def _silent(_line: str) -> None:
    pass


class CommittedLog:
    """One topic of the processor. A context manager: it holds a consumer that is closed at the end.

    `stop` is asked at least every 100 ms while it reads; True ends the reading. `notify` is told, in a line for a
    person, what it waits for. Raises UsageError where the topic is missing, ClusterError where nobody answers.
    """

    def __init__(
        self,
        settings: Settings,
        bootstrap: str,
        name: str,
        *,
        stop: Callable[[], bool] = lambda: False,
        notify: Callable[[str], None] = _silent,
    ) -> None:
        self.topic = topic_name(settings.topic_prefix, name)
        self.admin = open_client(AdminClient, admin_config(settings, bootstrap))
        self.partition_count = self._describe()
        self._stop = stop
        self._notify = notify
        self._consumer = open_client(Consumer, reader_config(settings, bootstrap))

    def __enter__(self) -> "CommittedLog":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._consumer.close()

    def _describe(self) -> int:
        (future,) = self.admin.describe_topics(TopicCollection([self.topic]), request_timeout=ANSWER_TIMEOUT_S).values()
        if failed_with(future, KafkaError.UNKNOWN_TOPIC_OR_PART):
            raise UsageError(f"there is no topic {self.topic}. `epochfence topics apply` makes it; see --prefix")
        return len(wait(f"describe {self.topic}", future).partitions)

    def all_of(self, partitions: Sequence[int]) -> dict[int, Span]:
        """Everything in these partitions as they stand: from the first record to the high watermark.

        The high watermark, asked as read_uncommitted: what is still in a transaction is waited for. Up to the last
        stable offset only, the newest decisions of a processor that has just died would be missed.
        """
        earliest = self._offsets(partitions, _EARLIEST, IsolationLevel.READ_UNCOMMITTED)
        high_watermark = self._offsets(partitions, _LATEST, IsolationLevel.READ_UNCOMMITTED)
        return {number: Span(earliest[number], high_watermark[number]) for number in partitions}

    def from_now(self, partitions: Sequence[int]) -> dict[int, Span]:
        """What is committed in these partitions from now on, for who follows: nothing of it is there yet."""
        stable = self._offsets(partitions, _LATEST, IsolationLevel.READ_COMMITTED)
        return {number: Span(offset, offset) for number, offset in stable.items()}

    def _offsets(self, partitions: Sequence[int], spec: OffsetSpec, level: IsolationLevel) -> dict[int, int]:
        asked = {TopicPartition(self.topic, number): spec for number in partitions}
        futures = self.admin.list_offsets(asked, isolation_level=level, request_timeout=ANSWER_TIMEOUT_S)
        what = f"ask for the offsets of {self.topic}"
        return {partition.partition: int(wait(what, future).offset) for partition, future in futures.items()}

    def read(self, spans: Mapping[int, Span], *, follow: bool = False) -> Iterator[CommittedRecord]:
        """The committed records of the spans, each partition in the order of its offsets, all of them in the order of
        the broker's timestamps. With `follow` it goes on behind the spans, until it is told to stop.

        It waits for transactions that are open in the spans. Raises ClusterError where the cluster does not answer
        any more (a follower waits for it to come back), LogError where records are gone or cannot be read.
        """
        merge = TimeMerge(number for number, span in spans.items() if span.start < span.end)
        wanted = spans if follow else {number: span for number, span in spans.items() if span.start < span.end}
        self._consumer.assign([TopicPartition(self.topic, number, span.start) for number, span in wanted.items()])
        paused: set[int] = set()
        heard = time.monotonic()
        while (follow or merge.unfinished or merge.held) and not self._stop():
            messages = self._fetch() if follow or merge.unfinished else []
            for message in messages:
                self._take(message, spans, follow, merge)
            yield from merge.take()
            self._hold_within_bounds(merge, paused)
            if messages:
                heard = time.monotonic()
            elif merge.unfinished and time.monotonic() - heard > _SILENCE_S:
                self._explain_silence(merge.unfinished)
                heard = time.monotonic()
        self._consumer.unassign()

    def _fetch(self) -> list[Message]:
        # consume() alone would wait for a full batch: a follower wants the first record when it is there.
        first = self._consumer.poll(_PATIENCE_S)
        return [] if first is None else [first, *self._consumer.consume(_BATCH, 0)]

    def _take(self, message: Message, spans: Mapping[int, Span], follow: bool, merge: TimeMerge) -> None:
        error, number, offset = message.error(), message.partition(), message.offset()
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            self._raise_unless_passing(error, message)
            return
        assert number is not None
        assert offset is not None
        end = spans[number].end
        if error is not None:
            # A read_committed consumer meets the end at the last stable offset: below `end` a transaction is open.
            # The event's position, not the last record's: control records hide the end from offsets.
            if offset >= end:
                merge.reached_end(number)
            return
        if offset < end or follow:
            merge.offer(CommittedRecord(number, offset, message.timestamp()[1], message.key(), message.value()))
        if offset + 1 >= end:
            merge.reached_end(number)

    def _hold_within_bounds(self, merge: TimeMerge, paused: set[int]) -> None:
        """Pause a partition whose records pile up while the merge waits for another; go on when they are used up."""
        for number in merge.partitions:
            records, size = merge.held_of(number)
            if number not in paused:
                if records > _HELD_MAX_RECORDS or size > _HELD_MAX_BYTES:
                    self._consumer.pause([TopicPartition(self.topic, number)])
                    paused.add(number)
            elif records <= _HELD_MAX_RECORDS // 4 and size <= _HELD_MAX_BYTES // 4:
                self._consumer.resume([TopicPartition(self.topic, number)])
                paused.discard(number)

    def _explain_silence(self, unfinished: frozenset[int]) -> None:
        numbers = sorted(unfinished)
        self._offsets(numbers, _LATEST, IsolationLevel.READ_UNCOMMITTED)  # raises ClusterError where nobody answers
        self._notify(
            f"waiting in {self.topic}, partition {', '.join(map(str, numbers))}: somebody's transaction is open there; "
            "its end, or its timeout, lets the reading go on"
        )

    def _raise_unless_passing(self, error: KafkaError, message: Message) -> None:
        if error.code() in _PASSING:
            return
        where = f"{self.topic}[{message.partition()}]"
        raised: EpochfenceError
        if error.code() in _GONE:
            raised = LogError(f"{where}: records were deleted while they were read: {error.str()}")
        elif error.code() in _NO_TOPIC:
            raised = UsageError(f"{self.topic} is not there any more: {error.str()}. See `epochfence topics check`")
        else:
            raised = as_person_reads(f"read {where}", error)
        raise raised
