"""Every verb that needs a cluster says in one line, and soon, that there is none. At once, for each waits a while."""

import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from epochfence.broker.local import free_port
from tests.verbs import run_verb

pytestmark = pytest.mark.integration

NO_CLUSTER = 3
EVENT = b'{"type": "tool_call", "call_id": "7", "tool": "reserve", "timeout_ms": 1000}\n'
VERBS = (["decisions"], ["table"], ["send"], ["audit", "verify"], ["demo"], ["run"], ["topics", "check"])
WITHIN_S = 40.0
"""For all of them together on a machine of two cores; each waits 10 s for an answer."""


def test_no_cluster_is_said_in_one_line_and_soon() -> None:
    nobody = f"127.0.0.1:{free_port()}"

    def run(verb: list[str]) -> "subprocess.CompletedProcess[bytes]":
        return run_verb(*verb, "--bootstrap-servers", nobody, stdin=EVENT, timeout_s=2 * WITHIN_S)

    began = time.monotonic()
    with ThreadPoolExecutor(len(VERBS)) as pool:
        done = list(pool.map(run, VERBS))
    assert time.monotonic() - began < WITHIN_S
    for verb, ended in zip(VERBS, done, strict=True):
        said = [line for line in ended.stderr.decode().splitlines() if not line.startswith("{")]
        assert (ended.returncode, len(said)) == (NO_CLUSTER, 1), f"{verb}: {ended.stderr.decode()}"
        assert said[0].startswith("epochfence: "), verb
        assert "does not answer" in said[0], verb
        assert "`epochfence broker start`" in said[0], verb
        assert ended.stdout == b"" or verb == ["demo"], verb
