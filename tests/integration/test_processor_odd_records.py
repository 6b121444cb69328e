"""Records that no honest client sends, but anyone may: each gets its decision, and holds nobody up."""

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from epochfence.wire.codec import encode_event
from tests import builders
from tests.cluster import Cluster
from tests.corner import Corner
from tests.independent.codec import MARKER, Codec

pytestmark = pytest.mark.integration

HUGE_BYTES = 9 << 20
"""More than any topic takes, until it is compressed."""
UNKNOWN = 10_000
UNKNOWN_WITHIN_S = 35.0
"""A question to the cluster for each of them would take twice as long and more."""


@pytest.fixture
def corner(cluster: Cluster, prefix: str, tmp_path: Path) -> Iterator[Corner]:
    with Corner(cluster, prefix, tmp_path) as corner:
        yield corner.apply()


@pytest.mark.parametrize("compression", ["zstd", "gzip"])
def test_a_record_that_only_compression_brings_through_is_undecodable_and_those_behind_it_are_decided(
    corner: Corner, compression: str
) -> None:
    processor = corner.processor()
    processor.start()
    call_ids = [corner.call_id_in(partition, "behind") for partition in range(corner.partitions)]
    huge_value = encode_event(builders.call(tool="x" * HUGE_BYTES, call_id=call_ids[0]))
    huge_key = b"k" * HUGE_BYTES
    huge = [(call_ids[0].encode(), huge_value), (huge_key, b""), (huge_key, None)]
    corner.send_raw("tool-calls", huge, compression)
    for call_id in call_ids:
        corner.send(builders.call(call_id=call_id, occurred_at_ms=2**50))
    corner.wait_decided(len(huge) + len(call_ids), processor)
    assert processor.stop() == 0, processor.excerpt()
    report = corner.check()
    assert report.counts["decisions"] == len(huge) + len(call_ids)
    assert report.counts["reason UNDECODABLE"] == len(huge)
    assert report.counts["verdict OPEN"] == len(call_ids)
    told = [decision for decision in decisions(corner) if decision["reason"] == "UNDECODABLE"]
    assert {(decision["call_id"], decision["event"]) for decision in told} == {("", "NONE")}


def decisions(corner: Corner) -> Iterator[dict[str, object]]:
    codec = Codec()
    return (codec.decode("decision", record.value) for part in corner.read("decisions") for record in part)


def test_made_up_fingerprints_do_not_cost_a_question_to_the_cluster_each(corner: Corner) -> None:
    chance = random.Random(41)
    processor = corner.processor()
    corner.send_raw("results", ((f"c{n}".encode(), MARKER + chance.randbytes(8) + b"no body") for n in range(UNKNOWN)))
    processor.start()
    processor.wait_ready()
    deadline = time.monotonic() + UNKNOWN_WITHIN_S
    while (decided := corner.decided()) < UNKNOWN:
        assert time.monotonic() < deadline, f"{decided} of {UNKNOWN} in {UNKNOWN_WITHIN_S:.0f} s{processor.excerpt()}"
    assert processor.stop() == 0, processor.excerpt()
    assert corner.check().counts["reason UNDECODABLE"] == UNKNOWN
