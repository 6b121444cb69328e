"""Several workers of one run, parameters that change, and calls that are forgotten."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import Cluster
from tests.corner import Corner, until
from tests.load import Load, pouring

pytestmark = pytest.mark.integration


@pytest.fixture
def corner(cluster: Cluster, prefix: str, tmp_path: Path) -> Iterator[Corner]:
    with Corner(cluster, prefix, tmp_path) as corner:
        yield corner.apply()


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_two_workers_share_the_partitions_a_killed_one_comes_back_and_sigterm_ends_all(corner: Corner) -> None:
    load, run = corner.load(seed=31), corner.processor("--workers", "2")
    with pouring(load, new_calls=6, pause_s=0.1):
        run.start()
        until(lambda: sorted(map(len, run.readies()[-2:])) == [2, 2], "each worker has two partitions")
        workers = children(run.pid)
        assert len(workers) == 2
        corner.wait_decided(corner.decided() + 100, run)
        readies = len(run.readies())
        os.kill(workers[0], signal.SIGKILL)
        until(lambda: len(run.readies()) > readies, "it was started again and has partitions")
        corner.wait_decided(corner.decided() + 100, run)
        again = children(run.pid)
        assert len(again) == 2
        assert set(again) != set(workers)
    corner.wait_decided(load.total, run)
    assert run.stop() == 0, run.excerpt()
    assert not any(Path(f"/proc/{pid}").exists() for pid in again)
    corner.check(load)


def test_parameters_that_change_take_effect_at_a_transactions_end_and_closed_calls_are_forgotten(
    corner: Corner,
) -> None:
    load, processor = corner.load(seed=32), corner.processor()
    for settings in ({}, {"retention_ms": 800, "max_body_bytes": 12}, {"retention_ms": 1_600}):
        corner.set(**settings)
        processor.start()
        processor.wait_ready()
        if settings:
            enough = tombstones(corner) + 5
            until(lambda enough=enough: takes_out(corner, load, enough), "calls are taken out of the table")  # type: ignore[misc]
        load.wave(10)
        load.wave(10)
        corner.wait_decided(load.total, processor)
        assert processor.stop() == 0
    report = corner.check(load)
    assert tombstones(corner) >= 10
    assert report.counts["calls in the table"] < report.counts["verdict OPEN"]

    corner.delete("epoch-table")  # what was forgotten stays so when the table is made anew
    corner.apply()
    processor.start()
    processor.wait_ready()
    assert processor.stop() == 0
    corner.check(load)


def takes_out(corner: Corner, load: Load, enough: int) -> bool:
    """Time goes on only while events come."""
    load.wave(3)
    return tombstones(corner) >= enough


def tombstones(corner: Corner) -> int:
    """How often a call was taken out of the table."""
    return sum(record.value is None for partition in corner.read("epoch-table") for record in partition)
