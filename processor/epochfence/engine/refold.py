"""Folding again what was decided, from the inputs that the decisions name, and comparing.

`seq` is the law: the decisions give the order, and each input is fetched by its offset. A decision that the fold does
not repeat, field for field, means that the log, the inputs or the fold are not what they were.
"""

from collections.abc import Iterable, Iterator
from dataclasses import fields

from epochfence.engine.history import History, LogRecord
from epochfence.engine.task import TaskState, TopicFacts
from epochfence.errors import LogError
from epochfence.protocol.admission import Parameters
from epochfence.protocol.decisions import Checkpoint, Decision
from epochfence.protocol.events import Event
from epochfence.protocol.vocabulary import Reason
from epochfence.wire.codec import DecisionEncoder, EventDecoder
from epochfence.wire.routing import lies_in

_ADVISORY = ("decided_at_ms", "checkpoint")
_COMPARED = tuple(field.name for field in fields(Decision) if field.name not in _ADVISORY)


class Refold:
    """Brings `state` up to the checkpoint `last`."""

    def __init__(
        self,
        number: int,
        history: History,
        facts: TopicFacts,
        decoders: tuple[EventDecoder, ...],
        state: TaskState,
        last: Checkpoint,
    ) -> None:
        self._number = number
        self._facts = facts
        self._decoders = decoders
        self._state = state
        self._encoder = DecisionEncoder()
        self._inputs: list[Iterator[LogRecord]] = [
            iter(history.read(topic, start, position.next_offset))
            for topic, start, position in zip(facts.input_topics, state.next_offsets, last.inputs, strict=True)
        ]

    def run(self, decisions: Iterable[Decision]) -> set[str]:
        """Fold the decisions given, which must end with the checkpoint. Returns the calls that they touched.

        Raises LogError at the first divergence.
        """
        touched: set[str] = set()
        transaction: list[Decision] = []
        for decision in decisions:
            transaction.append(decision)
            if decision.checkpoint is not None:
                touched |= self._transaction(transaction, decision.checkpoint)
                transaction = []
        if transaction:
            raise self._divergence(transaction[-1], "the last decision carries no checkpoint: its transaction is torn")
        return touched

    def _transaction(self, decisions: list[Decision], checkpoint: Checkpoint) -> set[str]:
        partition = self._state.partition
        in_force = Parameters(checkpoint.retention_ms, checkpoint.max_body_bytes)
        if partition.seq == 0:
            partition.parameters = in_force  # nothing was stated before: the first transaction states its own
        for decision in decisions:
            self._one(decision)
        # Stream time was held back by the processor's own clock; the checkpoint says where that stood.
        ended = partition.end_transaction(checkpoint.stream_time_ms, in_force)
        head = self._state.chain.next_head()
        last = decisions[-1]
        if partition.stream_time_ms != checkpoint.stream_time_ms:
            raise self._divergence(
                last, f"its stream time is {checkpoint.stream_time_ms}, the fold's is {partition.stream_time_ms}"
            )
        if head != checkpoint.chain:
            which = "decisions" if head.decisions != checkpoint.chain.decisions else "inputs"
            raise self._divergence(last, f"the chain over {which} breaks in the transaction that ends here")
        if self._state.next_offsets != [position.next_offset for position in checkpoint.inputs]:
            raise self._divergence(last, "its checkpoint states other offsets than its decisions name")
        partition.commit()
        self._state.chain.commit(head)
        return {*ended.changed, *ended.forgotten}

    def _one(self, logged: Decision) -> None:
        partition = self._state.partition
        if logged.seq != partition.seq + 1:
            raise self._divergence(logged, f"seq {partition.seq + 1} is missing before it")
        number, record = self._input(logged)
        event = self._event(number, record, logged)
        in_its_partition = lies_in(self._number, record.key, self._facts.partition_count)
        named = logged.call_id  # of bytes that do not decode; any other is the event's own
        folded = partition.decide(event, record.key, named, in_its_partition, logged.input)
        for name in _COMPARED:
            ours, theirs = getattr(folded, name), getattr(logged, name)
            if ours != theirs:
                raise self._divergence(logged, f"{name} differs: the fold decides otherwise than the log says")
        self._state.chain.add_decision(self._encoder.body(folded))
        self._state.chain.add_input(logged.input.topic.encode(), record.offset, record.key, record.value)
        self._state.next_offsets[number] = record.offset + 1

    def _input(self, logged: Decision) -> tuple[int, LogRecord]:
        at = logged.input
        if at.topic not in self._facts.input_topics:
            raise self._divergence(logged, f"it answers a record of {at.topic}, which is no input")
        number = self._facts.input_topics.index(at.topic)
        record = next(self._inputs[number], None)
        if record is None or record.offset != at.offset or record.timestamp_ms != at.timestamp_ms:
            found = "nothing" if record is None else f"offset {record.offset} at {record.timestamp_ms} ms"
            raise self._divergence(
                logged, f"it answers {at.topic}@{at.offset} at {at.timestamp_ms} ms, where the log has {found}"
            )
        return number, record

    def _event(self, number: int, record: LogRecord, logged: Decision) -> Event | None:
        if logged.reason is Reason.UNDECODABLE:
            # Undecodable then; since, its writer's schema may have become known. The log's word stands.
            return None
        event = self._decoders[number](record.key, record.value)
        if event is None:
            raise self._divergence(logged, "its input does not decode any more")
        return event

    def _divergence(self, logged: Decision, why: str) -> LogError:
        at = logged.input
        return LogError(
            f"{self._facts.decisions_topic}[{self._number}] seq {logged.seq} (input {at.topic}@{at.offset}, call "
            f"{logged.call_id!r}): {why}. Nothing was written; `epochfence audit verify` tells more"
        )
