"""What an error event of the consumer means for the process."""

import structlog
from confluent_kafka import KafkaError, Message

from epochfence.errors import EpochfenceError, FencedError, LogError, UsageError

log = structlog.get_logger()

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
        return LogError(
            f"{where}: records that were not decided yet are gone ({error.str()}). Nothing was skipped; "
            "restore the topic from a copy, or begin anew under another topic_prefix"
        )
    if code in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION):
        return UsageError(f"{message.topic()} is not there any more: {error.str()}. See `epochfence topics check`")
    if code in (
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    ):
        return UsageError(f"{message.topic()}: the cluster does not allow it: {error.str()}")
    return LogError(f"{where}: a record cannot be read: {error.str()}. Nothing was skipped")
