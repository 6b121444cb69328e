"""What to do with a partition: merge, decide, write, checkpoint, undo. How it is done on Kafka is worker.py's.

A task never touches a client. It is offered records, and writes to a `Sink`, which may be a transactional producer or
a log in memory. Its life is a row of transactions:

    offer … decide … decide … seal, then `committed` once the transaction is, or `undo`, which takes all of it back.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from epochfence.engine.chain import RunningChain
from epochfence.engine.merge import InputRecord, Merge
from epochfence.errors import ClusterError
from epochfence.protocol.admission import Parameters
from epochfence.protocol.decisions import Checkpoint, InputPosition
from epochfence.protocol.events import Event, Input
from epochfence.protocol.partition import Ended, Partition
from epochfence.protocol.records import CallRecord
from epochfence.wire.codec import (
    CHECKPOINT_KEY,
    DecisionEncoder,
    EventDecoder,
    SchemaLookup,
    encode_checkpoint,
    encode_record,
    undecodable_call_id,
)
from epochfence.wire.routing import lies_in
from epochfence.wire.schemas import INPUT_TOPICS


class Sink(Protocol):
    """Where a task writes: into the transaction that is open."""

    def decision(self, partition: int, key: bytes, value: bytes) -> None:
        """Append to `decisions`."""

    def table(self, partition: int, key: bytes, value: bytes | None) -> None:
        """Write to `epoch-table`; None takes the key away."""


class TopicFacts(NamedTuple):
    """What a checkpoint says of the topics: their names and ids, and how many partitions each of the six has."""

    input_topics: tuple[str, ...]
    """Full names, in the order of INPUT_TOPICS."""
    input_topic_ids: tuple[str, ...]
    decisions_topic: str
    decisions_topic_id: str
    table_topic: str
    partition_count: int


@dataclass(slots=True)
class TaskState:
    """Where a partition stands between two transactions: what recovery restores."""

    partition: Partition
    chain: RunningChain
    next_offsets: list[int]
    """Of each input, in the order of INPUT_TOPICS, the first offset not decided yet."""


def event_decoders(lookup: SchemaLookup) -> tuple[EventDecoder, ...]:
    """One decoder an input, in the order of INPUT_TOPICS."""
    return tuple(EventDecoder(topic, lookup) for topic in INPUT_TOPICS)


class PartitionTask:
    """Decides partition `number` of the inputs. Owned by one thread."""

    def __init__(
        self,
        number: int,
        facts: TopicFacts,
        parameters: Parameters,
        decoders: tuple[EventDecoder, ...],
        state: TaskState,
    ) -> None:
        self.number = number
        self.merge = Merge(state.next_offsets)
        self._facts = facts
        self._parameters = parameters
        self._decoders = decoders
        self._encoder = DecisionEncoder()
        self._topic_bytes = tuple(topic.encode() for topic in facts.input_topics)
        self._partition = state.partition
        self._chain = state.chain
        self._committed_offsets = list(state.next_offsets)
        self._next_offsets = list(state.next_offsets)
        self._held: tuple[bytes, bytes] | None = None
        """(key, body) of the newest decision: the last one of a transaction carries the checkpoint, so it waits."""
        self._sealed: Checkpoint | None = None
        self._ended = Ended({}, [])
        self.blocked_by: ClusterError | None = None
        """Why the next record could not be decided yet, if that is so."""

    @property
    def calls(self) -> int:
        """Calls in the table."""
        return len(self._partition.calls)

    @property
    def records(self) -> Iterable[CallRecord]:
        """The table's records."""
        return self._partition.calls.values()

    @property
    def stream_time_ms(self) -> int:
        """The partition's stream time."""
        return self._partition.stream_time_ms

    @property
    def seq(self) -> int:
        """The seq of the last decision."""
        return self._partition.seq

    @property
    def has_uncommitted(self) -> bool:
        """Whether it has decided something that no transaction has ended yet."""
        return self._held is not None

    @property
    def next_offsets(self) -> tuple[int, ...]:
        """Of each input the first offset not decided yet, in the order of INPUT_TOPICS; decided means committed only
        after `committed`."""
        return tuple(self._next_offsets)

    def decide(self, limit: int, now_ms: int, sink: Sink) -> int:
        """Decide at most `limit` of the records whose turn it is. Returns how many. One decision for each of them.

        `now_ms` is the wall clock, written as decided_at_ms. Where the source of a writer's schema does not answer,
        the record waits, and all behind it: `blocked_by` says so. It is never decided without an answer.
        """
        self.blocked_by = None
        records = self.merge.take(limit)
        tail = self._encoder.tail(now_ms, None)
        for count, record in enumerate(records):
            try:
                event = self._decoders[record.input](record.key, record.value)
            except ClusterError as error:
                self.blocked_by = error
                self.merge.put_back(records[count:])
                return count
            held, self._held = self._held, self._decide_one(record, event)
            if held is not None:
                self._write(held, tail, sink)
        return len(records)

    def _decide_one(self, record: InputRecord, event: Event | None) -> tuple[bytes, bytes]:
        number = record.input
        event_id = "" if event is None else event.event_id
        at = Input(self._facts.input_topics[number], self.number, record.offset, record.timestamp_ms, event_id)
        in_its_partition = lies_in(self.number, record.key, self._facts.partition_count)
        named = undecodable_call_id(record.key, record.value) if event is None else event.call_id
        decision = self._partition.decide(event, record.key, named, in_its_partition, at)
        body = self._encoder.body(decision)
        self._chain.add_decision(body)
        self._chain.add_input(self._topic_bytes[number], record.offset, record.key, record.value)
        self._next_offsets[number] = record.offset + 1
        return decision.call_id.encode(), body

    def seal(self, now_ms: int, sink: Sink) -> int:
        """End the transaction: forget, write the checkpoint with the last decision, and the table's changes.

        `now_ms` is the wall clock, beyond which stream time does not go. Does nothing where nothing was decided.
        Returns how many records of the table it wrote.
        """
        if self._held is None:
            return 0
        ended = self._ended = self._partition.end_transaction(now_ms, self._parameters)
        checkpoint = self._checkpoint()
        self._write(self._held, self._encoder.tail(now_ms, checkpoint), sink)
        self._held = None
        for call_id, record in ended.changed.items():
            sink.table(self.number, call_id.encode(), encode_record(record))
        for call_id in ended.forgotten:
            sink.table(self.number, call_id.encode(), None)
        sink.table(self.number, CHECKPOINT_KEY, encode_checkpoint(checkpoint))
        self._sealed = checkpoint
        return len(ended.changed) + len(ended.forgotten)

    def _write(self, held: tuple[bytes, bytes], tail: bytes, sink: Sink) -> None:
        key, body = held
        sink.decision(self.number, key, self._encoder.value(body, tail))

    def _checkpoint(self) -> Checkpoint:
        partition, facts = self._partition, self._facts
        return Checkpoint(
            seq=partition.seq,
            inputs=tuple(map(InputPosition, facts.input_topics, facts.input_topic_ids, self._next_offsets)),
            decisions_topic_id=facts.decisions_topic_id,
            partition_count=facts.partition_count,
            stream_time_ms=partition.stream_time_ms,
            retention_ms=partition.parameters.retention_ms,
            max_body_bytes=partition.parameters.max_body_bytes,
            chain=self._chain.next_head(),
        )

    def committed(self) -> Ended:
        """The transaction that `seal` ended is committed. Returns what it changed in the table."""
        if self._sealed is None:
            return Ended({}, [])
        ended = self._ended
        self._partition.commit()
        self._chain.commit(self._sealed.chain)
        self._committed_offsets = list(self._next_offsets)
        self._sealed = None
        return ended

    def undo(self) -> None:
        """The transaction is aborted: be as after the last commit. The inputs must be read again from there."""
        self._partition.undo()
        self._chain.undo()
        self._next_offsets = list(self._committed_offsets)
        self._held = None
        self._sealed = None
        self.merge.clear(self._next_offsets)
