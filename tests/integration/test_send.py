"""`epochfence send` as a person uses it: a process, a pipe, a real broker."""

import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Message
from confluent_kafka.admin import AdminClient, NewTopic

from tests.cluster import Cluster
from tests.independent.codec import Codec
from tests.independent.murmur2 import partition_of
from tests.topic_reading import read_topic
from tests.verbs import run_verb, start_verb
from tests.written_log import make_topics, where

pytestmark = pytest.mark.integration

Send = Callable[..., "subprocess.CompletedProcess[bytes]"]
PARTITIONS = 4


def tool_call(call_id: str, **more: Any) -> dict[str, Any]:
    return {"type": "tool_call", "call_id": call_id, "tool": "reserve", "timeout_ms": 1000, **more}


def jsonl(*events: dict[str, Any] | bytes) -> bytes:
    lines = (event if isinstance(event, bytes) else json.dumps(event).encode() for event in events)
    return b"".join(line + b"\n" for line in lines)


@pytest.fixture
def topics(cluster: Cluster, prefix: str) -> str:
    """The prefix, with its topics made."""
    make_topics(cluster, prefix, PARTITIONS)
    return prefix


@pytest.fixture
def send(cluster: Cluster, topics: str) -> Send:
    return lambda stdin, *options: run_verb("send", *where(cluster, topics), *options, stdin=stdin)


def tool_calls(cluster: Cluster, prefix: str) -> list[Message]:
    """The records in that topic."""
    return read_topic(cluster.bootstrap_servers, f"{prefix}tool-calls")


def test_each_event_lands_in_its_topic_and_its_calls_partition(cluster: Cluster, topics: str, send: Send) -> None:
    call_ids = [f"call-{number}" for number in range(20)] + ["für Ämter", "語"]
    events: list[dict[str, Any]] = []
    for call_id in call_ids:
        answer = {"call_id": call_id, "epoch": 1, "incarnation": 0, "execution_id": "x"}
        events += [
            tool_call(call_id, arguments={"base64": "/wA="}, event_id="mine"),
            {"type": "timeout", "call_id": call_id, "epoch": None, "cause": "CANCELLED"},
            {"type": "result", **answer, "outcome": "SUCCESS", "payload": "held"},
            {"type": "compensation", **answer, "outcome": "OK"},
        ]
    before_ms = time.time_ns() // 1_000_000
    sent = send(jsonl(*events), "--json")
    assert (sent.returncode, sent.stderr) == (0, b"")
    acknowledged = sorted((json.loads(line) for line in sent.stdout.splitlines()), key=lambda a: a["line"])
    assert [a["line"] for a in acknowledged] == list(range(len(events)))

    codec = Codec()
    records = {
        (name, record.partition(), record.offset()): record
        for name in {at["topic"] for at in acknowledged}
        for record in read_topic(cluster.bootstrap_servers, name)
    }
    assert len(records) == len(events)
    for number, (event, at) in enumerate(zip(events, acknowledged, strict=True)):
        assert at["topic"] == topics + event["type"].replace("_", "-") + "s"
        key = event["call_id"].encode()
        assert at["partition"] == partition_of(key, PARTITIONS)
        record = records[at["topic"], at["partition"], at["offset"]]
        assert record.key() == key
        value = codec.decode(event["type"], record.value())
        assert value["event_id"] == event.get("event_id", str(number))
        assert before_ms <= value["occurred_at_ms"] <= time.time_ns() // 1_000_000
        if event["type"] == "tool_call":
            assert (value["arguments"], value["policy"], value["max_epochs"]) == (b"\xff\0", "COMPENSATE", 8)
        if event["type"] == "timeout":
            assert (value["epoch"], value["incarnation"], value["cause"]) == (None, None, "CANCELLED")


def test_the_events_of_a_call_stay_in_order(cluster: Cluster, topics: str, send: Send) -> None:
    assert send(jsonl(*(tool_call("7", event_id=f"{n}") for n in range(2_000)))).returncode == 0
    codec = Codec()
    sent = [codec.decode("tool_call", record.value())["event_id"] for record in tool_calls(cluster, topics)]
    assert sent == [f"{n}" for n in range(2_000)]


def test_the_events_of_a_call_reach_the_log_in_the_order_of_their_lines(
    cluster: Cluster, topics: str, send: Send
) -> None:
    """Each in another topic, and none is sent before the one ahead of it is in the log: a Timeout that overtook its
    own ToolCall would cancel it."""
    kinds = ["tool_call", "timeout", "tool_call", "compensation", "compensation", "result", "timeout"]
    rest = {"epoch": 1, "incarnation": 0, "outcome": "UNKNOWN"}
    events: list[dict[str, Any]] = []
    for number, kind in enumerate(kinds):
        for call in range(200):
            own = {"tool_call": tool_call(""), "timeout": {"epoch": 1}}.get(kind, rest)
            events.append({**own, "type": kind, "call_id": f"c{call}", "event_id": str(number)})
    assert send(jsonl(*events)).returncode == 0
    codec, at_ms = Codec(), {}
    for kind in set(kinds):
        for record in read_topic(cluster.bootstrap_servers, f"{topics}{kind.replace('_', '-')}s"):
            event_id = int(codec.decode(kind, record.value())["event_id"])
            at_ms[record.key(), event_id] = record.timestamp()[1]
    for call in range(200):
        times = [at_ms[f"c{call}".encode(), number] for number in range(len(kinds))]
        assert times == sorted(times)


def test_people_are_told_how_many_were_acknowledged(send: Send) -> None:
    sent = send(jsonl(tool_call("1"), tool_call("2"), {"type": "timeout", "call_id": "1", "epoch": 1}))
    assert sent.stdout.decode() == "acknowledged 3 events: 1 timeouts, 2 tool-calls\n"
    assert send(b"").stdout.decode() == "acknowledged 0 events\n"


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"type": "result", "call_id": "1", "epoch": 1, "outcome": "FAILURE"}, "incarnation is missing"),
        ({**tool_call("1"), "timestamp_ms": 5}, "no field timestamp_ms"),
        ({**tool_call("1"), "\x1b[31mred": 5}, r"no field \x1b[31mred"),
        (b"", "not a JSON object"),
        (b"\xff", "not a JSON object"),
        ({"type": "decision"}, "type is none of"),
        (tool_call("1", arguments="a" * 1_200_000), "more than"),
    ],
)
def test_a_wrong_line_ends_it_and_nothing_after_it_is_sent(
    cluster: Cluster, topics: str, send: Send, wrong: dict[str, Any] | bytes, why: str
) -> None:
    sent = send(jsonl(tool_call("1"), tool_call("2"), wrong, tool_call("3"), tool_call("4")))
    assert sent.returncode == 2
    (said,) = sent.stderr.decode().splitlines()
    assert said.startswith("epochfence: line 2 (counted from 0): ")
    assert why in said
    assert "2 before it were acknowledged" in said
    assert sent.stdout.decode() == "acknowledged 2 events: 2 tool-calls\n"
    assert len(tool_calls(cluster, topics)) == 2


def test_an_event_that_its_topic_refuses_is_named_and_no_other_is_blamed(cluster: Cluster, prefix: str) -> None:
    """The topic takes less than topics/*.yaml says: only the broker can tell, and it refuses whole batches."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    limit = {"max.message.bytes": "4000"}
    names = ("tool-calls", "timeouts", "results", "compensations")
    made = admin.create_topics(
        [NewTopic(prefix + n, num_partitions=1, replication_factor=1, config=limit) for n in names]
    )
    for future in made.values():
        future.result(timeout=10)
    incompressible = os.urandom(4_500).hex()
    events = [tool_call(str(n), arguments=os.urandom(500).hex()) for n in range(20)]
    events.insert(7, tool_call("too-large", arguments=incompressible))
    events.insert(8, {"type": "timeout", "call_id": "too-large", "epoch": 1})
    sent = run_verb("send", *where(cluster, prefix), stdin=jsonl(*events))
    assert sent.returncode == 2
    (said,) = sent.stderr.decode().splitlines()
    assert "line 7 (counted from 0): the event has 9," in said
    assert f"more than {prefix}tool-calls takes (4,000 with its framing)" in said
    there = [record.key() for record in tool_calls(cluster, prefix)]
    assert sent.stdout.decode() == f"acknowledged {len(there)} events: {len(there)} tool-calls\n"
    assert {str(n).encode() for n in range(7)} <= set(there)
    # The call's next event waited for it, and would make no sense without it.
    assert read_topic(cluster.bootstrap_servers, f"{prefix}timeouts") == []


def test_what_is_typed_is_acknowledged_while_the_person_goes_on_typing(cluster: Cluster, topics: str) -> None:
    process = start_verb("send", *where(cluster, topics), "--json")
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        for number in range(3):
            process.stdin.write(jsonl(tool_call(f"typed-{number}")))
            process.stdin.flush()
            assert select.select([process.stdout], [], [], 30)[0], "not acknowledged while the input is open"
            assert json.loads(process.stdout.readline())["line"] == number
        _, err = process.communicate(timeout=30)
    finally:
        process.kill()
    assert (process.returncode, err) == (0, b"")


def test_ctrl_c_waits_for_what_is_on_its_way_and_says_what_was_done(cluster: Cluster, topics: str) -> None:
    process = start_verb("send", *where(cluster, topics))
    assert process.stdin is not None
    try:
        process.stdin.write(jsonl(tool_call("1"), tool_call("2")))
        process.stdin.flush()
        until(lambda: len(tool_calls(cluster, topics)) == 2)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    finally:
        process.kill()
    assert (process.returncode, out.decode(), err) == (130, "acknowledged 2 events: 2 tool-calls\n", b"")


def test_missing_topics_are_the_persons_mistake_and_the_remedy_is_named(cluster: Cluster, prefix: str) -> None:
    sent = run_verb("send", *where(cluster, prefix), stdin=jsonl(tool_call("1")))
    assert sent.returncode == 2
    (said,) = sent.stderr.decode().splitlines()
    assert f"{prefix}tool-calls" in said
    assert "`epochfence topics apply`" in said


def test_a_long_input_is_sent_whole_in_bounded_memory(cluster: Cluster, topics: str, send: Send) -> None:
    count = 1_400
    sent = send(jsonl(*(tool_call(f"c{number}", arguments="x" * 60_000) for number in range(count))))
    assert sent.stdout.decode() == f"acknowledged {count:,} events: {count:,} tool-calls\n"
    # 84 MB of arguments against a queue of 64 MiB: `send` had to wait for room.
    assert len(tool_calls(cluster, topics)) == count


def until(seen: Callable[[], bool], timeout_s: float = 30.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not seen():
        assert time.monotonic() < deadline
        time.sleep(0.05)
