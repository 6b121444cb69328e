"""A processor that stood still: what came meanwhile is decided in merge order, as if it had been there all the time."""

import time
from collections import Counter
from pathlib import Path

import pytest

from tests import builders
from tests.cluster import Cluster
from tests.corner import NOTHING, Corner
from tests.independent.codec import Codec

pytestmark = pytest.mark.integration

ROUNDS = 6
"""Which input librdkafka fetches first after a standstill changes from fetch to fetch, so one round shows little."""
CALLS = 50
MORE = 4_500
"""More than a worker takes from librdkafka at one go: it has seen no result yet when it decides the first timeouts."""
APART_S = 1.1
"""So much later than the results the timeouts are appended, by the broker's clock."""


def test_results_that_came_in_time_while_it_stood_still_are_committed(
    cluster: Cluster, prefix: str, tmp_path: Path
) -> None:
    # A session that is longer than any standstill here: it is still in its group when it wakes up.
    with Corner(cluster, prefix, tmp_path, partitions=1, session_timeout_ms=60_000) as corner:
        processor = corner.apply().processor()
        processor.start()
        processor.wait_ready()
        ended = corner.send(builders.call(call_id="ended", occurred_at_ms=2**50))
        corner.send(builders.result(1, call_id="ended", incarnation=ended))
        too_late = builders.timeout(1, call_id="ended")
        decided = 2
        for round_number in range(ROUNDS):
            names = [f"{round_number}-{number}" for number in range(CALLS)]
            offsets = corner.send_all(builders.call(call_id=name, occurred_at_ms=2**50) for name in names)
            corner.wait_decided(decided + CALLS, processor)

            processor.suspend()
            # This one answers the fetch that waits at the broker, and nobody is there to send the next.
            corner.send(too_late)
            calls = list(zip(names, offsets, strict=True))
            corner.send_all(builders.result(1, call_id=name, incarnation=offset) for name, offset in calls)
            time.sleep(APART_S)
            corner.send_all(builders.timeout(1, call_id=name) for name in names)
            corner.send_nothing(MORE, to="timeouts")
            processor.resume()
            decided += 3 * CALLS + 1 + MORE
            corner.wait_decided(decided, processor)
        assert processor.stop() == 0, processor.excerpt()
        codec = Codec()
        read = (record for record in corner.read("decisions")[0] if record.key != NOTHING)
        verdicts = Counter(codec.decode("decision", record.value)["verdict"] for record in read)
        calls = ROUNDS * CALLS + 1
        assert verdicts == {"OPEN": calls, "COMMIT": calls, "REJECT": ROUNDS * (CALLS + 1)}
