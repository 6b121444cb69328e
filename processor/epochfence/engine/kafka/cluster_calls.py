"""Asking a cluster something within a bounded time, with answers and errors that a person can read."""

from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import TypeVar

from confluent_kafka import KafkaError, KafkaException

from epochfence.errors import ClusterError, UsageError

Answer = TypeVar("Answer")

ANSWER_TIMEOUT_S = 10.0
"""How long a person at a terminal waits for one answer of the cluster."""

# What was asked for cannot be, on any day: the caller's fault. The rest is the cluster's.
_WRONG_REQUESTS = {
    KafkaError.TOPIC_EXCEPTION,
    KafkaError.INVALID_PARTITIONS,
    KafkaError.INVALID_REPLICATION_FACTOR,
    KafkaError.INVALID_CONFIG,
    KafkaError.INVALID_REQUEST,
    KafkaError.POLICY_VIOLATION,
}
_NO_ANSWER = {KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE}


def ask(what: str, call: Callable[[], Answer]) -> Answer:
    """`call()`, its KafkaException as a ClusterError or UsageError. `what` completes "could not …"."""
    try:
        return call()
    except KafkaException as error:
        raise as_person_reads(what, error.args[0]) from None


def wait(what: str, future: "Future[Answer]") -> Answer:
    """The result of an admin request, as `ask` does. The request's own timeout is ANSWER_TIMEOUT_S."""
    try:
        return ask(what, lambda: future.result(timeout=ANSWER_TIMEOUT_S + 1))
    except FutureTimeoutError:
        raise no_answer(what, f"nothing within {ANSWER_TIMEOUT_S:.0f} s") from None


def failed_with(future: "Future[Answer]", code: int) -> bool:
    """True where an admin request was answered with this error."""
    try:
        error = future.exception(timeout=ANSWER_TIMEOUT_S + 1)
    except FutureTimeoutError:
        return False
    return isinstance(error, KafkaException) and error.args[0].code() == code


def as_person_reads(what: str, error: KafkaError) -> ClusterError | UsageError:
    """The error to raise for one of Kafka's."""
    if error.code() in _WRONG_REQUESTS:
        return UsageError(f"could not {what}: {error.str()}")
    if error.code() in _NO_ANSWER:
        return no_answer(what, error.str())
    return ClusterError(f"could not {what}: {error.str()}")


def no_answer(what: str, why: str) -> ClusterError:
    """The error to raise where the cluster is silent."""
    return ClusterError(
        f"could not {what}: the cluster does not answer ({why}). Is it up, and are bootstrap_servers and [kafka] "
        "right? `epochfence broker start` starts one on this machine"
    )
