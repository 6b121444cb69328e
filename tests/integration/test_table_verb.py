"""`epochfence table`: the newest committed record of each call, as a person and a script see it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

from epochfence.protocol.vocabulary import CommittedBy, Outcome, Status
from epochfence.wire.codec import CHECKPOINT_KEY
from tests.cluster import Cluster
from tests.independent.codec import Codec
from tests.independent.murmur2 import partition_of
from tests.processor_process import RunningProcessor
from tests.topic_reading import read_topic
from tests.verbs import run_verb
from tests.written_log import make_topics, open_record, open_transaction, record_value, where, write

pytestmark = pytest.mark.integration

HOSTILE = "\x1b[2J[red]\u202eevil"
UNSETTLED = {
    "status": Status.COMMITTED,
    "unsettled": True,
    "committed_epoch": 1,
    "committed_by": CommittedBy.RESULT,
    "committed_outcome": Outcome.SUCCESS,
}


def home(call_id: str) -> int:
    return partition_of(call_id.encode(), 4)


def put(cluster: Cluster, prefix: str, call_id: str, **changes: object) -> None:
    value = record_value(open_record(call_id, **changes))
    write(cluster, f"{prefix}epoch-table", home(call_id), [(call_id.encode(), value)])


@pytest.fixture
def table(cluster: Cluster, prefix: str) -> Callable[..., Any]:
    make_topics(cluster, prefix)
    return lambda *options: run_verb("table", *where(cluster, prefix), *options)


def parsed(listed: Any) -> list[dict[str, Any]]:
    assert listed.returncode == 0, listed.stderr
    return [json.loads(line) for line in listed.stdout.decode().splitlines()]


def test_the_table_of_a_real_processor(cluster: Cluster, prefix: str, tmp_path: Path, table: Any) -> None:
    call = {"type": "tool_call", "tool": "reserve", "timeout_ms": 1000, "arguments": "top-secret"}
    events = [{**call, "call_id": f"c{n}"} for n in range(12)]
    events += [{"type": "timeout", "call_id": f"c{n}", "epoch": 1} for n in range(0, 12, 3)]
    events += [{"type": "timeout", "call_id": "early", "epoch": 1}]
    with RunningProcessor(cluster, prefix, tmp_path) as processor:
        processor.wait_ready()
        lines = "".join(json.dumps(event) + "\n" for event in events).encode()
        assert run_verb("send", *where(cluster, prefix), stdin=lines).returncode == 0
        follower = run_verb("decisions", *where(cluster, prefix), "--follow", "--limit", str(len(events)))
        assert follower.returncode == 0
        assert processor.stop() == 0

    codec = Codec()
    newest = {m.key(): m for m in read_topic(cluster.bootstrap_servers, f"{prefix}epoch-table")}
    expected = {
        key.decode(): codec.decode("call_record", message.value())
        for key, message in newest.items()
        if key != CHECKPOINT_KEY
    }
    calls = {call["call_id"]: call for call in parsed(table("--json"))}
    assert calls.keys() == expected.keys() == {*(f"c{n}" for n in range(12)), "early"}
    for call_id, shown in calls.items():
        assert (shown["type"], shown["partition"]) == ("call_record", home(call_id))
        for name in ("seq", "call_seq", "incarnation", "live_epoch", "status", "opened_at_ms", "timeout_ms"):
            assert shown[name] == expected[call_id][name]

    listed = table()
    assert (listed.returncode, listed.stderr) == (0, b"")
    _header, *rows, counted, stands_at = listed.stdout.decode().splitlines()
    assert len(rows) == 13
    assert counted == "13 calls: 8 INFLIGHT, 4 COMPENSATING, 1 CANCELLED; 0 unsettled"
    seqs = [max((c["seq"] for c in calls.values() if c["partition"] == p), default=None) for p in range(4)]
    assert all(f"{number}: {seq}" in stands_at for number, seq in enumerate(seqs) if seq is not None)
    assert "top-secret" not in listed.stdout.decode()

    one = table("c0")
    assert one.returncode == 0
    fields = dict(line.split(None, 1) for line in one.stdout.decode().splitlines())
    assert fields["status"] == "COMPENSATING"
    assert fields["arguments"] == "10 B"
    assert fields["partition"] == str(home("c0"))
    assert set(fields) == {"partition", *expected["c0"]}
    (record,) = parsed(table("c0", "--json"))
    assert record == calls["c0"]


def test_an_unknown_call_is_a_failed_look_up(table: Any) -> None:
    unknown = table("nobody\x1b")
    assert (unknown.returncode, unknown.stdout) == (1, b"")
    (line,) = unknown.stderr.decode().splitlines()
    assert r"there is no call 'nobody\x1b' in" in line


def test_the_newest_record_counts_and_a_tombstone_removes(cluster: Cluster, prefix: str, table: Any) -> None:
    put(cluster, prefix, "a")
    put(cluster, prefix, "b")
    put(cluster, prefix, "c")
    put(cluster, prefix, "a", status=Status.COMMITTED, live_epoch=2)
    write(cluster, f"{prefix}epoch-table", home("b"), [(b"b", None)])
    assert {c["call_id"]: c["status"] for c in parsed(table("--json"))} == {"a": "COMMITTED", "c": "INFLIGHT"}
    assert table("b").returncode == 1
    # What once fitted a filter and does not any more is not listed.
    assert [c["call_id"] for c in parsed(table("--json", "--status", "INFLIGHT"))] == ["c"]
    assert [c["call_id"] for c in parsed(table("--json", "--status", "committed"))] == ["a"]


def test_alarms_are_found_and_stand_out(cluster: Cluster, prefix: str, table: Any) -> None:
    put(cluster, prefix, "fine")
    put(cluster, prefix, HOSTILE, **UNSETTLED)
    put(cluster, prefix, "stuck", status=Status.ESCALATED)
    listed = table("--unsettled")
    header, row, counted, _ = listed.stdout.decode().splitlines()
    assert r"\x1b[2J[red]\u202eevil" in row
    assert "1 RESULT SUCCESS" in row
    assert "UNSETTLED" in row
    assert counted == "3 calls: 1 INFLIGHT, 1 COMMITTED, 1 ESCALATED; 1 unsettled"
    assert b"\x1b" not in listed.stdout
    assert all(cell_len(line) <= 100 for line in (header, row))
    (stuck,) = table("--status", "ESCALATED").stdout.decode().splitlines()[1:-2]
    assert stuck.split()[2:6] == ["stuck", "1", "ESCALATED", "-"]


def test_a_table_without_its_checkpoint_is_not_passed_off_as_whole(cluster: Cluster, prefix: str, table: Any) -> None:
    put(cluster, prefix, "7")
    listed = table()
    assert listed.returncode == 0
    assert f"the table of partition {home('7')} has no checkpoint" in listed.stderr.decode()
    assert f"{home('7')}: being rebuilt" in listed.stdout.decode()


def test_an_aborted_record_is_not_in_the_table(cluster: Cluster, prefix: str, table: Any) -> None:
    put(cluster, prefix, "7")
    ghost = record_value(open_record("7", status=Status.COMMITTED))
    with open_transaction(cluster, f"{prefix}epoch-table", home("7"), [(b"7", ghost)]) as producer:
        producer.abort_transaction(30)
    assert [c["status"] for c in parsed(table("--json"))] == ["INFLIGHT"]


def test_what_cannot_be_asked_is_said_in_one_line(table: Any) -> None:
    for options, said in ((["--status", "DONE"], "INFLIGHT, COMPENSATING"), (["7", "--unsettled"], "one call")):
        refused = table(*options)
        assert (refused.returncode, refused.stdout) == (2, b"")
        (line,) = refused.stderr.decode().splitlines()
        assert said in line


def test_missing_topics_and_damage(cluster: Cluster, prefix: str) -> None:
    missing = run_verb("table", *where(cluster, prefix))
    assert (missing.returncode, missing.stdout) == (2, b"")
    assert "`epochfence topics apply`" in missing.stderr.decode()
    make_topics(cluster, prefix)
    write(cluster, f"{prefix}epoch-table", 1, [(b"7", b"no record")])
    damaged = run_verb("table", *where(cluster, prefix))
    assert damaged.returncode == 4
    assert f"{prefix}epoch-table[1]: what is under the key b'7' cannot be read" in damaged.stderr.decode()
