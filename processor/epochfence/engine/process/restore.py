"""What happens when partitions are assigned: wait for pending offsets, recover each partition, complete its table."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from epochfence.engine.kafka.history import KafkaHistory, Stopped
from epochfence.engine.kafka.transactions import AbortedError, Transactions
from epochfence.engine.recovery import Recovered, Recovery, TableRewrite
from epochfence.engine.task import PartitionTask, Sink, TopicFacts, event_decoders
from epochfence.errors import ClusterError
from epochfence.protocol.admission import Parameters
from epochfence.wire.codec import (
    CHECKPOINT_KEY,
    OutputDecoder,
    SchemaLookup,
    encode_checkpoint,
    encode_record,
)

log = structlog.get_logger()

_PROGRESS_EVERY_S = 2.0
_COMMITTED_TIMEOUT_S = 10.0
REWRITE_MAX_RECORDS = 10_000
REWRITE_MAX_BYTES = 16 << 20


class Restorer:
    """Makes the tasks of newly assigned partitions."""

    def __init__(
        self,
        facts: TopicFacts,
        parameters: Parameters,
        lookup: SchemaLookup,
        consumer: Consumer,
        transactions: Transactions,
        sink: Sink,
        admin: AdminClient,
        reader_config: dict[str, Any],
        stopping: Callable[[], bool],
    ) -> None:
        self._facts = facts
        self._parameters = parameters
        self._decoders = event_decoders(lookup)
        self._outputs = OutputDecoder(lookup)
        self._consumer = consumer
        self._transactions = transactions
        self._sink = sink
        self._admin = admin
        self._reader_config = reader_config
        self._stopping = stopping
        self._reported_at = 0.0

    def restore(self, numbers: list[int]) -> dict[int, PartitionTask]:
        """A task for each partition. Raises LogError, ClusterError or FencedError, and Stopped.

        In this order: 1. the group's offsets, where a read_committed consumer waits for those that a dead process's
        transaction may still commit; 2. the log. The other way round the transaction could commit behind our back.
        """
        group_offsets = self._wait_for_group_offsets(numbers)
        return {number: self._restore(number, group_offsets[number]) for number in numbers}

    def _wait_for_group_offsets(self, numbers: list[int]) -> dict[int, tuple[int, ...]]:
        asked = [TopicPartition(topic, number) for number in numbers for topic in self._facts.input_topics]
        while asked:
            try:
                answered = self._consumer.committed(asked, _COMMITTED_TIMEOUT_S)
                break
            except KafkaException as error:
                reason = error.args[0]
                if reason.code() not in (KafkaError._TIMED_OUT, KafkaError._TRANSPORT) and not reason.retriable():
                    raise ClusterError(f"could not ask for the group's offsets: {reason.str()}") from None
                log.warning("waiting for the group's pending offsets", why=reason.str())
            if self._stopping():
                raise Stopped
        else:
            return {}
        offsets = {(p.topic, p.partition): max(p.offset, 0) for p in answered}
        return {n: tuple(offsets[topic, n] for topic in self._facts.input_topics) for n in numbers}

    def _restore(self, number: int, group_offsets: tuple[int, ...]) -> PartitionTask:
        began = time.monotonic()
        recovered = Recovery(
            number,
            KafkaHistory(number, self._admin, self._reader_config, self._stopping),
            self._facts,
            self._parameters,
            self._decoders,
            self._outputs,
            group_offsets,
            lambda topic, done, total: self._report(number, topic, done, total),
        ).run()
        task = PartitionTask(number, self._facts, self._parameters, self._decoders, recovered.state)
        if recovered.rewrite is not None:
            self._complete_table(number, recovered, recovered.rewrite)
        log.info(
            "restored",
            partition=number,
            seq=task.seq,
            calls=task.calls,
            rolled_forward=recovered.rewrite is not None,
            seconds=round(time.monotonic() - began, 3),
        )
        return task

    def _report(self, number: int, topic: str, done: int, total: int) -> None:
        if self._stopping():
            raise Stopped
        now = time.monotonic()
        if now - self._reported_at > _PROGRESS_EVERY_S:
            self._reported_at = now
            log.info("restoring", partition=number, topic=topic, offsets_read=done, of=total)

    def _complete_table(self, number: int, recovered: Recovered, rewrite: TableRewrite) -> None:
        """Bring epoch-table up to what was folded again. Raises ClusterError where the cluster does not take it."""
        log.info("completing the table", partition=number, records=len(rewrite.records), seq=rewrite.checkpoint.seq)
        for transaction in table_transactions(rewrite):
            try:
                for key, value in transaction:
                    self._sink.table(number, key, value)
                self._commit(number, recovered)
            except AbortedError as error:
                raise ClusterError(f"could not complete the table of partition {number}: {error}") from None

    def _commit(self, number: int, recovered: Recovered) -> None:
        pairs = zip(self._facts.input_topics, recovered.state.next_offsets, strict=True)
        offsets = [TopicPartition(topic, number, offset) for topic, offset in pairs]
        # With the group's offsets, so that a process which has lost the partition meanwhile is fenced here.
        self._transactions.commit(offsets, self._consumer.consumer_group_metadata())


def table_transactions(rewrite: TableRewrite) -> Iterator[list[tuple[bytes, bytes | None]]]:
    """The (key, value) pairs that complete a table, a transaction at a time, each bounded in records and bytes.

    One transaction if they fit. Else 1. the checkpoint is taken away, so that a crash in between leaves a table that is
    not believed but rebuilt; 2. the records; 3. the checkpoint.
    """
    checkpoint = (CHECKPOINT_KEY, encode_checkpoint(rewrite.checkpoint))
    batch: list[tuple[bytes, bytes | None]] = []
    size, whole = 0, True
    for call_id, record in rewrite.records.items():
        pair = (call_id.encode(), None if record is None else encode_record(record))
        if len(batch) >= REWRITE_MAX_RECORDS or size >= REWRITE_MAX_BYTES:
            yield [(CHECKPOINT_KEY, None), *batch] if whole else batch
            batch, size, whole = [], 0, False
        batch.append(pair)
        size += len(pair[0]) + len(pair[1] or b"")
    yield [*batch, checkpoint]
