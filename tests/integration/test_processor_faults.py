"""The processor while it is killed, stopped, replaced and refused: every input gets one decision, and the right one.

Each test ends with the independent check, which reads nothing but the topics.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import builders
from tests.cluster import Cluster
from tests.corner import Corner, stays, until
from tests.load import Load, pouring
from tests.processor_process import RunningProcessor

pytestmark = pytest.mark.integration

LOG_CONTRADICTS, FENCED = 4, 5


@pytest.fixture
def corner(cluster: Cluster, prefix: str, tmp_path: Path) -> Iterator[Corner]:
    with Corner(cluster, prefix, tmp_path) as corner:
        yield corner.apply()


def everything_decided(corner: Corner, load: Load, by: RunningProcessor) -> None:
    corner.wait_decided(load.total, by)
    assert by.stop() == 0, by.excerpt()
    corner.check(load)


def test_a_load_through_two_kills_a_stop_past_the_session_and_a_worker_that_comes_and_goes(corner: Corner) -> None:
    load = corner.load(seed=1)
    first, second = corner.processor(slot="first"), corner.processor(slot="second")
    with pouring(load, new_calls=6, pause_s=0.1):
        first.start()
        for decisions in (200, 500):
            corner.wait_decided(decisions, first)
            first.kill()
            first.start()
        corner.wait_decided(800, first)

        second.start()
        theirs = second.wait_ready()
        assert len(theirs) == 2, "it has got its half of the four partitions"
        corner.wait_decided(1_100, first)
        first.suspend()
        # Nothing tells the second worker but the session timeout.
        assert second.wait_ready(times=2) == [0, 1, 2, 3]
        corner.wait_decided(corner.decided() + 1, second)
        first.resume()
        come_back_or_start_again(first)
        until(lambda: len(second.readies()[-1]) == 2, "the first worker has its half again")
        assert second.stop() == 0, second.excerpt()
        until(lambda: first.readies()[-1] == [0, 1, 2, 3], "the first worker has all of them")
        until(lambda: load.total > 2_500, "a few thousand events")
    corner.wait_decided(load.total, first)
    assert first.stop() == 0, first.excerpt()
    report = corner.check(load)
    assert load.aborted > 0
    for reason in ("MISROUTED", "UNDECODABLE", "OVERSIZED", "EXPIRED", "MALFORMED", "DOUBLE_COMPENSATION"):
        assert report.counts[f"reason {reason}"] > 0, f"the load had no {reason}"
    for verdict in ("OPEN", "FENCE", "COMMIT", "REJECT", "SETTLE", "ESCALATE"):
        assert report.counts[f"verdict {verdict}"] > 0, f"the load led to no {verdict}"


def come_back_or_start_again(processor: RunningProcessor) -> None:
    """One that was stopped at any moment of its work: between two transactions it joins again, in one it is fenced."""
    before = len(processor.readies())
    until(lambda: processor.exit_code is not None or len(processor.readies()) > before, "it has noticed")
    if processor.exit_code is not None:
        assert processor.exit_code == FENCED, processor.excerpt()
        processor.start()
        processor.wait_ready()


def test_kill_9_at_each_step_of_a_commit(corner: Corner) -> None:
    load = corner.load(seed=2)
    for point in ("fetched", "begin", "offsets", "commit", "committed"):
        victim = corner.held_processor(point)
        victim.start()
        victim.wait_ready()
        victim.hold()
        for _ in range(2):
            load.wave(8)
        until(victim.is_held, f"it stands at {point}")
        victim.kill()
        victim.release()
    load.finish()
    processor = corner.processor()
    processor.start()
    everything_decided(corner, load, processor)


@pytest.mark.parametrize(
    ("point", "exit_code"),
    [
        ("begin", None),  # nothing of it is at the cluster: its place in the group is gone, and it asks for another
        ("commit", FENCED),  # its transaction timed out while it stood still, and that ended its producer
    ],
)
def test_a_zombie_that_wakes_up_when_another_has_its_partitions_decides_nothing(
    corner: Corner, point: str, exit_code: int | None
) -> None:
    load = corner.load(seed=3)
    zombie, heir = corner.held_processor(point, slot="zombie"), corner.processor(slot="heir")
    zombie.start()
    zombie.wait_ready()
    load.wave(16)
    corner.wait_decided(load.total, zombie)
    zombie.hold()
    corner.send(builders.call(call_id="the last one that it has read", occurred_at_ms=2**50))
    until(zombie.is_held, f"it stands at {point}")
    zombie.suspend()
    heir.start()
    assert heir.wait_ready() == [0, 1, 2, 3]
    corner.wait_decided(load.total + 1, heir)
    zombie.release()
    zombie.resume()
    if exit_code is None:
        zombie.wait_ready(times=2)
    else:
        assert zombie.wait_exit() == exit_code, zombie.excerpt()
        zombie.start()
        zombie.wait_ready()
    load.finish()
    corner.wait_decided(load.total + 1)
    assert heir.stop() == 0
    assert zombie.stop() == 0
    assert corner.check().counts["decisions"] == load.total + 1


def test_transactions_that_the_cluster_refuses_are_undone_and_decided_again(corner: Corner) -> None:
    load = corner.load(seed=4)
    processor = corner.processor()
    processor.start()
    processor.wait_ready()
    with pouring(load, new_calls=6, pause_s=0.05):
        for _ in range(3):
            corner.wait_decided(corner.decided() + 100, processor)
            aborts = aborted(processor)
            corner.alter("decisions", "max.message.bytes", "100")
            until(lambda aborts=aborts: aborted(processor) > aborts + 2, "it has aborted some")  # type: ignore[misc]
            corner.alter("decisions", "max.message.bytes", "8388608")
    everything_decided(corner, load, processor)


def aborted(processor: RunningProcessor) -> int:
    return processor.stderr.read_text("utf-8").count("deciding again from the last commit")


def test_sigterm_in_the_middle_leaves_with_0_and_the_next_start_goes_on(corner: Corner) -> None:
    load = corner.load(seed=5)
    processor = corner.processor()
    with pouring(load, new_calls=6, pause_s=0.1):
        for _ in range(2):
            processor.start()
            processor.wait_ready()
            corner.wait_decided(corner.decided() + 100, processor)
            assert processor.stop() == 0, processor.excerpt()
    processor.start()
    everything_decided(corner, load, processor)


def test_of_two_processes_with_one_slot_one_leaves_with_5_and_says_why_and_the_other_goes_on(corner: Corner) -> None:
    load = corner.load(seed=6)
    one, two = corner.processor(slot="same"), corner.processor(slot="same")
    with pouring(load, new_calls=4, pause_s=0.1):
        one.start()
        one.wait_ready()
        two.start()
        until(lambda: one.exit_code is not None or two.exit_code is not None, "one of them leaves")
        left, stayed = (one, two) if one.exit_code is not None else (two, one)
        assert left.exit_code == FENCED, left.excerpt()
        assert "slot" in the_one_line(left)
        stayed.wait_ready()
        corner.wait_decided(corner.decided() + 50, stayed)
    everything_decided(corner, load, stayed)


def the_one_line(processor: RunningProcessor) -> str:
    said = processor.stderr.read_text("utf-8")
    assert "Traceback" not in said
    lines = [line for line in said.splitlines() if line.startswith("epochfence: ")]
    assert len(lines) == 1, said
    return lines[0]


def test_a_bug_in_the_fold_stops_its_partition_only_and_nothing_torn_is_left(corner: Corner) -> None:
    names = [corner.call_id_in(partition, name) for name in "abc" for partition in range(4)]
    for name in names:
        corner.send(builders.call(call_id=name, occurred_at_ms=2**50))
    bug, processor = corner.broken_processor(corner.call_id_in(2, "b")), corner.processor()
    bug.start()
    corner.wait_decided(9, bug)
    corner.send(builders.result(1, call_id=corner.call_id_in(3, "a")))
    corner.wait_decided(10, bug)
    stays(lambda: corner.decided() == 10, "nothing of the partition that is halted is decided", for_s=1.0)
    assert bug.stop() == 0, bug.excerpt()
    processor.start()
    corner.wait_decided(13, processor)
    assert processor.stop() == 0
    corner.check()


def test_a_bug_in_the_fold_of_the_only_partition_ends_the_process_and_nothing_torn_is_left(
    cluster: Cluster, prefix: str, tmp_path: Path
) -> None:
    """In a transaction that is longer than what is decided at one go: the first part of it is already written."""
    with Corner(cluster, prefix, tmp_path, partitions=1, commit_interval_ms=5_000) as corner:
        corner.apply().send_nothing(4_500)
        for name in "abc":
            corner.send(builders.call(call_id=name, occurred_at_ms=2**50))
        bug, processor = corner.broken_processor("b"), corner.processor()
        bug.start()
        assert bug.wait_exit() == LOG_CONTRADICTS, bug.excerpt()
        processor.start()
        corner.wait_decided(4_503, processor)
        assert processor.stop() == 0
        corner.check()
