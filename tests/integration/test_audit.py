"""`epochfence audit` on the log of a real processor: sound, doctored, and with inputs that were deleted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from epochfence.audit.findings import FindingKind
from epochfence.audit.history import ClusterArchive
from epochfence.audit.proof import prove
from epochfence.engine.history import Bounds, LogRecord
from epochfence.engine.kafka.client_config import admin_config
from epochfence.protocol.decisions import Decision
from epochfence.protocol.vocabulary import Reason
from epochfence.settings import load_settings
from epochfence.wire.codec import DecisionEncoder, OutputDecoder
from tests.cluster import Cluster, unique_prefix
from tests.independent.murmur2 import partition_of
from tests.processor_process import RunningProcessor
from tests.verbs import run_verb
from tests.written_log import make_topics, where, write

pytestmark = pytest.mark.integration

CALLS = 12
EVENTS = CALLS + CALLS // 2 + 3
HOME = partition_of(b"c0", 4)


class Log:
    """What a real processor left under a prefix, and how a test gets at it."""

    def __init__(self, cluster: Cluster, prefix: str) -> None:
        self.cluster, self.prefix = cluster, prefix
        self.settings = load_settings(bootstrap_servers=cluster.bootstrap_servers, topic_prefix=prefix)
        self.decisions = f"{prefix}decisions"

    def audit(self, *arguments: str) -> Any:
        verb, *rest = arguments
        return run_verb("audit", verb, *where(self.cluster, self.prefix), *rest)

    def archive(self) -> ClusterArchive:
        return ClusterArchive(self.settings, self.cluster.bootstrap_servers)


@pytest.fixture(scope="module")
def log(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Log:
    prefix = unique_prefix()
    make_topics(cluster, prefix)
    call = {"type": "tool_call", "tool": "reserve", "timeout_ms": 60_000, "arguments": "top-secret", "source": "p<1>"}
    events: list[dict[str, Any]] = [{**call, "call_id": f"c{n}"} for n in range(CALLS)]
    events += [{"type": "timeout", "call_id": f"c{n}", "epoch": 1} for n in range(0, CALLS, 2)]
    said = {"incarnation": 0, "execution_id": "x", "source": "gateway"}
    result = {"type": "result", "call_id": "c0", "epoch": 1, "outcome": "SUCCESS", "payload": "top-secret", **said}
    events += [{**result, "execution_id": f"x{n}"} for n in range(3)]
    with RunningProcessor(cluster, prefix, tmp_path_factory.mktemp("run")) as processor:
        processor.wait_ready()
        lines = "".join(json.dumps(event) + "\n" for event in events).encode()
        assert run_verb("send", *where(cluster, prefix), stdin=lines).returncode == 0
        follower = run_verb("decisions", *where(cluster, prefix), "--follow", "--limit", str(EVENTS))
        assert follower.returncode == 0
        assert processor.stop() == 0
    return Log(cluster, prefix)


class Copy:
    """A log in memory, copied from a real one, to be doctored."""

    def __init__(self, archive: ClusterArchive) -> None:
        self.prefix, self.facts, self.lookup = archive.prefix, archive.facts, archive.lookup
        self.records: dict[tuple[str, int], list[LogRecord]] = {}
        self._bounds: dict[tuple[str, int], Bounds] = {}
        facts = archive.facts
        for number in range(facts.partition_count):
            history = archive.partition(number)
            for topic in (*facts.input_topics, facts.decisions_topic, facts.table_topic):
                self._bounds[topic, number] = bounds = history.bounds(topic)
                self.records[topic, number] = list(history.read(topic, *bounds))

    def partition(self, number: int) -> CopiedPartition:
        return CopiedPartition(self, number)

    @property
    def decisions(self) -> list[LogRecord]:
        """Of the partition in which c0 lies."""
        return self.records[self.facts.decisions_topic, HOME]

    def decision(self, index: int) -> Decision:
        return OutputDecoder(self.lookup).decision(self.decisions[index].value)

    def forge(self, index: int, forged: Decision) -> None:
        encoder = DecisionEncoder()
        tail = encoder.tail(forged.decided_at_ms, forged.checkpoint)
        value = encoder.value(encoder.body(replace(forged, decided_at_ms=0, checkpoint=None)), tail)
        self.decisions[index] = self.decisions[index]._replace(value=value)


class CopiedPartition:
    def __init__(self, copy: Copy, number: int) -> None:
        self._copy, self._number = copy, number

    def bounds(self, topic: str) -> Bounds:
        return self._copy._bounds[topic, self._number]

    def read(self, topic: str, start: int, end: int) -> Iterator[LogRecord]:
        return (record for record in self._copy.records[topic, self._number] if start <= record.offset < end)


def test_a_good_log_is_verified(log: Log) -> None:
    said = log.audit("verify")
    assert (said.returncode, said.stderr) == (0, b"")
    lines = said.stdout.decode().splitlines()
    assert f"{EVENTS} decisions" in lines[0]
    assert f"folded again {EVENTS} decisions; compared {CALLS} records of the epoch table" in lines
    assert lines[-1] == "VERIFIED"
    assert "top-secret" not in said.stdout.decode()
    found = json.loads(log.audit("verify", "--json").stdout)
    assert (found["holds"], found["complete"], found["counts"]["inputs"]) == (True, True, EVENTS)
    one = json.loads(log.audit("verify", "--json", "--partition", str(HOME)).stdout)
    assert [head["partition"] for head in one["chain"]] == [HOME]
    assert one["chain"][0] in found["chain"]


def test_a_decision_that_is_removed_from_a_copy_is_missed(log: Log) -> None:
    copy = Copy(log.archive())
    assert prove(copy).holds
    removed = copy.decision(1)
    del copy.decisions[1]
    first = prove(copy).findings[0]
    assert (first.kind, first.seq, first.logged, first.computed) == (FindingKind.SEQ_GAP, 3, "3", "2")
    assert removed.seq == 2


def test_a_decision_that_is_forged_in_a_copy_is_named_with_its_field(log: Log) -> None:
    copy = Copy(log.archive())
    last = len(copy.decisions) - 1
    copy.forge(last, replace(copy.decision(last), reason=Reason.CONFLICT))
    proof = prove(copy)
    first = proof.findings[0]
    assert (first.kind, first.topic, first.partition) == (FindingKind.REFOLD, log.decisions, HOME)
    assert (first.offset, first.field, first.logged) == (copy.decisions[last].offset, "reason", "CONFLICT")
    assert set(proof.findings_by_kind) == {FindingKind.REFOLD, FindingKind.DECISIONS_CHAIN}


def test_what_cannot_be_audited_is_said_in_one_line(cluster: Cluster, log: Log) -> None:
    for options, code, words in (
        (("--prefix", unique_prefix()), 2, "topics are missing"),
        ((*where(cluster, log.prefix), "--partition", "4"), 2, "there is no partition 4"),
    ):
        refused = run_verb("audit", "verify", "--bootstrap-servers", cluster.bootstrap_servers, *options)
        assert (refused.returncode, refused.stdout) == (code, b"")
        (line,) = refused.stderr.decode().splitlines()
        assert words in line


def test_the_timeline_of_a_call(log: Log, tmp_path: Path) -> None:
    told = json.loads(log.audit("timeline", "c0", "--json").stdout)
    assert (told["call_id"], told["partition"]) == ("c0", HOME)
    assert [(m["decision"]["verdict"], m["decision"]["reason"]) for m in told["moments"]] == [
        ("OPEN", "NONE"),
        ("FENCE", "NONE"),
        *[("REJECT", "STALE_EPOCH")] * 3,
    ]
    assert [moment["event"]["event_id"] for moment in told["moments"]]
    assert told["moments"][0]["event"]["arguments"] == "top-secret"
    assert told["moments"][0]["source"] == "p<1>"
    said = log.audit("timeline", "c0")
    assert (said.returncode, said.stderr) == (0, b"")
    assert "calls itself p<1>, token none" in said.stdout.decode()
    assert "top-secret" not in said.stdout.decode()
    assert b"\x1b" not in said.stdout
    file = tmp_path / "c0.html"
    assert log.audit("timeline", "c0", "--html", str(file)).returncode == 0
    page = file.read_text("utf-8")
    assert "p&lt;1&gt;" in page
    assert page.count("rejected-moment") >= 3
    nobody = log.audit("timeline", "nobody")
    assert (nobody.returncode, nobody.stdout) == (1, b"")
    assert "nothing was ever decided about a call 'nobody'" in nobody.stderr.decode()


# ---- from here on the log itself is damaged: these are last -----------------------------------------------------


def test_inputs_that_were_deleted_are_said_and_a_forged_decision_is_found(log: Log) -> None:
    admin = AdminClient(admin_config(log.settings, log.cluster.bootstrap_servers))
    cut = TopicPartition(f"{log.prefix}tool-calls", HOME, 1)
    admin.delete_records([cut])[cut].result(timeout=10)
    part = log.audit("verify")
    assert part.returncode == 1
    assert "1 calls were not folded again; seq, call_seq and the chain over the decisions were checked" in (
        part.stdout.decode()
    )
    assert part.stdout.decode().splitlines()[-1] == "VERIFIED IN PART"

    first = next(log.archive().partition(HOME).read(log.decisions, 0, 1))
    write(log.cluster, log.decisions, HOME, [(first.key or b"", first.value)])
    forged = log.audit("verify")
    assert forged.returncode == 4
    (line,) = forged.stderr.decode().splitlines()
    assert f"SEQ_GAP {log.decisions}[{HOME}]@" in line
    assert not forged.stdout.decode().splitlines()[-1].startswith("VERIFIED")
