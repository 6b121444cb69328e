"""What a start makes of the log: a backlog, a table that is gone or old, odd ends of partitions, open transactions."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from epochfence.protocol.events import Event
from epochfence.wire.codec import CHECKPOINT_KEY, encode_event
from epochfence.wire.schemas import TOPIC_OF_EVENT
from tests import builders
from tests.cluster import Cluster
from tests.corner import Corner, stays, until
from tests.load import Load
from tests.processor_process import RunningProcessor

pytestmark = pytest.mark.integration


@pytest.fixture
def corner(cluster: Cluster, prefix: str, tmp_path: Path) -> Iterator[Corner]:
    with Corner(cluster, prefix, tmp_path) as corner:
        yield corner.apply()


@pytest.fixture
def processor(corner: Corner) -> RunningProcessor:
    return corner.processor()


# ---- a backlog ----------------------------------------------------------------------------------------------------


def test_a_backlog_in_which_each_result_was_in_time_ends_in_commits_and_not_in_compensations(
    corner: Corner, processor: RunningProcessor
) -> None:
    send, count = corner.send, 150
    now = {"occurred_at_ms": 2**50}
    names = [f"call-{number}" for number in range(count)]
    incarnations = {name: send(builders.call(call_id=name, **now)) for name in names}
    for name in names:
        send(builders.result(1, call_id=name, incarnation=incarnations[name]))
    for name in names:
        send(builders.timeout(1, call_id=name))
    processor.start()
    corner.wait_decided(3 * count, processor)
    assert processor.stop() == 0
    report = corner.check(merge_order=True)
    assert report.counts["verdict COMMIT"] == count
    assert report.counts["verdict FENCE"] == 0
    assert report.counts["reason ALREADY_COMMITTED"] == count


def test_a_backlog_of_everything_is_decided_in_merge_order(corner: Corner, processor: RunningProcessor) -> None:
    load = corner.load(seed=11)
    for _ in range(6):
        load.wave(20)
    load.finish()
    processor.start()
    corner.wait_decided(load.total, processor)
    assert processor.stop() == 0
    corner.check(load, merge_order=True)


# ---- the table ----------------------------------------------------------------------------------------------------


def test_a_table_that_is_old_gone_or_undated_is_made_anew_from_the_decisions(
    corner: Corner, processor: RunningProcessor
) -> None:
    load = corner.load(seed=12)
    processor.start()
    for _ in range(5):
        load.wave(8)
        corner.wait_decided(load.total, processor)
    assert processor.stop() == 0

    put_back(corner, transactions=2)
    load.wave(8)
    folds_again(corner, processor, load)
    corner.delete("epoch-table")
    corner.apply()
    load.finish()
    folds_again(corner, processor, load)
    take_the_date_away(corner)
    folds_again(corner, processor, load)


def folds_again(corner: Corner, processor: RunningProcessor, load: Load) -> None:
    """A start that has to fold again comes to the table that it ought to be, and decides what there is."""
    said = processor.stderr.stat().st_size
    processor.start()
    assert processor.wait_ready() == [0, 1, 2, 3]
    corner.wait_decided(load.total, processor)
    assert processor.stop() == 0
    assert processor.stderr.read_text("utf-8")[said:].count('"rolled_forward": true') == 4
    corner.check(load)


def put_back(corner: Corner, transactions: int) -> None:
    """Write the table again as it stood after so many of its transactions, over what it is now."""
    producer = Producer({"bootstrap.servers": corner.bootstrap, "acks": -1})
    for partition, records in enumerate(corner.read("epoch-table")):
        was: dict[bytes | None, bytes | None] = {}
        left = transactions
        for record in records:
            was[record.key] = record.value
            left -= record.key == CHECKPOINT_KEY
            if left == 0:
                break
        for key in {record.key for record in records}:
            producer.produce(corner.prefix + "epoch-table", was.get(key), key, partition)
    assert producer.flush(30) == 0


def take_the_date_away(corner: Corner) -> None:
    """No checkpoint any more, and a record of a call that there never was."""
    producer = Producer({"bootstrap.servers": corner.bootstrap, "acks": -1})
    for partition, records in enumerate(corner.read("epoch-table")):
        value = next(record.value for record in records if record.value and record.key != CHECKPOINT_KEY)
        producer.produce(corner.prefix + "epoch-table", value, b"never was", partition)
        producer.produce(corner.prefix + "epoch-table", None, CHECKPOINT_KEY, partition)
    assert producer.flush(30) == 0


# ---- ends of partitions, open transactions ------------------------------------------------------------------------


def test_partitions_that_end_in_a_commit_in_an_abort_or_are_empty_are_all_started_and_go_on(
    corner: Corner, processor: RunningProcessor
) -> None:
    producer, send = corner.transactional("somebody"), corner.send
    names = {number: corner.call_id_in(number, "call") for number in range(3)}  # partition 3 stays empty
    for number in (0, 1):
        in_transaction(corner, producer, builders.call(call_id=names[number], occurred_at_ms=2**50), commit=True)
    for number in (1, 2):
        in_transaction(corner, producer, builders.call(call_id=names[number], occurred_at_ms=2**50), commit=False)
    for decided in (2, 3):
        processor.start()
        assert processor.wait_ready() == [0, 1, 2, 3]
        corner.wait_decided(decided, processor)
        send(builders.result(1, call_id=names[decided - 2], incarnation=0))
        corner.wait_decided(decided + 1, processor)
        in_transaction(corner, producer, builders.result(1, call_id=names[2]), commit=False)
        assert processor.stop() == 0
    assert corner.check().counts["verdict COMMIT"] == 2


def in_transaction(corner: Corner, producer: Producer, event: Event, *, commit: bool) -> None:
    producer.begin_transaction()
    producer.produce(corner.prefix + TOPIC_OF_EVENT[type(event)], encode_event(event), event.call_id.encode())
    producer.flush(30)
    if commit:
        producer.commit_transaction(30)
    else:
        producer.abort_transaction(30)


def test_what_lies_behind_somebodys_open_transaction_waits_until_it_ends(
    corner: Corner, processor: RunningProcessor
) -> None:
    producer, send = corner.transactional("somebody"), corner.send
    here, there = corner.call_id_in(0, "here"), corner.call_id_in(1, "there")
    for name in (here, there):
        send(builders.call(call_id=name, occurred_at_ms=2**50))
    processor.start()
    corner.wait_decided(2, processor)
    producer.begin_transaction()
    producer.produce(corner.prefix + "results", encode_event(builders.result(2, call_id=here)), here.encode())
    producer.flush(30)
    send(builders.result(1, call_id=here))
    send(builders.result(1, call_id=there))
    corner.wait_decided(3, processor)

    assert processor.stop() == 0
    processor.start()  # a start does not wait for it either
    assert processor.wait_ready() == [0, 1, 2, 3]
    send(builders.timeout(1, call_id=there))
    corner.wait_decided(4, processor)
    stays(lambda: corner.decided() == 4, "what lies behind it is not decided", for_s=1.5)

    producer.commit_transaction(30)
    corner.wait_decided(6, processor)
    assert processor.stop() == 0
    report = corner.check()
    assert report.counts["reason FUTURE_EPOCH"] == 1
    assert report.counts["verdict COMMIT"] == 2


@pytest.mark.parametrize("output", ["decisions", "epoch-table"])
def test_a_start_waits_for_a_transaction_on_the_outputs_before_it_believes_what_they_say(
    corner: Corner, processor: RunningProcessor, output: str
) -> None:
    """Up to the last stable offset only, it would miss what a predecessor has committed a moment ago."""
    load = corner.load(seed=13)
    load.wave(10)
    producer = corner.transactional("predecessor")
    producer.begin_transaction()
    producer.produce(corner.prefix + output, b"not committed", b"7", 2)
    producer.flush(30)
    processor.start()
    until(lambda: '"partition": 1' in processor.stderr.read_text("utf-8"), "it has come to partition 2")
    waits = lambda: processor.readies() == [] and corner.decided() == 0  # noqa: E731
    stays(waits, "it does not believe what may be taken back", for_s=2.0)
    producer.abort_transaction(30)
    corner.wait_decided(load.total, processor)
    assert processor.stop() == 0
    corner.check(load)
