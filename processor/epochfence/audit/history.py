"""What an audit reads: the decisions and the inputs of a cluster, committed only, typed.

Nothing can be written from here: this package opens consumers and an admin client that describes, and a test holds
that no producer is in its reach.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

from confluent_kafka.admin import AdminClient

from epochfence.engine.history import Bounds, History, LogRecord
from epochfence.engine.kafka.client_config import admin_config, open_client, reader_config
from epochfence.engine.kafka.history import KafkaHistory
from epochfence.engine.task import TopicFacts
from epochfence.engine.topics.facts import topic_facts
from epochfence.engine.topics.schema_lookup import TopicSchemaLookup
from epochfence.protocol.decisions import Decision
from epochfence.settings import Settings
from epochfence.wire.codec import OutputDecoder, SchemaLookup
from epochfence.wire.errors import DecodeError


class LoggedDecision(NamedTuple):
    """A record of `decisions`: where it lies, when the broker appended it (ms), what it says, and its bytes.

    `decision` is None where the value does not decode or lies under another key; `wrong` says why.
    """

    offset: int
    timestamp_ms: int
    decision: Decision | None
    wrong: str | None
    value: bytes = b""


class Archive(Protocol):
    """The topics under one prefix, to be read and never written."""

    @property
    def prefix(self) -> str:
        """Begins the name of every topic."""

    @property
    def facts(self) -> TopicFacts:
        """What there is to know of the topics."""

    @property
    def lookup(self) -> SchemaLookup:
        """Where the schemas of other writers come from."""

    def partition(self, number: int) -> History:
        """The committed records of one partition."""


class ClusterArchive:
    """The topics of a cluster. `stop` is asked now and then; True ends a read with `engine.kafka.history.Stopped`."""

    def __init__(self, settings: Settings, bootstrap: str, stop: Callable[[], bool] = lambda: False) -> None:
        """Raises UsageError where a topic is missing, ClusterError where the cluster does not answer."""
        self._admin = open_client(AdminClient, admin_config(settings, bootstrap))
        self._reader = reader_config(settings, bootstrap)
        self._stop = stop
        self.prefix = settings.topic_prefix
        self.facts = topic_facts(self._admin, settings.topic_prefix)
        self.lookup: SchemaLookup = TopicSchemaLookup(settings, bootstrap, self._admin)

    def partition(self, number: int) -> History:
        """See Archive."""
        return KafkaHistory(number, self._admin, self._reader, self._stop)


def read_decisions(archive: Archive, number: int, bounds: Bounds) -> Iterator[LoggedDecision]:
    """The committed decisions of a partition, in order. Memory: one at a time."""
    decoder = OutputDecoder(archive.lookup)
    topic = archive.facts.decisions_topic
    for record in archive.partition(number).read(topic, bounds.earliest, bounds.high_watermark):
        yield _logged(record, decoder)


def _logged(record: LogRecord, decoder: OutputDecoder) -> LoggedDecision:
    try:
        decision = decoder.decision(record.value)
    except DecodeError as error:
        return LoggedDecision(record.offset, record.timestamp_ms, None, str(error))
    if record.key != decision.call_id.encode():
        return LoggedDecision(record.offset, record.timestamp_ms, None, "its key is not the call_id that it names")
    return LoggedDecision(record.offset, record.timestamp_ms, decision, None, record.value or b"")
