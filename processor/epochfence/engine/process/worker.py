"""One worker slot: a consumer, a transactional producer, and the tasks of the partitions that it owns.

How librdkafka does what task.py says. The loop, once around:

1. *poll*: fetched records go to their tasks' merges; ends of partitions tell that a head is empty for good.
2. *decide*: each task decides what its merge gives; its writes open a transaction, if none is open.
3. *commit*, when the input has run dry, the interval is over, or the transaction is full: each task seals, the inputs'
   offsets go in with the group's generation, the transaction commits, each task is told.
4. *aborted*: every task undoes, and every owned partition is read again from its last commit, those that the
   transaction had not reached too: their records may have been fetched and dropped.

A rebalance calls back inside poll. Revoked: commit or abort there, then drop the tasks. Lost: abort. Assigned: recover.
Callbacks do not raise through librdkafka; what went wrong is raised right after.
"""

import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import NoReturn

import structlog
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from epochfence.engine.kafka.client_config import (
    admin_config,
    open_client,
    processor_consumer_config,
    processor_producer_config,
    reader_config,
    sender_config,
)
from epochfence.engine.kafka.faults import PartitionFaultError, place_of_bug
from epochfence.engine.kafka.fetching import Fetcher
from epochfence.engine.kafka.history import Stopped
from epochfence.engine.kafka.transactions import AbortedError, ProducerSink, Transactions
from epochfence.engine.process.restore import Restorer
from epochfence.engine.process.watchdog_sender import Watchdogs
from epochfence.engine.task import PartitionTask
from epochfence.engine.topics.facts import topic_facts
from epochfence.engine.topics.schema_lookup import TopicSchemaLookup
from epochfence.errors import ClusterError, EpochfenceError, FencedError, LogError, UsageError
from epochfence.protocol.admission import Parameters
from epochfence.settings import Settings
from epochfence.wire.schemas import INPUT_TOPICS

log = structlog.get_logger()

_DECIDE_BATCH = 4_000
_TRANSACTION_MAX_RECORDS = 40_000
_TRANSACTION_MAX_BYTES = 64 << 20
_IDLE_POLL_S = 0.2
_WAITING_POLL_S = 0.005
_BLOCKED_RETRY_S = 1.0
_LEAVE_S = 10.0
_MAX_ABORT_PAUSE_S = 2.0


class Worker:
    """Runs one slot until it is told to stop, or has to leave.

    `announce` is called with each line that a script may wait for; `stopping` is asked all the time.
    """

    def __init__(
        self,
        settings: Settings,
        bootstrap: str,
        slot: str,
        announce: Callable[[str], None],
        stopping: Callable[[], bool],
    ) -> None:
        self._slot = slot
        self._announce = announce
        self._stopping = stopping
        self._commit_interval_s = settings.commit_interval_ms / 1000
        self._give_up_s = settings.transaction_timeout_ms / 1000
        """For what is left to do while partitions are given up: after this the cluster ends the transaction itself."""
        admin = open_client(AdminClient, admin_config(settings, bootstrap))
        self._facts = topic_facts(admin, settings.topic_prefix)
        self._tasks: dict[int, PartitionTask] = {}
        self._halted: dict[int, str] = {}
        self._fresh = False
        """Partitions were assigned in this poll; they stay paused until it is over."""
        self._failure: BaseException | None = None
        self._aborts_in_a_row = 0
        self._turn = 0
        self._unrewound: set[int] = set()
        """Partitions that an abort could not take back to their last commit."""
        self._blocked_until = 0.0
        self._uncommitted_since: float | None = None
        """Monotonic seconds of the first decision that no commit has made durable yet."""
        self._consumer = open_client(Consumer, processor_consumer_config(settings, bootstrap, slot))
        self._fetcher = Fetcher(self._consumer, self._facts.input_topics)
        producer = open_client(Producer, processor_producer_config(settings, bootstrap, slot))
        self._transactions = Transactions(producer, settings.transaction_timeout_ms / 1000 + 20)
        self._watchdogs = self._make_watchdogs(settings, bootstrap)
        self._sink = ProducerSink(self._transactions, self._facts)
        self._lookup = TopicSchemaLookup(settings, bootstrap, admin)
        self._restorer = Restorer(
            self._facts,
            Parameters(settings.retention_ms, settings.max_body_bytes),
            self._lookup,
            self._consumer,
            self._transactions,
            self._sink,
            admin,
            reader_config(settings, bootstrap),
            stopping,
        )

    def _make_watchdogs(self, settings: Settings, bootstrap: str) -> Watchdogs | None:
        if not settings.watchdog:
            return None
        producer = open_client(Producer, sender_config(settings, bootstrap))
        topic = self._facts.input_topics[INPUT_TOPICS.index("timeouts")]
        return Watchdogs(producer, topic, self._slot, settings.watchdog_grace_ms)

    def run(self) -> None:
        """Work until stopped; then drain and leave the group. Raises EpochfenceError where the process must leave."""
        try:
            self._transactions.start()
            log.info("joining", slot=self._slot, partitions=self._facts.partition_count)
            self._consumer.subscribe(
                list(self._facts.input_topics),
                on_assign=self._on_assign,
                on_revoke=self._on_revoke,
                on_lost=self._on_lost,
            )
            self._work()
            self._leave_group()
        except KafkaException as error:
            reason = error.args[0]
            kind = FencedError if reason.fatal() else ClusterError
            raise kind(f"the consumer cannot go on: {reason.str()}") from None
        finally:
            self._let_go()

    def _work(self) -> None:
        try:
            while not self._stopping():
                self._round()
        except Stopped:
            return  # in the middle of a restore

    def _let_go(self) -> None:
        """Leave nothing open behind: a transaction that is open holds up every reader until its timeout.

        After a failure, what was decided and not committed ends here too. 1. The abort takes back what was written.
        2. close() revokes, and a revoke commits. 3. What the tasks still hold is the end of what 1 took back: its
        commit would leave a log whose beginning is missing.
        """
        self._uncommitted_since = None
        self._transactions.hurry(self._give_up_s)
        try:
            self._transactions.abort()
        except EpochfenceError as error:
            log.info("could not abort while leaving: the next start does", why=str(error))
        self._consumer.close()

    # ---- once around ----------------------------------------------------------------------------------------------

    def _round(self) -> None:
        try:
            fetched = self._fetch()
            decided = self._decide()
            if self._is_time_to_commit(fetched == 0 and decided == 0):
                self._commit()
            self._fetcher.balance(self._tasks)
            if self._watchdogs is not None:
                self._watchdogs.look(self._tasks)
        except AbortedError as error:
            self._undo_and_rewind(str(error))

    def _patience_s(self) -> float:
        if self._uncommitted_since is not None:
            return 0.0
        # An input that has just given its last record says so a moment later: look sooner, for others wait for it.
        waiting = any(task.merge.has_records() for task in self._tasks.values())
        return _WAITING_POLL_S if waiting else _IDLE_POLL_S

    def _fetch(self) -> int:
        try:
            fetched = self._fetcher.fetch(self._tasks, self._patience_s(), self._after_callbacks)
        except PartitionFaultError as fault:
            self._halt(fault.partition, str(fault))  # and all is fetched again: the rest of the batch is dropped
        if fetched:
            self._lookup.records_arrived()
        return fetched

    def _decide(self) -> int:
        now_ms = wall_clock_ms()
        decided = 0
        blocked = time.monotonic() < self._blocked_until
        for task in self._in_turn():
            if blocked and task.blocked_by is not None:
                continue
            decided += self._guarded(task, partial(self._decide_task, task, now_ms))
            if self._transactions_full():
                break
        if decided:
            self._uncommitted_since = self._uncommitted_since or time.monotonic()
        return decided

    def _in_turn(self) -> list[PartitionTask]:
        """The tasks that go on, each time another one first: a full transaction must not leave the same ones out."""
        tasks = [task for task in self._tasks.values() if task.number not in self._halted]
        self._turn = (self._turn + 1) % max(1, len(tasks))
        return tasks[self._turn :] + tasks[: self._turn]

    def _decide_task(self, task: PartitionTask, now_ms: int) -> int:
        self._fetcher.look_at_ends(task)
        decided = task.decide(_DECIDE_BATCH, now_ms, self._sink)
        if task.blocked_by is not None:
            log.warning("waiting for a schema", partition=task.number, why=str(task.blocked_by))
            self._blocked_until = time.monotonic() + _BLOCKED_RETRY_S
        return decided

    def _guarded(self, task: PartitionTask, act: Callable[[], int]) -> int:
        """What a task does. A fault of its partition, or a bug that it has met, halts that partition alone."""
        try:
            return act()
        except PartitionFaultError as fault:
            self._halt(task.number, str(fault))
        except (EpochfenceError, AbortedError, KafkaException):
            raise
        except Exception as error:  # noqa: BLE001 - a broken invariant, or any other bug that this input has found
            self._halt(task.number, place_of_bug(error))

    def _transactions_full(self) -> bool:
        transactions = self._transactions
        return transactions.records >= _TRANSACTION_MAX_RECORDS or transactions.bytes >= _TRANSACTION_MAX_BYTES

    def _is_time_to_commit(self, dry: bool) -> bool:
        if self._uncommitted_since is None:
            return False
        return dry or self._transactions_full() or time.monotonic() - self._uncommitted_since >= self._commit_interval_s

    def _commit(self) -> None:
        """Seal every task that decided something, commit, and tell the tasks. Raises AbortedError: undo and rewind."""
        if self._uncommitted_since is None:
            return
        now_ms = wall_clock_ms()
        offsets: list[TopicPartition] = []
        for task in self._tasks.values():
            if task.has_uncommitted:
                self._guarded(task, partial(task.seal, now_ms, self._sink))
                offsets += self._offsets(task)
        self._transactions.commit(offsets, self._consumer.consumer_group_metadata())
        for task in self._tasks.values():
            ended = task.committed()
            if self._watchdogs is not None:
                self._watchdogs.committed(task.number, ended)
        self._uncommitted_since = None
        self._aborts_in_a_row = 0

    def _offsets(self, task: PartitionTask) -> list[TopicPartition]:
        pairs = zip(self._facts.input_topics, task.next_offsets, strict=True)
        return [TopicPartition(topic, task.number, offset) for topic, offset in pairs]

    def _undo_and_rewind(self, why: str) -> None:
        self._aborts_in_a_row += 1
        pause_s = min(_MAX_ABORT_PAUSE_S, 0.05 * 2 ** min(self._aborts_in_a_row, 6))
        log.warning("aborted: deciding again from the last commit", why=why, in_a_row=self._aborts_in_a_row)
        self._uncommitted_since = None
        for task in self._tasks.values():
            task.undo()
            for partition in self._offsets(task):
                try:
                    self._consumer.seek(partition)
                except KafkaException as error:
                    # Our place in the group is going; what follows says whether it is lost or we are fenced.
                    log.warning("could not rewind", partition=task.number, why=error.args[0].str())
                    self._unrewound.add(task.number)
                    break
        self._fetcher.rewound()
        for number in self._halted:
            self._fetcher.stop(number)
        time.sleep(pause_s)

    def _halt(self, number: int, why: str) -> NoReturn:
        """Stop one partition: take back all that is not committed, and never touch it again. Raises AbortedError."""
        log.critical("partition halted", partition=number, why=why)
        self._halted[number] = why
        self._transactions.abort()
        if len(self._halted) == len(self._tasks):
            raise LogError(f"every partition of this slot is halted. Partition {number}: {why}")
        raise AbortedError(f"partition {number} is halted")

    # ---- rebalances -----------------------------------------------------------------------------------------------

    def _after_callbacks(self) -> bool:
        """Raise what a callback could not. True if partitions were assigned: whatever was fetched is of others."""
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        if self._unrewound:
            # Not lost, as it seemed when it could not be rewound: nothing of it may be decided any more.
            raise ClusterError(
                f"partition {min(self._unrewound)} could not be read again from its last commit; a new start does that"
            )
        if not self._fresh:
            return False
        self._fresh = False
        self._consumer.resume(self._consumer.assignment())
        numbers = ",".join(map(str, sorted(self._tasks)))
        calls = sum(task.calls for task in self._tasks.values())
        log.info("ready", slot=self._slot, partitions=sorted(self._tasks), calls=calls)
        self._announce(f"ready slot={self._slot} partitions={numbers}")
        return True

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        try:
            numbers = self._assigned_numbers(partitions)
            self._tasks = self._restorer.restore(numbers)
            assigned = [offset for task in self._tasks.values() for offset in self._offsets(task)]
            consumer.assign(assigned)
            if assigned:
                # A batch that is being consumed now may mix what was fetched before with what comes next.
                consumer.pause(assigned)
            self._fetcher.arrived()
            if self._watchdogs is not None:
                self._watchdogs.arrived(self._tasks.values())
            self._fresh = True
        except Exception as error:  # noqa: BLE001 - raised again by `_after_callbacks`
            self._failure = error

    def _assigned_numbers(self, partitions: Iterable[TopicPartition]) -> list[int]:
        topics_of: dict[int, set[str]] = {}
        for partition in partitions:
            topics_of.setdefault(partition.partition, set()).add(partition.topic)
        for number, topics in topics_of.items():
            if len(topics) != len(self._facts.input_topics):
                raise UsageError(
                    f"partition {number} was assigned for {len(topics)} of the {len(self._facts.input_topics)} inputs "
                    "only: another member of the group subscribes to other topics or assigns in another way"
                )
        return sorted(topics_of)

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._transactions.hurry(self._give_up_s)  # the whole group waits for us
        try:
            self._commit()
        except AbortedError as error:
            log.info("aborted while giving up partitions: their next owner decides again", why=str(error))
        except Exception as error:  # noqa: BLE001 - raised again by `_after_callbacks`
            self._failure = error
        self._transactions.hurry(None)
        self._drop_tasks("revoked")

    def _on_lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._transactions.hurry(self._give_up_s)
        try:
            self._transactions.abort()
        except Exception as error:  # noqa: BLE001 - raised again by `_after_callbacks`
            self._failure = error
        self._transactions.hurry(None)
        self._drop_tasks("lost")

    def _drop_tasks(self, how: str) -> None:
        log.info("partitions gone", how=how, partitions=sorted(self._tasks))
        self._tasks = {}
        self._halted = {}
        self._unrewound = set()
        self._fetcher.arrived()
        self._uncommitted_since = None

    def _leave_group(self) -> None:
        """Drain: commit what was decided. Leave: a static member that just closes keeps its partitions idle for the
        session timeout, so unsubscribe and wait until they are revoked."""
        log.info("leaving", slot=self._slot)
        self._transactions.hurry(self._give_up_s)
        try:
            self._commit()
        except AbortedError as error:
            log.info("aborted while leaving: the next owner decides again", why=str(error))
            self._uncommitted_since = None
        self._consumer.unsubscribe()
        deadline = time.monotonic() + _LEAVE_S
        while self._tasks and time.monotonic() < deadline:
            self._consumer.poll(0.05)
        if self._failure is not None and not isinstance(self._failure, Stopped):
            raise self._failure


def wall_clock_ms() -> int:
    """The processor's own clock, milliseconds since 1970."""
    return time.time_ns() // 1_000_000
