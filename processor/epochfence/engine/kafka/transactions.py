"""One transaction after another on a static transactional id, and what each of librdkafka's errors means.

The commit, step by step, and what it means if a step fails:

1. *produce*: the records go out in the background. A failure shows in step 2 or 3.
2. *send_offsets*: fences us if the group has given our partitions to another. Failed: abort, undo, rewind.
3. *commit*: flushes, then ends the transaction. Told to abort: abort, undo, rewind. No clear answer: the commit may
   still happen, and librdkafka is a "version 1" client, so going on in place could let the delayed request end the
   *next* transaction. The process leaves; the start that follows raises the producer's epoch, which fences the request.
"""

import time
from typing import Any

import structlog
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from epochfence.engine.task import TopicFacts
from epochfence.errors import ClusterError, EpochfenceError, FencedError, UsageError

log = structlog.get_logger()

_POLL_EVERY = 2_000
_FULL_QUEUE_TIMEOUT_S = 60.0

_FENCED_CODES = frozenset(
    {
        KafkaError._FENCED,
        KafkaError.FENCED_INSTANCE_ID,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.PRODUCER_FENCED,
    }
)


_A_PERSONS_MISTAKE = frozenset(
    {
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.INVALID_TRANSACTION_TIMEOUT,
    }
)


class TooLargeError(Exception):
    """A record of ours that no topic takes. Aborting and deciding again would only make it again: it is a bug."""


class AbortedError(Exception):
    """The transaction was aborted: what it changed in memory must be undone, and the inputs read again."""


class Transactions:
    """The transactions of one producer. It is a Sink's back: begun lazily, by the first record."""

    def __init__(self, producer: Producer, timeout_s: float) -> None:
        self._producer = producer
        self._timeout_s = timeout_s
        self._deadline: float | None = None
        self.begun_at: float | None = None
        """Monotonic seconds when the open transaction began; None while none is open."""
        self.records = 0
        """Records in the open transaction."""
        self.bytes = 0
        """Their keys and values."""

    def hurry(self, within_s: float | None) -> None:
        """From now on all that is asked of the cluster ends within so many seconds together; None: as usual."""
        self._deadline = None if within_s is None else time.monotonic() + within_s

    def _patience_s(self) -> float:
        if self._deadline is None:
            return self._timeout_s
        return max(0.1, min(self._timeout_s, self._deadline - time.monotonic()))

    def start(self) -> None:
        """Take over the transactional id: a dead process's open transaction ends, a living twin is fenced.

        Raises ClusterError where the cluster does not answer in time.
        """
        try:
            self._producer.init_transactions(self._patience_s())
        except KafkaException as error:
            raise self._leave("take over the transactional id", error.args[0]) from None

    def produce(self, topic: str, partition: int, key: bytes, value: bytes | None) -> None:
        """Write into the transaction, beginning one if none is open. Raises AbortedError or what `commit` raises."""
        if self.begun_at is None:
            self._begin()
        try:
            self._enqueue(topic, partition, key, value)
        except KafkaException as error:
            if error.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE:
                size = len(key) + len(value or b"")
                raise TooLargeError(f"a record of {size} bytes for {topic}[{partition}]") from None
            self._failed("produce", error.args[0])
        self.records += 1
        self.bytes += len(key) + len(value or b"")
        if self.records % _POLL_EVERY == 0:
            self._producer.poll(0)

    def _begin(self) -> None:
        try:
            self._producer.begin_transaction()
        except KafkaException as error:
            raise self._leave("begin a transaction", error.args[0]) from None
        self.begun_at = time.monotonic()
        self.records = self.bytes = 0

    def _enqueue(self, topic: str, partition: int, key: bytes, value: bytes | None) -> None:
        deadline = time.monotonic() + min(_FULL_QUEUE_TIMEOUT_S, self._patience_s())
        while True:
            try:
                self._producer.produce(topic, value, key, partition)
                return
            except BufferError:
                # The broker is slower than we are: wait for it, so that nothing grows but this wait.
                if time.monotonic() > deadline:
                    raise ClusterError(f"{topic}[{partition}]: the cluster takes no records any more") from None
                self._producer.poll(0.1)

    def commit(self, offsets: list[TopicPartition], group: Any) -> None:
        """Commit, with the inputs' offsets and under the group's generation.

        Raises AbortedError (undo and rewind), FencedError or ClusterError (leave the process).
        """
        try:
            self._producer.send_offsets_to_transaction(offsets, group, self._patience_s())
        except KafkaException as error:
            self._failed("send offsets", error.args[0])
        try:
            self._producer.commit_transaction(self._patience_s())
        except KafkaException as error:
            reason = error.args[0]
            if reason.txn_requires_abort():
                self._failed("commit", reason)
            self.begun_at = None  # in doubt: its end is not ours to say any more, not even by an abort
            raise self._leave("commit", reason) from None
        self.begun_at = None

    def _failed(self, step: str, error: KafkaError) -> None:
        """Abort after an error that is abortable or unclear: after an unclear one a commit is never tried."""
        if error.fatal() and error.code() != KafkaError._FATAL:
            raise self._leave(step, error)
        log.warning("transaction failed", step=step, error=error.name(), why=error.str())
        self.abort()
        if error.code() == KafkaError.FENCED_INSTANCE_ID:
            raise self._leave(step, error)
        raise AbortedError(f"{step}: {error.str()}")

    def abort(self) -> None:
        """Abort the open transaction, if there is one. Raises FencedError or ClusterError where that cannot be."""
        if self.begun_at is None:
            return
        self.begun_at = None
        try:
            self._producer.abort_transaction(self._patience_s())
        except KafkaException as error:
            raise self._leave("abort", error.args[0]) from None

    def _leave(self, step: str, error: KafkaError) -> EpochfenceError:
        if error.code() in _FENCED_CODES:
            return FencedError(
                f"could not {step}: fenced ({error.name()}). Another process has this slot, or this one stood still "
                "for longer than its transaction timeout. One slot is for one process: start others with another "
                "--slot"
            )
        if error.code() in _A_PERSONS_MISTAKE:
            return UsageError(f"could not {step}: the cluster does not allow it: {error.str()}")
        return ClusterError(
            f"could not {step}, and it is not known what became of it: {error.str()}. A new start settles it; nothing "
            "is lost or doubled"
        )


class ProducerSink:
    """A task's writes, into the producer's transaction."""

    def __init__(self, transactions: Transactions, facts: TopicFacts) -> None:
        self._transactions = transactions
        self._decisions = facts.decisions_topic
        self._table = facts.table_topic

    def decision(self, partition: int, key: bytes, value: bytes) -> None:
        self._transactions.produce(self._decisions, partition, key, value)

    def table(self, partition: int, key: bytes, value: bytes | None) -> None:
        self._transactions.produce(self._table, partition, key, value)
