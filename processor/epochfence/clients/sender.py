"""Sending events: each into its topic and its call's partition, acknowledged by all replicas that must have it.

Sending asks; only the processor decides. An acknowledgement says that the event is in the log and will get exactly one
decision, not what that is: `decisions` tells.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicCollection
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from epochfence.clients.call_ids import key_of
from epochfence.engine.kafka.client_config import INPUT_MESSAGE_MAX_BYTES, admin_config, open_client, sender_config
from epochfence.engine.kafka.cluster_calls import ANSWER_TIMEOUT_S, as_person_reads, failed_with, no_answer, wait
from epochfence.engine.topics.specs import topic_name
from epochfence.errors import ClusterError, EpochfenceError, UsageError
from epochfence.protocol.events import Event
from epochfence.settings import Settings
from epochfence.wire.codec import encode_event
from epochfence.wire.routing import partition_of
from epochfence.wire.schemas import INPUT_TOPICS, TOPIC_OF_EVENT

_FULL_POLL_S = 0.1
_FLUSH_STEP_S = 0.2
_WAITING_MAX = 10_000
_WAITING_MAX_BYTES = 32 << 20
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


class _Outgoing(NamedTuple):
    number: int
    topic: str
    partition: int
    key: bytes
    value: bytes


@dataclass(slots=True)
class _CallOnItsWay:
    """The events of one call that are not acknowledged: `in_flight` of them in `topic`, the others wait for those."""

    topic: str
    in_flight: int = 0
    waiting: deque[_Outgoing] = field(default_factory=deque)


class Sender:
    """Sends events with an idempotent producer: a retry neither doubles nor reorders them.

    The events of one call reach the log in the order in which they were given. Topics have no common order, and sent
    at once a Timeout may well overtake its own ToolCall, which is then cancelled before it opens. So:

    1. An event whose call has others on their way in another topic waits here until all of those are acknowledged.
    2. An acknowledgement only notes that the call may go on: the producer must not be called from its own callback.
    3. After each poll, the next events of such calls, up to a change of topic, are given to the producer.
    4. Where one fails, those of its call that wait behind it fail as well: they may make no sense without it.

    `acknowledged` and `failed` are called from within `send`, `poll` and `flush`, once for each event that `send`
    took. What is not acknowledged is bounded: the producer's queue (100,000 events, 64 MiB) and what waits here
    (10,000 events, 32 MiB). A `send` that finds no room waits for it. An event fails when it was not acknowledged for
    delivery.timeout.ms (30 s).

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
        self._topics = {name: topic_name(settings.topic_prefix, name) for name in INPUT_TOPICS}
        wanted = list(self._topics.values())
        self._described = admin.describe_topics(TopicCollection(wanted), request_timeout=ANSWER_TIMEOUT_S)
        missing = [t for t, future in self._described.items() if failed_with(future, KafkaError.UNKNOWN_TOPIC_OR_PART)]
        if missing:
            raise UsageError(f"topics are missing: {', '.join(missing)}. `epochfence topics apply` makes them")
        self._counts: dict[str, int] = {}
        self._max_bytes = _max_message_bytes(admin, wanted)
        config = sender_config(settings, bootstrap)
        # A topic with a limit below that of topics/*.yaml would refuse a whole batch for its size, and nobody could
        # say which event was too large. A batch that is over the limit is then a single event.
        config["batch.size"] = min(int(config.get("batch.size", _BATCH_BYTES)), *self._max_bytes.values())
        self._producer = open_client(Producer, config)
        self._acknowledged = acknowledged
        self._failed = failed
        self._calls: dict[bytes, _CallOnItsWay] = {}
        self._ready: dict[bytes, None] = {}
        """Keys of calls that may go on, in their order."""
        self._waiting = 0
        self._waiting_bytes = 0

    @property
    def in_flight(self) -> int:
        """Events that were taken and are neither acknowledged nor failed, and callbacks that wait for `poll`."""
        return len(self._producer) + self._waiting

    def send(self, number: int, event: Event) -> None:
        """Take an event. `number` is the caller's, to know it by.

        Raises UsageError for an event that is too large or a topic that may not be written to, EncodeError for a
        value that has no bytes, ClusterError where the producer cannot go on. Such an event is not sent.
        """
        topic = self._topics[TOPIC_OF_EVENT[type(event)]]
        key, value = key_of(event.call_id), encode_event(event)
        if len(key) + len(value) > INPUT_MESSAGE_MAX_BYTES:
            raise self._too_large(topic, len(key) + len(value))
        outgoing = _Outgoing(number, topic, partition_of(key, self._count(topic)), key, value)
        call = self._calls.get(key)
        if call is not None and (call.waiting or call.topic != topic):
            self._wait_for_others(call, outgoing)
        else:
            while not self._produce(outgoing):
                self.poll(_FULL_POLL_S)
        self.poll(0)

    def poll(self, timeout_s: float) -> None:
        """Wait so long for an acknowledgement, and report those that have come."""
        self._producer.poll(timeout_s)
        self._let_go_on()

    def flush(self) -> None:
        """Wait until everything is acknowledged or has failed."""
        while self.in_flight:
            self._producer.flush(_FLUSH_STEP_S)
            self._let_go_on()

    def _wait_for_others(self, call: _CallOnItsWay, outgoing: _Outgoing) -> None:
        call.waiting.append(outgoing)
        self._waiting += 1
        self._waiting_bytes += len(outgoing.value)
        while self._waiting > _WAITING_MAX or self._waiting_bytes > _WAITING_MAX_BYTES:
            self.poll(_FULL_POLL_S)

    def _let_go_on(self) -> None:
        while self._ready:
            key = next(iter(self._ready))
            call = self._calls[key]
            if call.waiting:  # not so where one of the call failed meanwhile
                call.topic = call.waiting[0].topic
            while call.waiting and call.waiting[0].topic == call.topic:
                try:
                    if not self._produce(call.waiting[0]):
                        return  # no room: the call stays the next to go on
                except EpochfenceError as error:
                    self._failed(self._no_longer_waiting(call).number, error)
                    self._fail_rest(call)
                else:
                    self._no_longer_waiting(call)
            del self._ready[key]
            if not call.in_flight and not call.waiting:
                del self._calls[key]

    def _no_longer_waiting(self, call: _CallOnItsWay) -> _Outgoing:
        outgoing = call.waiting.popleft()
        self._waiting -= 1
        self._waiting_bytes -= len(outgoing.value)
        return outgoing

    def _fail_rest(self, call: _CallOnItsWay) -> None:
        while call.waiting:
            number = self._no_longer_waiting(call).number
            self._failed(number, ClusterError("not sent, because an event of the same call before it was not"))

    def _produce(self, outgoing: _Outgoing) -> bool:
        """Give it to the producer. False where that has no room. Raises UsageError or ClusterError."""
        _, topic, partition, key, value = outgoing
        try:
            self._producer.produce(topic, value, key, partition, partial(self._delivered, outgoing))
        except BufferError:
            return False
        except KafkaException as error:
            raise self._error(topic, error.args[0], len(key) + len(value)) from None
        self._calls.setdefault(key, _CallOnItsWay(topic)).in_flight += 1
        return True

    def _delivered(self, outgoing: _Outgoing, error: KafkaError | None, message: Message) -> None:
        call = self._calls[outgoing.key]
        call.in_flight -= 1
        if error is not None:
            self._failed(outgoing.number, self._error(outgoing.topic, error, len(outgoing.key) + len(outgoing.value)))
            self._fail_rest(call)
        else:
            offset = message.offset()
            assert offset is not None
            self._acknowledged(Acknowledged(outgoing.number, outgoing.topic, outgoing.partition, offset))
        if not call.in_flight:
            if call.waiting:
                self._ready[outgoing.key] = None
            elif outgoing.key not in self._ready:
                del self._calls[outgoing.key]

    def _count(self, topic: str) -> int:
        if topic not in self._counts:
            self._counts[topic] = len(wait(f"describe {topic}", self._described[topic]).partitions)
        return self._counts[topic]

    def _error(self, topic: str, error: KafkaError, size: int) -> EpochfenceError:
        code = error.code()
        if code == KafkaError.MSG_SIZE_TOO_LARGE:
            return self._too_large(topic, size)
        if code in _NOT_ALLOWED:
            return UsageError(f"the cluster does not allow writing to {topic}: {error.str()}")
        if code in _NO_TOPIC:
            return UsageError(f"{topic} is not there any more: {error.str()}. See `epochfence topics check`")
        if code == KafkaError._MSG_TIMED_OUT:
            return no_answer(f"write to {topic}", "no acknowledgement in time; the event may be in the log or not")
        return as_person_reads(f"write to {topic}", error)

    def _too_large(self, topic: str, size: int) -> UsageError:
        limit = self._max_bytes[topic]
        return UsageError(f"the event has {size:,} bytes, more than {topic} takes ({limit:,} with its framing)")


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
