"""The task and its recovery on a log in memory: whatever aborts, crashes or is lost, the log says the same thing.

One seed is one whole run, printed by the test's id. An independent checker reads the result.
"""

import random

import pytest

from epochfence.engine.chain import RunningChain
from epochfence.engine.recovery import Recovery
from epochfence.engine.task import PartitionTask, TaskState, event_decoders
from epochfence.errors import LogError
from epochfence.protocol.admission import Parameters
from epochfence.protocol.events import Compensation, Result
from epochfence.protocol.partition import Partition
from epochfence.simulation.lines import LineFold
from epochfence.wire.codec import (
    CHECKPOINT_KEY,
    NoLookup,
    OutputDecoder,
    encode_checkpoint,
    encode_event,
    encode_record,
)
from epochfence.wire.jsonl import LineError, read_event
from epochfence.wire.schemas import INPUT_TOPICS, TOPIC_OF_EVENT
from tests.independent.checker import check_log
from tests.independent.generate import Generator
from tests.memory_log import FACTS, PREFIX, MemoryLog

RETENTION_MS = 2_000
PARAMETERS = Parameters(retention_ms=RETENTION_MS)
LATE_MS = 2**60
OUTPUTS = OutputDecoder(NoLookup())


def fill(log: MemoryLog, seed: int, count: int) -> None:
    """Write generated events into the inputs. An event's offset is its line number, as in `fold`, so that the
    incarnations that the generator aims at are the right ones."""
    rng = random.Random(seed)
    fold = LineFold(PARAMETERS)
    for number, line in enumerate(Generator(seed, RETENTION_MS).lines(count)):
        fold.decide(line)
        try:
            read = read_event(line, number)
        except LineError:
            topic = PREFIX + rng.choice(INPUT_TOPICS)
            log.append(topic, number, 0, rng.choice([None, b"", b"7", b"\xff"]), rng.choice([None, b"", line]))
            continue
        event = read.event
        if read.incarnation_left_out:
            assert isinstance(event, Result | Compensation)
            record = fold.partition.calls.get(event.call_id)
            event.incarnation = -1 if record is None or record.incarnation is None else record.incarnation
        key = event.call_id.encode() if rng.random() < 0.98 else rng.choice([None, b"elsewhere"])
        log.append(PREFIX + TOPIC_OF_EVENT[type(event)], number, read.timestamp_ms, key, encode_event(event))


class Life:
    """A processor's life on a log: it decides, aborts, crashes and comes back, as chance has it."""

    def __init__(self, log: MemoryLog, seed: int, parameters: Parameters = PARAMETERS) -> None:
        self.log = log
        self.rng = random.Random(seed)
        self.parameters = parameters
        self.task = self.start()

    def start(self) -> PartitionTask:
        recovered = Recovery(0, self.log, FACTS, self.parameters, event_decoders(NoLookup()), OUTPUTS, (0,) * 4).run()
        if recovered.rewrite is not None:
            for call_id, record in recovered.rewrite.records.items():
                self.log.table(0, call_id.encode(), None if record is None else encode_record(record))
            self.log.table(0, CHECKPOINT_KEY, encode_checkpoint(recovered.rewrite.checkpoint))
            self.log.commit()
        self.task = PartitionTask(0, FACTS, self.parameters, event_decoders(NoLookup()), recovered.state)
        self.offer_all()
        return self.task

    def offer_all(self) -> None:
        for number, (topic, start) in enumerate(zip(FACTS.input_topics, self.task.next_offsets, strict=True)):
            for record in self.log.read(topic, start, self.log.ends[topic]):
                self.task.merge.offer(number, record.timestamp_ms, record.offset, record.key, record.value)
            self.task.merge.reached_end(number)

    def step(self) -> bool:
        decided = self.task.decide(self.rng.randint(1, 40), self.now_ms(), self.log)
        fate = self.rng.random()
        if fate < 0.3:
            return decided > 0  # the transaction goes on
        if fate < 0.7 or decided == 0:
            self.task.seal(self.now_ms(), self.log)
            self.log.commit()
            self.task.committed()
        elif fate < 0.8:
            self.abort()
        elif fate < 0.9:
            self.log.abort()  # crashed before the commit
            self.start()
        else:
            self.task.seal(self.now_ms(), self.log)
            self.log.commit()  # crashed after it: nobody was told
            self.lose_table()
            self.start()
        return decided > 0

    def abort(self) -> None:
        if self.rng.random() < 0.5:
            self.task.seal(self.now_ms(), self.log)
        self.log.abort()
        self.task.undo()
        self.offer_all()

    def lose_table(self) -> None:
        """Sometimes the table is gone, or stands where it stood some time ago."""
        table = self.log.topics[FACTS.table_topic]
        fate = self.rng.random()
        if fate < 0.2:
            table.clear()
        elif fate < 0.5:
            ends = [i for i, record in enumerate(table) if record.key == CHECKPOINT_KEY]
            if ends:
                del table[self.rng.choice(ends) + 1 :]

    def now_ms(self) -> int:
        return LATE_MS if self.rng.random() < 0.9 else self.rng.randrange(100_000)

    def run(self) -> None:
        while self.step():
            pass
        self.task.seal(self.now_ms(), self.log)
        self.log.commit()
        self.task.committed()


@pytest.mark.parametrize("seed", range(12))
def test_the_log_is_right_whatever_happens(seed: int) -> None:
    log = MemoryLog()
    fill(log, seed, 600)
    life = Life(log, seed)
    life.run()
    report = check_log(log.as_checked(), merge_order=True)
    assert report.ok, str(report)


@pytest.mark.parametrize("seed", range(4))
def test_faults_change_no_decision(seed: int) -> None:
    """The decisions of a life full of faults are those of a quiet one, transaction ends apart."""
    log = MemoryLog()
    fill(log, seed, 400)
    no_forgetting = Parameters(retention_ms=2**62)
    life = Life(log, seed, no_forgetting)
    life.run()
    quiet = MemoryLog()
    fill(quiet, seed, 400)
    task = PartitionTask(
        0,
        FACTS,
        no_forgetting,
        event_decoders(NoLookup()),
        TaskState(Partition(no_forgetting), RunningChain(), [0] * 4),
    )
    calm = Life(quiet, seed, no_forgetting)
    calm.task = task
    calm.offer_all()
    while task.decide(1_000, 0, quiet):
        pass
    task.seal(0, quiet)
    quiet.commit()
    assert _decided(log) == _decided(quiet)


def _decided(log: MemoryLog) -> list[object]:
    decisions = []
    for record in log.topics[FACTS.decisions_topic]:
        decision = OUTPUTS.decision(record.value)
        decision.decided_at_ms = 0
        decision.checkpoint = None
        decisions.append(decision)
    return decisions


def test_a_table_ahead_of_the_decisions_is_refused() -> None:
    log = MemoryLog()
    fill(log, 1, 200)
    Life(log, 1).run()
    decisions = log.topics[FACTS.decisions_topic]
    checkpoints = [i for i, r in enumerate(decisions) if OUTPUTS.decision(r.value).checkpoint is not None]
    del decisions[checkpoints[-2] + 1 :]
    with pytest.raises(LogError, match=r"m\.decisions\[0\]: epoch-table stands at seq \d+, ahead"):
        Life(log, 1)


def test_a_torn_transaction_is_refused() -> None:
    log = MemoryLog()
    fill(log, 1, 200)
    Life(log, 1).run()
    log.topics[FACTS.decisions_topic].pop()
    if OUTPUTS.decision(log.topics[FACTS.decisions_topic][-1].value).checkpoint is not None:
        log.topics[FACTS.decisions_topic].pop()
    with pytest.raises(LogError, match=r"carries no checkpoint: its transaction is torn|ahead"):
        Life(log, 1)


def test_inputs_that_are_gone_are_refused() -> None:
    log = MemoryLog()
    fill(log, 1, 200)
    Life(log, 1).run()
    log.ends[FACTS.input_topics[2]] = 3
    with pytest.raises(LogError, match=r"m\.results\[0\]: it ends at offset 3, but was decided up to offset \d+"):
        Life(log, 1)


@pytest.mark.parametrize("damage", ["edited", "missing", "doubled", "input rewritten", "input gone"])
def test_damage_that_a_roll_forward_meets_is_refused(damage: str) -> None:
    log = MemoryLog()
    fill(log, 1, 300)
    Life(log, 1).run()
    log.topics[FACTS.table_topic].clear()
    decisions = log.topics[FACTS.decisions_topic]
    middle = len(decisions) // 2
    inputs = log.topics[FACTS.input_topics[2]]
    if damage == "edited":
        record = decisions[middle]
        assert record.value is not None
        edited = bytearray(record.value)
        edited[12 + len(record.key or b"")] ^= 2
        decisions[middle] = record._replace(value=bytes(edited))
    elif damage == "missing":
        del decisions[middle]
    elif damage == "doubled":
        decisions.insert(middle, decisions[middle])
    elif damage == "input rewritten":
        inputs[5] = inputs[5]._replace(value=(inputs[5].value or b"") + b"\0")
    else:
        del inputs[5]
    with pytest.raises(LogError, match=r"m\.decisions\[0\]"):
        Life(log, 1)
