"""A start that cannot bring the table up to the decisions: it says so and leaves, and the next start can."""

from pathlib import Path

import pytest

from tests import builders
from tests.cluster import Cluster
from tests.corner import Corner, until
from tests.processor_process import RunningProcessor

pytestmark = pytest.mark.integration

CLUSTER_FAILED = 3
CALLS = 5_000
"""So many that the cluster refuses the first of them while the rest is still being written."""


def test_a_table_that_the_cluster_does_not_take_is_said_and_the_processor_leaves(
    cluster: Cluster, prefix: str, tmp_path: Path
) -> None:
    with Corner(cluster, prefix, tmp_path, partitions=1) as corner:
        processor = corner.apply().processor()
        processor.start()
        corner.send_all(builders.call(call_id=f"c{number}", occurred_at_ms=2**50) for number in range(CALLS))
        corner.wait_decided(CALLS, processor)
        assert processor.stop() == 0, processor.excerpt()
        corner.delete("epoch-table")
        corner.apply()

        refuse_the_table_when_it_has_looked_at_the_topics(corner, processor)
        assert processor.wait_exit() == CLUSTER_FAILED, processor.excerpt()
        said = [line for line in processor.stderr.read_text("utf-8").splitlines() if not line.startswith("{")]
        assert len(said) == 1, said
        assert "could not complete the table of partition 0" in said[0]
        assert processor.readies() == []

        corner.alter("epoch-table", "max.message.bytes", "8388608")
        processor.start()
        assert processor.wait_ready() == [0]
        assert processor.stop() == 0, processor.excerpt()
        assert corner.check().counts["calls in the table"] == CALLS


def refuse_the_table_when_it_has_looked_at_the_topics(corner: Corner, processor: RunningProcessor) -> None:
    """It would not start on a topic that takes so little. So it is held up, by somebody's transaction on decisions."""
    somebody = corner.transactional("somebody")
    somebody.begin_transaction()
    somebody.produce(corner.prefix + "decisions", b"not committed", b"7", 0)
    somebody.flush(30)
    joined = joins(processor)
    processor.start()
    until(lambda: joins(processor) > joined, "it has looked at the topics and joins")
    corner.alter("epoch-table", "max.message.bytes", "100")
    somebody.abort_transaction(30)


def joins(processor: RunningProcessor) -> int:
    return processor.stderr.read_text("utf-8").count('"event": "joining"')
