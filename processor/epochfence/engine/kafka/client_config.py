"""Every Kafka client option of this project, each with its reason. Nothing else sets one.

Three layers, the later one wins: what we think is fast (`tuned`), what the operator passes through under `[kafka]`
(security, addresses, tuning), and what correctness depends on (`fixed`). An operator who sets one of the last, in
any of its spellings, is told so: it is neither obeyed nor quietly ignored.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from confluent_kafka import KafkaException

from epochfence.errors import UsageError
from epochfence.settings import Settings

Client = TypeVar("Client")

# librdkafka writes its log to standard error unless it is given a logger. With a NullHandler it is silent until the
# program sets up logging; then its lines go where all others go.
LIBRDKAFKA_LOGGER = logging.getLogger("epochfence.librdkafka")
LIBRDKAFKA_LOGGER.addHandler(logging.NullHandler())

MEBIBYTE = 1 << 20
INPUT_MESSAGE_MAX_BYTES = 1 * MEBIBYTE
"""Largest record of an input topic, as in topics/*.yaml."""
OUTPUT_MESSAGE_MAX_BYTES = 8 * MEBIBYTE
"""Largest record of `decisions` and `epoch-table`, as in topics/*.yaml: one may hold three bodies."""

_BY_SETTING = "set {} instead"
_CORRECTNESS = "exactly-once and the fence depend on it"
PROTECTED: Mapping[str, str] = {
    "bootstrap.servers": _BY_SETTING.format("bootstrap_servers"),
    "metadata.broker.list": _BY_SETTING.format("bootstrap_servers"),
    "group.id": _BY_SETTING.format("topic_prefix"),
    "group.instance.id": _BY_SETTING.format("slot"),
    "transactional.id": _BY_SETTING.format("topic_prefix and slot"),
    "transaction.timeout.ms": _BY_SETTING.format("transaction_timeout_ms"),
    "session.timeout.ms": _BY_SETTING.format("session_timeout_ms"),
    # A whole table of properties at once; what hides in it would not be seen here.
    "default.topic.config": "set each property by its own name",
    # An invented broker that shows aborted records and takes a zombie's commit.
    "test.mock.num.brokers": "it proves nothing about exactly-once",
} | dict.fromkeys(
    (
        "acks",
        "request.required.acks",
        "allow.auto.create.topics",
        "auto.commit.enable",
        "auto.offset.reset",
        "check.crcs",
        "enable.auto.commit",
        "enable.auto.offset.store",
        "enable.idempotence",
        "enable.partition.eof",
        "group.protocol",
        "group.remote.assignor",
        "heartbeat.interval.ms",
        "isolation.level",
        "max.poll.interval.ms",
        "message.max.bytes",
        "partition.assignment.strategy",
        "partitioner",
    ),
    _CORRECTNESS,
)
"""Properties that `[kafka]` must not hold, and what to say about each."""


def admin_config(settings: Settings, bootstrap: str) -> dict[str, Any]:
    """A client that makes and describes topics. Raises UsageError for a protected property in `[kafka]`."""
    return _merge(settings, bootstrap, tuned=_QUICK_TO_FAIL, fixed={})


def reader_config(settings: Settings, bootstrap: str) -> dict[str, Any]:
    """A consumer that is assigned its partitions by hand and commits nothing: recovery, the command line, the audit.

    Raises UsageError for a protected property in `[kafka]`.
    """
    fixed = {
        **_READ_COMMITTED,
        # librdkafka wants a name even where no group is joined. No offset is ever committed under it.
        "group.id": f"{settings.topic_prefix}reader",
    }
    return _merge(settings, bootstrap, tuned={**_QUICK_TO_FAIL, **_BOUNDED_FETCH}, fixed=fixed)


def processor_consumer_config(settings: Settings, bootstrap: str, slot: str) -> dict[str, Any]:
    """The consumer of one worker slot, a static member of the processors' group.

    Raises UsageError for a protected property in `[kafka]`.
    """
    fixed = {
        **_READ_COMMITTED,
        "group.id": f"{settings.topic_prefix}processor",
        # A static member comes back to its partitions after a restart without a rebalance; a twin is fenced.
        "group.instance.id": slot,
        # KIP-848 noticed a dead member late, and of two members with one instance id it fences the new one.
        "group.protocol": "classic",
        # Partition p of the four inputs must go to one task. Range does that where the counts are equal.
        "partition.assignment.strategy": "range",
        "session.timeout.ms": settings.session_timeout_ms,
        # A third of the session, so that two lost heartbeats are not a death.
        "heartbeat.interval.ms": min(3_000, settings.session_timeout_ms // 3),
        # A start may load a long table between two polls, and a stopped twin's transaction may hold us up. A
        # processor that does not poll still sends heartbeats; the transaction timeout bounds one that is stuck.
        "max.poll.interval.ms": max(900_000, settings.session_timeout_ms, 2 * settings.transaction_timeout_ms),
    }
    return _merge(settings, bootstrap, tuned=_BOUNDED_FETCH, fixed=fixed)


def processor_producer_config(settings: Settings, bootstrap: str, slot: str) -> dict[str, Any]:
    """The transactional producer of one worker slot. Raises UsageError for a protected property in `[kafka]`."""
    tuned = {
        # A commit flushes, so lingering costs no latency there; 5 ms makes batches full while a transaction fills.
        "linger.ms": 5,
        "batch.size": 1_000_000,
        "compression.type": "lz4",
        # A transaction waits in memory until it is delivered; beyond this produce() says so and the task polls.
        # The coordinator is often still writing the last transaction's markers when the next one begins, and says "try
        # again": with the default of 100 ms that was the latency (p90 of send_offsets 108 ms, 13 ms with 5).
        "retry.backoff.ms": 5,
        "queue.buffering.max.messages": 500_000,
        "queue.buffering.max.kbytes": 262_144,
    }
    fixed = {
        **_ACKNOWLEDGED_BY_ALL,
        # From the slot's name and not by chance: a restart then ends the dead process's open transaction at once,
        # where everyone would wait for its timeout.
        "transactional.id": f"{settings.topic_prefix}{slot}",
        # After this the cluster ends a stopped processor's transaction, which until then holds up every reader.
        "transaction.timeout.ms": settings.transaction_timeout_ms,
        "message.max.bytes": OUTPUT_MESSAGE_MAX_BYTES,
    }
    return _merge(settings, bootstrap, tuned=tuned, fixed=fixed)


def sender_config(settings: Settings, bootstrap: str) -> dict[str, Any]:
    """An idempotent producer for events and schemas. Raises UsageError for a protected property in `[kafka]`."""
    tuned = {
        **_QUICK_TO_FAIL,
        "linger.ms": 5,
        "compression.type": "lz4",
        # A person waits for the answer: after this the send has failed and is reported.
        "delivery.timeout.ms": 30_000,
        "queue.buffering.max.messages": 100_000,
        "queue.buffering.max.kbytes": 65_536,
    }
    fixed = {
        **_ACKNOWLEDGED_BY_ALL,
        # Of a record as it is before compression; the topic's own limit is on what arrives.
        "message.max.bytes": INPUT_MESSAGE_MAX_BYTES,
    }
    return _merge(settings, bootstrap, tuned=tuned, fixed=fixed)


def open_client(kind: Callable[[dict[str, Any]], Client], config: dict[str, Any]) -> Client:
    """`kind(config)`, for a `kind` of confluent_kafka. Raises UsageError where librdkafka refuses a property."""
    try:
        return kind(config)
    except KafkaException as error:
        raise UsageError(f"the settings under [kafka] do not fit: {' '.join(error.args[0].str().split())}") from None
    except (TypeError, ValueError) as error:  # a value of a type that no property has, such as a list
        raise UsageError(f"the settings under [kafka] do not fit: {error}") from None


_QUICK_TO_FAIL = {
    # The default of 30 s to connect and 60 s for an answer is longer than a person at a terminal waits.
    "socket.connection.setup.timeout.ms": 5_000,
    "socket.timeout.ms": 10_000,
}

_READ_COMMITTED = {
    # A decision that is still in a transaction may be aborted; nobody may act on it (protocol, the second rule).
    "isolation.level": "read_committed",
    # Positions come from the checkpoint. The group's offsets go with the transaction, and nowhere else.
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    # An offset that is gone is lost input: stop and say so, never jump to an end.
    "auto.offset.reset": "error",
    # The only sure sign of the end: control records hide it from offsets.
    "enable.partition.eof": True,
    # A batch that was damaged on its way is an error here, not records that decode into something else.
    "check.crcs": True,
    # A misspelt prefix must not make topics with the cluster's defaults.
    "allow.auto.create.topics": False,
}

_BOUNDED_FETCH = {
    # What librdkafka reads ahead is memory that nobody sees: 64 MiB in all.
    "queued.max.messages.kbytes": 65_536,
    "queued.min.messages": 50_000,
    # A share for each partition, so that a long one does not starve the merge of the other three heads. A record
    # that is larger still comes: the broker sends at least one.
    "fetch.message.max.bytes": 1 * MEBIBYTE,
    "fetch.max.bytes": 16 * MEBIBYTE,
    # The default of 1 s is a pause of 1 s each time the read-ahead is full.
    "fetch.queue.backoff.ms": 5,
    # A fetch that waits at the broker holds up a partition that was just assigned or rewound.
    "fetch.wait.max.ms": 50,
}

_ACKNOWLEDGED_BY_ALL = {
    # A record counts when min.insync.replicas have it. Retries neither double nor reorder it.
    "acks": "all",
    "enable.idempotence": True,
    # The Java client's default, and the routing of the protocol. librdkafka's own default is CRC32: another partition.
    "partitioner": "murmur2_random",
    "allow.auto.create.topics": False,
}


def _merge(settings: Settings, bootstrap: str, *, tuned: dict[str, Any], fixed: dict[str, Any]) -> dict[str, Any]:
    for name, value in settings.kafka.items():
        if name in PROTECTED and (name, value) != ("bootstrap.servers", bootstrap):
            raise UsageError(f"[kafka] must not set {name}: {PROTECTED[name]}")
    return {
        **tuned,
        **settings.kafka,
        **fixed,
        "bootstrap.servers": bootstrap,
        "logger": LIBRDKAFKA_LOGGER,
    }
