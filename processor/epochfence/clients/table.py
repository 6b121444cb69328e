"""Reading the epoch table as it stands: the newest committed record of each call.

The table is the processor's cache of its decisions, written in one transaction with them. Who is about to act reads
decisions; the table is for looking.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple, TypeVar

from epochfence.clients.call_ids import key_of
from epochfence.clients.committed_log import CommittedLog
from epochfence.clients.time_merge import CommittedRecord
from epochfence.engine.topics.schema_lookup import TopicSchemaLookup
from epochfence.engine.topics.specs import EPOCH_TABLE
from epochfence.errors import LogError
from epochfence.protocol.decisions import Checkpoint
from epochfence.protocol.records import CallRecord
from epochfence.protocol.vocabulary import Status
from epochfence.settings import Settings
from epochfence.wire.codec import CHECKPOINT_KEY, OutputDecoder
from epochfence.wire.errors import DecodeError
from epochfence.wire.routing import partition_of

Value = TypeVar("Value")


class Standing(NamedTuple):
    """How a call stands, in short."""

    status: Status
    unsettled: bool


class CallInTable(NamedTuple):
    """A call's record, and the partition that it lies in."""

    partition: int
    record: CallRecord


@dataclass
class TablePartition:
    """One partition of the table, as it stood when it was read.

    The records that were asked for are kept as the bytes that they came in, and decoded one at a time; of all others
    it only remembers how they stand.
    """

    number: int
    topic: str
    decoder: OutputDecoder
    checkpoint: Checkpoint | None = None
    """Where the table stands; None where nothing was decided yet, or the table is being rebuilt."""
    _values: dict[bytes, bytes | Standing] = field(default_factory=dict, repr=False)
    """Of each call the value if it is wanted, else its standing. In the order of their last change."""

    def calls(self) -> Iterator[CallRecord]:
        """The records that were asked for, the one that was changed last at the end. Raises LogError for damage."""
        for key, value in self._values.items():
            if isinstance(value, bytes):
                yield self._record(key, value)

    def others(self) -> Counter[Standing]:
        """How the calls stand that were not asked for."""
        return Counter(value for value in self._values.values() if not isinstance(value, bytes))

    @property
    def has_calls(self) -> bool:
        """Whether there is any call in the partition, asked for or not."""
        return bool(self._values)

    def take(self, record: CommittedRecord, wanted: Callable[[CallRecord], bool] | None) -> None:
        """The next record of the topic: it replaces the one of its key before it."""
        key, value = record.key or b"", record.value
        if key == CHECKPOINT_KEY:
            self.checkpoint = None if value is None else self._decode(key, value, self.decoder.checkpoint)
            return
        self._values.pop(key, None)  # so that the new one goes to the end
        if value is not None:
            self._values[key] = value if wanted is None else self._sifted(key, value, wanted)

    def _sifted(self, key: bytes, value: bytes, wanted: Callable[[CallRecord], bool]) -> bytes | Standing:
        record = self._record(key, value)
        return value if wanted(record) else standing_of(record)

    def _record(self, key: bytes, value: bytes) -> CallRecord:
        return self._decode(key, value, self.decoder.record)

    def _decode(self, key: bytes, value: bytes, decode: Callable[[bytes | None], Value]) -> Value:
        try:
            return decode(value)
        except DecodeError as error:
            raise LogError(
                f"{self.topic}[{self.number}]: what is under the key {key!r} cannot be read: {error}. Only the "
                "processor may write there; it rebuilds the table from its decisions when the topic is empty"
            ) from None


@cache
def _standing(status: Status, unsettled: bool) -> Standing:
    # A million calls share a dozen of these.
    return Standing(status, unsettled)


def standing_of(record: CallRecord) -> Standing:
    """How a call stands, in short."""
    return _standing(record.status, record.unsettled)


def read_table(
    settings: Settings,
    bootstrap: str,
    *,
    wanted: Callable[[CallRecord], bool] | None = None,
    notify: Callable[[str], None] = lambda line: None,
) -> Iterator[TablePartition]:
    """The table, one partition after another, each as it stands when its turn comes.

    No more than one partition is in memory, and of it only the records that are `wanted` (None: all). `notify` is
    told, in a line for a person, what is waited for. Raises UsageError where the topic is missing, ClusterError where
    the cluster does not answer, LogError where a record cannot be read.
    """
    with CommittedLog(settings, bootstrap, EPOCH_TABLE, notify=notify) as log:
        decoder = OutputDecoder(TopicSchemaLookup(settings, bootstrap, log.admin))
        for number in range(log.partition_count):
            partition = TablePartition(number, log.topic, decoder)
            for record in log.read(log.all_of([number])):
                partition.take(record, wanted)
            yield partition


def read_call(
    settings: Settings, bootstrap: str, call_id: str, *, notify: Callable[[str], None] = lambda line: None
) -> CallInTable | None:
    """One call's record, None where the table has none. Only its partition is read, and only it is kept.

    Raises as `read_table`.
    """
    key = key_of(call_id)
    with CommittedLog(settings, bootstrap, EPOCH_TABLE, notify=notify) as log:
        number = partition_of(key, log.partition_count)
        partition = TablePartition(number, log.topic, OutputDecoder(TopicSchemaLookup(settings, bootstrap, log.admin)))
        for record in log.read(log.all_of([number])):
            if record.key == key != CHECKPOINT_KEY:
                partition.take(record, None)
        return next((CallInTable(number, record) for record in partition.calls()), None)
