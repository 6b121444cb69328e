"""Reading decisions, committed only.

The second rule of the protocol: nobody acts on a thing that is not yet durable. Every send is released by a committed
decision that the sender has read back from here: the decision topic is the outbox. What this module yields is such a
decision, and nothing else may release a send.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from epochfence.clients.call_ids import key_of
from epochfence.clients.committed_log import CommittedLog
from epochfence.clients.time_merge import CommittedRecord
from epochfence.engine.topics.schema_lookup import TopicSchemaLookup
from epochfence.engine.topics.specs import DECISIONS
from epochfence.errors import LogError, UsageError
from epochfence.protocol.decisions import Decision
from epochfence.settings import Settings
from epochfence.wire.codec import OutputDecoder
from epochfence.wire.errors import DecodeError
from epochfence.wire.routing import partition_of


class CommittedDecision(NamedTuple):
    """A decision that is durable, and where it stands in the decision topic. `timestamp_ms` is the broker's."""

    decision: Decision
    partition: int
    offset: int
    timestamp_ms: int


def read_decisions(
    settings: Settings,
    bootstrap: str,
    *,
    call_id: str | None = None,
    partition: int | None = None,
    follow: bool = False,
    from_now: bool = False,
    stop: Callable[[], bool] = lambda: False,
    notify: Callable[[str], None] = lambda line: None,
) -> Iterator[CommittedDecision]:
    """Every decision from the beginning to the end as it stands, or with `follow` until `stop` is true.

    Each partition comes in the order of `seq`; partitions are merged by the broker's timestamps. `call_id`: only that
    call's, from the one partition that its key lies in (what was said of it in a wrong partition was MISROUTED, and
    stands there). `from_now` leaves out what was committed before. `stop` is asked at least every 100 ms; `notify` is
    told, in a line for a person, what is waited for.

    Raises UsageError for a topic or partition that is not there, ClusterError where the cluster does not answer,
    LogError where a decision cannot be read.
    """
    key = None if call_id is None else key_of(call_id)
    with CommittedLog(settings, bootstrap, DECISIONS, stop=stop, notify=notify) as log:
        numbers = _partitions(log, key, partition)
        spans = log.from_now(numbers) if from_now else log.all_of(numbers)
        decoder = OutputDecoder(TopicSchemaLookup(settings, bootstrap, log.admin))
        for record in log.read(spans, follow=follow):
            if key is None or record.key == key:
                yield _decision(log.topic, record, decoder)


def _partitions(log: CommittedLog, key: bytes | None, partition: int | None) -> list[int]:
    if partition is not None and partition >= log.partition_count:
        raise UsageError(f"{log.topic} has no partition {partition}: they are 0 to {log.partition_count - 1}")
    if key is None:
        return list(range(log.partition_count)) if partition is None else [partition]
    home = partition_of(key, log.partition_count)
    if partition not in (None, home):
        raise UsageError(f"that call lies in partition {home} of {log.topic}, not in {partition}")
    return [home]


def _decision(topic: str, record: CommittedRecord, decoder: OutputDecoder) -> CommittedDecision:
    try:
        decision = decoder.decision(record.value)
    except DecodeError as error:
        raise LogError(
            f"{topic}[{record.partition}]@{record.offset} is no decision: {error}. Only the processor may write there; "
            "`epochfence audit verify` finds what else is wrong"
        ) from None
    return CommittedDecision(decision, record.partition, record.offset, record.timestamp_ms)
