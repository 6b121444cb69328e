"""A start on a log that is not what it was: losses are refused, and a table that nothing dates is rebuilt."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from epochfence.engine.chain import RunningChain
from epochfence.engine.history import Bounds
from epochfence.engine.recovery import Recovered, Recovery
from epochfence.engine.task import PartitionTask, TaskState, TopicFacts, event_decoders
from epochfence.errors import LogError
from epochfence.protocol.admission import Parameters
from epochfence.protocol.partition import Partition
from epochfence.protocol.vocabulary import Reason
from epochfence.wire.codec import CHECKPOINT_KEY, NoLookup, OutputDecoder, encode_event, encode_record
from epochfence.wire.routing import lies_in
from epochfence.wire.schemas import INPUT_TOPICS
from tests.builders import Log as OneCall
from tests.builders import call, result, timeout
from tests.memory_log import FACTS, MemoryLog

LATE_MS = 1_000
NO_GROUP = (0,) * len(INPUT_TOPICS)


class ShortenedLog(MemoryLog):
    """A log whose inputs begin later than they did."""

    earliest = 0

    def bounds(self, topic: str) -> Bounds:
        return Bounds(self.earliest if topic in FACTS.input_topics else 0, self.ends[topic])


def decided_log(facts: TopicFacts = FACTS) -> ShortenedLog:
    """A call, its timeout and its late result, decided in one transaction."""
    log = ShortenedLog()
    task = PartitionTask(
        0,
        facts,
        Parameters(),
        event_decoders(NoLookup()),
        TaskState(Partition(Parameters()), RunningChain(), [0] * len(INPUT_TOPICS)),
    )
    said = (("tool-calls", call()), ("timeouts", timeout(1)), ("results", result(1)))
    for timestamp_ms, (name, event) in enumerate(said):
        topic = facts.input_topics[INPUT_TOPICS.index(name)]
        log.append(topic, 0, timestamp_ms, b"7", encode_event(event))
        task.merge.offer(INPUT_TOPICS.index(name), timestamp_ms, 0, b"7", encode_event(event))
    for number in range(len(INPUT_TOPICS)):
        task.merge.reached_end(number)
    assert task.decide(9, 0, log) == 3
    task.seal(LATE_MS, log)
    log.commit()
    task.committed()
    return log


def long_log() -> ShortenedLog:
    """The same, and 199 calls repeated after it: its end tells nothing of its beginning."""
    log = decided_log()
    task = PartitionTask(0, FACTS, Parameters(), event_decoders(NoLookup()), start(log).state)
    for offset in range(1, 200):
        log.append(FACTS.input_topics[0], offset, offset, b"7", encode_event(call()))
        task.merge.offer(0, offset, offset, b"7", encode_event(call()))
    for number in range(len(INPUT_TOPICS)):
        task.merge.reached_end(number)
    task.decide(1_000, 0, log)
    task.seal(LATE_MS, log)
    log.commit()
    return log


def start(log: MemoryLog, facts: TopicFacts = FACTS, group: tuple[int, ...] = NO_GROUP) -> Recovered:
    decoders, outputs = event_decoders(NoLookup()), OutputDecoder(NoLookup())
    return Recovery(0, log, facts, Parameters(), decoders, outputs, group).run()


def test_a_whole_log_is_restored() -> None:
    recovered = start(decided_log())
    assert recovered.rewrite is None
    partition = recovered.state.partition
    assert (partition.seq, partition.stream_time_ms, list(partition.calls)) == (3, 2, ["7"])
    assert recovered.state.next_offsets == [1, 1, 1, 0]


def _inputs_begin_later(log: ShortenedLog) -> None:
    log.earliest = 2


def _decisions_are_gone(log: ShortenedLog) -> None:
    log.topics[FACTS.decisions_topic].clear()


def _decisions_and_the_tables_checkpoint_are_gone(log: ShortenedLog) -> None:
    log.topics[FACTS.decisions_topic].clear()
    table = log.topics[FACTS.table_topic]
    table[:] = [record for record in table if record.key != CHECKPOINT_KEY]


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (_inputs_begin_later, r"m\.tool-calls\[0\]: the records from offset 1 to 1 are gone and were never decided"),
        (_decisions_are_gone, r"it holds no decision, but epoch-table stands at 3"),
        (_decisions_and_the_tables_checkpoint_are_gone, "it holds no decision, but epoch-table stands at an unknown"),
    ],
)
def test_what_is_lost_is_named(damage: Callable[[ShortenedLog], None], why: str) -> None:
    log = decided_log()
    damage(log)
    with pytest.raises(LogError, match=why):
        start(log)


def test_lost_decisions_are_seen_by_the_groups_offsets_alone() -> None:
    with pytest.raises(LogError, match="the group has decided up to offset 5"):
        start(MemoryLog(), group=(0, 0, 5, 0))
    assert start(MemoryLog()).state.partition.seq == 0


def test_another_partition_count_is_refused() -> None:
    with pytest.raises(LogError, match="the topics have 2 partitions, and had 1"):
        start(decided_log(), FACTS._replace(partition_count=2))


@pytest.mark.parametrize("number", range(len(INPUT_TOPICS)))
def test_an_input_made_anew_is_refused(number: int) -> None:
    ids = tuple("another" if i == number else old for i, old in enumerate(FACTS.input_topic_ids))
    with pytest.raises(LogError, match=f"{INPUT_TOPICS[number]}.*it is not the topic that was decided"):
        start(decided_log(), FACTS._replace(input_topic_ids=ids))


def test_decisions_made_anew_are_refused() -> None:
    with pytest.raises(LogError, match="it is not the topic that was decided"):
        start(decided_log(), FACTS._replace(decisions_topic_id="another"))


def test_records_that_no_checkpoint_dates_are_taken_away() -> None:
    """A table that lost its checkpoint may hold anything: what the decisions do not bring back has to go."""
    log = decided_log()
    table = log.topics[FACTS.table_topic]
    table[:] = [record for record in table if record.key != CHECKPOINT_KEY]
    stranger = encode_record(OneCall(call(call_id="9")).partition.calls["9"])
    log.table(0, b"9", stranger)
    log.commit()
    rewrite = start(log).rewrite
    assert rewrite is not None
    assert rewrite.records["9"] is None
    assert rewrite.records["7"] is not None


def test_a_missing_decision_is_named_when_the_table_is_rebuilt() -> None:
    log = long_log()
    log.topics[FACTS.table_topic].clear()
    del log.topics[FACTS.decisions_topic][50]
    with pytest.raises(LogError, match="seq 51 is missing before it"):
        start(log)


def test_an_input_that_was_rewritten_so_that_no_decision_tells_breaks_the_chain() -> None:
    log = decided_log()
    log.topics[FACTS.table_topic].clear()
    inputs = log.topics[FACTS.input_topics[0]]
    inputs[0] = inputs[0]._replace(value=encode_event(call(source="somebody else")))
    with pytest.raises(LogError, match="the chain over inputs breaks"):
        start(log)


def test_a_record_in_the_wrong_partition_is_decided_misrouted() -> None:
    two = FACTS._replace(partition_count=2)
    elsewhere = next(key for key in map(str, range(100)) if not lies_in(0, key.encode(), 2))
    log = MemoryLog()
    state = TaskState(Partition(Parameters()), RunningChain(), [0] * len(INPUT_TOPICS))
    task = PartitionTask(0, two, Parameters(), event_decoders(NoLookup()), state)
    task.merge.offer(0, 0, 0, elsewhere.encode(), encode_event(call(call_id=elsewhere)))
    for number in range(len(INPUT_TOPICS)):
        task.merge.reached_end(number)
    task.decide(1, 0, log)
    task.seal(0, log)
    log.commit()
    (record,) = log.topics[FACTS.decisions_topic]
    assert OutputDecoder(NoLookup()).decision(record.value).reason is Reason.MISROUTED


@pytest.mark.parametrize("lost", [0, 1])
def test_a_gap_is_seen_without_a_roll_forward(lost: int) -> None:
    """The table is complete, so nothing is folded again; still the log must begin at 1 and have no gap at its end."""
    log = decided_log()
    del log.topics[FACTS.decisions_topic][lost]
    with pytest.raises(LogError, match=r"m\.decisions\[0\]: (seq 2 is missing|seq 2 is its first decision)"):
        start(log)


def test_a_lost_beginning_is_seen_from_afar() -> None:
    """As a bug once made it: the first transactions were taken back, and a later one went on counting."""
    log = long_log()
    assert start(log).state.partition.seq == 202
    del log.topics[FACTS.decisions_topic][:3]
    with pytest.raises(LogError, match=r"m\.decisions\[0\]: seq 4 is its first decision"):
        start(log)
