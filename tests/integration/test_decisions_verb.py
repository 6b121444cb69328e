"""`epochfence decisions`: what a real processor has committed, and nothing else, as a person and a script see it."""

import json
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

from tests.cluster import Cluster, unique_prefix
from tests.independent.murmur2 import partition_of
from tests.processor_process import RunningProcessor
from tests.topic_reading import read_topic
from tests.verbs import run_verb, start_verb
from tests.written_log import decision_value, make_topics, open_transaction, opened, where, write

pytestmark = pytest.mark.integration

HOSTILE = "\x1b[2J[red]\u202e\x9bevil\n"
SECRET = "top-secret-arguments"
EVENTS: list[dict[str, Any]] = [
    {"type": "tool_call", "call_id": "7", "tool": "reserve", "timeout_ms": 1000, "arguments": SECRET},
    {"type": "timeout", "call_id": "7", "epoch": 1},
    {"type": "timeout", "call_id": "7", "epoch": 1},
    {"type": "tool_call", "call_id": HOSTILE, "tool": "[bold]x", "timeout_ms": 1000},
    {"type": "timeout", "call_id": "never-opened", "epoch": 3},
    *({"type": "tool_call", "call_id": f"c{n}", "tool": "reserve", "timeout_ms": 1000} for n in range(20)),
]


def send(cluster: Cluster, prefix: str, events: list[dict[str, Any]]) -> None:
    sent = run_verb("send", *where(cluster, prefix), stdin="".join(json.dumps(e) + "\n" for e in events).encode())
    assert sent.returncode == 0, sent.stderr


def until(seen: Callable[[], bool], timeout_s: float = 60.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not seen():
        assert time.monotonic() < deadline
        time.sleep(0.05)


class Listening:
    """A verb that goes on: what it says, line by line."""

    def __init__(self, *arguments: str) -> None:
        self.process = start_verb(*arguments)
        self.said: queue.Queue[str] = queue.Queue()
        self.complained: queue.Queue[str] = queue.Queue()
        for stream, lines in ((self.process.stdout, self.said), (self.process.stderr, self.complained)):
            threading.Thread(target=lambda s, q: [q.put(line.decode()) for line in s], args=(stream, lines)).start()

    def next(self) -> str:
        return self.said.get(timeout=60)

    def end(self, number: signal.Signals | None = None) -> int:
        if number is not None:
            self.process.send_signal(number)
        return self.process.wait(60)

    def __enter__(self) -> "Listening":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture(scope="module")
def decided(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The prefix of topics whose every event a real processor has decided; it has left."""
    prefix = unique_prefix()
    make_topics(cluster, prefix)
    with RunningProcessor(cluster, prefix, tmp_path_factory.mktemp("run")) as processor:
        processor.wait_ready()
        send(cluster, prefix, EVENTS)
        until(lambda: len(read_topic(cluster.bootstrap_servers, f"{prefix}decisions")) == len(EVENTS))
        assert processor.stop() == 0
    return prefix


@pytest.fixture
def list_decisions(cluster: Cluster, decided: str) -> Callable[..., "subprocess.CompletedProcess[bytes]"]:
    return lambda *options: run_verb("decisions", *where(cluster, decided), *options)


def parsed(listed: "subprocess.CompletedProcess[bytes]") -> list[dict[str, Any]]:
    assert (listed.returncode, listed.stderr) == (0, b"")
    return [json.loads(line) for line in listed.stdout.decode().splitlines()]


def test_json_holds_each_decision_once_whole_and_in_order(list_decisions: Any) -> None:
    decisions = parsed(list_decisions("--json"))
    assert len(decisions) == len(EVENTS)
    for partition in range(4):
        seqs = [d["seq"] for d in decisions if d["input"]["partition"] == partition]
        assert seqs == list(range(1, len(seqs) + 1))
    (first, *_) = [d for d in decisions if d["call_id"] == "7"]
    assert first["type"] == "decision"
    assert first["dispatch"]["arguments"] == SECRET
    assert any(d["checkpoint"] is not None for d in decisions)


def test_people_read_one_line_a_decision_that_fits_and_obeys_nobody(list_decisions: Any) -> None:
    listed = list_decisions()
    assert (listed.returncode, listed.stderr) == (0, b"")
    header, *lines = listed.stdout.decode().splitlines()
    assert header.split()[:3] == ["P", "SEQ", "CALL"]
    assert len(lines) == len(EVENTS)
    assert all(line.isprintable() and cell_len(line) <= 100 for line in lines)
    assert b"\x1b" not in listed.stdout
    assert SECRET not in listed.stdout.decode()
    assert any("FENCE" in line and f"COMPENSATE#1 {len(SECRET)} B" in line for line in lines)


def test_one_call_is_read_from_its_partition_only(cluster: Cluster, decided: str, list_decisions: Any) -> None:
    decisions = parsed(list_decisions("--call", "7", "--json"))
    assert [(d["verdict"], d["reason"]) for d in decisions] == [
        ("OPEN", "NONE"),
        ("FENCE", "NONE"),
        ("REJECT", "STALE_EPOCH"),
    ]
    assert {d["input"]["partition"] for d in decisions} == {partition_of(b"7", 4)}
    assert [d["call_id"] for d in parsed(list_decisions("--call", HOSTILE, "--json"))] == [HOSTILE]
    nobody = list_decisions("--call", "nobody")
    assert (nobody.returncode, nobody.stdout) == (0, b"")
    assert nobody.stderr.decode() == "epochfence: nothing is decided about that call\n"


def test_a_partition_and_a_limit(list_decisions: Any) -> None:
    home = partition_of(b"7", 4)
    of_partition = parsed(list_decisions("--partition", str(home), "--json"))
    assert {d["input"]["partition"] for d in of_partition} == {home}
    assert parsed(list_decisions("--partition", str(home), "--limit", "2", "--json")) == of_partition[:2]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--partition", "4"], "has no partition 4: they are 0 to 3"),
        (["--call", "7", "--partition", str((partition_of(b"7", 4) + 1) % 4)], "lies in partition"),
        (["--from-now"], "needs --follow"),
    ],
)
def test_what_cannot_be_asked_is_said_in_one_line(list_decisions: Any, options: list[str], said: str) -> None:
    refused = list_decisions(*options)
    assert (refused.returncode, refused.stdout) == (2, b"")
    (line,) = refused.stderr.decode().splitlines()
    assert said in line


def test_missing_topics(cluster: Cluster, prefix: str) -> None:
    missing = run_verb("decisions", *where(cluster, prefix))
    assert (missing.returncode, missing.stdout) == (2, b"")
    assert "`epochfence topics apply`" in missing.stderr.decode()


def test_who_follows_sees_each_decision_when_it_is_committed(cluster: Cluster, prefix: str, tmp_path: Path) -> None:
    make_topics(cluster, prefix)
    first = {"type": "tool_call", "call_id": "1", "tool": "reserve", "timeout_ms": 1000}
    with (
        RunningProcessor(cluster, prefix, tmp_path) as processor,
        Listening("decisions", *where(cluster, prefix), "--follow", "--json") as follower,
    ):
        processor.wait_ready()
        for event in (first, {"type": "timeout", "call_id": "1", "epoch": 1}, {**first, "call_id": "2"}):
            send(cluster, prefix, [event])
            decision = json.loads(follower.next())
            assert decision["call_id"] == event["call_id"]
        processor.stop()
        assert follower.end(signal.SIGTERM) == 0
        assert follower.complained.empty()


def test_ctrl_c_ends_a_follower_without_a_word(cluster: Cluster, decided: str) -> None:
    with Listening("decisions", *where(cluster, decided), "--follow") as follower:
        for _ in range(1 + len(EVENTS)):
            follower.next()
        assert follower.end(signal.SIGINT) == 0
        assert follower.complained.empty()


def test_what_is_not_committed_is_waited_for_and_what_is_aborted_is_never_shown(cluster: Cluster, prefix: str) -> None:
    make_topics(cluster, prefix)
    topic, home = f"{prefix}decisions", partition_of(b"ghost", 4)
    write(cluster, topic, home, [(b"7", decision_value(opened("7")))])
    ghost = [(b"ghost", decision_value(opened("ghost", 2)))]
    with (
        open_transaction(cluster, topic, home, ghost) as producer,
        Listening("decisions", *where(cluster, prefix), "--json") as listing,
    ):
        assert f"waiting in {topic}, partition {home}: somebody's transaction is open" in listing.complained.get(
            timeout=60
        )
        assert listing.process.poll() is None
        producer.abort_transaction(30)
        assert listing.end() == 0
        assert json.loads(listing.next())["call_id"] == "7"
        assert listing.said.empty()
    with open_transaction(cluster, topic, home, ghost) as producer:
        producer.commit_transaction(30)
    listed = parsed(run_verb("decisions", *where(cluster, prefix), "--json"))
    assert [d["call_id"] for d in listed] == ["7", "ghost"]


def test_from_now_leaves_out_what_was_there(cluster: Cluster, prefix: str) -> None:
    make_topics(cluster, prefix, partitions=1)
    topic = f"{prefix}decisions"
    write(cluster, topic, 0, [(b"old", decision_value(opened("old")))])
    with (
        open_transaction(cluster, topic, 0, [(b"under-way", decision_value(opened("under-way", 2)))]) as producer,
        Listening("decisions", *where(cluster, prefix), "--follow", "--from-now", "--json") as follower,
    ):
        # It says nothing when it has begun; what is committed while it asks is new as well as what comes after.
        seen: list[str] = []
        producer.commit_transaction(30)
        numbers = iter(range(3, 10_000))

        def one_more() -> bool:
            write(cluster, topic, 0, [(b"new", decision_value(opened("new", next(numbers))))])
            return not follower.said.empty()

        until(one_more)
        seen.append(json.loads(follower.next())["call_id"])
        assert seen[0] in ("under-way", "new")
        assert follower.end(signal.SIGTERM) == 0


def test_a_partition_that_is_far_ahead_waits_in_bounded_memory_and_loses_nothing(cluster: Cluster, prefix: str) -> None:
    """Partition 1 is held up by a transaction, so nothing of partition 0 can be shown, and it must not pile up."""
    make_topics(cluster, prefix, partitions=2)
    topic, count = f"{prefix}decisions", 12_000
    with open_transaction(cluster, topic, 1, [(b"late", decision_value(opened("late")))]) as producer:
        encoded = ((b"7", decision_value(opened("7", seq))) for seq in range(1, count + 1))
        write(cluster, topic, 0, encoded)
        with Listening("decisions", *where(cluster, prefix), "--json") as listing:
            assert "waiting in" in listing.complained.get(timeout=60)
            producer.commit_transaction(30)
            decisions = [json.loads(listing.next()) for _ in range(count + 1)]
            assert listing.end() == 0
    assert decisions[0]["call_id"] == "late"  # it was written first
    assert [d["seq"] for d in decisions[1:]] == list(range(1, count + 1))


def test_damage_in_the_topic_is_named_by_its_place(cluster: Cluster, prefix: str) -> None:
    make_topics(cluster, prefix)
    write(cluster, f"{prefix}decisions", 2, [(b"7", decision_value(opened("7"))), (b"7", b"no decision")])
    damaged = run_verb("decisions", *where(cluster, prefix), "--json")
    assert damaged.returncode == 4
    assert len(damaged.stdout.splitlines()) == 1
    (line,) = damaged.stderr.decode().splitlines()
    assert f"{prefix}decisions[2]@1 is no decision" in line
