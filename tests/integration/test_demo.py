"""`epochfence demo` as a person runs it: the ghost write without the fence, its absence with it, the proof, the end."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from epochfence.audit.findings import FindingKind
from epochfence.audit.history import ClusterArchive
from epochfence.audit.proof import prove
from epochfence.engine.kafka.client_config import admin_config, sender_config
from epochfence.settings import Settings, load_settings
from tests.cluster import Cluster
from tests.verbs import run_verb, start_verb

pytestmark = pytest.mark.integration

STEP = re.compile(r"^\d+\.\d{3} +(\w+) +(.*?) {2,}(\S+\[\d+\]@\d+)? +(held|free) +(-|HELD|RELEASED)$")
TIMEOUT_S = 120.0


def steps(half: str) -> list[tuple[str, ...]]:
    """(who, what, record written, seat, record) of each step of a half."""
    return [found.groups(default="") for line in half.splitlines() if (found := STEP.match(line))]


@pytest.fixture(scope="module")
def told(cluster: Cluster) -> subprocess.CompletedProcess[bytes]:
    return run_verb("demo", "--bootstrap-servers", cluster.bootstrap_servers, timeout_s=TIMEOUT_S)


@pytest.fixture(scope="module")
def halves(told: subprocess.CompletedProcess[bytes]) -> list[str]:
    return re.split(r"^(?:1\. .*|2\. .*|What is left)$", told.stdout.decode(), flags=re.MULTILINE)


def test_it_proves_it_and_says_so(told: subprocess.CompletedProcess[bytes]) -> None:
    assert told.returncode == 0, told.stderr.decode()
    assert told.stdout.decode().splitlines()[-1].startswith("PROVEN: ")
    assert "  NO " not in told.stdout.decode()
    assert told.stderr == b""


def test_without_the_fence_the_late_success_writes_a_ghost(halves: list[str]) -> None:
    last = steps(halves[1])[-1]
    assert last == ("application", "writes HELD: a ghost write", "", "free", "HELD")


def test_with_it_the_late_success_is_rejected_and_the_record_stays_released(halves: list[str]) -> None:
    seven = steps(halves[2].split("call 7")[1])
    assert [(who, what) for who, what, *_ in seven if who in ("processor", "application")] == [
        ("processor", "OPEN: epoch 1 is live, CALL released"),
        ("processor", "FENCE: epoch 2 is live, COMPENSATE released"),
        ("processor", "COMMIT of epoch 2, by the compensation"),
        ("application", "writes RELEASED"),
        ("processor", "REJECT STALE_EPOCH, orphaned effect"),
        ("application", "writes nothing: a rejection commits nothing"),
    ]
    assert [step[4] for step in seven if step[4] == "HELD"] == []
    assert seven[-1][3:] == ("free", "RELEASED")


def test_the_call_in_time_is_held(halves: list[str]) -> None:
    six = steps(halves[2].split("call 7")[0])
    assert six[-1] == ("application", "writes HELD", "", "held", "HELD")


def test_every_send_stands_after_the_decision_that_released_it(halves: list[str]) -> None:
    seven = [what for _, what, *_ in steps(halves[2].split("call 7")[1])]
    order = ["CALL released", "tool", "COMPENSATE released", "frees seat 12", "COMMIT of", "late answer", "REJECT"]
    order[1] = "takes seat 12"
    places = [next(n for n, what in enumerate(seven) if word in what) for word in order]
    assert places == sorted(places)


def test_piped_it_has_no_escape_codes_and_fits_100_columns(told: subprocess.CompletedProcess[bytes]) -> None:
    text = told.stdout.decode()
    assert "\x1b" not in text
    assert [line for line in text.splitlines() if len(line) > 100] == []


def test_its_topics_and_its_group_are_gone(cluster: Cluster, told: subprocess.CompletedProcess[bytes]) -> None:
    prefix = re.search(r"^topics +(\S+)\*", told.stdout.decode(), re.MULTILINE)
    assert prefix is not None
    _until(lambda: not _left_of(cluster, prefix[1]))


def _left_of(cluster: Cluster, prefix: str) -> list[str]:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    groups = [group.group_id for group in admin.list_consumer_groups().result(timeout=10).valid]
    return [name for name in (*admin.list_topics(timeout=10).topics, *groups) if name.startswith(prefix)]


def _until(seen: Callable[[], bool], timeout_s: float = 30.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not seen():
        assert time.monotonic() < deadline
        time.sleep(0.05)


# ---- the proof, on the topics that a run left -------------------------------------------------------------------


@pytest.fixture
def kept(cluster: Cluster) -> tuple[dict[str, Any], Settings]:
    done = run_verb("demo", "--json", "--keep", "--bootstrap-servers", cluster.bootstrap_servers, timeout_s=TIMEOUT_S)
    assert done.returncode == 0, done.stderr.decode()
    report = json.loads(done.stdout)
    settings = load_settings(bootstrap_servers=cluster.bootstrap_servers, topic_prefix=report["proof"]["prefix"])
    return report, settings


def test_the_proof_goes_red_when_the_log_is_damaged(cluster: Cluster, kept: tuple[dict[str, Any], Settings]) -> None:
    report, settings = kept
    assert report["proven"] is True
    assert report["naive"] == {"seat": "free", "record": "HELD", "ghost_write": True}
    assert report["fenced"]["call_7"] == {"seat": "free", "record": "RELEASED"}
    archive = ClusterArchive(settings, cluster.bootstrap_servers)
    sound = prove(archive)
    assert sound.holds, sound.findings
    assert sound.counts["decisions"] == sound.counts["inputs"] == 6

    # 1. Somebody who is not the processor writes a decision: the log's own, once more.
    number = sound.heads[0].partition
    first = next(iter(archive.partition(number).read(archive.facts.decisions_topic, 0, 1)))
    producer = Producer(sender_config(settings, cluster.bootstrap_servers))
    producer.produce(archive.facts.decisions_topic, first.value, first.key, number)
    assert producer.flush(10) == 0
    forged = prove(archive)
    assert {FindingKind.SEQ_GAP, FindingKind.DOUBLE_DECISION} <= forged.findings_by_kind.keys()

    # 2. The oldest decision of the other call goes, as a retention that was set by mistake would take it.
    admin = AdminClient(admin_config(settings, cluster.bootstrap_servers))
    cut = TopicPartition(archive.facts.decisions_topic, sound.heads[1].partition, 1)
    admin.delete_records([cut])[cut].result(timeout=10)
    _until(lambda: FindingKind.UNDECIDED_INPUT in prove(archive).findings_by_kind)
    assert not prove(archive).holds


# ---- the end, however it comes ----------------------------------------------------------------------------------


@pytest.fixture
def running(cluster: Cluster) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A demo in the middle of its second half, and its prefix."""
    process = start_verb("demo", "--bootstrap-servers", cluster.bootstrap_servers)
    try:
        prefix = ""
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith(b"topics"):
                prefix = line.split()[1].rstrip(b"*,").decode()
            if b"CALL released" in line:
                break
        assert prefix
        yield process, prefix
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def _processes_of(prefix: str) -> list[int]:
    """Every process with the prefix among its arguments."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            arguments = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if prefix.encode() in arguments:
            found.append(int(entry.name))
    return found


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="finds processes in /proc")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_leaves_nothing_behind(
    cluster: Cluster, running: tuple[subprocess.Popen[bytes], str], number: signal.Signals, code: int
) -> None:
    process, prefix = running
    assert _processes_of(prefix)
    process.send_signal(number)
    process.send_signal(number)  # the impatient one must not leave more behind
    _, said = process.communicate(timeout=60)
    assert process.returncode == code
    assert said.decode().splitlines() == ["epochfence: interrupted; nothing of the demo is left running"]
    assert _processes_of(prefix) == []
    _until(lambda: not _left_of(cluster, prefix))


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="finds processes in /proc")
def test_a_processor_that_dies_is_one_line_and_leaves_nothing_behind(
    cluster: Cluster, running: tuple[subprocess.Popen[bytes], str]
) -> None:
    process, prefix = running
    (processor,) = _processes_of(prefix)
    os.kill(processor, signal.SIGKILL)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 1
    assert said.decode().startswith("epochfence: the processor left with exit code -9")
    assert len(said.decode().splitlines()) == 1
    # Its group is another matter: a static member that was killed is in it until its session is over.
    _until(lambda: set(_left_of(cluster, prefix)) <= {f"{prefix}processor"})
