"""What an error event of the consumer means for the process."""

import traceback
from pathlib import Path

import structlog
from confluent_kafka import KafkaError, Message

from epochfence.engine.kafka.transactions import TooLargeError
from epochfence.errors import ClusterError, EpochfenceError, FencedError, LogError, UsageError
from epochfence.protocol.invariants import InvariantError

log = structlog.get_logger()


class PartitionFaultError(LogError):
    """One partition cannot be read on. The others can: it stops alone, loudly."""

    def __init__(self, partition: int, why: str) -> None:
        super().__init__(why)
        self.partition = partition


_PASSING = frozenset(
    {
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TIMED_OUT,
        KafkaError._RESOLVE,
        KafkaError._MAX_POLL_EXCEEDED,  # on_lost follows
        KafkaError._AUTHENTICATION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.REBALANCE_IN_PROGRESS,
    }
)


def is_end_of_partition(message: Message) -> bool:
    """Whether an error event says that everything there is for now was read."""
    error = message.error()
    return error is not None and error.code() == KafkaError._PARTITION_EOF


def fetch_fault(message: Message) -> EpochfenceError | None:
    """The error to leave with, or None for one that passes by itself. Nothing is skipped without a decision."""
    error = message.error()
    assert error is not None
    where = f"{message.topic()}[{message.partition()}]@{message.offset()}"
    code = error.code()
    if code in _PASSING:
        log.warning("the cluster is unwell", error=error.name(), why=error.str())
        return None
    if code in (KafkaError.FENCED_INSTANCE_ID, KafkaError._FATAL) or error.fatal():
        return FencedError(f"fenced ({error.str()}): another process has this slot. Start it with another --slot")
    if code in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
        return PartitionFaultError(
            message.partition() or 0,
            f"{where}: records that were not decided yet are gone ({error.str()}). Nothing was skipped; "
            "restore the topic from a copy, or begin anew under another topic_prefix",
        )
    if code in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION):
        return UsageError(f"{message.topic()} is not there any more: {error.str()}. See `epochfence topics check`")
    if code in (
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    ):
        return UsageError(f"{message.topic()}: the cluster does not allow it: {error.str()}")
    if message.topic() is None:
        return ClusterError(f"the consumer cannot go on: {error.str()}")
    why = f"{where}: a record cannot be read: {error.str()}. Nothing was skipped"
    return PartitionFaultError(message.partition() or 0, why)


def place_of_bug(error: Exception) -> str:
    """A bug, by its kind and place. What it says may quote a sender's values, so only our own words are repeated."""
    if isinstance(error, InvariantError | TooLargeError):
        return f"{type(error).__name__}: {error}"
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} in {place.name}, {Path(place.filename).name}:{place.lineno}"
