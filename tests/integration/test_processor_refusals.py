"""What the processor does not start on: one line that says what and where, an exit code, and nothing written."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cluster import Cluster
from tests.corner import Corner
from tests.processor_process import RunningProcessor

pytestmark = pytest.mark.integration

USAGE, LOG = 2, 4


@pytest.fixture
def corner(cluster: Cluster, prefix: str, tmp_path: Path) -> Iterator[Corner]:
    with Corner(cluster, prefix, tmp_path) as corner:
        yield corner


def refusal(processor: RunningProcessor) -> tuple[int, str]:
    """The exit code of a start, and the one line that it leaves with."""
    said = processor.stderr.stat().st_size if processor.stderr.exists() else 0
    processor.start()
    code = processor.wait_exit()
    text = processor.stderr.read_text("utf-8")[said:]
    assert "Traceback" not in text
    lines = [line for line in text.splitlines() if not line.startswith("{")]
    assert len(lines) == 1, text
    assert lines[0].startswith("epochfence: "), text
    assert processor.readies() == []
    return code, lines[0]


# ---- topics that cannot be decided on -----------------------------------------------------------------------------


def test_missing_topics(corner: Corner) -> None:
    code, line = refusal(corner.processor())
    assert code == USAGE
    assert "tool-calls" in line
    assert "epochfence topics apply" in line


def test_topics_that_are_not_as_they_must_be(corner: Corner) -> None:
    corner.apply()
    corner.alter("results", "cleanup.policy", "compact")
    corner.add_partitions("timeouts", 5)
    code, line = refusal(corner.processor())
    assert code == USAGE
    assert f"{corner.prefix}results: cleanup.policy is compact, should be delete" in line
    assert f"{corner.prefix}timeouts: partitions is 5, should be 4" in line


# ---- a log that is not the log that was decided -------------------------------------------------------------------


def decisions_made_anew(corner: Corner) -> str:
    corner.delete("decisions")
    corner.apply()
    return "decisions"


def an_input_made_anew(corner: Corner) -> str:
    corner.delete("results")
    corner.apply()
    return "results"


def undecided_records_deleted(corner: Corner) -> str:
    corner.load(seed=22).wave(30)
    for partition in range(corner.partitions):
        corner.delete_records("tool-calls", partition, corner.end("tool-calls", partition))
    return "tool-calls"


def decisions_and_table_gone(corner: Corner) -> str:
    corner.delete("epoch-table")
    corner.apply()
    for partition in range(corner.partitions):
        corner.delete_records("decisions", partition, corner.end("decisions", partition) - 3)
    return "decisions"


def more_partitions(corner: Corner) -> str:
    for name in ("tool-calls", "timeouts", "results", "compensations", "decisions", "epoch-table"):
        corner.add_partitions(name, 5)
    return "decisions"


@pytest.mark.parametrize(
    "damage",
    [decisions_made_anew, an_input_made_anew, undecided_records_deleted, decisions_and_table_gone, more_partitions],
)
def test_a_log_that_is_not_what_was_decided(corner: Corner, damage: Callable[[Corner], str]) -> None:
    load, processor = corner.apply().load(seed=21), corner.processor()
    load.wave(40)
    processor.start()
    corner.wait_decided(load.total, processor)
    assert processor.stop() == 0
    topic = damage(corner)
    before = corner.ends()
    code, line = refusal(processor)
    assert code == LOG
    assert f"{corner.prefix}{topic}[" in line
    assert "Nothing was written" in line
    assert corner.ends() == before
