"""The local broker, as a person at a terminal meets it."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from epochfence.broker import LocalBroker, find_cluster, provide_cluster
from epochfence.errors import ClusterError
from epochfence.settings import load_settings
from tests.cluster import cannot

pytestmark = pytest.mark.integration


@dataclass(frozen=True)
class Stopped:
    """A broker that ran for a while, took the record `kept`, and was stopped: where it lives and where it answered."""

    directory: Path
    said: dict[str, Any]


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Stopped:
    """Once for all brokers of this module: to resolve jars and to format storage takes most of a start."""
    directory = tmp_path_factory.mktemp("stopped")
    missing = LocalBroker(directory).missing()
    if missing:
        cannot(missing)
    started = epochfence("broker", "start", "--json", f"--directory={directory}")
    assert started.returncode == 0, started.stderr
    said = json.loads(started.stdout)
    commit_one_record(said["bootstrap_servers"], "kept")
    assert epochfence("broker", "stop", f"--directory={directory}").stdout == "stopped\n"
    return Stopped(directory, said)


@pytest.fixture
def directory(tmp_path: Path, stopped: Stopped) -> Iterator[Path]:
    """A new broker's directory with its jars; whatever runs there at the end of the test is stopped."""
    directory = tmp_path / "a broker"  # a blank, as people have in their paths
    directory.mkdir()
    (directory / "jars").symlink_to(stopped.directory / "jars")
    yield directory
    LocalBroker(directory).stop()


@pytest.fixture
def ran_before(directory: Path, stopped: Stopped) -> Path:
    """The same, of a broker that ran before."""
    shutil.copytree(stopped.directory / "data", directory / "data")
    shutil.copy(stopped.directory / "broker.json", directory)
    return directory


def epochfence(*arguments: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    """The command line in a process of its own, as a person runs it."""
    return subprocess.run(
        [sys.executable, "-m", "epochfence", *arguments],
        env={**os.environ, **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def until(condition: Callable[[], bool], timeout_s: float = 30) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.05)


def commit_one_record(bootstrap_servers: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    admin.create_topics([NewTopic(topic, 1)])[topic].result(10)
    producer = Producer({"bootstrap.servers": bootstrap_servers, "transactional.id": topic})
    producer.init_transactions(10)
    producer.begin_transaction()
    producer.produce(topic, b"kept")
    producer.commit_transaction(10)


def read_one_record(bootstrap_servers: str, topic: str, group: str = "after") -> bytes:
    config = {
        "bootstrap.servers": bootstrap_servers,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",
    }
    consumer = Consumer(config)
    try:
        consumer.subscribe([topic])
        message = consumer.poll(30)
        assert message is not None
        assert message.error() is None
        return message.value() or b""
    finally:
        consumer.close()


def test_what_is_committed_outlives_the_starting_command_a_restart_and_kill_9(
    ran_before: Path, stopped: Stopped
) -> None:
    second = json.loads(epochfence("broker", "start", "--json", f"--directory={ran_before}").stdout)
    bootstrap_servers = second["bootstrap_servers"]
    assert bootstrap_servers == stopped.said["bootstrap_servers"]
    assert second["pid"] != stopped.said["pid"]
    assert read_one_record(bootstrap_servers, "kept") == b"kept"

    commit_one_record(bootstrap_servers, "kept-too")
    # Until a reader sees it. Killed between the answer to a commit and its marker, Kafka 4.4.0 can lose the marker:
    # when it is due, the partition has no leader for a moment and is taken for a deleted one.
    assert read_one_record(bootstrap_servers, "kept-too", group="before") == b"kept"
    broker = LocalBroker(ran_before)
    os.kill(second["pid"], signal.SIGKILL)
    until(lambda: broker.status() is None)
    assert read_one_record(broker.start().bootstrap_servers, "kept-too", group="at last") == b"kept"


def test_of_starts_at_one_time_all_get_the_same_broker(directory: Path) -> None:
    with ThreadPoolExecutor() as threads:
        starts = [threads.submit(epochfence, "broker", "start", "--json", f"--directory={directory}") for _ in range(3)]
    said = [json.loads(start.result().stdout) for start in starts]
    assert said[0] == said[1] == said[2]
    assert LocalBroker(directory).start() == LocalBroker(directory).status()
    assert LocalBroker(directory).start().pid == said[0]["pid"]


def test_stop_leaves_alone_whoever_got_the_pid(ran_before: Path) -> None:
    directory = ran_before
    broker = LocalBroker(directory)
    running = broker.start()
    state = json.loads((directory / "broker.json").read_text())
    # 1. The broker was killed and its state file still names its pid. 2. The pid went to a stranger. 3. `stop`.
    with subprocess.Popen(["sleep", "60"]) as stranger:
        try:
            (directory / "broker.json").write_text(json.dumps(state | {"pid": stranger.pid}))
            assert broker.status() is None
            assert not broker.stop()
            assert stranger.poll() is None
        finally:
            stranger.kill()
    # Another broker's process is a stranger too.
    (directory / "broker.json").write_text(json.dumps(state | {"token": "-Depochfence.broker.token=another"}))
    assert not broker.stop()
    (directory / "broker.json").write_text(json.dumps(state))
    assert broker.status() == running
    assert broker.stop()


def test_a_port_that_was_taken_meanwhile_is_replaced(ran_before: Path, stopped: Stopped) -> None:
    broker = LocalBroker(ran_before)
    host, port = stopped.said["bootstrap_servers"].split(":")
    with subprocess.Popen([sys.executable, "-m", "http.server", "--bind", host, port], stderr=subprocess.PIPE) as taker:
        try:
            until(lambda: _listens(host, int(port)))
            running = broker.start()
        finally:
            taker.kill()
    assert running.bootstrap_servers != f"{host}:{port}"


def _listens(host: str, port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((host, port)) == 0


def test_status_and_stop_of_a_broker_that_does_not_run(tmp_path: Path) -> None:
    status = epochfence("broker", "status", f"--directory={tmp_path}")
    assert status.returncode == 3
    assert status.stderr == f"epochfence: no broker runs in {tmp_path}: `epochfence broker start` starts it\n"
    assert json.loads(epochfence("broker", "status", "--json", f"--directory={tmp_path}").stdout)["running"] is False
    stop = epochfence("broker", "stop", f"--directory={tmp_path}")
    assert (stop.returncode, stop.stdout) == (0, "it did not run\n")


def test_a_broker_that_cannot_come_up_says_why(ran_before: Path) -> None:
    broker = LocalBroker(ran_before)
    (ran_before / "data" / "meta.properties").write_text("version=1\nnode.id=7\ncluster.id=another\n")
    failed = epochfence("broker", "start", f"--directory={ran_before}")
    assert failed.returncode == 3
    assert "Traceback" not in failed.stderr
    assert "Stored node id 7" in failed.stderr
    assert str(broker.log_file) in failed.stderr
    assert broker.status() is None


def test_the_local_broker_is_found_where_no_cluster_is_named(ran_before: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EPOCHFENCE_BOOTSTRAP_SERVERS", raising=False)
    monkeypatch.setenv("EPOCHFENCE_BROKER_DIR", str(ran_before))
    with pytest.raises(ClusterError, match="epochfence broker start"):
        find_cluster(load_settings())
    said: list[str] = []
    with provide_cluster(load_settings(), said.append) as started:
        assert "started for this run" in started.how
        assert said == ["starting Apache Kafka"]
        assert find_cluster(load_settings()) == started.bootstrap_servers
        assert find_cluster(load_settings(bootstrap_servers="kafka:9092")) == "kafka:9092"
        with provide_cluster(load_settings(), said.append) as found:
            assert found.bootstrap_servers == started.bootstrap_servers
            assert "ran already" in found.how
        assert LocalBroker().status() is not None, "who did not start it stopped it"
    assert LocalBroker().status() is None, "who started it did not stop it"
