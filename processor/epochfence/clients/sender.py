"""Sending events: each into its topic and its call's partition, acknowledged by all replicas that must have it.

Sending asks; only the processor decides. An acknowledgement says that the event is in the log and will get exactly one
decision, not what that is: `decisions` tells.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicCollection
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from epochfence.clients.call_ids import key_of
from epochfence.engine.client_config import INPUT_MESSAGE_MAX_BYTES, admin_config, open_client, sender_config
from epochfence.engine.cluster_calls import ANSWER_TIMEOUT_S, as_person_reads, failed_with, no_answer, wait
from epochfence.engine.topic_specs import topic_name
from epochfence.errors import EpochfenceError, UsageError
from epochfence.protocol.events import Event
from epochfence.settings import Settings
from epochfence.wire.codec import encode_event
from epochfence.wire.routing import partition_of
from epochfence.wire.schemas import INPUT_TOPICS, TOPIC_OF_EVENT

_QUEUE_FULL_POLL_S = 0.1
_FLUSH_STEP_S = 0.2
_BATCH_BYTES = 1_000_000
"""librdkafka's own default for the largest batch."""
_NOT_ALLOWED = frozenset({KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED})
_NO_TOPIC = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION})


class Acknowledged(NamedTuple):
    """An event that is in the log: its `number` as it was given to `send`, and where it stands.

    Of a ToolCall that opens a call, the offset is the call's incarnation.
    """

    number: int
    topic: str
    partition: int
    offset: int


class Sender:
    """Sends events with an idempotent producer: a retry neither doubles nor reorders them.

    `acknowledged` and `failed` are called from within `send`, `poll` and `flush`, once for each event that `send`
    took. What waits for its acknowledgement is bounded by the producer's queue (100,000 events, 64 MiB): a `send`
    that finds it full waits for room. An event fails when it was not acknowledged for delivery.timeout.ms (30 s).

    Raises UsageError where one of the four input topics is missing, ClusterError where nobody answers within 10 s.
    """

    def __init__(
        self,
        settings: Settings,
        bootstrap: str,
        acknowledged: Callable[[Acknowledged], None],
        failed: Callable[[int, EpochfenceError], None],
    ) -> None:
        admin = open_client(AdminClient, admin_config(settings, bootstrap))
        wait("reach the cluster", admin.describe_cluster(request_timeout=ANSWER_TIMEOUT_S))
        names = {name: topic_name(settings.topic_prefix, name) for name in INPUT_TOPICS}
        self._topics = names
        self._described = admin.describe_topics(TopicCollection(list(names.values())), request_timeout=ANSWER_TIMEOUT_S)
        missing = [t for t, future in self._described.items() if failed_with(future, KafkaError.UNKNOWN_TOPIC_OR_PART)]
        if missing:
            raise UsageError(f"topics are missing: {', '.join(missing)}. `epochfence topics apply` makes them")
        self._counts: dict[str, int] = {}
        self._max_bytes = _max_message_bytes(admin, list(names.values()))
        config = sender_config(settings, bootstrap)
        # A topic with a limit below that of topics/*.yaml would refuse a whole batch for its size, and nobody could
        # say which event was too large. A batch that is over the limit is then a single event.
        config["batch.size"] = min(int(config.get("batch.size", _BATCH_BYTES)), *self._max_bytes.values())
        self._producer = open_client(Producer, config)
        self._acknowledged = acknowledged
        self._failed = failed

    @property
    def in_flight(self) -> int:
        """Events that were taken and are neither acknowledged nor failed, and callbacks that wait for `poll`."""
        return len(self._producer)

    def send(self, number: int, event: Event) -> None:
        """Take an event. `number` is the caller's, to know it by.

        Raises UsageError for an event that is too large or a topic that may not be written to, EncodeError for a
        value that has no bytes, ClusterError where the producer cannot go on. Such an event is not sent.
        """
        topic = self._topics[TOPIC_OF_EVENT[type(event)]]
        key, value = key_of(event.call_id), encode_event(event)
        where = partition_of(key, self._count(topic))
        report = partial(self._delivered, number, len(key) + len(value))
        while True:
            try:
                self._producer.produce(topic, value, key, where, report)
            except BufferError:
                self._producer.poll(_QUEUE_FULL_POLL_S)
            except KafkaException as error:
                raise self._error(topic, error.args[0], len(key) + len(value)) from None
            else:
                break
        self._producer.poll(0)

    def poll(self, timeout_s: float) -> None:
        """Wait so long for an acknowledgement, and report those that have come."""
        self._producer.poll(timeout_s)

    def flush(self) -> None:
        """Wait until everything is acknowledged or has failed: at most for delivery.timeout.ms."""
        while self._producer.flush(_FLUSH_STEP_S):
            pass

    def _count(self, topic: str) -> int:
        if topic not in self._counts:
            self._counts[topic] = len(wait(f"describe {topic}", self._described[topic]).partitions)
        return self._counts[topic]

    def _delivered(self, number: int, size: int, error: KafkaError | None, message: Message) -> None:
        topic = message.topic() or ""
        if error is not None:
            self._failed(number, self._error(topic, error, size))
            return
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        assert offset is not None
        self._acknowledged(Acknowledged(number, topic, partition, offset))

    def _error(self, topic: str, error: KafkaError, size: int) -> EpochfenceError:
        code = error.code()
        if code == KafkaError.MSG_SIZE_TOO_LARGE:
            limit = self._max_bytes[topic]
            return UsageError(f"the event has {size:,} bytes, more than {topic} takes ({limit:,} with its framing)")
        if code in _NOT_ALLOWED:
            return UsageError(f"the cluster does not allow writing to {topic}: {error.str()}")
        if code in _NO_TOPIC:
            return UsageError(f"{topic} is not there any more: {error.str()}. See `epochfence topics check`")
        if code == KafkaError._MSG_TIMED_OUT:
            return no_answer(f"write to {topic}", "no acknowledgement in time; the event may be in the log or not")
        return as_person_reads(f"write to {topic}", error)


def _max_message_bytes(admin: AdminClient, topics: list[str]) -> dict[str, int]:
    """The largest record that each topic takes, as far as we may know: few senders may read a topic's settings."""
    limits = dict.fromkeys(topics, INPUT_MESSAGE_MAX_BYTES)
    asked = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
    for resource, future in admin.describe_configs(asked, request_timeout=ANSWER_TIMEOUT_S).items():
        try:
            entries = wait(f"ask for the settings of {resource.name}", future)
        except EpochfenceError:
            continue
        limits[resource.name] = min(int(entries["max.message.bytes"].value), INPUT_MESSAGE_MAX_BYTES)
    return limits
